"""The two stages that run on the executors: decode slices, and fold shards. Between them Spark only moves bytes.

Rows between the stages: ``key`` int32 (that of the shard: pipelines.run.stage_options), ``sequence`` int64 (the slice's
place in the batch), ``kind``, ``payload``.

Both stages write Parquet files on the executors and send their names to the driver, which commits them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jbod_model.errors import JbodError
from jbod_model.formats import codec
from jbod_model.formats.batch import read_control
from jbod_model.formats.control_records import ControlRecord
from jbod_model.formats.records import FeatureLevelRecord, Record
from pipelines.fold.broker_shard import BrokerShardState, broker_rows, check_topics
from pipelines.fold.brokers import (
    BROKER_TYPES,
    Change,
    Event,
    Registration,
    dump_brokers,
    fold_brokers,
    load_brokers,
    timeline,
)
from pipelines.fold.events import (
    CLEAR_ELR,
    REMOVE_TOPIC,
    TOPIC,
    Events,
    Part,
    end_of_snapshot,
    join,
)
from pipelines.fold.pack import compress, decompress, pack, unpack
from pipelines.fold.quorum import QUORUM_TYPES, QuorumEvent
from pipelines.fold.rows import Rows, record_rows, rows_of
from pipelines.fold.rules import PROFILES
from pipelines.fold.shard import step
from pipelines.fold.slices import SliceIds, by_shard, events_of, rows_of_events
from pipelines.fold.state import ShardState, empty_state, split
from pipelines.formats.api_keys import KEY_OF
from pipelines.formats.record_names import unknown_kinds
from pipelines.formats.records import CONTROL_BASE, Records
from pipelines.lake.tables import BY_NAME
from pipelines.run.reports import (
    ClosedRows,
    FileWritten,
    MetadataVersion,
    OpenRowsReplaced,
    Refusal,
    Report,
    SliceRead,
    encode,
)
from pipelines.run.stage_options import Job, keys_of
from pipelines.run.staged import read_staged, stage
from pipelines.source.positions import Slice
from pipelines.source.slices import read_slice

STAGE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
# Kinds of rows for the state machine. Those for the driver are reports (pipelines.run.reports).
EVENTS, STAGED, END, BROKERS, FEATURES, TOPICS, QUORUM = (
    "events", "staged", "end", "brokers", "features", "topics", "quorum",
)  # fmt: skip
_OF_EVENTS = (EVENTS, STAGED, END)
FEATURE_LEVEL = KEY_OF[FeatureLevelRecord]
# Closed rows of a shard below this number travel to the driver, which writes one file for all shards.
SMALL = 20_000


Row = tuple[int, int, str, bytes]


def report_row(report: Report, shard: int = -1, sequence: int = -1) -> Row:
    """A report as a row for the driver."""
    return shard, sequence, *encode(report)


def error_row(problem: JbodError) -> Row:
    """An error as a row for the driver, which raises it there."""
    return report_row(Refusal(problem))


def rows_batch(job: Job, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows (at least one) as a batch of STAGE_SCHEMA."""
    # The last key is for rows without a shard, which are for the driver.
    keys = (*keys_of(job.shards + 1), -1)
    shards, *others = zip(*rows, strict=True)
    return pa.record_batch([[keys[shard] for shard in shards], *others], schema=STAGE_SCHEMA)


# -- decode -----------------------------------------------------------------------------------------------------------


def decode_slice(job: Job, sequence: int, piece: Slice) -> Iterator[Row]:
    """Rows of one slice: events for each shard, broker records for all, and the file of its ``records``."""
    from pipelines.lake import files  # not for a question to a log: it loads slowly

    records, kept = read_slice(piece)
    named = SliceIds.of(records)
    rows = record_rows(records, kept, piece.snapshot_offset, named)
    written = files.write(job.lake, "records", rows)
    yield report_row(FileWritten(written), sequence=sequence)
    yield from shard_rows(job, sequence, piece, records, kept, named)


