"""The changes of each record, as rows of the table ``changes`` (docs/spec/changes.md).

They follow from a comparison of the images before and after the record. A snapshot counts as one record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from jbod_model.ids import IdTable, Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image
from jbod_model.replay.offline import offline_replicas
from jbod_model.replay.registrations import BrokerRegistration, Partition

RESYNC = "resync"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """One change. ``before`` and ``after`` are None if there is no value."""

    what: str
    topic_id: Uuid | None = None
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    directory_id: Uuid | None = None
    before: str | None
    after: str | None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class _Replica:
    directory: Uuid | None
    offline: str | None


_NOWHERE = _Replica(None, None)


def changes_between(
    before: Image, after: Image, record: Record | None, *, profile: Profile = KAFKA
) -> Iterator[StateChange]:
    """The changes from one image to the next (R-EVENT-1). ``record`` is the cause; None for a snapshot."""
    for broker_id in sorted({*before.brokers, *after.brokers}):
        yield from _of_broker(before, after, broker_id, record)
    brokers_differ = before.brokers != after.brokers
    names = {topic_id: topic.name for image in (before, after) for topic_id, topic in image.topics.items()}
    for topic_id in sorted(names):
        old, new = _partitions(before, topic_id), _partitions(after, topic_id)
        for number in sorted({*old, *new}):
            was, now = old.get(number), new.get(number)
            if was is now and not brokers_differ:
                continue
            mine = _replicas(before, was, profile), _replicas(after, now, profile)
            for change in (*_of_partition(was, now, record), *_of_replicas(*mine, was, now, after.ids, record)):
                yield replace(change, topic_id=topic_id, topic=names[topic_id], partition=number)


# PARTITIONS


def _of_partition(was: Partition | None, now: Partition | None, record: Record | None) -> Iterator[StateChange]:
    """The leader and the in-sync replicas (R-EVENT-4)."""
    why = _why_of_partition(was, now, record)
    for what, old, new in (
        ("leader", _leader(was), _leader(now)),
        ("isr", _list(was), _list(now)),
    ):
        if old != new:
            yield StateChange(what=what, before=old, after=new, why=why)


def _of_replicas(
    old: Mapping[int, _Replica],
    new: Mapping[int, _Replica],
    was: Partition | None,
    now: Partition | None,
    ids: IdTable,
    record: Record | None,
) -> Iterator[StateChange]:
    """The directory of each broker's replica (R-EVENT-2), and whether it is offline (R-EVENT-3)."""
    why = _why_of_partition(was, now, record)
    for broker_id in sorted({*old, *new}):
        left, came = old.get(broker_id, _NOWHERE), new.get(broker_id, _NOWHERE)
        before, after = left.directory, came.directory
        if before != after:
            yield StateChange(
                what="assignment",
                broker_id=broker_id,
                before=_text(before),
                after=_text(after),
                why=why or _why_moved(before, after, ids),
            )
        reason_before, reason_after = left.offline, came.offline
        if reason_before != reason_after:
            yield StateChange(
                what="offline",
                broker_id=broker_id,
                directory_id=after if reason_after else before,
                before=reason_before,
                after=reason_after,
                why=None if record else RESYNC,
            )


def _why_of_partition(was: Partition | None, now: Partition | None, record: Record | None) -> str | None:
    if record is None:
        return RESYNC
    if was is None:
        return "created"
    return "removed" if now is None else None


def _why_moved(before: Uuid | None, after: Uuid | None, ids: IdTable) -> str:
    if before is None or after is None:
        return "reassigned"
    kind = ids.kind(after)
    if kind == "assigned":
        return "moved" if ids.kind(before) == "assigned" else "assigned"
    return "lost" if kind == "lost" else "unassigned"


def _partitions(image: Image, topic_id: Uuid) -> Mapping[int, Partition]:
    topic = image.topics.get(topic_id)
    return {} if topic is None else topic.partitions


def _replicas(image: Image, partition: Partition | None, profile: Profile) -> dict[int, _Replica]:
    if partition is None:
        return {}
    offline = offline_replicas(image, partition, profile=profile)
    placed = zip(partition.replicas, partition.directories, strict=True)
    return {broker: _Replica(directory, offline.get(broker)) for broker, directory in placed}


def _leader(partition: Partition | None) -> str | None:
    return None if partition is None or partition.leader < 0 else str(partition.leader)


def _list(partition: Partition | None) -> str | None:
    return None if partition is None else f"[{','.join(map(str, partition.isr))}]"


# BROKERS


def _of_broker(before: Image, after: Image, broker_id: int, record: Record | None) -> Iterator[StateChange]:
    """The registration and its state (R-EVENT-5), its directories and cordons (R-EVENT-6)."""
    old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
    why = cause_of(record)
    for what, was, now in (
        ("registration", _epoch(old), _epoch(new)),
        ("fencing", _fencing(old), _fencing(new)),
        ("controlled shutdown", _shutdown(old), _shutdown(new)),
    ):
        if was != now:
            yield StateChange(what=what, broker_id=broker_id, before=was, after=now, why=why)
    for what, state, was_in, is_in in (
        ("directory", "online", old and old.directories, new and new.directories),
        ("cordon", "cordoned", old and old.cordoned_directories, new and new.cordoned_directories),
    ):
        for directory in sorted({*(was_in or ())} ^ {*(is_in or ())}):
            came = directory in (is_in or ())
            yield StateChange(
                what=what,
                broker_id=broker_id,
                directory_id=directory,
                before=None if came else state,
                after=state if came else None,
                why=why_gone(record, after, directory) if what == "directory" and not came else why,
            )


def cause_of(record: Record | None) -> str:
    """Why a registration changed: registered, unregistered, changed or resync."""
    if record is None:
        return RESYNC
    return {RegisterBrokerRecord: "registered", UnregisterBrokerRecord: "unregistered"}.get(type(record), "changed")


def why_gone(record: Record | None, image: Image, directory: Uuid) -> str:
    """Why a directory left its broker: failed, unregistered, moved, deregistered or resync; ``image``: afterwards."""
    if record is None:
        return RESYNC
    if isinstance(record, BrokerRegistrationChangeRecord):
        return "failed"
    if isinstance(record, UnregisterBrokerRecord):
        return "unregistered"
    elsewhere = any(directory in broker.directories for broker in image.brokers.values())
    return "moved" if elsewhere else "deregistered"


def _epoch(broker: BrokerRegistration | None) -> str | None:
    return None if broker is None else str(broker.epoch)


def _fencing(broker: BrokerRegistration | None) -> str | None:
    return None if broker is None else "fenced" if broker.fenced else "unfenced"


def _shutdown(broker: BrokerRegistration | None) -> str | None:
    return "shutting down" if broker is not None and broker.in_controlled_shutdown else None


def _text(directory: Uuid | None) -> str | None:
    return None if directory is None else str(directory)
