"""History that changed: after an election the end of a log may be cut off and rewritten, even if it was read before.

``reconcile`` compares lake and log by offset, epoch and checksum. If they differ, it rolls the lake back to the
last offset that they share (pipelines.lake.restore), and pipelines.run.rebuild_states rebuilds the state up to there.
Raft's log matching keeps the comparison short: a batch of the same offset and epoch means the same log before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jbod_model.errors import UsageError
from pipelines.fold.broker_shard import BrokerShardState
from pipelines.fold.events import shards_of
from pipelines.fold.pack import decompress
from pipelines.fold.rows import record_rows
from pipelines.lake.delta import connect, read_parquet
from pipelines.lake.publish import LakeWriter
from pipelines.lake.restore import Cut, take_back
from pipelines.lake.tables import LEDGER, RECORDS
from pipelines.run.rebuild_states import states_at
from pipelines.run.seed import OF_REQUESTS, discard_checkpoint, take_seed, write_seed
from pipelines.run.stage_options import Job
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from pipelines.source.slices import read_slice

_COMPARED = ("log_offset", "epoch", "append_time", "batch_offset", "value")


@dataclass(frozen=True)
class RolledBack:
    """Offsets ``[offset, before)`` were published and then rewritten in the log."""

    offset: int
    before: int

    def __str__(self) -> str:
        return (
            f"history changed: the log no longer has what was published as offsets {self.offset} to {self.before - 1}; "
            f"the lake is rolled back to offset {self.offset} and continues from there"
        )


def parting(lake: LakeWriter, planner: Planner) -> int:
    """Returns the offset up to which lake and log are the same: the lake's end if nothing changed.

    ``planner`` must be new. Raises MalformedLog if the log is damaged before the lake's end.
    """
    newest = lake.ledger
    if newest is None:
        return -1
    planner.refresh(Position(lake.end_offset, base=lake.end_offset - 1))
    planner.check(lake.end_offset)
    first = planner.first_offset()
    if first >= lake.end_offset or first < 0:
        return _by_epoch_alone(lake, planner)
    if newest["from_snapshot"] == lake.end_offset > planner.scan.next_offset:
        return lake.end_offset  # the log ends before the snapshot that the lake went on with (R-LOG-4)
    if _is_in_log(newest, planner):
        return lake.end_offset
    return _last_common(lake, planner, first)


def _by_epoch_alone(lake: LakeWriter, planner: Planner) -> int:
    """For a log that holds no batch of the lake any more. Only a newer epoch in the lake than in the log is proof."""
    later = [snapshot.epoch for snapshot in planner.snapshots if snapshot.end_offset >= lake.end_offset]
    epochs = later + planner.scan.headers()["epoch"][:1].tolist()
    if not epochs or lake.ledger is None or lake.ledger["epoch"] <= min(epochs):
        return lake.end_offset
    return _outside_transactions(lake, _first_batch(lake, f"epoch > {min(epochs)}"))


def _last_common(lake: LakeWriter, planner: Planner, first: int) -> int:
    whole = _scanned(planner, first)
    whole.check(lake.end_offset)
    known = sorted([*_ledger_rows(lake), *_snapshots(lake)], key=lambda row: -row["end_offset"])
    shared = next((row["end_offset"] for row in known if _is_in_log(row, whole)), first)
    offset = max(_first_difference(lake, whole, shared), shared)
    if offset <= first:
        # Records below the log's beginning cannot be compared. They are kept, except the batch that the new log does
        # not continue: then a snapshot sets the present state.
        offset = 0 if first == 0 else _last_batch_below(lake, first)
    return _outside_transactions(lake, offset)


def _is_in_log(row: dict[str, Any], planner: Planner) -> bool:
    """Whether the log has the batch that a publication ended with."""
    there = planner.scan.position(row["end_offset"], -1)
    if there.base < 0:
        return False
    # A snapshot's fingerprint is not that of a batch, but its epoch is that of the last record it contains.
    if row["from_snapshot"] == row["end_offset"] or row["fingerprint"] < 0:
        return bool(there.epoch == row["epoch"] and planner.scan.next_offset >= row["end_offset"])
    return (there.epoch, there.crc) == (row["epoch"], row["fingerprint"])


def _first_difference(lake: LakeWriter, planner: Planner, shared: int) -> int:
    """Base offset of the first batch, from ``shared`` on, that differs between lake and log."""
    mine = _lake_rows(lake, shared)
    at = 0
    for rows in _log_rows(planner, shared, lake.end_offset):
        known = mine.slice(at, rows.num_rows)
        if known.num_rows == rows.num_rows and all(known[name].equals(rows[name]) for name in _COMPARED):
            at += rows.num_rows
            continue
        differs = next(
            (i for i, (a, b) in enumerate(zip(known.to_pylist(), rows.to_pylist(), strict=False)) if a != b),
            min(known.num_rows, rows.num_rows),
        )
        sides = [side["batch_offset"][differs].as_py() for side in (known, rows) if differs < side.num_rows]
        return int(min(sides))
    if at == mine.num_rows:
        # Only an aborted transaction differs, which left no row: everything after ``shared`` is read again.
        return shared
    return lake.end_offset if _is_only_shorter(lake, planner) else int(mine["batch_offset"][at].as_py())


def _is_only_shorter(lake: LakeWriter, planner: Planner) -> bool:
    """Whether a log that ends before the lake, and has no row that differs, is a prefix of the lake's log.

    The log's last batch may be in an open transaction and have no row. Then its epoch decides.
    """
    next_offset = planner.scan.next_offset
    last = planner.scan.position(next_offset, -1)
    condition = f"NOT snapshot AND log_offset >= {last.base} AND log_offset < {next_offset} AND epoch <> {last.epoch}"
    return next_offset < lake.end_offset and not _first(lake, f"count(*) FROM {{records}} WHERE {condition}")


def _log_rows(planner: Planner, start: int, end: int) -> Iterator[pa.Table]:
    """The rows of ``records`` for the log between two offsets, one slice at a time."""
    last = planner.scan.position(min(planner.end(), end), -1)
    for piece in planner.slices(Position(start), last):
        records, kept = read_slice(piece, keep_unknown=True)
        yield record_rows(records, kept, None).select(_COMPARED).cast(_compared_schema())


def _records(planner: Planner, start: Position, end: Position) -> pa.Table:
    """The rows of all records between two positions, also those of open and aborted transactions."""
    parts = [read_slice(piece, keep_unknown=True)[0] for piece in planner.slices(start, end)]
    rows = [record_rows(records, np.ones(len(records), np.bool_), None) for records in parts]
    table = pa.concat_tables([part.select(_COMPARED).cast(_compared_schema()) for part in rows])
    return table.filter(pc.field("log_offset") >= start.offset)


def _compared_schema() -> pa.Schema:
    return pa.schema([pa.field(name, RECORDS.schema.field(name).type) for name in _COMPARED])


def _lake_rows(lake: LakeWriter, start: int) -> pa.Table:
    wanted = f"SELECT {', '.join(_COMPARED)} FROM {{records}} WHERE NOT snapshot AND log_offset >= {start}"
    return _query(lake, f"{wanted} ORDER BY log_offset").cast(_compared_schema())


def _first_batch(lake: LakeWriter, condition: str) -> int:
    """Base offset of the first batch with a record that meets ``condition``, the lake's end if there is none."""
    return _first(lake, f"min(batch_offset) FROM {{records}} WHERE NOT snapshot AND {condition}", lake.end_offset)


