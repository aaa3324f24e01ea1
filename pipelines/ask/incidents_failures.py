"""Directories and brokers that left, and whether they came back or others replaced them, by the registrations.

Their effects on replicas and leaders are in ``pipelines.ask.incidents_effects``.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeVar

from pipelines.ask.json_values import RecordedEvent
from pipelines.ask.starting import Start

UNREGISTERED = "unregistered"
FOREVER = (1 << 63) - 1


def broker_stories(registrations: Iterable[BrokerRow], missing: Mapping[int, tuple[int, datetime]]) -> list[Story]:
    """The losses of every broker. A broker that was never unfenced has no loss.

    ``missing``: when a snapshot first had replicas of a broker, but not the broker.
    """
    rows_of: dict[int, list[BrokerRow]] = {broker_id: [] for broker_id in missing}
    for row in registrations:
        rows_of.setdefault(row.broker_id, []).append(row)
    stories = []
    for broker_id, own in rows_of.items():
        life = _Life()
        if broker_id in missing and not (own and own[0].from_offset < missing[broker_id][0]):
            life.miss(broker_id, *missing[broker_id])
        for row, following in itertools.zip_longest(own, own[1:]):
            life.add(row)
            if row.to_offset is not None and (following is None or following.from_offset != row.to_offset):
                life.vanish(row, row.to_offset, row.to_time or row.from_time)
        stories += life.stories
    return stories


@dataclass
class _Life:
    """The state of one broker while its registrations are read in order."""

    stories: list[Story] = field(default_factory=list)
    now: Story | None = None
    """The incident that has not ended."""
    listed: Sequence[str] | None = None
    """The directories before the incident, None if no record says which."""
    before: BrokerRow | None = None
    leaving: BrokerRow | None = None
    """The first row of the current shutdown."""

    def add(self, row: BrokerRow) -> None:
        """Adds the next row of the broker."""
        before = self.before if self.before is not None and self.before.to_offset == row.from_offset else None
        self.leaving = (self.leaving or row) if row.in_controlled_shutdown else None
        if before is None:
            self._appeared(row)
        else:
            self._changed(before, row)
        if self.now is not None and not row.fenced:
            if before is None or before.fenced:
                self.now.tell(row.from_offset, row.from_time, "unfenced")
            self.now.end(row.from_offset, row.from_time, f"came back {_compared(self.listed, row.log_dirs)}")
            self.now = None
        self.before = row

    def vanish(self, row: BrokerRow, offset: int, time: datetime) -> None:
        """The registration ended without a new one."""
        unregistered = row.ended_by == "unregistered"
        story = self.now or self._begin(row, "broker unregistered", offset, time)
        story.tell(offset, time, "unregistered" if unregistered else "not registered any more, says a snapshot")
        story.from_snapshot = story.from_snapshot or (story.offset == offset and not unregistered)
        story.ending = UNREGISTERED
        story.unregistered = story.unregistered or (offset, time)

    def miss(self, broker_id: int, offset: int, time: datetime) -> None:
        """A snapshot has replicas of the broker, and no record before it has the broker."""
        self.now = Story("broker unregistered", broker_id, None, offset, time, from_snapshot=True)
        self.now.tell(offset, time, "not registered, says a snapshot")
        self.now.ending, self.now.unregistered = UNREGISTERED, (offset, time)
        self.stories.append(self.now)

    def _appeared(self, row: BrokerRow) -> None:
        """There was no registration before."""
        if self.now is not None:
            self.now.tell(row.from_offset, row.from_time, f"registered again, with {_names(row.log_dirs)}")
        elif row.from_snapshot and row.fenced:
            self._begin(row, "broker stopped" if row.in_controlled_shutdown else "broker lost")

    def _changed(self, before: BrokerRow, row: BrokerRow) -> None:
        registered = before.ended_by == "registered"
        new = before.incarnation_id != row.incarnation_id
        if not before.fenced and (row.fenced or registered):
            if registered:
                kind = "broker restarted" if new else "broker re-registered"
            else:
                kind = "broker stopped" if row.in_controlled_shutdown else "broker lost"
            self._begin(row, kind)
            self.listed = before.log_dirs
        if registered and self.now is not None:
            process = "a new process" if new else "the same process"
            self.now.tell(
                row.from_offset, row.from_time, f"{process} registered, {_compared(self.listed, row.log_dirs)}"
            )

    def _begin(self, row: BrokerRow, kind: str, offset: int | None = None, time: datetime | None = None) -> Story:
        """Begins an incident at a row, or at ``offset``, the row's end."""
        story = Story(
            kind,
            row.broker_id,
            None,
            row.from_offset if offset is None else offset,
            time or row.from_time,
            from_snapshot=row.from_snapshot and offset is None,
        )
        if self.leaving is not None:
            story.leaders_from = self.leaving.from_time
            before = " before this snapshot" if self.leaving.from_snapshot else ""
            story.tell(self.leaving.from_offset, self.leaving.from_time, f"shutdown began{before}")
        self.now = story
        self.listed = row.log_dirs
        self.stories.append(story)
        return story


