"""One shard of the state machine: its partitions in columns, and one step of it.

A shard holds the topics whose id hashes to it. A step folds a batch of events and the timeline of all brokers into
the next state, and returns the rows of history that closed and those that are open now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jbod_model.errors import ReplayViolation
from jbod_model.ids import Uuid
from pipelines.fold import tables as c
from pipelines.fold.events import CHANGE, CLEAR_ELR, PARTITION, TOPIC, Events, starts_of
from pipelines.fold.offline import H_SLOT, Timeline, offline_intervals
from pipelines.fold.partitions import fold, place_of, same_list, size_of
from pipelines.fold.state import Moments, ShardState
from pipelines.fold.tables import EventColumns, Folded, FoldInput, Lists, ended_and_open
from pipelines.formats.kernels import columns_of, helper, njit, number_ids, take_lists, zeros
from pipelines.formats.partitions import DIRECTORIES, ELR, INT_LISTS, ISR, LEADER, RECOVERY, REPLICAS


def open_versions(state: ShardState, versions: np.ndarray) -> None:
    """Writes the versions that are open in ``state`` to the first rows, each with references to its own lists."""
    old = len(state.part_topic)
    rows = np.arange(old)
    versions[:old, c.V_PARTITION] = rows
    versions[:old, c.V_FROM] = state.since
    versions[:old, c.V_TO] = c.OPEN
    given = np.vstack([state.int_sizes, state.directory_sizes]).T >= 0
    versions[:old, c.V_LISTS : c.V_SCALARS] = np.where(given, rows[:, None], c.EMPTY)
    versions[:old, c.V_LISTS + DIRECTORIES][state.directory_sizes < 0] = c.ABSENT
    versions[:old, c.V_SCALARS : c.V_LOSS] = state.scalars
    versions[:old, c.V_LOSS] = state.may_follow_loss


def open_slots(state: ShardState, sizes: np.ndarray, absent_directory: int) -> np.ndarray:
    """A row for each replica of each partition (``sizes`` per partition). Replicas are the first column of lists."""
    count = len(state.slot_since)
    rows = np.arange(len(sizes), dtype=np.int32)
    given = np.where(state.directory_sizes >= 0, rows, np.int32(-1))
    numbers, starts = state.directories, starts_of(state.directory_sizes)
    slots = np.empty((count, 7), np.int32)
    slots[:, c.A_PARTITION] = np.repeat(rows, sizes)
    slots[:, c.A_INDEX] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    slots[:, c.A_BROKER] = state.int_values[:count]
    slots[:, c.A_DIRECTORY], _ = fill_absent(numbers, starts, state.directory_sizes, given, sizes, absent_directory)
    slots[:, c.A_FROM] = state.slot_since
    slots[:, c.A_TO] = c.OPEN
    slots[:, c.A_ENDED] = c.OPEN
    return slots


@njit(cache=True, nogil=True)
def _order_slots(slots: Any, still: Any, part_of: Any, parts: int) -> Any:
    """The slots that are ``still`` open, ordered by their new partition number and index."""
    sizes = np.zeros(parts, np.int32)
    for s in still:
        sizes[part_of[slots[s, c.A_PARTITION]]] += 1
    at = np.zeros(parts + 1, np.int64)
    for p in range(parts):
        at[p + 1] = at[p] + sizes[p]
    order = np.empty(at[parts], np.int64)
    for s in still:
        order[at[part_of[slots[s, c.A_PARTITION]]] + slots[s, c.A_INDEX]] = s
    return order


def open_state(done: Step, held: np.ndarray) -> ShardState:
    """The open rows after the step, in the step's numbers of topics, directories and moments."""
    _, rows = done.version_rows
    version = columns_of(done.versions, rows)
    parts = version[c.V_PARTITION]
    new_part = np.full(len(done.parts), -1, np.int64)
    new_part[parts] = np.arange(len(rows))
    order = _order_slots(done.slots, done.slot_rows[1], new_part, len(rows))
    given = version[c.V_LISTS + DIRECTORIES]
    lists = done.lists
    directories, directory_ends = take_lists(lists.directories, lists.directory_starts, lists.directory_sizes, given)
    new_slot = np.empty(len(done.slots), np.int64)
    new_slot[order] = np.arange(len(order))
    held[:, H_SLOT] = new_slot[held[:, H_SLOT]]
    int_lists = [done.int_lists(at, version[c.V_LISTS + at]) for at in range(INT_LISTS)]
    return ShardState(
        topics=done.topics,
        names=np.frombuffer(b"".join(done.topic_names), np.uint8),
        name_ends=np.cumsum([0, *map(len, done.topic_names)], dtype=np.int32),
        directory_ids=done.directory_ids,
        part_topic=done.parts[parts, c.P_TOPIC],
        part_number=done.parts[parts, c.P_NUMBER],
        scalars=np.stack(version[c.V_SCALARS : c.V_LOSS], axis=1),
        may_follow_loss=version[c.V_LOSS],
        since=version[c.V_FROM],
        int_values=np.concatenate([values for values, _ in int_lists]),
        int_sizes=np.stack([np.diff(ends) for _, ends in int_lists]),
        directories=directories,
        directory_sizes=np.where(given < 0, np.int32(-1), np.diff(directory_ends)),
        slot_since=done.slots[order, c.A_FROM],
        when_offsets=done.moments.offsets,
        when_times=done.moments.times,
        when_snapshot=done.moments.snapshot,
        held=held[np.argsort(held[:, H_SLOT])],
    )