def _last_batch_below(lake: LakeWriter, offset: int) -> int:
    return _first(lake, f"max(batch_offset) FROM {{records}} WHERE NOT snapshot AND log_offset < {offset}")


def _scanned(planner: Planner, first: int) -> Planner:
    """Returns a planner of the same log that has scanned it from an offset on."""
    fresh = Planner(planner.log)
    fresh.refresh(Position(first))
    return fresh


def _outside_transactions(lake: LakeWriter, offset: int) -> int:
    """Returns ``offset``, or the begin of the transaction around it."""
    marker = "ends_with(record_type, '_TRANSACTION_RECORD')"
    markers = _query(
        lake,
        f"SELECT log_offset, record_type FROM {{records}} WHERE NOT snapshot AND log_offset < {offset} AND {marker} "
        "ORDER BY log_offset DESC LIMIT 1",
    ).to_pylist()
    return markers[0]["log_offset"] if markers and markers[0]["record_type"].startswith("BEGIN") else offset


def _query(lake: LakeWriter, sql: str) -> pa.Table:
    delta = lake.tables[RECORDS.name]
    with connect(lake.path) as connection:
        records = read_parquet(lake.path, RECORDS.name, delta)
        return connection.sql(sql.format(records=records)).to_arrow_table()


def _first(lake: LakeWriter, selected: str, otherwise: int = 0) -> int:
    """The number that a query selects, ``otherwise`` for null."""
    value = _query(lake, f"SELECT {selected}").column(0)[0].as_py()
    return otherwise if value is None else int(value)


def _ledger_rows(lake: LakeWriter) -> list[dict[str, Any]]:
    """Publications of records."""
    rows = lake.tables[LEDGER.name].to_pyarrow_table().to_pylist()
    return [row for row in rows if row["start_offset"] < row["end_offset"]]


def _snapshots(lake: LakeWriter) -> list[dict[str, Any]]:
    """The snapshots that were read, in the columns of publications."""
    wanted = "log_offset + 1 AS end_offset, log_offset + 1 AS from_snapshot, epoch"
    snapshots: list[dict[str, Any]] = _query(
        lake, f"SELECT DISTINCT {wanted} FROM {{records}} WHERE snapshot"
    ).to_pylist()
    return snapshots