def _compared(old: Sequence[str] | None, new: Sequence[str]) -> str:
    """Describes the directories of a registration by their differences from the one before."""
    if old is None:
        return f"with {_names(new)}"
    came, went = [log_dir for log_dir in new if log_dir not in old], [log_dir for log_dir in old if log_dir not in new]
    differences = [f"with {_names(came)} added"] if came else []
    differences += [f"without {_names(went)}"] if went else []
    return ", ".join(differences) or "with the same directories"


def _names(directories: Sequence[str]) -> str:
    if not directories:
        return "no directories"
    return ("directory " if len(directories) == 1 else "directories ") + ", ".join(directories)


CAUSES = {
    "directory failed": "the broker runs, and reported that the directory failed: the disk, its mount or its file "
    "system",
    "directory gone": "the broker came back without it: not mounted, failed while the broker was down, or taken out of "
    "log.dirs",
    "directory unknown": "replicas are offline in it, but the lake does not know that the broker ever had it: it "
    "failed before the oldest snapshot, or the id is a reserved one: LOST, or by the KIP's rules UNASSIGNED",
    "directory not registered": "a new process of the broker reported replicas in it before it registered: until then "
    "they count as offline",
    "broker stopped": "it was shut down in order",
    "broker lost": "it was fenced without a shutdown: it crashed, hung, or could not reach the controller",
    "broker restarted": "a new process registered before the session of the old one had expired",
    "broker re-registered": "the same process registered again, as brokers do when metadata.version brings directories",
    "broker unregistered": "it was unregistered, which only an operator does",
}
"""Kind -> what it means."""


class BrokerRow(NamedTuple):
    """A row of the brokers table."""

    broker_id: int
    broker_epoch: int
    incarnation_id: str
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: Sequence[str]
    from_offset: int
    from_time: datetime
    to_offset: int | None
    to_time: datetime | None
    from_snapshot: bool
    ended_by: str | None


@dataclass
class Story:
    """A failure while its registrations are read."""

    kind: str
    broker_id: int
    directory_id: str | None
    offset: int
    time: datetime
    from_snapshot: bool = False
    leaders_from: datetime | None = None
    """When a controlled shutdown began to move leaders away. None: at the failure itself."""
    end_offset: int | None = None
    end_time: datetime | None = None
    ending: str = ""
    back_offset: int | None = None
    """The offset where the directory was online again."""
    down_since: int | None = None
    """The offset where its broker went down, if the directory left while the broker was down."""
    unregistered: tuple[int, datetime] | None = None
    """When its broker was unregistered: from then on it ends as soon as none of its replicas is offline."""
    events: list[RecordedEvent] = field(default_factory=list)

    @property
    def since(self) -> int:
        """The offset from which on events belong to it."""
        return self.offset if self.down_since is None else self.down_since

    def tell(self, offset: int, time: datetime, what: str) -> None:
        """Add an event."""
        self.events.append(RecordedEvent(offset, time, what))

    def end(self, offset: int, time: datetime, ending: str) -> None:
        """Ends the incident, if it has not ended: the broker or directory is back."""
        if self.end_offset is None:
            self.end_offset, self.end_time = offset, time
        self.ending = ending


