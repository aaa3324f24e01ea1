"""Brokers that left and came back, according to their registrations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pipelines.ask.incidents_story import BrokerRow, Story

UNREGISTERED = "unregistered"


def broker_stories(registrations: Iterable[BrokerRow]) -> list[Story]:
    """The losses of every broker. A broker that was never unfenced has no loss."""
    ordered = sorted(registrations, key=lambda row: (row.broker_id, row.from_offset))
    told = []
    for _, rows in itertools.groupby(ordered, lambda row: row.broker_id):
        life = _Life()
        own = list(rows)
        for row, following in itertools.zip_longest(own, own[1:]):
            life.add(row)
            if row.to_offset is not None and (following is None or following.from_offset != row.to_offset):
                life.vanish(row, row.to_offset, row.to_time or row.from_time)
        told += life.stories
    return told


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
    came, went = [one for one in new if one not in old], [one for one in old if one not in new]
    said = [f"with {_names(came)} added"] if came else []
    said += [f"without {_names(went)}"] if went else []
    return ", ".join(said) or "with the same directories"


def _names(directories: Sequence[str]) -> str:
    if not directories:
        return "no directories"
    return ("directory " if len(directories) == 1 else "directories ") + ", ".join(directories)
