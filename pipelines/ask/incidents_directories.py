"""Directories that left their broker, and whether they came back or others replaced them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from pipelines.ask.incidents_story import BrokerRow, Story
from pipelines.ask.starting import Start

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
        if any(one.broker_id == row.broker_id and _holds(one, row.to_offset) for one in registrations)
    ]


def unexplained(
    missed: Sequence[Online],
    told: Sequence[Story],
    rows: Sequence[Online],
    registrations: Sequence[BrokerRow],
    begun: Sequence[Start],
) -> list[Story]:
    """Directories with offline replicas that no incident explains.

    ``missed`` has a row per place, from the offset where its first replica was offline: the lake's snapshot is newer
    than the failure, the broker never had the directory, or it was unregistered and came back without it. ``begun``:
    the starts of processes that reported before they registered.
    """
    known = {(story.broker_id, story.directory_id): story.offset for story in reversed(told)}
    had = {(row.broker_id, row.directory_id): row.from_offset for row in reversed(rows)}
    found = []
    for one in missed:
        place = one.broker_id, one.directory_id
        if known.get(place, one.from_offset + 1) > one.from_offset:
            before = had.get(place, one.from_offset) < one.from_offset
            gone = one._replace(ended_by="deregistered") if before else one
            if _reported(one, begun, registrations):
                gone = one._replace(ended_by=REPORTED)
            found.append(_story(gone, one.from_offset, one.from_time, rows, registrations))
    return found


def _reported(one: Online, begun: Sequence[Start], registrations: Sequence[BrokerRow]) -> bool:
    """Whether a process of the broker had reported, and not registered, where the directory's first replica was."""
    now = {
        row.incarnation_id for row in registrations if row.broker_id == one.broker_id and _holds(row, one.from_offset)
    }
    of_broker = (start for start in begun if start.broker_id == one.broker_id)
    return any(start.offset <= one.from_offset and start.incarnation_id in now for start in of_broker)


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