WITHOUT_THE_BROKER = ("failed", "deregistered", "moved", "resync")
"""Reasons (ended_by of a directory) that make an incident. An unregistration is an incident of the broker."""

UNKNOWN, UNKNOWN_SINCE_SNAPSHOT, REPORTED = "unknown", "unknown since a snapshot", "reported"
"""Reasons for a directory that is known only from its replicas. ``reported``: by a process before it registered."""
KINDS = {
    "failed": "directory failed",
    UNKNOWN: "directory unknown",
    UNKNOWN_SINCE_SNAPSHOT: "directory unknown",
    REPORTED: "directory not registered",
}


class Online(NamedTuple):
    """A row of the directories table."""

    broker_id: int
    directory_id: str
    from_offset: int
    from_time: datetime
    to_offset: int | None
    to_time: datetime | None
    ended_by: str | None


Row = TypeVar("Row", Online, BrokerRow)


class Histories:
    """The rows of each directory and broker. ``rows`` are in the order of their offsets, ``registrations`` broker by
    broker."""

    def __init__(self, rows: Iterable[Online], registrations: Iterable[BrokerRow]) -> None:
        self.online: dict[str, dict[int, list[Online]]] = {}
        """Directory -> broker -> rows."""
        self.states: dict[int, list[BrokerRow]] = {}
        self.turns: dict[int, list[BrokerRow]] = {}
        """The rows by which a broker was fenced or unfenced."""
        self.registered: dict[int, list[BrokerRow]] = {}
        """The registrations of a broker, each by its first row."""
        for row in rows:
            self.online.setdefault(row.directory_id, {}).setdefault(row.broker_id, []).append(row)
        for broker_id, own in itertools.groupby(registrations, lambda state: state.broker_id):
            states = self.states[broker_id] = list(own)
            pairs = list(zip([None, *states], states, strict=False))
            self.turns[broker_id] = [row for before, row in pairs if before is None or before.fenced != row.fenced]
            self.registered[broker_id] = [
                row
                for before, row in pairs
                if before is None or before.to_offset != row.from_offset or before.ended_by == "registered"
                if not row.from_snapshot
            ]

    def state(self, broker_id: int, offset: int) -> BrokerRow | None:
        """The row of a broker at an offset, None if it was not registered."""
        row = _last(self.states.get(broker_id, ()), offset + 1)
        return row if row is not None and (row.to_offset is None or row.to_offset > offset) else None

    def down_since(self, broker_id: int, offset: int) -> int | None:
        """Offset where the broker that registered at ``offset`` had been fenced, None if it was not."""
        row = _last(self.turns.get(broker_id, ()), offset)
        return row.from_offset if row is not None and row.fenced else None

    def had(self, broker_id: int, directory_id: str, offset: int) -> bool:
        """Whether the directory was online on a broker before an offset."""
        rows = self.online.get(directory_id, {}).get(broker_id, ())
        return _last(rows, offset) is not None

    def back(self, gone: Online, offset: int) -> Online | None:
        """The next row in which the directory is online, on any broker."""
        following = []
        for broker_id, rows in self.online.get(gone.directory_id, {}).items():
            before = None if broker_id == gone.broker_id else _last(rows, offset)
            if before is not None and (before.to_offset is None or before.to_offset > offset):
                following.append(before)
            place = bisect_left(rows, offset, key=_began)
            following += rows[place : place + 1]
        return min(following, key=lambda row: (row.from_offset, row.broker_id), default=None)


def _began(row: Online | BrokerRow) -> int:
    return row.from_offset


def _last(rows: Sequence[Row], offset: int) -> Row | None:
    """The last of the rows that began before an offset."""
    place = bisect_left(rows, offset, key=_began)
    return rows[place - 1] if place else None


