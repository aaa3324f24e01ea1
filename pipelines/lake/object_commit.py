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

from pipelines.lake.object_log import ObjectTable
from pipelines.lake.tables import Table
from pipelines.lake.uris import commit_path
from pipelines.storage import objects

CHECKPOINT_AFTER = 10
"""Commits after which a table's log gets a checkpoint: the head of the lake holds the commits after it."""


def put_version(
    location: str,
    version: int,
    actions: Sequence[AddAction | RemoveAction],
    *,
    now: int,
    table: Table,
    info: Mapping[str, str],
    transactions: Sequence[Transaction],
) -> bytes | None:
    """Puts the commit of a version of the table at ``location``, and returns it. None if there is another one already.

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
    commit = commit_path(location, version)
    try:
        objects.put(commit, content, only="new")
    except AlreadyExistsError:
        # The answer to a put that succeeded may have been lost, and the put repeated.
        return content if objects.get(commit) == content else None
    return content


def write_due_checkpoint(tables: Mapping[str, DeltaTable]) -> None:
    """Writes the checkpoint of the table that has waited longest, if one is due: two requests."""
    ages = {name: delta.version() - delta.log.checkpoint for name, delta in _on_s3(tables)}
    name = max(ages, key=lambda one: ages[one], default=None)
    if name is not None and ages[name] >= CHECKPOINT_AFTER:
        tables[name].create_checkpoint()


def _on_s3(tables: Mapping[str, DeltaTable]) -> list[tuple[str, ObjectTable]]:
    return [(name, delta) for name, delta in tables.items() if isinstance(delta, ObjectTable)]


def refresh(location: str, delta: DeltaTable) -> bool:
    """Opens the newest version of the table at ``location``. Returns False if it is open already.

    On a local path, where opening costs little, it always returns True.
    """
    if isinstance(delta, ObjectTable):
        before = delta.version()
        delta.update_incremental()
        return bool(delta.version() != before)
    if objects.is_object(location) and objects.head(commit_path(location, delta.version() + 1)) is None:
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