def reconcile(
    lake: LakeWriter, job: Job, planner: Planner, *, has_checkpoint: bool, replace: bool = False
) -> RolledBack | None:
    """Removes from the lake what the log no longer has, and makes the checkpoint fit the lake.

    Raises UsageError for a log that has nothing in common with the lake, unless ``replace`` permits it to replace the
    lake's history. If a run dies in this function, readers see either the old tables or the new ones, and any
    checkpoint fits one of them. The next run completes the work.
    """
    if lake.ledger is None:
        _forget_checkpoints(lake)
        return None
    before = lake.end_offset
    offset = parting(lake, planner)
    if offset < before:
        if offset <= _begins(lake):
            offset = 0
        other = another_log(lake, planner)
        if other:
            if not replace:
                raise UsageError(other)
            offset = 0
        states = states_at(lake, job, offset)
        brokers = states.get(job.broker_shard)
        level = -1 if brokers is None else BrokerShardState.load(decompress(brokers)).metadata_version
        whole = _scanned(planner, planner.first_offset())
        there = whole.scan.position(offset, -1)
        known = offset > whole.first_offset() and there.base >= 0
        epoch, crc = (there.epoch, there.crc) if known else (_epoch_before(lake, offset), -1)
        discard_checkpoint(lake.home)
        take_back(lake, Cut(offset, epoch, crc, level), shards_of)
    else:
        end = max(planner.scan.next_offset, *(snapshot.end_offset for snapshot in planner.snapshots), 0)
        lake.mark_log_end(end if end < before else None)
        if has_checkpoint:
            return None
        states = states_at(lake, job, before)
    if lake.ledger is not None:
        write_seed(lake.home, states, _position(lake, planner))
        take_seed(lake.home)
    else:
        _forget_checkpoints(lake)
    return RolledBack(offset, before) if offset < before else None


def another_log(lake: LakeWriter, planner: Planner) -> str:
    """Returns why a log cannot be the lake's log, empty if it may be (R-READ-2).

    In the offsets that both have, another log holds none of the lake's batches, and it begins there or has no newer
    epoch. An election replaces the end of a log by batches of a newer epoch, but never the whole log.
    """
    first = planner.first_offset()
    whole = _scanned(planner, first)
    if any(_is_in_log(row, whole) for row in (*_ledger_rows(lake), *_snapshots(lake))):
        return ""
    mine = _lake_rows(lake, first)
    at = int(mine["log_offset"][0].as_py()) if mine.num_rows else whole.scan.next_offset
    if at >= whole.scan.next_offset:
        return ""
    there = whole.scan.position(at + 1, -1)
    theirs = _records(whole, Position(at), there).slice(0, 1)
    if mine.slice(0, 1).equals(theirs):
        return ""
    begins, epoch = _begins(lake), int(mine["epoch"][0].as_py())
    if at > begins and there.epoch > epoch:
        return ""
    return (
        f"{planner.log.log_dir}: is not the log that {lake.path} was made of: they have offsets in common and "
        f"differ from the first of them, {at}, where the log has epoch {there.epoch} and the lake {epoch} (log: "
        f"offsets {first} to {whole.scan.next_offset - 1}; lake: {begins} to {lake.end_offset - 1}): use another "
        "--lake, or --replace-history to give up what this one has"
    )


def _forget_checkpoints(lake: LakeWriter) -> None:
    """Removes the checkpoints of a lake without a publication: the tables hold nothing that they have read."""
    discard_checkpoint(lake.home)
    discard_checkpoint(lake.home, OF_REQUESTS)


def _begins(lake: LakeWriter) -> int:
    """The offset of the lake's first record."""
    return _first(lake, "min(log_offset) FROM {records}")


def _epoch_before(lake: LakeWriter, offset: int) -> int:
    return _first(lake, f"arg_max(epoch, log_offset) FROM {{records}} WHERE log_offset < {offset}")


def _position(lake: LakeWriter, planner: Planner) -> Position:
    """The position at the lake's end, with the fingerprint of the log's batch before it if the log still has it."""
    epoch, crc = (int((lake.ledger or {})[name]) for name in ("epoch", "fingerprint"))
    if planner.first_offset() >= lake.end_offset:
        return Position(lake.end_offset, epoch=epoch)
    whole = _scanned(planner, lake.end_offset - 1)
    if whole.scan.next_offset >= lake.end_offset:
        return whole.scan.position(lake.end_offset, -1)
    if (lake.ledger or {})["from_snapshot"] == lake.end_offset:
        return Position(lake.end_offset, epoch=epoch)
    return Position(lake.end_offset, _last_batch_below(lake, lake.end_offset), epoch, crc)