def shard_rows(
    job: Job, sequence: int, piece: Slice, records: Records, kept: np.ndarray, named: SliceIds | None = None
) -> Iterator[Row]:
    """The rows of a slice for the state machine."""
    named = named or SliceIds.of(records)
    yield from _event_rows(job, sequence, *shard_events(job, piece, records, kept, named))
    yield from other_rows(job, sequence, piece, records, kept, named)


def shard_events(
    job: Job, piece: Slice, records: Records, kept: np.ndarray, named: SliceIds
) -> tuple[Events, np.ndarray]:
    """The events of a slice, and the bounds of the shards among them: int64[shards + 1]."""
    rows = rows_of_events(records, kept)
    order, bounds = by_shard(rows, named, job.shards)
    return events_of(records, order, snapshot=piece.snapshot_offset, named=named), bounds


def other_rows(
    job: Job, sequence: int, piece: Slice, records: Records, kept: np.ndarray, named: SliceIds
) -> Iterator[Row]:
    """The rows of a slice for the state machine, without those of its events."""
    snapshot = piece.snapshot_offset
    of_topics = np.flatnonzero(kept & records.known & np.isin(records.types, (TOPIC, REMOVE_TOPIC, CLEAR_ELR)))
    if len(of_topics):
        said = events_of(records, of_topics, snapshot=snapshot, named=named)
        yield job.broker_shard, sequence, TOPICS, said.to_bytes()
    if piece.closes:
        end = end_of_snapshot(piece.snapshot - 1, int(records.headers["timestamp"][-1]) * 1000).to_bytes()
        for shard in range(job.shards + 1):
            yield shard, sequence, END, end
    known = kept & records.known
    of_brokers = _values(records, known & np.isin(records.types, BROKER_TYPES), snapshot, piece.closes)
    if of_brokers is not None:
        for shard in range(job.shards + 1):
            yield shard, sequence, BROKERS, of_brokers
    features = _values(records, known & (records.types == FEATURE_LEVEL), snapshot, False)
    if features is not None:
        yield job.broker_shard, sequence, FEATURES, features
    of_quorum = _values(records, known & np.isin(records.types, QUORUM_TYPES), snapshot, piece.closes)
    if of_quorum is not None:
        yield job.broker_shard, sequence, QUORUM, of_quorum
    yield report_row(_slice_read(records, kept, piece, snapshot), sequence=sequence)


def _event_rows(job: Job, sequence: int, events: Events, bounds: np.ndarray) -> Iterator[Row]:
    """For each shard its events, or the name of the file that holds the events of all shards."""
    staged = stage(job.lake, events, bounds)
    for shard in np.flatnonzero(np.diff(bounds)).tolist():
        if staged is None:
            part = events.take(np.arange(bounds[shard], bounds[shard + 1]))
            yield shard, sequence, EVENTS, part.to_bytes()
        else:
            yield shard, sequence, STAGED, staged.encode()


def _values(records: Records, mask: np.ndarray, snapshot: int | None, closes: bool) -> bytes | None:
    """The raw values of the records in ``mask`` with their offsets and times, None if there are none."""
    rows = np.flatnonzero(mask)
    if not len(rows) and not closes:
        return None
    offsets = records.offsets[rows] if snapshot is None else np.full(len(rows), snapshot, np.int64)
    return packed_values(
        offsets=offsets,
        batches=records.headers["base_offset"][records.batch[rows]] if snapshot is None else offsets,
        types=records.types[rows],
        times=records.headers["timestamp"][records.batch[rows]] * 1000,
        values=[records.value(row) for row in rows.tolist()],
        snapshot=snapshot,
        end_time=int(records.headers["timestamp"][-1]) * 1000 if closes else None,
    )


def packed_values(
    *,
    offsets: np.ndarray,
    batches: np.ndarray,
    types: np.ndarray,
    times: np.ndarray,
    values: Sequence[bytes],
    snapshot: int | None,
    end_time: int | None = None,
) -> bytes:
    """Packs record values with their offsets, batches, types and times. ``end_time``: when the snapshot ends."""
    return pack(
        {
            "offsets": offsets,
            "batches": batches,
            "types": types,
            "times": times,
            "values": np.frombuffer(b"".join(values), np.uint8),
            "ends": np.cumsum([0, *map(len, values)], dtype=np.int64),
            "snapshot": np.array([-1 if snapshot is None else snapshot, end_time is not None], np.int64),
            "end_time": np.array([end_time or 0], np.int64),
        }
    )


