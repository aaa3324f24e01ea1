"""Metadata transactions by the controller's rule: all records of a transaction or none (docs/spec/replay.md).

A metadata directory becomes images, one after every offset at which something becomes visible. Brokers in fact publish
records of an aborted transaction if another record follows the abort before they flush. The controller never does, and
neither does this module, except with ``abort_leak`` (R-TXN-7). Source: Kafka's ``controller.OffsetControlManager`` and,
for the quirk, ``image.loader.MetadataBatchLoader``; KIP-868.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from jbod_model.errors import ReplayViolation, UsageError
from jbod_model.formats.log import LogEntry, LogReader, MetadataLog, Start
from jbod_model.formats.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    VersionedRecord,
)
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image

MARKERS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


class Transactions:
    """Takes entries in order and yields those that take effect; ``open_at`` is the offset of the open Begin (R-TXN-4).

    ``abort_leak``: act as a broker that loads all entries at once, with the flaw of R-TXN-7.
    """

    def __init__(self, *, abort_leak: bool = False) -> None:
        self.open_at: int | None = None
        self.abort_leak = abort_leak
        self._held: list[LogEntry] = []
        self._aborted: list[LogEntry] = []

    def add(self, entry: LogEntry) -> list[LogEntry]:
        """The entries that this one makes visible: none inside a transaction, all of the transaction at its end
        (R-TXN-5)."""
        record = entry.record.record if isinstance(entry.record, VersionedRecord) else None
        if record is not None and self._aborted:
            leaked, self._aborted = self._aborted, []
            return [*leaked, *self.add(entry)]
        if isinstance(record, MARKERS):
            self._check(entry, type(record).__name__, begins=isinstance(record, BeginTransactionRecord))
        if isinstance(record, BeginTransactionRecord):
            self.open_at = entry.offset
        if self.open_at is None:
            return [entry]
        self._held.append(entry)
        if isinstance(record, EndTransactionRecord):
            return self._close(self._held)
        if isinstance(record, AbortTransactionRecord):
            if self.abort_leak:
                self._aborted = [held for held in self._held if not _has_no_effect(held)]
            return self._close([held for held in self._held if _has_no_effect(held)])
        return []

    def _check(self, entry: LogEntry, name: str, *, begins: bool) -> None:
        if entry.in_snapshot:
            raise ReplayViolation(entry.offset, f"{name} in a snapshot")  # R-TXN-6
        if begins and self.open_at is not None:
            raise ReplayViolation(entry.offset, f"{name} while the transaction of offset {self.open_at} is open")
        if not begins and self.open_at is None:
            raise ReplayViolation(entry.offset, f"{name} while no transaction is open")

    def _close(self, visible: list[LogEntry]) -> list[LogEntry]:
        self._held, self.open_at = [], None
        return visible


def committed(entries: Iterable[LogEntry], *, abort_leak: bool = False) -> Iterator[LogEntry]:
    """The entries that take effect: without those of aborted transactions and of one that is open at the end.

    With ``abort_leak`` aborted records take effect after all, before the record that follows the abort (R-TXN-7).
    """
    transactions = Transactions(abort_leak=abort_leak)
    for entry in entries:
        yield from transactions.add(entry)


def _has_no_effect(entry: LogEntry) -> bool:
    """Markers and control records stay, because their offsets count."""
    return not isinstance(entry.record, VersionedRecord) or isinstance(entry.record.record, MARKERS)


def images(
    entries: Iterable[LogEntry], *, image: Image | None = None, profile: Profile = KAFKA
) -> Iterator[tuple[int, Image]]:
    """(offset, image) whenever an offset becomes visible: after each record outside of transactions, after each
    transaction, after a snapshot as a whole. ReplayViolation for an illegal history.
    """
    image = image or Image()
    transactions = Transactions()
    snapshot_end: int | None = None
    for entry in entries:
        if entry.in_snapshot and snapshot_end is None:
            image, snapshot_end = image.emptied(), entry.offset
        if not entry.in_snapshot and snapshot_end is not None:
            yield snapshot_end, image
            snapshot_end = None
        visible = transactions.add(entry)
        for each in visible:
            if isinstance(each.record, VersionedRecord):
                image = image.apply(each.record.record, each.offset, profile=profile)
        if visible and not entry.in_snapshot:
            yield entry.offset, image
    if snapshot_end is not None:
        yield snapshot_end, image


def image_at(path: Path, offset: int | None = None, *, start: Start = "earliest") -> tuple[int, Image]:
    """The newest visible offset not after ``offset`` (None: the end), and the image there.

    UsageError if the directory no longer reaches back to ``offset``.
    """
    newest_state: tuple[int, Image] | None = None
    for at, image in images(LogReader(MetadataLog.open(path), start=start)):
        if offset is not None and at > offset:
            break
        newest_state = at, image
    if newest_state is None:
        raise UsageError(f"{path} has no state at offset {offset}: it starts later, or is empty")
    return newest_state
