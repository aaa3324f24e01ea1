"""Metadata logs with one record that is not what the controller wrote, offsets and batches as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from jbod_model.formats.log import LogEntry
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    VersionedRecord,
)
from jbod_model.ids import Uuid

Entries = Sequence[LogEntry]
Forged = list[LogEntry]

STRANGE = Uuid(7, 7)
"""A directory that no broker has."""


def with_record(entries: Entries, at: int, record: Record) -> Forged:
    """The log with another record in this place."""
    present = entries[at].record
    assert isinstance(present, VersionedRecord)
    return [*entries[:at], replace(entries[at], record=replace(present, record=record)), *entries[at + 1 :]]


def _strange_directory(record: Record) -> Record | None:
    if isinstance(record, PartitionChangeRecord) and record.directories:
        return replace(record, directories=(*record.directories[:-1], STRANGE))
    if isinstance(record, PartitionRecord) and record.directories:
        return replace(record, directories=(STRANGE, *record.directories[1:]))
    return None


def _dropped(record: Record) -> Record | None:
    dropped = (PartitionChangeRecord, BrokerRegistrationChangeRecord, RegisterBrokerRecord, PartitionRecord)
    return NoOpRecord() if isinstance(record, dropped) else None


def _epoch(record: Record) -> Record | None:
    if isinstance(record, (RegisterBrokerRecord, BrokerRegistrationChangeRecord)):
        return replace(record, broker_epoch=record.broker_epoch + 1)
    if isinstance(record, PartitionRecord):
        return replace(record, leader_epoch=record.leader_epoch + 1)
    return None


def _leader(record: Record) -> Record | None:
    """A leader where there was none in the record, which raises the leader epoch; none where there was one."""
    if not isinstance(record, PartitionChangeRecord):
        return None
    return replace(record, leader=-2 if record.leader >= 0 else 1)


def _isr(record: Record) -> Record | None:
    if isinstance(record, PartitionChangeRecord) and record.isr is not None:
        return replace(record, isr=tuple(reversed(record.isr)) if len(record.isr) > 1 else (9,))
    if isinstance(record, PartitionRecord):
        return replace(record, isr=record.isr[:-1])
    return None


def _fenced(record: Record) -> Record | None:
    if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced:
        return replace(record, fenced=-record.fenced)
    return None


def _directories_left(record: Record) -> Record | None:
    if isinstance(record, BrokerRegistrationChangeRecord) and record.log_dirs:
        return replace(record, log_dirs=record.log_dirs[1:])
    if isinstance(record, RegisterBrokerRecord) and record.log_dirs:
        return replace(record, log_dirs=(*record.log_dirs, record.log_dirs[0]))
    return None


CHANGES: Mapping[str, Callable[[Record], Record | None]] = {
    "another directory": _strange_directory,
    "a record less": _dropped,
    "another epoch": _epoch,
    "another leader": _leader,
    "another in-sync set": _isr,
    "fenced the other way": _fenced,
    "other directories left": _directories_left,
}
"""What is done to a record; None where it does not apply."""


def forgeries(entries: Entries, what: str) -> Iterator[tuple[int, Forged]]:
    """Each log with one record changed in this way, and the place."""
    for at, entry in enumerate(entries):
        if entry.in_snapshot or not isinstance(entry.record, VersionedRecord):
            continue
        changed = CHANGES[what](entry.record.record)
        if changed is not None:
            yield at, with_record(entries, at, changed)


def swapped(entries: Entries) -> Iterator[tuple[int, Forged]]:
    """Each log with two records of one batch exchanged, where they are of two types."""
    for at, (first, second) in enumerate(pairwise(entries)):
        record, other = first.record, second.record
        if not (isinstance(record, VersionedRecord) and isinstance(other, VersionedRecord)):
            continue
        kinds = {type(record.record), type(other.record)}
        if first.header == second.header and len(kinds) == 2 and NoOpRecord not in kinds:
            yield at, [*entries[:at], replace(first, record=other), replace(second, record=record), *entries[at + 2 :]]
