"""Commits a version of a table on S3 by one conditional put, and looks for a newer one by one request.

delta-rs lists a table's log three times for each commit, and reads the commit twice. A listing costs as much as a put,
twelve times as much as a read. Delta's protocol only requires that the file of the version is put if there
is none yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from pipelines.lake.tables import Table
from pipelines.storage import objects

CHECKPOINT_AFTER = 7
"""Commits after which a table's log gets a checkpoint: opening a table reads the commits after the last checkpoint."""
CHECKPOINT_AT_LAST = 100
"""Commits after which it gets one in any case."""
MOST = 60
"""The requests of a publication that touches few tables, with a checkpoint."""
_FOR_TABLE = 5
"""The requests of a table's commit, with one of its one or two data files."""
_FOR_CHECKPOINT = 17
"""The requests of a checkpoint, besides two for each commit since the last one."""


def put_version(
    location: str,
    version: int,
    actions: Sequence[AddAction | RemoveAction],
    *,
    now: int,
    table: Table,
    info: Mapping[str, str],
    transactions: Sequence[Transaction],
) -> bool:
    """Puts the commit of a version of the table at ``location``. Returns False if there is another one already.

    ``now`` in milliseconds since 1970; ``info``: further columns of the commit info.
    """
    from obstore.exceptions import AlreadyExistsError

    commit_info = {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(list(table.partition_by))},
        "engineInfo": "jbod",
        **info,
    }
    lines: list[Mapping[str, Any]] = [{"commitInfo": commit_info}, *map(_line_of, actions)]
    lines += [{"txn": {"appId": one.app_id, "version": one.version, "lastUpdated": now}} for one in transactions]
    content = "\n".join(json.dumps(line) for line in lines).encode()
    commit = _commit_of(location, version)
    try:
        objects.put(commit, content, only="new")
    except AlreadyExistsError:
        # The answer to a put that succeeded may have been lost, and the put repeated.
        return objects.get(commit) == content
    return True


class Checkpoints:
    """Writes the checkpoints of a lake's tables on S3, each with a publication that made few requests itself."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        """The version of each table's newest checkpoint."""

    def write_due(self, location: str, tables: Mapping[str, DeltaTable], *, touched: int) -> None:
        """Writes the checkpoint of the table that has waited longest, of those that leave the requests below MOST.

        ``touched``: the tables that the publication touched.
        """
        spent = 10 + _FOR_TABLE * touched
        ages = {name: delta.version() - self._version(f"{location}/{name}") for name, delta in tables.items()}
        due = {
            name: age
            for name, age in ages.items()
            if (age >= CHECKPOINT_AFTER and spent + _FOR_CHECKPOINT + 2 * age <= MOST) or age >= CHECKPOINT_AT_LAST
        }
        if due:
            name = max(due, key=lambda one: due[one])
            tables[name].create_checkpoint()
            self._last[f"{location}/{name}"] = tables[name].version()

    def _version(self, table: str) -> int:
        if table not in self._last:
            try:
                self._last[table] = int(json.loads(objects.get(f"{table}/_delta_log/_last_checkpoint"))["version"])
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                self._last[table] = 0
        return self._last[table]


def refresh(location: str, delta: DeltaTable) -> bool:
    """Opens the newest version of the table at ``location``. Returns False if it is open already.

    On a local path, where opening costs little, it always returns True.
    """
    if objects.is_object(location) and objects.head(_commit_of(location, delta.version() + 1)) is None:
        return False
    delta.update_incremental()
    return True


def _line_of(action: AddAction | RemoveAction) -> Mapping[str, Any]:
    """An action as Delta's log has it."""
    same = {
        "path": action.path,
        "partitionValues": action.partition_values,
        "size": action.size,
        "dataChange": action.data_change,
    }
    if isinstance(action, AddAction):
        return {"add": {**same, "modificationTime": action.modification_time, "stats": action.stats}}
    return {"remove": {**same, "deletionTimestamp": action.deletion_timestamp, "extendedFileMetadata": True}}


def _commit_of(location: str, version: int) -> str:
    return f"{location}/_delta_log/{version:020d}.json"