def _events_of_values(payload: bytes) -> Iterator[Event]:
    arrays = unpack(payload)
    raw, ends = arrays["values"].tobytes(), arrays["ends"].tolist()
    snapshot, closes = arrays["snapshot"].tolist()
    columns = (arrays[name].tolist() for name in ("offsets", "times", "batches"))
    for row, (offset, time, batch) in enumerate(zip(*columns, strict=True)):
        yield Event(offset, time, batch, snapshot >= 0, codec.decode(raw[ends[row] : ends[row + 1]]).record)
    if closes:
        yield Event(snapshot, int(arrays["end_time"][0]), snapshot, True, None)


def _quorum_events(ordered: list[Row]) -> list[QuorumEvent]:
    """The quorum's events in log order. Those of a rebuild come in two rows: metadata records, control records."""
    found = []
    for _, sequence, kind, payload in ordered:
        if kind == QUORUM:
            arrays = unpack(payload)
            raw, ends = arrays["values"].tobytes(), arrays["ends"].tolist()
            snapshot, closes = arrays["snapshot"].tolist()
            columns = (arrays[name].tolist() for name in ("offsets", "times", "types"))
            for row, (offset, time, number) in enumerate(zip(*columns, strict=True)):
                record = _quorum_record(number, raw[ends[row] : ends[row + 1]])
                found.append((sequence, False, QuorumEvent(offset, time, snapshot >= 0, record)))
            if closes:
                found.append((sequence, True, QuorumEvent(snapshot, int(arrays["end_time"][0]), True, None)))
    return [event for *_, event in sorted(found, key=lambda one: (one[0], one[1], one[2].offset))]


def _quorum_record(number: int, value: bytes) -> Record | ControlRecord:
    return read_control(number - CONTROL_BASE, value) if number >= CONTROL_BASE else codec.decode(value).record


def _slice_read(records: Records, kept: np.ndarray, piece: Slice, snapshot: int | None) -> SliceRead:
    last = records.headers[-1]
    of_log = piece.snapshot < 0
    return SliceRead(
        start=piece.first if of_log else 0,
        end=piece.last if of_log else piece.snapshot,
        snapshot=piece.snapshot,
        dropped=piece.last - piece.first - int(kept.sum()),
        time=int(last["timestamp"]) * 1000,
        epoch=int(last["epoch"]),
        crc=int(last["crc"]),
        unknown=unknown_kinds(records, kept, snapshot),
    )


# -- fold -------------------------------------------------------------------------------------------------------------


def fold_shard(job: Job, shard: int, state: bytes | None, rows: Iterable[Row]) -> tuple[bytes, list[Row]]:
    """Folds one batch of a shard: (next state, rows for the driver). ``rows`` may have any order. Writes its tables."""
    after, tables, out = fold_rows(job, shard, state, rows, keeps_open=True)
    return after, [*_write(job, shard, tables), *out]