def directory_stories(rows: Iterable[Online], histories: Histories) -> list[Story]:
    """Every directory that left while its broker stayed registered."""
    return [
        _story(row, row.to_offset, row.to_time, histories)
        for row in rows
        if row.ended_by in WITHOUT_THE_BROKER and row.to_offset is not None and row.to_time is not None
        if histories.state(row.broker_id, row.to_offset) is not None
    ]


def unexplained(
    missed: Sequence[Online], stories: Sequence[Story], histories: Histories, begun: Sequence[Start]
) -> list[Story]:
    """Directories with offline replicas that no incident explains.

    ``missed`` has a row per place, from the offset where its first replica was offline: the lake's snapshot is newer
    than the failure, the broker never had the directory, or it was unregistered and came back without it. ``begun``:
    the starts of processes that reported before they registered.
    """
    known = {(story.broker_id, story.directory_id): story.offset for story in reversed(stories)}
    first = {(start.broker_id, start.incarnation_id): start.offset for start in reversed(begun)}
    new_stories = []
    for directory in missed:
        place = directory.broker_id, directory.directory_id
        if known.get(place, directory.from_offset + 1) > directory.from_offset:
            gone = directory
            if histories.had(*place, directory.from_offset):
                gone = directory._replace(ended_by="deregistered")
            state = histories.state(directory.broker_id, directory.from_offset)
            if state and first.get((state.broker_id, state.incarnation_id), FOREVER) <= directory.from_offset:
                gone = directory._replace(ended_by=REPORTED)
            new_stories.append(_story(gone, directory.from_offset, directory.from_time, histories))
    return new_stories


def _story(gone: Online, offset: int, time: datetime, histories: Histories) -> Story:
    failed = gone.ended_by == "failed"
    story = Story(
        KINDS.get(gone.ended_by or "", "directory gone"),
        gone.broker_id,
        gone.directory_id,
        offset,
        time,
        from_snapshot=gone.ended_by in ("resync", UNKNOWN_SINCE_SNAPSHOT),
        down_since=None if failed else histories.down_since(gone.broker_id, offset),
    )
    if failed:
        story.tell(offset, time, f"the broker reported that directory {gone.directory_id} failed")
    back = histories.back(gone, offset)
    if gone.ended_by == REPORTED:
        story.tell(offset, time, f"a new process of the broker reported directory {gone.directory_id}")
        story.ending = "not registered yet"
        if back is not None:
            story.tell(back.from_offset, back.from_time, f"the broker registered with directory {gone.directory_id}")
            story.end(back.from_offset, back.from_time, "the broker registered with it")
            story.back_offset = back.from_offset
        return story
    registered = histories.registered.get(gone.broker_id, ())
    until = FOREVER if back is None else back.from_offset
    ends = (bisect_left(registered, end, key=_began) for end in (offset, until))
    for at in range(*ends):
        registration = registered[at]
        began = registration.from_offset
        new = [log_dir for log_dir in registration.log_dirs if not histories.had(gone.broker_id, log_dir, began)]
        with_what = f"with directory {', '.join(new)} new" if new else "no directory is new"
        story.tell(registration.from_offset, registration.from_time, f"the broker registered without it, {with_what}")
        if new or not story.ending:
            story.end(registration.from_offset, registration.from_time, _instead(new))
        if new:  # the disks that later registrations bring are in the place of other ones
            break
    if back is not None:
        where = "same disk" if back.broker_id == gone.broker_id else f"moved to broker {back.broker_id}"
        story.tell(back.from_offset, back.from_time, f"directory {gone.directory_id} is online: {where}")
        story.end(back.from_offset, back.from_time, f"{where} came back" if where == "same disk" else where)
        story.back_offset = back.from_offset
    elif not story.ending:
        story.ending = "not back"
    return story


def _instead(new: Sequence[str]) -> str:
    return f"blank disk in its place: {', '.join(new)}" if new else "not back: the broker runs without it"
