"""Directories and brokers that left, and whether they came back or others replaced them, by the registrations.

Their effects on replicas and leaders are in ``pipelines.ask.incidents_effects``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pipelines.ask.starting import Start

UNREGISTERED = "unregistered"


def broker_stories(registrations: Iterable[BrokerRow]) -> list[Story]:
    """The losses of every broker. A broker that was never unfenced has no loss."""
    ordered = sorted(registrations, key=lambda row: (row.broker_id, row.from_offset))
    stories = []
    for _, rows in itertools.groupby(ordered, lambda row: row.broker_id):
        life = _Life()
        own = list(rows)
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
    listed: Sequence[str] = ()
    """The directories before the incident."""
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
        story.ending, story.ends_with_replicas = UNREGISTERED, True

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
            story.tell(self.leaving.from_offset, self.leaving.from_time, "shutdown began")
        self.now = story
        self.listed = row.log_dirs
        self.stories.append(story)
        return story


def _compared(old: Sequence[str], new: Sequence[str]) -> str:
    """Describes the directories of a registration by their differences from the one before."""
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
    "failed before the oldest snapshot, or the replicas are marked LOST",
    "directory not registered": "a new process of the broker reported replicas in it before it registered: until then "
    "they count as offline",
    "broker stopped": "it was shut down in order",
    "broker lost": "it was fenced without a shutdown: it crashed, hung, or could not reach the controller",
    "broker restarted": "a new process registered before the session of the old one had expired",
    "broker re-registered": "the same process registered again, as brokers do when metadata.version brings directories",
    "broker unregistered": "it was unregistered, which only an operator does",
}
"""Kind -> what it means."""


class IncidentEvent(NamedTuple):
    """An event of an incident."""

    offset: int
    time: datetime
    what: str


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
    ends_with_replicas: bool = False
    """Whether it ends as soon as none of its replicas is offline, even if the broker or directory is not back."""
    events: list[IncidentEvent] = field(default_factory=list)

    @property
    def since(self) -> int:
        """The offset from which on events belong to it."""
        return self.offset if self.down_since is None else self.down_since

    def tell(self, offset: int, time: datetime, what: str) -> None:
        """Add an event."""
        self.events.append(IncidentEvent(offset, time, what))

    def end(self, offset: int, time: datetime, ending: str) -> None:
        """Ends the incident: the broker or directory is back."""
        self.end_offset, self.end_time, self.ending = offset, time, ending


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


def directory_stories(rows: Sequence[Online], registrations: Sequence[BrokerRow]) -> list[Story]:
    """Every directory that left while its broker stayed registered."""
    rows = sorted(rows, key=lambda row: row.from_offset)
    return [
        _story(row, row.to_offset, row.to_time, rows, registrations)
        for row in rows
        if row.ended_by in WITHOUT_THE_BROKER and row.to_offset is not None and row.to_time is not None
        if any(
            registration.broker_id == row.broker_id and _holds(registration, row.to_offset)
            for registration in registrations
        )
    ]


def unexplained(
    missed: Sequence[Online],
    stories: Sequence[Story],
    rows: Sequence[Online],
    registrations: Sequence[BrokerRow],
    begun: Sequence[Start],
) -> list[Story]:
    """Directories with offline replicas that no incident explains.

    ``missed`` has a row per place, from the offset where its first replica was offline: the lake's snapshot is newer
    than the failure, the broker never had the directory, or it was unregistered and came back without it. ``begun``:
    the starts of processes that reported before they registered.
    """
    known = {(story.broker_id, story.directory_id): story.offset for story in reversed(stories)}
    had = {(row.broker_id, row.directory_id): row.from_offset for row in reversed(rows)}
    new_stories = []
    for directory in missed:
        place = directory.broker_id, directory.directory_id
        if known.get(place, directory.from_offset + 1) > directory.from_offset:
            before = had.get(place, directory.from_offset) < directory.from_offset
            gone = directory._replace(ended_by="deregistered") if before else directory
            if _reported(directory, begun, registrations):
                gone = directory._replace(ended_by=REPORTED)
            new_stories.append(_story(gone, directory.from_offset, directory.from_time, rows, registrations))
    return new_stories


def _reported(directory: Online, begun: Sequence[Start], registrations: Sequence[BrokerRow]) -> bool:
    """Whether a process of the broker had reported, and not registered, where the directory's first replica was."""
    now = {
        row.incarnation_id
        for row in registrations
        if row.broker_id == directory.broker_id and _holds(row, directory.from_offset)
    }
    of_broker = (start for start in begun if start.broker_id == directory.broker_id)
    return any(start.offset <= directory.from_offset and start.incarnation_id in now for start in of_broker)


