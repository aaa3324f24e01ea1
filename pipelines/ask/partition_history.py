"""The history of one partition, record by record."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from jbod_model.errors import UsageError
from jbod_model.ids import ID_TABLES
from pipelines.ask.json_values import RecordedEvent
from pipelines.ask.lost_data import DataLoss, every_loss
from pipelines.ask.moves import MOVED, RECREATED, RETURNED, UNDECIDED, directory_changes
from pipelines.lake.delta import literal
from pipelines.lake.reader import Lake


class PartitionEvent(NamedTuple):
    """An event, with the name of its partition."""

    topic: str
    partition: int
    offset: int
    time: datetime
    what: str


class State(NamedTuple):
    """A row of the partitions table."""

    topic_id: str
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery: str
    directories: Sequence[str]
    from_offset: int
    from_time: datetime
    to_offset: int | None
    to_time: datetime | None
    from_snapshot: bool


class OfflineSpell(NamedTuple):
    """A row of the offline_replicas table."""

    topic_id: str
    broker_id: int
    directory_id: str
    reason: str
    from_offset: int
    from_time: datetime
    to_offset: int | None
    to_time: datetime | None
    from_snapshot: bool


@dataclass(frozen=True)
class PartitionHistory:
    """The history up to the lake's offset, oldest first, including removed topics of the same name."""

    name: str
    states: Sequence[State]
    offline: Sequence[OfflineSpell]
    events: Sequence[RecordedEvent]

    @property
    def partition_events(self) -> list[PartitionEvent]:
        """The events with the name of the partition."""
        topic, _, number = self.name.rpartition("-")
        return [PartitionEvent(topic, int(number), *event) for event in self.events]


def history(lake: Lake, name: str, default_min_isr: int = 1) -> PartitionHistory:
    """The history of ``topic-0``. Raises UsageError, with similar names, if the lake never knew it."""
    topic, number = partition_named(lake, name)
    of_partition = f"{_of_topic(topic)} AND partition = {number}"
    return _histories(lake, topic, of_partition, every_loss(lake, default_min_isr))[0]


def histories(lake: Lake, name: str, default_min_isr: int = 1) -> list[PartitionHistory]:
    """The histories of all partitions of a topic, or of one partition, as ``history``."""
    if not lake.query(f"SELECT 1 FROM {lake.until('partitions')} WHERE {_of_topic(name)} LIMIT 1"):
        return [history(lake, name, default_min_isr)]
    return _histories(lake, name, _of_topic(name), every_loss(lake, default_min_isr))


def _of_topic(topic: str) -> str:
    return f"topic = {literal(topic)}"


def _histories(lake: Lake, topic: str, of: str, losses: Iterable[DataLoss]) -> list[PartitionHistory]:
    """The histories of the partitions of a topic that meet the condition ``of``, by number.

    Each table is read once for all of them: a topic can have thousands.
    """
    rows = f"WHERE {of} ORDER BY partition, from_offset"
    states = lake.named_rows_by("partition", State, f"{lake.until('partitions')} {rows}")
    spells = lake.named_rows_by("partition", OfflineSpell, f"{lake.until('offline_replicas')} {rows}, replica_index")
    missed: dict[int, set[int]] = defaultdict(set)
    for number, offset in lake.query(
        f"SELECT partition, to_offset FROM {lake.until('assignments')} WHERE {of} AND ended_by = 'resync'"
    ):
        missed[number].add(offset)
    meanings: dict[int, dict[tuple[Any, ...], str]] = defaultdict(dict)
    for number, *place, meaning in lake.query(
        f"SELECT partition, topic_id, broker_id, at_offset, meaning FROM {directory_changes(lake, of)}"
    ):
        meanings[number][tuple(place)] = meaning
    lost: dict[int, list[DataLoss]] = defaultdict(list)
    for loss in losses:
        if loss.topic == topic and loss.partition in states:
            lost[loss.partition].append(loss)
    ends = lake.times([loss.until_offset for own in lost.values() for loss in own if loss.until_offset is not None])
    ids = ID_TABLES[lake.published.ids]
    names = {str(ids.unassigned): "unassigned", str(ids.lost): "lost", str(ids.migrating): "migrating"}
    snapshots = {*lake.snapshots}
    answer = []
    for number, own in states.items():
        # A change of the partition comes before its effects on replicas and data.
        events = [
            *_state_events(own, _Wording(names, meanings[number]), missed[number]),
            *_offline_events(spells[number], own),
            *_loss_events(own, lost[number], ends),
        ]
        events.sort(key=lambda event: event.offset)
        events = [_seen_in(event) if event.offset in snapshots else event for event in events]
        answer.append(PartitionHistory(f"{topic}-{number}", own, spells[number], events))
    return answer


