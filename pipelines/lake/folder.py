"""The folder of a lake: refuses a new lake among other files, and removes one that nothing was published to.

The JVM of a first replay starts after ``check_folder``, so this module does not import Delta's library.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.fs as pafs

from jbod_model.errors import UsageError
from pipelines.lake.tables import LEDGER, REQUESTS, TABLES
from pipelines.storage.filesystem import filesystem_of

_NAMED = 3


def check_folder(lake: str) -> None:
    """Raises UsageError if a folder without a ledger holds files that no replay made.

    Names that begin with ``_`` or ``.`` are ignored: jbod and file systems use them.
    """
    from pipelines.storage import objects

    if objects.is_object(lake):
        from pipelines.lake.head import HEAD

        if objects.head(f"{lake}/{HEAD}") is not None:
            return
    fs, root = filesystem_of(lake)
    info = fs.get_file_info(root)
    if info.type == pafs.FileType.File:
        raise UsageError(f"{lake}: is a file: name a folder with --lake")
    there = [info.base_name for info in fs.get_file_info(pafs.FileSelector(root, allow_not_found=True))]
    ours = {table.name for table in (*TABLES, *REQUESTS)}
    foreign = sorted(name for name in there if name not in ours and name[0] not in "._" and name != "lost+found")
    if foreign and LEDGER.name not in there:
        more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
        raise UsageError(
            f"{lake}: is not a lake and is not empty: it holds {', '.join(foreign[:_NAMED])}{more}: use another --lake"
        )


def remove_lake(lake: str, home: str, more: Sequence[str]) -> None:
    """Removes the tables and locks of a lake, and the folders ``more`` of ``home``, where its checkpoints are."""
    from pipelines.lake.head import HEAD
    from pipelines.lake.lock import LOCK, RUN
    from pipelines.storage.objects import is_object

    fs, root = filesystem_of(home)
    for name in more:
        if fs.get_file_info(f"{root}/{name}").type == pafs.FileType.Directory:
            fs.delete_dir(f"{root}/{name}")
    fs, root = filesystem_of(lake)
    if is_object(lake):
        # The locks stay: this run still holds one.
        fs.delete_file(f"{root}/{HEAD}")
        for table in TABLES:
            fs.delete_dir(f"{root}/{table.name}")
        return
    for name in (LOCK, RUN):
        if fs.get_file_info(f"{root}/{name}").type == pafs.FileType.File:
            fs.delete_file(f"{root}/{name}")
    for table in TABLES:
        if fs.get_file_info(f"{root}/{table.name}").type == pafs.FileType.Directory:
            fs.delete_dir(f"{root}/{table.name}")
    if not fs.get_file_info(pafs.FileSelector(root, allow_not_found=True)):
        fs.delete_dir(root)
