"""A failure as the registrations tell it, before what it did to replicas and leaders is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class Event(NamedTuple):
    """Something that happened in an incident."""

    offset: int
    time: datetime
    what: str


class Registration(NamedTuple):
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
    """A failure while it is being told."""

    kind: str
    broker_id: int
    directory_id: str | None
    offset: int
    time: datetime
    since_snapshot: bool = False
    leaders_from: datetime | None = None
    """When leaders began to be moved away in order; None: with the failure itself."""
    end_offset: int | None = None
    end_time: datetime | None = None
    ending: str = ""
    ends_with_replicas: bool = False
    """Over as soon as none of its replicas is offline, whether or not what failed is back."""
    events: list[Event] = field(default_factory=list)

    def tell(self, offset: int, time: datetime, what: str) -> None:
        """Add an event."""
        self.events.append(Event(offset, time, what))

    def end(self, offset: int, time: datetime, ending: str) -> None:
        """What failed is back."""
        self.end_offset, self.end_time, self.ending = offset, time, ending
