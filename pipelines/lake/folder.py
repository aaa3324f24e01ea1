"""Refuses a new lake in a folder that holds other files."""

from __future__ import annotations

import pyarrow.fs as pafs

from jbod_model.errors import UsageError
from pipelines.lake.files import lake_filesystem
from pipelines.lake.tables import LEDGER, REQUESTS, TABLES

_NAMED = 3


def check_folder(lake: str) -> None:
    """Raises UsageError if a folder without a ledger holds files that no replay made.

    Names that begin with ``_`` or ``.`` are ignored: jbod and file systems use them.
    """
    fs, root = lake_filesystem(lake)
    info = fs.get_file_info(root)
    if info.type == pafs.FileType.File:
        raise UsageError(f"{lake}: is a file: name a folder with --lake")
    there = [info.base_name for info in fs.get_file_info(pafs.FileSelector(root, allow_not_found=True))]
    ours = {table.name for table in (*TABLES, *REQUESTS)}
    foreign = sorted(name for name in there if name not in ours and name[0] not in "._" and name != "lost+found")
    if foreign and LEDGER.name not in there:
        more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
        raise UsageError(
            f"{lake}: is no lake and not empty: it holds {', '.join(foreign[:_NAMED])}{more}: use another --lake"
        )