def partition_named(lake: Lake, name: str) -> tuple[str, int]:
    """Topic and number of ``topic-0``. Raises UsageError, with similar names, if the lake never knew it."""
    topic, _, number = name.rpartition("-")
    numbered = topic and number.isascii() and number.isdigit() and len(number) < 10
    if numbered:
        rows = lake.query(
            f"SELECT 1 FROM {lake.until('partitions')} WHERE topic = $1 AND partition = $2 LIMIT 1",
            [topic, int(number)],
        )
        if rows:
            return topic, int(number)
    topics = dict(
        lake.query(f"SELECT topic, max(partition) FROM {lake.until('partitions')} GROUP BY topic ORDER BY topic")
    )
    for whole in (topic, name):
        if whole in topics:
            raise UsageError(f"{name}: {whole} has the partitions {whole}-0 to {whole}-{topics[whole]}")
    if not numbered:
        topic = name.rstrip("0123456789")
        number = name[len(topic) :][:9] or "0"
    near = difflib.get_close_matches(topic, topics, 3, 0.5)
    names = [f"{match}-{number if int(number) <= topics[match] else 0}" for match in near]
    hint = f"did you mean {' or '.join(names)}?" if near else _some(topics)
    raise UsageError(f"{name}: no such partition up to offset {lake.offset}: {hint}")


def _some(topics: dict[str, Any]) -> str:
    listed = ", ".join(list(topics)[:5]) + (", ..." if len(topics) > 5 else "")
    return f"the topics are {listed}" if topics else "there is no topic yet"


@dataclass(frozen=True)
class _Wording:
    """Names directories, and describes what happened to a replica whose directory changed."""

    names: dict[str, str]
    """Names of the reserved ids."""
    meanings: Mapping[tuple[Any, ...], str]
    """What a change of directory means, by topic id, broker and offset."""

    def name(self, directory: str) -> str:
        """The directory's id, or the meaning of a reserved one."""
        return self.names.get(directory, directory)

    def replica_changed(self, broker: int, old: str, new: str, after: State, place: str | None) -> str:
        """What happened to the replica whose directory is ``new`` since the state ``after``. ``place``: the last
        directory before that a record named."""
        was, now = self.names.get(old), self.names.get(new)
        if now == "lost":
            return f"replica on {broker}: the broker reported that its directory failed (LOST; was {self.name(old)})"
        if now is not None:
            return f"replica on {broker}: its directory is no longer known ({now}; was {self.name(old)})"
        if was == "lost" and place not in (None, new):  # otherwise its log may be there (R-COPY-13)
            return f"replica on {broker} recreated empty in {new} (its data was in {place}, which failed: LOST)"
        if was is not None:
            return f"replica on {broker} is in {new} (was {was})"
        meaning = self.meanings.get((after.topic_id, broker, after.from_offset))
        if meaning == RETURNED:
            return f"replica on {broker} is in {new} again, with the log there: the disk is back (was {old}, empty)"
        if meaning == RECREATED:
            return f"replica on {broker} recreated empty in {new} (its data was in {old})"
        if meaning == MOVED:
            return f"replica on {broker} moved: {old} -> {new}"
        tells = "as the next registration of the broker tells" if meaning == UNDECIDED else "which was never read"
        return f"replica on {broker} is in {new} (was {old}): moved, or recreated empty, {tells}"


def _loss_events(
    states: Sequence[State], lost: Sequence[DataLoss], ends: Mapping[int, datetime]
) -> Iterator[RecordedEvent]:
    """Losses of data, and their ends by a copy that returned. ``ends``: the time of each end's record."""
    began = {state.from_offset for state in states}
    removed = {state.to_offset for state in states} - began
    worse = {loss.offset for loss in lost}
    for loss in lost:
        yield RecordedEvent(loss.offset, loss.time, loss.finding)
        if loss.until_offset is not None and loss.until_offset not in removed | worse:
            back = f"a complete copy is back: the data is no longer {loss.kind}"
            yield RecordedEvent(loss.until_offset, ends[loss.until_offset], back)


def _state_events(states: Sequence[State], names: _Wording, missed: set[int]) -> Iterator[RecordedEvent]:
    """``missed``: offsets where a snapshot replaced records that were deleted before they were read."""
    before: State | None = None
    places: dict[int, str | None] = {}
    for state in states:
        if before is not None and (before.to_offset, before.topic_id) != (state.from_offset, state.topic_id):
            yield from _removed(before, missed)
            before, places = None, {}
        changes = _created(state, names) if before is None else _changes(before, state, names, places)
        for change in changes:
            yield RecordedEvent(state.from_offset, state.from_time, change)
        places = {
            broker: places.get(broker) if directory in names.names else directory
            for broker, directory in zip(state.replicas, state.directories, strict=True)
        }
        before = state
    if before is not None:
        yield from _removed(before, missed)


