"""Creates the tables of a lake and removes them, and reads the lake's description of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from jbod_model.errors import JbodError, UsageError, first_line_of
from pipelines.lake import FORMAT_VERSION
from pipelines.lake.delta import delta_at, local_path
from pipelines.lake.foreign import last_own
from pipelines.lake.head import HEAD
from pipelines.lake.lock import LOCK, RUN
from pipelines.lake.tables import CHANGES, LEDGER, REQUESTS, TABLES, Table
from pipelines.lake.uris import LakeUri, commit_name
from pipelines.storage import objects
from pipelines.storage.filesystem import filesystem_of
from pipelines.storage.objects import fault_of_disk, storage_options

_CHANGES = "changes"
APPEND_ONLY = {"delta.appendOnly": "true"}
"""Every engine refuses to delete rows of such a table (Delta's protocol). To merge its files is allowed."""
_NAMED = 3
"""The most foreign files that an error names."""


@dataclass(frozen=True)
class Identity:
    """The cluster and rules of a lake. They are fixed when it is created and compared at every run."""

    cluster_id: str
    profile: str
    ids: str
    shards: int


def described(lake: LakeUri, ledger: DeltaTable | None = None) -> dict[str, Any]:
    """Reads the format and the fields of ``Identity`` from the description of the lake's ledger.

    If another engine replaced the description, the previous one counts. Raises UsageError if there is no lake.
    """
    uri = f"{lake}/{LEDGER.name}"
    try:
        ledger = ledger or delta_at(uri)
        found = _parsed(ledger)
        if found is None:
            found = _parsed(delta_at(uri, last_own(lake, ledger) or 0))
    except (DeltaError, OSError) as problem:
        if fault := fault_of_disk(lake, problem):
            raise fault from None
        what = first_line_of(problem)
        raise UsageError(f"{lake}: no lake there ({what}): make one with jbod replay LOG_DIR") from None
    if found is None:
        raise UsageError(f"{lake}: the description of its ledger, which says what lake it is, is lost")
    return found


def _parsed(ledger: DeltaTable) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(ledger.metadata().description or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) and "format" in found else None


def keeps_changes(description: Mapping[str, Any]) -> bool:
    """Whether a lake with this description has rows in ``changes``."""
    return bool(description.get(_CHANGES, True))


def create_table(uri: str, table: Table, identity: Identity, *, changes: bool = True) -> DeltaTable:
    """Creates an empty table with its comments and constraints. The ledger's description holds the identity.

    ``changes``: whether the lake will have rows in the table ``changes``. Its description and the ledger's say so.
    """
    comment = table.comment
    if table is LEDGER:
        comment = json.dumps({"format": FORMAT_VERSION, **vars(identity), **({} if changes else {_CHANGES: False})})
    if table is CHANGES and not changes:
        comment = "Not kept in this lake: replay.changes was off when it was made."
    try:
        delta = DeltaTable.create(
            uri,
            table.delta_schema,
            partition_by=table.partition_by,
            name=table.name,
            description=comment,
            configuration={"delta.enableDeletionVectors": "false"} | (APPEND_ONLY if table is CHANGES else {}),
            storage_options=storage_options(uri),
        )
        add_checks(delta, table)
    except (DeltaError, OSError) as problem:
        raise fault_of_disk(uri, problem) or UsageError(f"{uri}: cannot be created ({problem})") from None
    return delta


def cannot_be_opened(lake: LakeUri, table: Table, problem: Exception) -> JbodError:
    """Returns the error for a table whose log cannot be read. A run that is killed during creation may leave one."""
    if fault := fault_of_disk(lake, problem):
        return fault
    if nothing_published(lake):
        advice = f"nothing was published into this lake yet: delete {quote(lake)} and run again"
    elif table is LEDGER:
        advice = "restore it, or replay into another --lake"
    else:
        advice = "jbod rebuild recreates the tables from the records"
    return UsageError(f"{lake}/{table.name}: cannot be opened ({first_line_of(problem)}): {advice}")


def nothing_published(lake: LakeUri) -> bool:
    """Whether the ledger, which is created last, is missing or has only its first version."""
    try:
        return delta_at(f"{lake}/{LEDGER.name}").version() == 0
    except TableNotFoundError:
        return True
    except (DeltaError, OSError):
        log = Path(local_path(lake), LEDGER.name, "_delta_log")
        return [path.name for path in log.glob("*.json")] == [commit_name(0)]


def add_checks(delta: DeltaTable, table: Table) -> None:
    """Adds the constraints that a table lacks, one version each."""
    there = delta.metadata().configuration
    for name, expression in table.checks.items():
        if f"delta.constraints.{name}" not in there:
            delta.alter.add_constraint({name: expression})


def check_folder(lake: LakeUri) -> None:
    """Raises UsageError if a folder without a ledger holds files that no replay made.

    Names that begin with ``_`` or ``.`` are ignored: jbod and file systems use them.
    """
    if objects.is_object(lake) and objects.head(f"{lake}/{HEAD}") is not None:
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


def remove_lake(lake: LakeUri, home: str, more: Sequence[str]) -> None:
    """Removes the tables and locks of a lake, and the folders ``more`` of ``home``, where its checkpoints are."""
    fs, root = filesystem_of(home)
    for name in more:
        if fs.get_file_info(f"{root}/{name}").type == pafs.FileType.Directory:
            fs.delete_dir(f"{root}/{name}")
    fs, root = filesystem_of(lake)
    if objects.is_object(lake):
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
