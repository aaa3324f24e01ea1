"""The events that affect a partition's data; losses, and what later events say about one (docs/spec/loss.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from jbod_model.loss.copies import Copy, Registration, may_serve
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


Kind = Literal["lost", "may lack writes", "unreachable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Acknowledged writes that are gone, or may be, or that no registered broker holds."""

    kind: Kind
    offset: int
    """Of the record that gave up the last complete copy, that elected a leader without one, or that made lost data of
    unreachable data."""
    copies: tuple[Copy, ...]
    """The last copies that held every acknowledged write, by broker: where to look for the data."""
    leader: int | None = None
    """The broker that leads without the data; None if there is no leader."""
    went_on: int | None = None
    """Offset of the record that made it lead. After it the data does not return by itself."""
    until: int | None = None
    """Offset at which a complete copy returned, the topic was deleted, or the next loss of another kind took its place.
    None while the loss lasts."""


def known_better(loss: Loss, recreated: Copy) -> Loss:
    """The loss from the time when a ``recreated`` copy still counted as moved (R-COPY-12, R-LOSS-6)."""
    if loss.until is not None:
        return loss
    copies = tuple(
        replace(copy, directory=recreated.directory, places=recreated.places, left=()).give_up(
            "recreated", recreated.away or 0
        )
        if copy.left and (copy.broker_id, copy.since) == (recreated.broker_id, recreated.since)
        else copy
        for copy in loss.copies
    )
    if copies == loss.copies:
        return loss
    return replace(loss, copies=copies, kind=loss.kind if any(copy.usable for copy in copies) else "lost")


def overwritten(
    loss: Loss, state: Partition | None, copies: Mapping[int, Copy], brokers: Mapping[int, Registration], event: Event
) -> Loss:
    """The loss after an event: a copy that follows the leader is truncated to its log (R-LOSS-11)."""
    if loss.went_on is None or loss.until is not None or state is None or state.leader < 0:
        return loss
    if isinstance(event, BrokerChanged) and event.first is not None and event.first <= loss.went_on:
        # The append that elected the leader takes the broker or its directory away: it never followed (R-LOSS-10).
        kept = (replace(copy, overwritten=None) if copy.broker_id == event.broker_id else copy for copy in loss.copies)
        loss = replace(loss, copies=tuple(kept))

    def follows(copy: Copy) -> bool:
        now, broker = copies.get(copy.broker_id), brokers.get(copy.broker_id)
        if now is None or now.given_up is not None or now.since != copy.since or now.broker_id == state.leader:
            return False
        return broker is not None and not broker.fenced and may_serve(now, broker)

    if not any(copy.overwritten is None and follows(copy) for copy in loss.copies):
        return loss
    written = (replace(copy, overwritten=event.offset) if follows(copy) else copy for copy in loss.copies)
    pairs = zip(loss.copies, written, strict=True)
    return replace(loss, copies=tuple(new if old.overwritten is None else old for old, new in pairs))
