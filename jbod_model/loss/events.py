"""The events that affect a partition's data: its own versions, its brokers' registrations, min.insync.replicas."""

from __future__ import annotations

from dataclasses import dataclass

from jbod_model.loss.copies import Registration
from jbod_model.replay.registrations import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The partition's state after a record."""

    offset: int
    state: Partition
    in_snapshot: bool = False
    """Whether a snapshot says so. Records between the state before and this one may then be missing."""
    superseded: bool = False
    """Whether a later record of the same append changes the partition again (R-LOSS-10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The topic was deleted."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChanged:
    """A broker registered or its registration changed; ``registration`` is None where it was unregistered."""

    offset: int
    broker_id: int
    registration: Registration | None
    unclean: bool = False
    """A new process of the broker registers, and the one before it did not shut down in order."""
    first: int | None = None
    """Offset of the first record of its append. None if no other record of the append matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinIsrChanged:
    """The topic's effective min.insync.replicas."""

    offset: int
    value: int


Event = Version | Removed | BrokerChanged | MinIsrChanged
