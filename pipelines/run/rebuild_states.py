"""Rebuilds the state of every shard from the ``records`` table, to replace a lost or wrong checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jbod_model.formats.control_records import (
    CONTROL_TYPE_NAMES,
    CONTROL_TYPE_OF,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    VotersRecord,
)
from pipelines.fold.machine import QUORUM, Row, fold_rows, packed_values
from pipelines.fold.rows import TableRows
from pipelines.formats.records import CONTROL_BASE, Records, decode_values
from pipelines.lake.delta import connect, read_parquet
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import RECORDS
from pipelines.run.micro_batches import micro_batches
from pipelines.run.stage_options import Job
from pipelines.run.stages import shard_rows
from pipelines.source.positions import Slice

_A = TypeVar("_A")
CHUNK = 1 << 20
SNAPSHOT_FOOTER = CONTROL_TYPE_OF[SnapshotFooterRecord]
_QUORUM = {
    CONTROL_TYPE_NAMES[number]: number
    for number in (CONTROL_TYPE_OF[kind] for kind in (LeaderChangeMessage, KRaftVersionRecord, VotersRecord))
}
"""Control records that the quorum follows from: number by name."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive data records of the log, or of one snapshot, and the control records between them that the quorum
    follows from. ``closes``: the snapshot ends with them."""

    records: Records
    control: pa.Table
    snapshot: int
    closes: bool


def states_at(lake: LakeWriter, job: Job, offset: int, *, max_records: int = CHUNK) -> dict[int, bytes]:
    """Returns the state of each shard after all published records below ``offset``, folded from their values only."""
    job = replace(job, generation=None)
    return {shard: state for shard, state, _ in folded(lake, job, offset, max_records=max_records)}


def folded(
    lake: LakeWriter, job: Job, offset: int, *, max_records: int = CHUNK, newly_known: bool = False
) -> Iterator[tuple[int, bytes, dict[str, TableRows]]]:
    """The same, chunk by chunk: (shard, its state after the chunk, the rows that the chunk gave its tables).

    The shards of a chunk are folded in threads, while another one reads the next chunk.

    ``newly_known``: also folds records whose type was unknown when they were published and is known now. The tables
    lack their effects until the lake is rebuilt, so a state that continues the tables leaves them out.
    """
    # Pass no lake, so nothing is staged: the lake may be read-only, and a parallel run clears staged files.
    job = replace(job, lake="")
    states: dict[int, bytes] = {}

    def fold(shard: int, state: bytes | None, rows: list[Row]) -> tuple[bytes, dict[str, TableRows]]:
        after, tables, _ = fold_rows(job, shard, state, rows)
        return after, tables

    with ThreadPoolExecutor(1) as reader:
        plan = _ahead(reader, _plan(chunks(lake, offset, max_records=max_records, newly_known=newly_known)))
        for batch in micro_batches(plan, partial(_rows_of, job), fold, states):
            for shard, tables in batch.shards:
                yield shard, states[shard], tables


def _plan(read: Iterable[Chunk]) -> Iterator[tuple[int, list[Chunk]]]:
    """Micro-batches of chunks, each with its number: a snapshot replaces everything at once, so it is folded in one."""
    chunks: list[Chunk] = []
    for number, chunk in enumerate(read):
        chunks.append(chunk)
        if chunk.snapshot < 0 or chunk.closes:
            yield number, chunks
            chunks = []


def _ahead(reader: Executor, items: Iterator[_A]) -> Iterator[_A]:
    """The items. While one is used, the next one is made."""
    following = reader.submit(next, items, None)
    while (item := following.result()) is not None:
        following = reader.submit(next, items, None)
        yield item


def _rows_of(job: Job, number: int, chunk: Chunk) -> list[Row]:
    n = len(chunk.records)
    piece = Slice(
        log_dir="",
        path=RECORDS.name,
        start=0,
        end=0,
        first=0,
        last=n,
        next_offset=0,
        snapshot=chunk.snapshot,
        closes=chunk.closes,
    )
    return [*shard_rows(job, number, piece, chunk.records, np.ones(n, np.bool_)), *_control_rows(job, number, chunk)]


def chunks(lake: LakeWriter, offset: int, *, max_records: int = CHUNK, newly_known: bool = False) -> Iterator[Chunk]:
    """The published records below ``offset`` in log order. Those of a snapshot follow the log's records before it."""
    for part in _batches(lake, offset, max_records, newly_known):
        origin = np.where(part["snapshot"].to_numpy(), part["log_offset"].to_numpy() + 1, -1)
        cuts = [0, *(np.flatnonzero(np.diff(origin)) + 1).tolist(), len(part)]
        for start, end in itertools.pairwise(cuts):
            yield _chunk(part.slice(start, end - start), int(origin[start]))


