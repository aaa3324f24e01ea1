"""Rebuilds the state of every shard from the ``records`` table, to replace a lost or wrong checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.formats.record_names import CONTROL_NAMES
from pipelines.formats.records import Records, decode_values
from pipelines.lake.delta import connect, data_files, read_parquet
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import RECORDS
from pipelines.replay.job import Job
from pipelines.replay.rows import Rows
from pipelines.replay.stages import Row, fold_rows, shard_rows
from pipelines.source.positions import Slice

CHUNK = 1 << 20


@dataclass(frozen=True)
class Chunk:
    """Consecutive data records of the log, or of one snapshot. ``closes``: the snapshot ends with them."""

    records: Records
    snapshot: int
    closes: bool


def states_at(lake: LakeWriter, job: Job, offset: int, *, most: int = CHUNK) -> dict[int, bytes]:
    """Returns the state of each shard after all published records below ``offset``, folded from their values only."""
    return {shard: state for shard, state, _ in folded(lake, job, offset, most=most)}


def folded(
    lake: LakeWriter, job: Job, offset: int, *, most: int = CHUNK, known_again: bool = False
) -> Iterator[tuple[int, bytes, dict[str, Rows]]]:
    """The same, chunk by chunk: (shard, its state after the chunk, the rows that the chunk gave its tables).

    ``known_again``: records count whose type was not known when they were published, if it is now. The tables do not
    say what follows from them until the lake is rebuilt, so a state that goes on from the tables leaves them out.
    """
    # Pass no lake, so nothing is staged: the lake may be read-only, and a parallel run clears staged files.
    job = replace(job, lake="")
    states: dict[int, bytes] = {}
    rows: list[Row] = []
    for number, chunk in enumerate(chunks(lake, offset, most=most, known_again=known_again)):
        n = len(chunk.records)
        piece = Slice(
            location=lake.location,
            path=RECORDS.name,
            start=0,
            end=0,
            first=0,
            last=n,
            next_offset=0,
            snapshot=chunk.snapshot,
            closes=chunk.closes,
        )
        rows += shard_rows(job, number, piece, chunk.records, np.ones(n, np.bool_))
        # A snapshot replaces everything at once, so it is folded in one step.
        if chunk.snapshot >= 0 and not chunk.closes:
            continue
        for shard in sorted({row[0] for row in rows if row[0] >= 0}):
            mine = [row for row in rows if row[0] == shard]
            states[shard], tables, _ = fold_rows(job, shard, states.get(shard), mine)
            yield shard, states[shard], tables
        rows = []


def chunks(lake: LakeWriter, offset: int, *, most: int = CHUNK, known_again: bool = False) -> Iterator[Chunk]:
    """The published records below ``offset`` in log order. Those of a snapshot follow the log's records before it."""
    for part in _batches(lake, offset, most, known_again):
        origin = np.where(part["snapshot"].to_numpy(), part["log_offset"].to_numpy() + 1, -1)
        cuts = [0, *(np.flatnonzero(np.diff(origin)) + 1).tolist(), len(part)]
        for start, end in itertools.pairwise(cuts):
            yield _chunk(part.slice(start, end - start), int(origin[start]))


def _batches(lake: LakeWriter, offset: int, most: int, known_again: bool) -> Iterator[pa.Table]:
    delta = lake.tables[RECORDS.name]
    names = [file["path"] for file in data_files(delta)]
    footer = CONTROL_NAMES[4]
    unread = ", ".join(f"'{name}'" for name in CONTROL_NAMES.values() if name != footer)
    skipped = "UNKNOWN_CONTROL_" if known_again else "UNKNOWN_"
    with connect(lake.location) as connection:
        reader = connection.sql(
            f"""
            SELECT log_offset, snapshot, record_type = '{footer}' AS footer, epoch_ms(append_time) AS time, value
            FROM {read_parquet(lake.location, RECORDS.name, delta, names)}
            WHERE log_offset < {offset} AND record_type NOT IN ({unread}) AND NOT starts_with(record_type, '{skipped}')
            ORDER BY log_offset, snapshot, snapshot_index
            """
        ).to_arrow_reader(most)
        # DuckDB returns batches of at most 120,000 rows, and each chunk costs a pass over the state of every shard.
        held: list[pa.RecordBatch] = []
        for batch in reader:
            held += [batch] if batch.num_rows else []
            if sum(map(len, held)) >= most:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)


def _chunk(rows: pa.Table, snapshot: int) -> Chunk:
    last = rows.slice(len(rows) - 1).to_pylist()[0]
    rows = rows.filter(pc.invert(rows["footer"]))
    values = pa.chunked_array(rows["value"].chunks, rows["value"].type).cast(pa.large_binary()).combine_chunks()
    _, ends, data = values.buffers() if len(rows) else (None, pa.py_buffer(bytes(8)), None)
    records = decode_values(
        np.frombuffer(data or b"", np.uint8),
        np.frombuffer(ends, np.int64, len(rows) + 1, values.offset * 8),
        rows["log_offset"].to_numpy(),
        rows["time"].to_numpy(),
        RECORDS.name,
    )
    # A snapshot ends at the time of its footer, which is not a data record.
    end = np.zeros(1, records.headers.dtype)
    end["timestamp"] = last["time"]
    return Chunk(replace(records, headers=np.concatenate([records.headers, end])), snapshot, last["footer"])