def _holds(registration: BrokerRow, offset: int) -> bool:
    return registration.from_offset <= offset and (registration.to_offset is None or registration.to_offset > offset)


def _story(
    gone: Online, offset: int, time: datetime, rows: Sequence[Online], registrations: Sequence[BrokerRow]
) -> Story:
    failed = gone.ended_by == "failed"
    story = Story(
        KINDS.get(gone.ended_by or "", "directory gone"),
        gone.broker_id,
        gone.directory_id,
        offset,
        time,
        from_snapshot=gone.ended_by in ("resync", UNKNOWN_SINCE_SNAPSHOT),
        ends_with_replicas=True,
        down_since=None if failed else _down_since(gone.broker_id, offset, registrations),
    )
    if failed:
        story.tell(offset, time, f"the broker reported that directory {gone.directory_id} failed")
    back = _back(gone, offset, rows)
    if gone.ended_by == REPORTED:
        story.tell(offset, time, f"a new process of the broker reported directory {gone.directory_id}")
        story.ending = "not registered yet"
        if back is not None:
            story.tell(back.from_offset, back.from_time, f"the broker registered with directory {gone.directory_id}")
            story.end(back.from_offset, back.from_time, "the broker registered with it")
            story.back_offset = back.from_offset
        return story
    for registration in _registered(gone.broker_id, offset, registrations):
        if back is not None and registration.from_offset >= back.from_offset:
            break
        new = _new_directories(registration, rows)
        with_what = f"with directory {', '.join(new)} new" if new else "no directory is new"
        story.tell(registration.from_offset, registration.from_time, f"the broker registered without it, {with_what}")
        if not story.ending:
            story.end(registration.from_offset, registration.from_time, _instead(new))
        elif new and story.ending == _instead([]):
            story.ending = _instead(new)
    if back is not None:
        where = "same disk" if back.broker_id == gone.broker_id else f"moved to broker {back.broker_id}"
        story.tell(back.from_offset, back.from_time, f"directory {gone.directory_id} is online: {where}")
        story.end(back.from_offset, back.from_time, f"{where} came back" if where == "same disk" else where)
        story.back_offset = back.from_offset
    elif not story.ending:
        story.ending = "not back"
    return story


def _back(gone: Online, offset: int, rows: Sequence[Online]) -> Online | None:
    """The next row in which the directory is online, on any broker."""
    for row in rows:
        if row.directory_id == gone.directory_id and row is not gone:
            elsewhere = row.broker_id != gone.broker_id and (row.to_offset is None or row.to_offset > offset)
            if row.from_offset >= offset or elsewhere:
                return row
    return None


def _registered(broker_id: int, offset: int, registrations: Sequence[BrokerRow]) -> Iterator[BrokerRow]:
    """The registrations of a broker from an offset on, each by its first row."""
    before: BrokerRow | None = None
    for row in registrations:
        if row.broker_id == broker_id:
            begins = before is None or before.to_offset != row.from_offset or before.ended_by == "registered"
            if begins and row.from_offset >= offset and not row.from_snapshot:
                yield row
            before = row


def _down_since(broker_id: int, offset: int, registrations: Sequence[BrokerRow]) -> int | None:
    """Offset where the broker that registered at ``offset`` had been fenced, None if it was not."""
    since = None
    for row in registrations:
        if row.broker_id == broker_id and row.from_offset < offset:
            since = None if not row.fenced else row.from_offset if since is None else since
    return since


def _new_directories(registration: BrokerRow, rows: Sequence[Online]) -> list[str]:
    """Directories that the broker had never registered before."""
    known = {
        row.directory_id
        for row in rows
        if row.broker_id == registration.broker_id and row.from_offset < registration.from_offset
    }
    return [directory for directory in registration.log_dirs if directory not in known]


def _instead(new: Sequence[str]) -> str:
    return f"blank disk in its place: {', '.join(new)}" if new else "not back: the broker runs without it"