def _batches(lake: LakeWriter, offset: int, max_records: int, newly_known: bool) -> Iterator[pa.Table]:
    delta = lake.tables[RECORDS.name]
    footer = CONTROL_TYPE_NAMES[SNAPSHOT_FOOTER]
    read = (footer, *_QUORUM)
    unread = ", ".join(f"'{name}'" for name in CONTROL_TYPE_NAMES.values() if name not in read)
    numbers = " ".join(f"WHEN '{name}' THEN {number}" for name, number in _QUORUM.items())
    skipped = "UNKNOWN_CONTROL_" if newly_known else "UNKNOWN_"
    with connect(lake.path) as connection:
        reader = connection.sql(
            f"""
            SELECT log_offset, snapshot, record_type = '{footer}' AS footer, epoch_ms(append_time) AS time, value,
                batch_offset, CASE record_type {numbers} END AS control
            FROM {read_parquet(lake.path, RECORDS.name, delta)}
            WHERE log_offset < {offset} AND record_type NOT IN ({unread}) AND NOT starts_with(record_type, '{skipped}')
            ORDER BY log_offset, snapshot, snapshot_index
            """
        ).to_arrow_reader(max_records)
        # DuckDB returns batches of at most 120,000 rows, and each chunk costs a pass over the state of every shard.
        held: list[pa.RecordBatch] = []
        for batch in reader:
            held += [batch] if batch.num_rows else []
            if sum(map(len, held)) >= max_records:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)


def _chunk(rows: pa.Table, snapshot: int) -> Chunk:
    last = rows.slice(len(rows) - 1).to_pylist()[0]
    read, of_quorum = pc.invert(rows["footer"]), pc.is_valid(rows["control"])
    control, data = rows.filter(pc.and_(read, of_quorum)), pc.and_(read, pc.invert(of_quorum))
    # A filter copies the values. Usually there is nothing to leave out.
    rows = rows if pc.all(data).as_py() else rows.filter(data)
    values = pa.chunked_array(rows["value"].chunks, rows["value"].type).cast(pa.large_binary()).combine_chunks()
    _, ends, content = values.buffers() if len(rows) else (None, pa.py_buffer(bytes(8)), None)
    records = decode_values(
        np.frombuffer(content or b"", np.uint8),
        np.frombuffer(ends, np.int64, len(rows) + 1, values.offset * 8),
        rows["log_offset"].to_numpy(),
        rows["time"].to_numpy(),
        RECORDS.name,
    )
    # A snapshot ends at the time of its footer, which is not a data record.
    end = np.zeros(1, records.headers.dtype)
    end["timestamp"] = last["time"]
    headers = np.concatenate([records.headers, end])
    headers["base_offset"][: len(records)] = rows["batch_offset"].to_numpy()
    return Chunk(replace(records, headers=headers), control, snapshot, last["footer"])


def _control_rows(job: Job, sequence: int, chunk: Chunk) -> list[Row]:
    """The rows of a chunk's control records for the broker shard."""
    rows = chunk.control
    if not rows.num_rows:
        return []
    snapshot = None if chunk.snapshot < 0 else chunk.snapshot - 1
    payload = packed_values(
        offsets=rows["log_offset"].to_numpy(),
        batches=rows["batch_offset"].to_numpy(),
        types=rows["control"].to_numpy() + CONTROL_BASE,
        times=rows["time"].to_numpy() * 1000,
        values=rows["value"].to_pylist(),
        snapshot=snapshot,
    )
    return [(job.broker_shard, sequence, QUORUM, payload)]