def fold_rows(
    job: Job,
    shard: int,
    state: bytes | None,
    rows: Iterable[Row],
    *,
    events: Iterable[tuple[int, Part]] = (),
    keeps_open: bool = False,
    is_last: bool = False,
) -> tuple[bytes, dict[str, Rows], list[Row]]:
    """Folds one batch of a shard: (next state, rows of its tables, other rows for the driver).

    ``events``: events that are not among ``rows``, with the sequence of their slice. ``keeps_open``: a table whose open
    rows do not change may keep them (Rows.keeps_open). ``is_last``: nothing is folded after this batch, so the next
    state is not composed, and is empty.
    """
    # A snapshot ends after the last of its slices.
    ordered = sorted(rows, key=lambda row: (row[1], row[2] == END))
    registrations = tuple(payload for _, _, kind, payload in ordered if kind == BROKERS)
    if shard == job.broker_shard:
        return _fold_broker_shard(job, state, ordered, registrations)
    held, shard_state = _load_shard(job, state)
    folded = _fold_registrations(job.rules.profile, held, registrations)
    parts = [(sequence, False, part) for sequence, part in events]
    parts += [
        (sequence, kind == END, _part(job, shard, kind, payload))
        for _, sequence, kind, payload in ordered
        if kind in _OF_EVENTS
    ]
    happened = join([part for *_, part in sorted(parts, key=lambda one: one[:2])])
    rest = None
    if keeps_open:
        shard_state, rest = split(shard_state, happened, {change.broker_id for change in folded.changes})
    done = step(
        shard_state,
        happened,
        lambda known: timeline(folded.before, folded.changes, known),
        absent_directory=job.rules.absent_directory,
        literal_offline=job.rules.literal_offline,
        rest=rest,
        is_last=is_last,
    )
    if is_last:
        return b"", rows_of(done, job.generation), []
    packed = pack({"brokers": np.frombuffer(folded.after, np.uint8), **done.state.arrays()})
    return compress(packed), rows_of(done, job.generation, rest), []


def _part(job: Job, shard: int, kind: str, payload: bytes) -> Part:
    return Part.of(payload) if kind != STAGED else read_staged(job.lake, payload.decode(), shard)


class _Registrations(NamedTuple):
    """Registrations before a batch, those after it as bytes, and their changes."""

    before: Mapping[int, Registration]
    after: bytes
    changes: Sequence[Change]


@lru_cache(maxsize=4)
def _fold_registrations(profile: str, held: bytes, payloads: tuple[bytes, ...]) -> _Registrations:
    """Folds the broker records of a batch. All shards share them, so they are folded once."""
    before = load_brokers(held)
    events = [event for payload in payloads for event in _events_of_values(payload)]
    after, changes = fold_brokers(before, events, PROFILES[profile])
    return _Registrations(before, dump_brokers(after), changes)


def _load_shard(job: Job, state: bytes | None) -> tuple[bytes, ShardState]:
    if state is None:
        return dump_brokers({}), empty_state(job.rules.reserved_ids)
    arrays = unpack(decompress(state))
    return arrays.pop("brokers").tobytes(), ShardState.of(arrays)


def _fold_broker_shard(
    job: Job, state: bytes | None, ordered: list[Row], registrations: tuple[bytes, ...]
) -> tuple[bytes, dict[str, Rows], list[Row]]:
    brokers = BrokerShardState() if state is None else BrokerShardState.load(decompress(state))
    held = dump_brokers(brokers.brokers)
    changes = _fold_registrations(job.rules.profile, held, registrations).changes
    of_topics = [Part.of(payload) for _, _, kind, payload in ordered if kind in (TOPICS, END)]
    if of_topics:
        brokers.topics = check_topics(brokers.topics, join(of_topics))
    for _, _, kind, payload in ordered:
        if kind == FEATURES:
            for event in _events_of_values(payload):
                brokers.features[event.record.name] = event.record.feature_level  # type: ignore[union-attr]
    level = report_row(MetadataVersion(brokers.metadata_version), job.broker_shard)
    tables = broker_rows(brokers, changes, job.generation) if changes else {}
    quorum = _quorum_events(ordered)
    if quorum:
        tables |= brokers.quorum.follow(quorum)
    return compress(brokers.dump()), tables, [level]


def _write(job: Job, shard: int, tables: dict[str, Rows]) -> list[Row]:
    """Writes a shard's rows: open ones to a new file that replaces the old one, closed ones to a file if many."""
    from pipelines.lake import files

    reports: list[Report] = []
    for name, rows in tables.items():
        if rows.open.num_rows:
            reports.append(FileWritten(files.write(job.lake, name, rows.open, shard=shard)))
        if BY_NAME[name].has_open_rows and not rows.keeps_open:
            reports.append(OpenRowsReplaced(name, shard))
        if rows.closed.num_rows >= SMALL:
            reports.append(FileWritten(files.write(job.lake, name, rows.closed)))
        elif rows.closed.num_rows:
            reports.append(ClosedRows(name, rows.closed))
    return [report_row(report, shard) for report in reports]
