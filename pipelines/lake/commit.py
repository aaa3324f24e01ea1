"""Commits one version of a table, with files added and removed, only on top of the version that was read before."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from jbod_model.errors import JbodError, Retriable
from pipelines.lake.delta import delta_at
from pipelines.lake.files import DataFile, partition_values
from pipelines.lake.foreign import commit_info
from pipelines.lake.lock import check_held
from pipelines.lake.tables import OPEN_SHARD, Table
from pipelines.lake.uris import LakeUri
from pipelines.storage.objects import fault_of_disk, is_object

_SHARD = f"partition.{OPEN_SHARD}"


class LakeConflict(JbodError):
    """Another run or engine wrote to the lake, and its changes conflict with this run."""


class Overtaken(LakeConflict, Retriable):
    """Another writer committed between reading a table and committing to it. Read the table again and retry."""


@dataclass(frozen=True)
class LiveFile:
    """A file of a table's version. ``shard``: the shard of its open rows, -1 for closed rows."""

    path: str
    size: int
    shard: int
    statistics: Mapping[str, Any]
    """The statistics by delta-rs' names, such as ``max.to_offset``. An unknown one is missing or None."""


def live_files(delta: DeltaTable, shards: Iterable[int] | None = None) -> list[LiveFile]:
    """The files of a table's version: those of ``shards``, or of all partitions if it is None."""
    actions = pa.table(delta.get_add_actions(flatten=True))
    partitioned = _SHARD in actions.column_names
    if shards is not None:
        wanted = pa.array([*shards], pa.int32())
        if not partitioned or not len(wanted):
            return []
        actions = actions.filter(pc.is_in(actions[_SHARD].cast(pa.int32()), wanted))
    found = []
    for row in actions.to_pylist():
        shard = row.get(_SHARD)
        found.append(LiveFile(row["path"], row["size_bytes"], -1 if shard is None else int(shard), row))
    return found


def commit_files(
    lake: LakeUri,
    table: Table,
    delta: DeltaTable,
    added: Sequence[DataFile],
    gone: Sequence[LiveFile],
    *,
    marks: Mapping[str, str],
    changes: bool = True,
    transactions: Sequence[Transaction] = (),
) -> None:
    """Commits the version after the one at which ``delta`` is open, and does not open it. ``changes``: rows change.

    Raises Overtaken if that version exists already, and LakeConflict if Delta refuses the commit for another reason.
    """
    check_held(lake)
    now = int(time.time() * 1000)
    where = f"{lake}/{table.name}"
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, file.partition_values, file.modified or now, changes, file.stats)
        for file in added
    ]
    actions += [
        RemoveAction(file.path, changes, now, file.size, partition_values(table.name, file.shard)) for file in gone
    ]
    properties = CommitProperties(commit_info(marks), max_commit_retries=0, app_transactions=list(transactions))
    # On S3 the writer of the lake decides about checkpoints, and ``jbod optimize`` deletes old commits.
    hooks = PostCommitHookProperties(False, False) if is_object(lake) else None
    try:
        delta.create_write_transaction(
            actions,
            "append",
            table.delta_schema,
            partition_by=table.partition_by,
            commit_properties=properties,
            post_commithook_properties=hooks,
        )
    except DeltaError as problem:
        disk = fault_of_disk(lake, problem)
        if disk is not None:
            raise disk from None
        if delta_at(where).version() != delta.version():
            raise Overtaken(f"{where}: something else wrote at the same time: run again") from None
        raise LakeConflict(f"{where}: cannot be written to ({problem})") from None