def untouched(rest: ShardState, done: Step) -> Step:
    """The partitions that a step left out, as a step in which nothing happened, in the numbers of ``done``."""
    parts = np.empty((len(rest.part_topic), c.PARTITION_COLUMNS), np.int32)
    parts[:, c.P_TOPIC], parts[:, c.P_NUMBER] = rest.part_topic, rest.part_number
    versions = np.empty((len(parts), c.VERSION_COLUMNS), np.int32)
    open_versions(rest, versions)
    slots = open_slots(rest, np.maximum(rest.int_sizes[REPLICAS], 0), done.absent_directory)
    none = np.empty(0, np.intp)
    return replace(
        done,
        state=rest,
        parts=parts,
        versions=versions,
        version_rows=(none, np.arange(len(versions))),
        slots=slots,
        slot_rows=(none, np.arange(len(slots))),
        intervals=np.concatenate([rest.held, np.full((len(rest.held), 2), c.OPEN, np.int64)], axis=1),
        moments=Moments(rest.when_offsets, rest.when_times, rest.when_snapshot),
        lists=Lists(
            rest.int_values,
            starts_of(rest.int_sizes),
            rest.int_sizes,
            rest.directories,
            starts_of(rest.directory_sizes),
            rest.directory_sizes,
        ),
        old=len(versions),
        old_slots=len(slots),
    )


