"""The state machine: the rows of one micro-batch for a shard, folded into its state.

A shard holds partitions. The last one, the broker shard, holds brokers, topics, features and the quorum. A row is
``(shard, sequence, kind, payload)``: ``sequence`` is the place of its slice in the micro-batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from jbod_model.formats import codec
from jbod_model.formats.batch import read_control
from jbod_model.formats.control_records import ControlRecord
from jbod_model.formats.records import Record
from jbod_model.replay.registrations import BrokerRegistration
from pipelines.fold.broker_shard import BrokerShardState, broker_rows, check_topics
from pipelines.fold.brokers import (
    BrokerChange,
    BrokerEvent,
    brokers_of,
    dump_brokers,
    fold_brokers,
    timeline,
)
from pipelines.fold.events import Part, join
from pipelines.fold.pack import compress, decompress, pack, unpack
from pipelines.fold.rows import TableRows, rows_of
from pipelines.fold.rules import PROFILES, EngineRules
from pipelines.fold.shard import step
from pipelines.fold.state import ShardState, empty_state, split
from pipelines.formats.records import CONTROL_BASE

EVENTS, END, BROKERS, FEATURES, TOPICS, QUORUM = ("events", "end", "brokers", "features", "topics", "quorum")
"""The kinds of rows."""
Row = tuple[int, int, str, bytes]


class Shards(Protocol):
    """What the fold depends on: the number of the broker shard, the rules, and the generation of ``changes``."""

    @property
    def broker_shard(self) -> int:
        """Number of the broker shard."""

    @property
    def rules(self) -> EngineRules:
        """How the log is replayed."""

    @property
    def generation(self) -> int | None:
        """The generation of rows of ``changes`` (R-EVENT-8). None: no such rows are written."""


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


def _events_of_values(payload: bytes) -> Iterator[BrokerEvent]:
    arrays = unpack(payload)
    raw, ends = arrays["values"].tobytes(), arrays["ends"].tolist()
    snapshot, closes = arrays["snapshot"].tolist()
    columns = (arrays[name].tolist() for name in ("offsets", "times", "batches", "types"))
    for row, (offset, time, batch, number) in enumerate(zip(*columns, strict=True)):
        yield BrokerEvent(offset, time, batch, snapshot >= 0, _record(number, raw[ends[row] : ends[row + 1]]))
    if closes:
        yield BrokerEvent(snapshot, int(arrays["end_time"][0]), snapshot, True, None)


def _quorum_events(ordered: list[Row]) -> list[BrokerEvent]:
    """The quorum's events in log order. Those of a rebuild come in two rows: metadata records, control records."""
    events = [
        (sequence, event.record is None, event)
        for _, sequence, kind, payload in ordered
        if kind == QUORUM
        for event in _events_of_values(payload)
    ]
    return [event for *_, event in sorted(events, key=lambda triple: (triple[0], triple[1], triple[2].offset))]


def _record(number: int, value: bytes) -> Record | ControlRecord:
    return read_control(number - CONTROL_BASE, value) if number >= CONTROL_BASE else codec.decode(value).record


def fold_rows(
    job: Shards,
    shard: int,
    state: bytes | None,
    rows: Iterable[Row],
    *,
    events: Iterable[tuple[int, Part]] = (),
    keeps_open: bool = False,
    is_last: bool = False,
) -> tuple[bytes, dict[str, TableRows], int | None]:
    """Folds one batch of a shard: (next state, rows of its tables, ``metadata.version`` if the shard knows it).

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
        (sequence, kind == END, Part.of(payload)) for _, sequence, kind, payload in ordered if kind in (EVENTS, END)
    ]
    happened = join([part for *_, part in sorted(parts, key=lambda slice_part: slice_part[:2])])
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
        return b"", rows_of(done, job.generation), None
    packed = pack({"brokers": np.frombuffer(folded.after, np.uint8), **done.state.arrays()})
    return compress(packed), rows_of(done, job.generation, rest), None


class _Registrations(NamedTuple):
    """Registrations before a batch, those after it as bytes, and their changes."""

    before: Mapping[int, BrokerRegistration]
    after: bytes
    changes: Sequence[BrokerChange]


@lru_cache(maxsize=4)
def _fold_registrations(profile: str, held: bytes, payloads: tuple[bytes, ...]) -> _Registrations:
    """Folds the broker records of a batch. All shards share them, so they are folded once."""
    before = brokers_of(json.loads(held))
    events = [event for payload in payloads for event in _events_of_values(payload)]
    after, changes = fold_brokers(before, events, PROFILES[profile])
    return _Registrations(before, dump_brokers(after), changes)


def _load_shard(job: Shards, state: bytes | None) -> tuple[bytes, ShardState]:
    if state is None:
        return dump_brokers({}), empty_state(job.rules.reserved_ids)
    arrays = unpack(decompress(state))
    return arrays.pop("brokers").tobytes(), ShardState.of(arrays)


def _fold_broker_shard(
    job: Shards, state: bytes | None, ordered: list[Row], registrations: tuple[bytes, ...]
) -> tuple[bytes, dict[str, TableRows], int | None]:
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
    tables = broker_rows(brokers, changes, job.generation) if changes else {}
    quorum = _quorum_events(ordered)
    if quorum:
        tables |= brokers.quorum.follow(quorum)
    return compress(brokers.dump()), tables, brokers.metadata_version
