"""One shard of the state machine: its partitions in columns, and one step of it.

A shard holds the topics whose id hashes to it. A step folds a batch of events and the timeline of all brokers into
the next state, and returns the rows of history that closed and those that are open now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from jbod_model.errors import ReplayViolation
from jbod_model.ids import Uuid
from pipelines.formats.kernels import njit
from pipelines.formats.lists import number_ids
from pipelines.formats.partitions import REPLICAS
from pipelines.replay import fold_columns as c
from pipelines.replay.events import CHANGE, CLEAR_ELR, PARTITION, TOPIC, Events, starts_of
from pipelines.replay.fold import fold
from pipelines.replay.fold_columns import Batch, EventColumns, Folded, Lists
from pipelines.replay.offline import Timeline, offline_intervals
from pipelines.replay.open_rows import open_slots, open_state, open_versions
from pipelines.replay.state import Moments, ShardState
from pipelines.replay.step import Step


def step(
    state: ShardState,
    events: Events,
    timeline_of: Any,
    *,
    absent_directory: int,
    literal_offline: bool,
    rest: ShardState | None = None,
    is_last: bool = False,
) -> Step:
    """Folds ``events`` and a broker timeline into ``state``. If ``is_last``, the step's state stays the one before.

    ``rest``: the other partitions of the shard, which the batch does not touch, if ``state`` is only a part of it. The
    step's state contains them (pipelines.replay.touched).

    ``timeline_of(directory_ids)`` returns (Timeline, these ids with those of the brokers appended), as each shard has
    its own numbers of directories. ``absent_directory`` and ``literal_offline`` as in EngineRules. Raises
    ReplayViolation at the first event that breaks a rule.
    """
    given = _given(state, events, timeline_of)
    events = given.events
    parts, alive = _open_parts(state, events, len(given.topics))
    lists = _sources(state, given.events, given.directories)
    folded = _folded(state, given, lists, parts, alive, absent_directory)
    versions, slots = folded.versions[: folded.version_count], folded.slots[: folded.slot_count]
    moments = Moments(
        np.concatenate([state.when_offsets, events.offsets]),
        np.concatenate([state.when_times, events.times]),
        np.concatenate([state.when_snapshot, events.snapshot]),
    )
    intervals, count, held, still = offline_intervals(
        slots, len(state.slot_since), state.held, moments, given.timeline, literal_offline
    )
    done = Step(
        state=state,
        topics=given.topics,
        topic_names=given.names,
        directory_ids=given.directory_ids,
        parts=parts[: folded.partition_count],
        versions=versions,
        version_rows=_ended_and_open(versions, c.V_FROM, c.V_TO, moments.offsets),
        slots=slots,
        slot_rows=_ended_and_open(slots, c.A_FROM, c.A_TO, moments.offsets),
        intervals=intervals[:count],
        moments=moments,
        lists=lists,
        absent_directory=absent_directory,
        old=len(state.part_topic),
        old_slots=len(state.slot_since),
        batches=np.concatenate([np.full(len(state.when_offsets), -1, np.int64), events.batches]),
        timeline=given.timeline,
    )
    if is_last:
        return done
    open_now = open_state(done, held[:still])
    after = open_now if rest is None else rest.join(open_now)
    return replace(done, state=after.without_unused(alive))


class _Given(NamedTuple):
    """The input of a step, in the numbers of the shard.

    ``topic_of`` int32: the topic number of each event; ``directories`` int32: the numbers in the lists of directories.
    """

    events: Events
    topic_of: np.ndarray
    topics: np.ndarray
    names: list[bytes]
    directories: np.ndarray
    directory_ids: np.ndarray
    timeline: Timeline


def _given(state: ShardState, events: Events, timeline_of: Any) -> _Given:
    """Numbers the topics and directories: first those of the state, then new ones."""
    topic_numbers, topics = number_ids(events.topics, state.topics)
    # The last entry is for events that name no topic.
    topic_of = np.append(topic_numbers, np.int32(c.ALL_TOPICS))[events.topic_of]
    names = _topic_names(state, events, topic_of, len(topics))
    events, topic_of = _clear_by_name(events, topic_of, names)
    directory_numbers, directory_ids = number_ids(events.directory_ids, state.directory_ids)
    directories = directory_numbers[events.directories]
    timeline, directory_ids = timeline_of(directory_ids)
    return _Given(events, topic_of, topics, names, directories, directory_ids, timeline)


def _open_parts(state: ShardState, events: Events, topics: int) -> tuple[np.ndarray, np.ndarray]:
    """The partitions of the state, with room for those of the batch; and which of the ``topics`` exist now."""
    old = len(state.part_topic)
    parts = np.empty((old + int(np.count_nonzero(events.kinds == PARTITION)), c.PARTITION_COLUMNS), np.int32)
    parts[:old, c.P_TOPIC], parts[:old, c.P_NUMBER] = state.part_topic, state.part_number
    parts[:old, c.P_SLOTS] = np.maximum(state.int_sizes[REPLICAS], 0)
    alive = np.zeros(topics, np.bool_)
    alive[: len(state.topics)] = True
    return parts, alive


def _folded(
    state: ShardState, given: _Given, lists: Lists, parts: np.ndarray, alive: np.ndarray, absent_directory: int
) -> Folded:
    """Folds the events; updates ``parts`` and ``alive``. Raises ReplayViolation."""
    events, old = given.events, len(state.part_topic)
    versions = np.empty((old + len(events), c.VERSION_COLUMNS), np.int32)
    open_versions(state, versions)
    columns = EventColumns(events.kinds, events.snapshot, given.topic_of, events.partitions, events.scalars)
    batch = Batch(old, absent_directory, len(state.when_offsets), columns, lists)
    folded = fold(batch, parts, alive, versions, open_slots(state, parts[:old, c.P_SLOTS], absent_directory))
    if folded.status != c.FINE:
        raise _violation(events, folded.event, folded.status)
    return folded


def _topic_names(state: ShardState, events: Events, numbers: np.ndarray, topics: int) -> list[bytes]:
    """Name of every topic number, in UTF-8. The last TopicRecord of an id wins."""
    raw = state.names.tobytes()
    ends = state.name_ends.tolist()
    names = [raw[ends[i] : ends[i + 1]] for i in range(len(state.topics))]
    names += [b""] * (topics - len(names))
    added = np.flatnonzero(events.kinds == TOPIC)
    raw = events.names.tobytes()
    for row, number in zip(added.tolist(), numbers[added].tolist(), strict=True):
        names[number] = raw[events.name_ends[row] : events.name_ends[row + 1]]
    return names


def _clear_by_name(events: Events, numbers: np.ndarray, names: list[bytes]) -> tuple[Events, np.ndarray]:
    """Replaces a ClearElrRecord by an event for each topic of this shard that it names."""
    rows = np.flatnonzero(events.kinds == CLEAR_ELR)
    if not len(rows):
        return events, numbers
    kept = np.flatnonzero(events.kinds != CLEAR_ELR)
    order, topics = [kept], [numbers[kept]]
    for row in rows.tolist():
        name = events.name(row).encode()
        hits = [c.ALL_TOPICS] if not name else [number for number, known in enumerate(names) if known == name]
        order.append(np.full(len(hits), row, np.int64))
        topics.append(np.array(hits, np.int32))
    rows = np.concatenate(order)
    in_log_order = np.argsort(rows, kind="stable")
    return events.take(rows[in_log_order]), np.concatenate(topics)[in_log_order]


def _sources(state: ShardState, events: Events, directories: np.ndarray) -> Lists:
    """The lists of the state and of the events as one set of source rows. Those of the state come first."""
    shift = np.int32(len(state.int_values))
    directory_shift = np.int32(len(state.directories))
    return Lists(
        np.concatenate([state.int_values, events.int_values]),
        np.concatenate([starts_of(state.int_sizes), events.int_starts + shift], axis=1),
        np.concatenate([state.int_sizes, events.int_sizes], axis=1),
        np.concatenate([state.directories, directories]),
        np.concatenate([starts_of(state.directory_sizes), events.directory_starts + directory_shift]),
        np.concatenate([state.directory_sizes, events.directory_sizes]),
    )


def _violation(events: Events, row: int, status: int) -> ReplayViolation:
    """Returns the error for an event that breaks a rule, with its offset (R-REPLAY-1)."""
    topic = Uuid.from_bytes(events.topic_bytes(row))
    what = {PARTITION: "PartitionRecord", CHANGE: "PartitionChangeRecord", TOPIC: "TopicRecord"}.get(
        int(events.kinds[row]), "RemoveTopicRecord"
    )
    where = f" partition {int(events.partitions[row])}" if events.kinds[row] in (PARTITION, CHANGE) else ""
    return ReplayViolation(int(events.offsets[row]), f"{what} of topic {topic}{where} {c.PROBLEMS[status]}")


@njit(cache=True, nogil=True)
def _split(table: Any, begin: int, end: int, offsets: Any, ended: Any, still: Any) -> Any:
    closed, left = np.int64(0), np.int64(0)
    for i in range(len(table)):
        to = table[i, end]
        # Branch-free: the branch would be unpredictable.
        ended[closed] = still[left] = i
        left += np.int64(to == c.OPEN)
        closed += np.int64(to != c.OPEN and offsets[max(to, 0)] != offsets[table[i, begin]])
    return closed, left


def _ended_and_open(table: np.ndarray, begin: int, end: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ended, still = np.empty(len(table) + 1, np.intp), np.empty(len(table) + 1, np.intp)
    closed, left = _split(table, begin, end, offsets, ended, still)
    return ended[:closed], still[:left]
