"""Every directory failure and broker loss in a lake's history as one incident, derived from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jbod_model.errors import UsageError
from jbod_model.ids import ID_TABLES, IdTable, Uuid
from pipelines.ask.advice import (
    Advice,
    Advised,
    compare_and_mount,
    find_failed,
    mount_or_reassign,
    repair_or_replace,
    see_if_back,
    wait_for_registration,
    wait_for_report,
)
from pipelines.ask.incidents_effects import NO_LEADER, Effects, LeaderLoss, Outage, effects, leader_losses, outages
from pipelines.ask.incidents_failures import (
    CAUSES,
    UNKNOWN,
    UNKNOWN_SINCE_SNAPSHOT,
    BrokerRow,
    Histories,
    Online,
    Story,
    broker_stories,
    directory_stories,
    unexplained,
)
from pipelines.ask.json_values import RecordedEvent
from pipelines.ask.last_copies import LastCopies
from pipelines.ask.lost_data import LOST, MAY_LACK, UNREACHABLE, losses
from pipelines.ask.starting import starts
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Incident(Advised):
    """One failure, from its beginning to its end."""

    number: int
    """Counts from 1, in the order in which incidents began. It stays the same for later questions about this lake."""
    kind: str
    """directory failed, directory gone, directory unknown, directory not registered, broker stopped (in order), broker
    lost, broker restarted, broker unregistered, or broker re-registered (the same process, which loses nothing)."""
    broker_id: int
    directory_id: str | None
    """The directory, if a directory failed."""
    from_offset: int
    from_time: datetime
    from_snapshot: bool
    """It began at or before this offset: it is known from a snapshot."""
    to_offset: int | None
    """When the broker or directory came back, or no replica waited for it any longer. None: not ended."""
    to_time: datetime | None
    ending: str
    """How it came back, or what is still missing: same disk, blank disk, moved, and so on."""
    replicas_taken: int
    """Replicas that went offline because of it."""
    already_offline: int
    """Those that were offline before for another reason."""
    replicas_offline: int
    """Those that are still offline."""
    longest_offline: timedelta
    """The longest time that one of these replicas was offline, up to the lake's offset."""
    leaders: int
    """Partitions that lost their leader."""
    successors: Mapping[int, int]
    """Broker -> partitions that it took over at once."""
    without_leader: int
    """Partitions without a new leader at once."""
    without_leader_now: int
    """Those that still have no leader."""
    longest_without_leader: timedelta
    data_lost: Sequence[str]
    """Partitions whose last complete copy was given up."""
    data_unreachable: Sequence[str]
    """Partitions whose last complete copy lies, or lay, on a broker that is not registered."""
    may_lack_writes: Sequence[str]
    """Partitions that continued under a leader whose copy was not complete."""
    events: Sequence[RecordedEvent]
    """The events, oldest first."""
    steps: Sequence[Advice]
    """What to do while it lasts, in order. Empty if it has ended."""
    also_in_json = ("going_on", "cause", "advice")

    @property
    def going_on(self) -> bool:
        """Whether it has not ended by the lake's offset."""
        return self.to_offset is None

    @property
    def cause(self) -> str:
        """The cause according to the records."""
        return CAUSES[self.kind]

    @property
    def what(self) -> str:
        """``broker 1: directory failed``"""
        return f"broker {self.broker_id}: {self.kind.removeprefix('broker ')}"


@dataclass(frozen=True)
class Details:
    """One incident, replica by replica and leader by leader."""

    incident: Incident
    outages: Sequence[Outage]
    leader_losses: Sequence[LeaderLoss]


def incidents(lake: Lake, default_min_isr: int = 1) -> list[Incident]:
    """All incidents that began by the lake's offset, oldest first."""
    stories = _stories(lake)
    if not stories:
        return []
    data = losses(lake, default_min_isr)
    state = _state(lake, data.last_copies)
    return [
        _incident(number, story, done, state)
        for number, (story, done) in enumerate(zip(stories, effects(lake, stories, data.ever), strict=True), 1)
    ]


def details(lake: Lake, number: int, default_min_isr: int = 1) -> Details:
    """One incident in full. Raises UsageError if the number does not exist."""
    stories = _stories(lake)
    if not 1 <= number <= len(stories):
        known = f"there are 1 to {len(stories)}" if stories else "there is none"
        raise UsageError(f"incident {number}: no such incident up to offset {lake.offset}: {known}")
    data = losses(lake, default_min_isr)
    done = effects(lake, stories, data.ever)[number - 1]
    return Details(
        _incident(number, stories[number - 1], done, _state(lake, data.last_copies)),
        outages(lake, stories, number - 1),
        leader_losses(lake, stories, number - 1, data.ever),
    )


def _stories(lake: Lake) -> list[Story]:
    registrations = lake.named_rows(BrokerRow, f"{lake.until('brokers')} ORDER BY broker_id, from_offset")
    directories = lake.named_rows(Online, f"{lake.until('directories')} ORDER BY from_offset, broker_id, directory_id")
    rows = lake.query(
        f"""
        SELECT broker_id, CASE WHEN reason LIKE 'directory%' THEN directory_id END AS directory, min(from_offset),
               epoch_us(arg_min(from_time, from_offset)), arg_min(from_snapshot, from_offset)
        FROM {lake.until("offline_replicas")}
        WHERE reason LIKE 'directory%' OR (reason = 'broker missing' AND from_snapshot) GROUP BY ALL
        ORDER BY broker_id, directory
        """
    )
    missing = {row[0]: (row[2], time_of(row[3])) for row in rows if row[1] is None}
    missed = [
        Online._make([*row[:3], time_of(row[3]), None, None, UNKNOWN_SINCE_SNAPSHOT if row[4] else UNKNOWN])
        for row in rows
        if row[1] is not None
    ]
    histories = Histories(directories, registrations)
    stories = broker_stories(registrations, missing) + directory_stories(directories, histories)
    stories += unexplained(missed, stories, histories, starts(lake) if missed else ())
    return sorted(stories, key=lambda story: (story.offset, story.broker_id, story.directory_id or ""))


