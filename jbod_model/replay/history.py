"""A metadata directory as images, one after every offset at which something becomes visible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from jbod_model.errors import UsageError
from jbod_model.formats.log import LogEntry, LogReader, MetadataLog, Start
from jbod_model.formats.records import VersionedRecord
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image
from jbod_model.replay.transactions import Transactions


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


def image_at(
    path: Path, offset: int | None = None, *, start: Start = "earliest", profile: Profile = KAFKA
) -> tuple[int, Image]:
    """The newest visible offset not after ``offset`` (None: the end), and the image there.

    UsageError if the directory no longer reaches back to ``offset``.
    """
    found: tuple[int, Image] | None = None
    for at, image in images(LogReader(MetadataLog.open(path), start=start), profile=profile):
        if offset is not None and at > offset:
            break
        found = at, image
    if found is None:
        raise UsageError(f"{path} has no state at offset {offset}: it starts later, or is empty")
    return found
