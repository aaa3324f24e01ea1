"""An action that may have written the next records, and what is known ahead of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jbod_model.formats.log import LogEntry
from jbod_model.formats.records import Record, RegisterBrokerRecord, VersionedRecord
from jbod_model.formats.requests import Request
from jbod_model.ids import Uuid
from jbod_model.replay.image import BrokerRegistration, Image


@dataclass(frozen=True, slots=True)
class Guess:
    """A request, or work of the controller's own, and what the controller knows beside the metadata."""

    request: Request
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `jbod_model.controller.Context`."""


@dataclass(slots=True)
class Registrations:
    """Which directories the processes of a broker had, from all registrations of the log (R-BEHAVE-3).

    Broker -> the offsets of its registrations and what they listed. A snapshot's list what was left: not here.
    """

    _offsets: dict[int, list[int]] = field(default_factory=dict)
    _listed: dict[int, list[frozenset[Uuid]]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[LogEntry]) -> Registrations:
        """All registrations of a log."""
        registrations = cls()
        for entry in entries:
            record = entry.record.record if isinstance(entry.record, VersionedRecord) else None
            if isinstance(record, RegisterBrokerRecord) and not entry.in_snapshot:
                registrations._offsets.setdefault(record.broker_id, []).append(entry.offset)
                registrations._listed.setdefault(record.broker_id, []).append(frozenset(record.log_dirs))
        return registrations

    def may_have(self, registration: BrokerRegistration, directory: Uuid, offset: int) -> bool:
        """Whether a process of the broker that sends a request at ``offset`` may have the directory.

        The process is that of the last registration, or the next one, which may assign before it registers (R-PROC-3).
        If the log ends before that, only a broker that is not active may have a process of which nothing is known.
        """
        offsets = self._offsets.get(registration.broker_id, [])
        listed = self._listed.get(registration.broker_id, [])
        following = bisect_right(offsets, offset)
        if following == 0 or directory in listed[following - 1]:
            return True
        if following < len(listed):
            return directory in listed[following]
        return registration.fenced or registration.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class Ahead:
    """The state, and the records that are to be explained from here to the end of their batch."""

    image: Image
    records: Sequence[Record]
    offset: int
    """Of the first of them."""
    registrations: Registrations
    lost: Uuid | None = None
    """The id for lost directories, where the profile's brokers assign replicas to it."""
