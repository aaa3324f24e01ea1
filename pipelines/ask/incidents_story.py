"""A failure according to the registrations, without its effects on replicas and leaders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

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