@dataclass(frozen=True)
class Step:
    """The result of one batch in a shard, as tables of numbers that pipelines.fold.rows turns into Arrow.

    ``versions`` int32[h, 15]: every version of a partition that was current during the batch; ``slots`` int32[s, 7]
    likewise for assignments, ``intervals`` int64[o, 7] for offline replicas. List references point into ``lists``, FROM
    and TO of versions and slots into ``moments``. ``version_rows`` and ``slot_rows`` are (ended rows, open rows). A row
    that begins and ends at the same offset, as when a snapshot repeats a record, is in neither. ``parts`` int32[p, 8].
    The first ``old`` versions and ``old_slots`` slots were there before the batch. ``batches`` int64: the base offset
    of the batch of each moment, -1 for those of the state.
    """

    state: ShardState
    topics: np.ndarray
    topic_names: list[bytes]
    directory_ids: np.ndarray
    parts: np.ndarray
    versions: np.ndarray
    version_rows: tuple[np.ndarray, np.ndarray]
    slots: np.ndarray
    slot_rows: tuple[np.ndarray, np.ndarray]
    intervals: np.ndarray
    moments: Moments
    lists: Lists
    absent_directory: int
    old: int
    old_slots: int
    batches: np.ndarray
    timeline: Timeline

    @cached_property
    def _known_offsets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Offsets of the batch's events and broker changes, ascending; their batches; whether they are a snapshot's."""
        new = self.batches >= 0
        steps = self.timeline.offsets >= 0
        offsets = np.concatenate([self.moments.offsets[new], self.timeline.offsets[steps]])
        order = np.argsort(offsets, kind="stable")
        batches = np.concatenate([self.batches[new], self.timeline.batches[steps]])
        snapshot = np.concatenate([self.moments.snapshot[new], self.timeline.snapshot[steps]])
        return offsets[order], batches[order], snapshot[order]

    @property
    def first_offset(self) -> int:
        """The first offset of the batch at which a record changed this shard or a broker, or one beyond all."""
        offsets, _, _ = self._known_offsets
        return int(offsets[0]) if len(offsets) else np.iinfo(np.int64).max

    def batches_at(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For offsets of the batch: base offset of their batch of the log, and whether a snapshot is their witness."""
        known, batches, snapshot = self._known_offsets
        at = np.searchsorted(known, offsets)
        return batches[at], snapshot[at]

    @cached_property
    def _used(self) -> list[bool]:
        """For each int list column, whether any row has a value."""
        return [bool(sizes.max(initial=0) > 0) for sizes in self.lists.sizes]

    def int_lists(self, slot: int, references: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Int list ``slot`` at the given references: (values int32, ends int32)."""
        # In most clusters, most of the six columns are empty.
        if not self._used[slot]:
            return np.empty(0, np.int32), zeros(len(references) + 1)
        return take_lists(self.lists.values, self.lists.starts[slot], self.lists.sizes[slot], references)

    def directory_lists(self, references: np.ndarray, replicas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Directory numbers by the references of both lists, absent ones filled in: (numbers, ends), int32."""
        lists = self.lists
        counts = np.maximum(np.where(replicas >= 0, lists.sizes[REPLICAS][replicas], 0), 0)
        filled, ends = fill_absent(
            lists.directories, lists.directory_starts, lists.directory_sizes, references, counts, self.absent_directory
        )
        return filled, ends


@njit(cache=True, nogil=True)
def fill_absent(numbers: Any, starts: Any, sizes: Any, references: Any, counts: Any, absent_directory: int) -> Any:
    """Lists of directories by reference, absent ones filled in: (values, ends). ``counts``: the length of each."""
    ends = np.empty(len(references) + 1, np.int32)
    ends[0] = 0
    for i in range(len(references)):
        ends[i + 1] = ends[i] + (counts[i] if references[i] < 0 else sizes[references[i]])
    filled = np.empty(ends[-1], np.int32)
    for i in range(len(references)):
        for k in range(ends[i + 1] - ends[i]):
            absent = references[i] < 0
            filled[ends[i] + k] = absent_directory if absent else numbers[starts[references[i]] + k]
    return filled, ends


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
    step's state contains them (pipelines.fold.state).

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
    _mark_losses(versions, len(state.part_topic), lists, folded.partition_count, moments)
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
        version_rows=ended_and_open(versions, c.V_FROM, c.V_TO, moments.offsets),
        slots=slots,
        slot_rows=ended_and_open(slots, c.A_FROM, c.A_TO, moments.offsets),
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
    batch = FoldInput(old, absent_directory, len(state.when_offsets), columns, lists)
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
    numbers_of: dict[bytes, list[int]] = {}
    for number, name in enumerate(names):
        numbers_of.setdefault(name, []).append(number)
    for row in rows.tolist():
        name = events.name(row).encode()
        hits = numbers_of.get(name, []) if name else [c.ALL_TOPICS]
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


# LOSSES


@helper
def _contains(lists: Lists, versions: Any, row: Any, column: int, broker: Any) -> bool:
    """Whether an int list of a version has the broker."""
    return bool(place_of(lists, column, versions[row, c.V_LISTS + column], broker) >= 0)


@helper
def _named(lists: Lists, versions: Any, row: Any, broker: Any) -> bool:
    """Whether the broker is in sync or eligible in a version."""
    return _contains(lists, versions, row, ISR, broker) or _contains(lists, versions, row, ELR, broker)


@helper
def _joins(lists: Lists, versions: Any, new: Any, old: Any, broker: Any) -> bool:
    """Whether the broker is in sync beside the leader of the version before, and was a replica then."""
    led = versions[old, c.V_SCALARS + LEADER]
    beside = _contains(lists, versions, new, ISR, led) and _contains(lists, versions, new, ISR, broker)
    return beside and _contains(lists, versions, old, REPLICAS, broker)


@helper
def _may_follow_loss(lists: Lists, versions: Any, new: Any, old: Any, from_snapshot: bool) -> bool:
    """Whether version ``new`` can follow a loss of data, given the one before (-1: none).

    In every other version the members of the in-sync set and the eligible leaders hold every acknowledged write if
    those of the version before did (R-LOSS-2, R-LOSS-4). It may be true of too many versions, but never of too few:
    ``jbod_model.loss.fate`` decides.
    """
    values, starts, sizes = lists.values, lists.starts, lists.sizes
    leader, replicas = versions[new, c.V_SCALARS + LEADER], np.int64(versions[new, c.V_LISTS + REPLICAS])
    isr, elr = np.int64(versions[new, c.V_LISTS + ISR]), np.int64(versions[new, c.V_LISTS + ELR])
    if versions[new, c.V_SCALARS + RECOVERY] != 0:
        return True
    if leader >= 0 and not (_named(lists, versions, new, leader) and _contains(lists, versions, new, REPLICAS, leader)):
        return True
    for k in range(size_of(lists, ELR, elr)):
        # Added again, it is empty, and still eligible (R-QUIRK-3).
        if not _contains(lists, versions, new, REPLICAS, values[starts[ELR, elr] + k]):
            return True
    if old < 0:
        return bool(not from_snapshot and (leader < 0 or size_of(lists, ELR, elr) > 0))
    had = np.int64(versions[old, c.V_LISTS + REPLICAS])
    kept = same_list(values, starts[REPLICAS], sizes[REPLICAS], replicas, had)
    for k in range(size_of(lists, REPLICAS, replicas)):
        broker = values[starts[REPLICAS, replicas] + k]
        kept = kept or _named(lists, versions, old, broker) or _joins(lists, versions, new, old, broker)
    if not kept:
        return True
    if from_snapshot:
        return False
    if leader >= 0 and leader != versions[old, c.V_SCALARS + LEADER] and not _named(lists, versions, old, leader):
        return True
    for k in range(size_of(lists, ELR, elr)):
        if not _named(lists, versions, old, values[starts[ELR, elr] + k]):
            return True
    for k in range(size_of(lists, ISR, isr)):
        broker = values[starts[ISR, isr] + k]
        if not (_named(lists, versions, old, broker) or _joins(lists, versions, new, old, broker)):
            return True
    return False


@njit(cache=True, nogil=True)
def _mark_losses(versions: Any, old: Any, lists: Lists, parts: Any, moments: Any) -> None:
    """Sets V_LOSS of the versions of the batch. One that is true at no offset is before none."""
    latest = np.full(parts, -1, np.int32)
    for v in range(len(versions)):
        begin, end = versions[v, c.V_FROM], versions[v, c.V_TO]
        if end != c.OPEN and moments.offsets[begin] == moments.offsets[end]:
            continue
        before = np.int64(latest[versions[v, c.V_PARTITION]])
        latest[versions[v, c.V_PARTITION]] = v
        if v < old:
            continue
        if before >= 0 and moments.offsets[versions[before, c.V_TO]] != moments.offsets[begin]:
            before = np.int64(-1)
        versions[v, c.V_LOSS] = _may_follow_loss(lists, versions, v, before, moments.snapshot[begin])