@dataclass(frozen=True)
class _State:
    """The present state, which advice depends on."""

    last: LastCopies
    fenced: Mapping[int, bool]
    """The registered brokers, and whether each is fenced."""
    ids: IdTable

    def steps(self, kind: str, broker: int, directory: str | None) -> Sequence[Advice]:
        """What to do about an incident that lasts."""
        running = not self.fenced.get(broker, True)
        if directory is None:
            if broker not in self.fenced:
                return self.last.about_missing(broker)
            if running:
                return [see_if_back(broker)]
            return self.last.about_fenced(broker, in_order=kind == "broker stopped")
        if kind == "directory failed":
            ordinary = repair_or_replace(broker, directory, running=running)
        elif kind == "directory gone":
            ordinary = mount_or_reassign(broker, directory, self.last.twice(broker, directory), running=running)
        elif kind == "directory not registered":
            ordinary = wait_for_registration(broker, directory)
        elif (kind_of_id := self.ids.kind(Uuid.parse(directory))) == "assigned":
            ordinary = compare_and_mount(broker, directory)
        else:
            ordinary = find_failed(broker) if kind_of_id == "lost" else wait_for_report(broker)
        return self.last.about_directory(broker, ordinary, running=running)


def _state(lake: Lake, last: LastCopies) -> _State:
    fenced = dict(lake.query(f"SELECT broker_id, fenced FROM {lake.at('brokers')}"))
    return _State(last, fenced, ID_TABLES[lake.published.ids])


def _incident(number: int, story: Story, done: Effects, state: _State) -> Incident:
    end_offset, end_time = _end(story, done)
    lasts = end_offset is None
    return Incident(
        number=number,
        kind=story.kind,
        broker_id=story.broker_id,
        directory_id=story.directory_id,
        from_offset=story.offset,
        from_time=story.time,
        from_snapshot=story.from_snapshot,
        to_offset=end_offset,
        to_time=end_time,
        ending=story.ending or "not back",
        replicas_taken=done.replicas,
        already_offline=done.already_offline,
        replicas_offline=done.offline,
        longest_offline=done.longest_offline,
        leaders=sum(done.successors.values()),
        successors={broker: count for broker, count in done.successors.items() if broker != NO_LEADER},
        without_leader=done.successors.get(NO_LEADER, 0),
        without_leader_now=done.leaderless,
        longest_without_leader=done.longest_leaderless,
        data_lost=[loss.name for loss in done.lost if loss.kind == LOST],
        data_unreachable=[loss.name for loss in done.lost if loss.kind == UNREACHABLE],
        may_lack_writes=[loss.name for loss in done.lost if loss.kind == MAY_LACK],
        events=tuple(sorted([*story.events, *_consequences(story, done)], key=lambda event: event.offset)),
        steps=state.steps(story.kind, story.broker_id, story.directory_id) if lasts else (),
    )


def _end(story: Story, done: Effects) -> tuple[int | None, datetime | None]:
    """When the incident was over. One of a directory or of an unregistered broker lasts as long as its replicas."""
    if story.unregistered is None and (story.directory_id is None or not done.replicas):
        return story.end_offset, story.end_time
    if done.offline:
        return None, None
    if done.last_offset is None or (story.unregistered is not None and story.unregistered[0] > done.last_offset):
        return story.unregistered or (None, None)
    return done.last_offset, done.last_time


def _consequences(story: Story, done: Effects) -> Iterator[RecordedEvent]:
    """The effects on replicas and leaders."""
    if done.first_loss is not None:
        then = [f"broker {broker} took over {count:,}" for broker, count in done.successors.items() if broker >= 0]
        if NO_LEADER in done.successors:
            then.append(f"{done.successors[NO_LEADER]:,} had no successor")
        yield RecordedEvent(
            *done.first_loss, f"{_many(sum(done.successors.values()), 'leader')} lost: {', '.join(then)}"
        )
    if done.replicas:
        already = f", {done.already_offline:,} of them already" if done.already_offline else ""
        yield RecordedEvent(story.offset, story.time, f"{_many(done.replicas, 'replica')} offline{already}")
    if done.rehomed_from is not None:
        text = f"{_many(done.rehomed, 'replica')} recreated empty in other directories of the broker"
        yield RecordedEvent(*done.rehomed_from, text)
    for kind, what in (
        (LOST, "data of {} lost"),
        (UNREACHABLE, "data of {} unreachable"),
        (MAY_LACK, "{} may lack writes from here on"),
    ):
        hit = [loss for loss in done.lost if loss.kind == kind]
        if hit:
            first = min(hit, key=lambda loss: loss.offset)
            yield RecordedEvent(first.offset, first.time, what.format(_many(len(hit), "partition")))
    if done.led_again is not None:
        yield RecordedEvent(*done.led_again, "the last partition without a leader has one again")
    if done.replicas and not done.offline and done.last_offset is not None and done.last_time is not None:
        yield RecordedEvent(done.last_offset, done.last_time, "no replica is offline for it any more")


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("s" if count != 1 else "")