_FIRST_SEEN, _GONE = "found in a snapshot", "gone by this snapshot"


def _seen_in(event: RecordedEvent) -> RecordedEvent:
    """An event that a snapshot tells: it happened at its offset, or before."""
    names_it = event.what.startswith((_FIRST_SEEN, _GONE))
    return event if names_it else event._replace(what=f"{event.what} (at or before this snapshot)")


def _removed(last: State, missed: set[int]) -> Iterator[RecordedEvent]:
    if last.to_offset is not None and last.to_time is not None:
        unseen = last.to_offset in missed
        what = f"{_GONE}: when it was removed was never read" if unseen else "removed with its topic"
        yield RecordedEvent(last.to_offset, last.to_time, what)


def _created(state: State, names: _Wording) -> Iterator[str]:
    verb = _FIRST_SEEN if state.from_snapshot else "created"
    where = ", ".join(
        f"{broker} in {names.name(directory)}"
        for broker, directory in zip(state.replicas, state.directories, strict=True)
    )
    yield f"{verb} as topic {state.topic_id}: replicas {where}; leader {_leader(state.leader)}"


def _changes(before: State, after: State, names: _Wording, places: Mapping[int, str | None]) -> list[str]:
    changes = list(_replica_changes(before, after, names, places))
    if (before.leader, before.leader_epoch) != (after.leader, after.leader_epoch):
        kept = "stays" if before.leader == after.leader else f"{_leader(before.leader)} ->"
        changes.append(f"leader {kept} {_leader(after.leader)} (leader epoch {after.leader_epoch})")
    lists = {what: (getattr(before, what), getattr(after, what)) for what in ("isr", "elr", "adding", "removing")}
    changes += [f"{what} {_ints(old)} -> {_ints(new)}" for what, (old, new) in lists.items() if old != new]
    if before.leader_recovery != after.leader_recovery:
        changes.append(f"leader recovery {before.leader_recovery} -> {after.leader_recovery}")
    return changes or [f"nothing but the partition epoch: {before.partition_epoch} -> {after.partition_epoch}"]


def _replica_changes(before: State, after: State, names: _Wording, places: Mapping[int, str | None]) -> Iterator[str]:
    """``places``: the directory of each replica that a record named last."""
    old = dict(zip(before.replicas, before.directories, strict=True))
    new = dict(zip(after.replicas, after.directories, strict=True))
    for broker in old:
        if broker not in new:
            yield f"replica on {broker} removed from {names.name(old[broker])}"
    for broker, directory in new.items():
        if broker not in old:
            yield f"replica on {broker} added in {names.name(directory)}"
        elif old[broker] != directory:
            yield names.replica_changed(broker, old[broker], directory, after, places[broker])
    if before.replicas != after.replicas and set(old) == set(new):
        yield f"replicas in another order: {_ints(before.replicas)} -> {_ints(after.replicas)}"


def _offline_events(spells: Sequence[OfflineSpell], states: Sequence[State]) -> Iterator[RecordedEvent]:
    starts = {(spell.topic_id, spell.broker_id, spell.from_offset) for spell in spells}
    ends = {(spell.topic_id, spell.broker_id, spell.to_offset, spell.reason) for spell in spells}

    states_of: dict[str, list[State]] = {}
    for state in states:
        states_of.setdefault(state.topic_id, []).append(state)

    def removed(spell: OfflineSpell, at: int) -> bool:
        own = states_of[spell.topic_id]
        last = own[bisect_right(own, at, key=lambda state: state.from_offset) - 1]
        return spell.broker_id not in last.replicas or last.to_offset == at

    for spell in spells:
        # If only the directory changed, the replica was already offline for this reason, and still is.
        if (spell.topic_id, spell.broker_id, spell.from_offset, spell.reason) not in ends:
            yield RecordedEvent(
                spell.from_offset, spell.from_time, f"replica on {spell.broker_id} is offline: {spell.reason}"
            )
        if (
            spell.to_offset is not None
            and spell.to_time is not None
            and (spell.topic_id, spell.broker_id, spell.to_offset) not in starts
            and not removed(spell, spell.to_offset)
        ):
            yield RecordedEvent(spell.to_offset, spell.to_time, f"replica on {spell.broker_id} is offline no more")


def _leader(leader: int) -> str:
    return "none" if leader == -1 else str(leader)


def _ints(values: Sequence[int]) -> str:
    return "[" + ",".join(map(str, values)) + "]"
