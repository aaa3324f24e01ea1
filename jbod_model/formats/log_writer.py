"""Writes segments and snapshots that Kafka's own tools read (docs/spec/formats.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from jbod_model.formats.batch import write_batch
from jbod_model.formats.codec import encode
from jbod_model.formats.control_records import (
    ControlRecord,
    KRaftVersionRecord,
    QuorumVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from jbod_model.formats.records import VersionedRecord

BOOTSTRAP_FILE = "bootstrap.checkpoint"
RECORDS_PER_BATCH = 1024
"""The number of records that Kafka appends at a time when it writes a snapshot."""

_READ_ONLY = 0o400


class LogWriter:
    """Collects the batches of one segment; offsets start at ``base_offset`` (R-LOG-8)."""

    def __init__(self, *, base_offset: int = 0) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self._batches: list[bytes] = []
        self._size = 0

    def __len__(self) -> int:
        """Bytes so far."""
        return self._size

    def append(
        self,
        records: Sequence[VersionedRecord] | Sequence[ControlRecord],
        *,
        epoch: int,
        timestamp: int,
    ) -> int:
        """Add one batch, ``timestamp`` in milliseconds since 1970; the offset of its first record."""
        first = self.next_offset
        content = _values(records)
        batch = write_batch(content, base_offset=first, epoch=epoch, timestamp=timestamp)
        self._batches.append(batch)
        self._size += len(batch)
        self.next_offset += len(records)
        return first

    @property
    def bytes(self) -> bytes:
        """The segment so far."""
        return b"".join(self._batches)

    def write(self, directory: Path) -> Path:
        """Write the segment under its name."""
        return _publish(directory / f"{self.base_offset:020d}.log", self.bytes)


def write_snapshot(
    directory: Path,
    records: Iterable[VersionedRecord],
    *,
    end_offset: int,
    epoch: int,
    timestamp: int,
    voters: Sequence[QuorumVoter] = (),
) -> Path:
    """Write the snapshot of the state before ``end_offset``, read-only as Kafka does (R-LOG-9).

    ``timestamp``, in milliseconds since 1970, is when the last record that it covers was appended. ``voters`` are
    those of a dynamic quorum (kraft.version 1).
    """
    header: list[ControlRecord] = [SnapshotHeaderRecord(last_contained_log_timestamp=timestamp)]
    if voters:
        header += [KRaftVersionRecord(k_raft_version=1), VotersRecord(voters=tuple(voters))]
    path = directory / f"{end_offset:020d}-{epoch:010d}.checkpoint"
    content = _checkpoint(header, records, epoch=epoch, timestamp=timestamp)
    return _publish(path, content, mode=_READ_ONLY)


def write_bootstrap(directory: Path, records: Iterable[VersionedRecord], *, timestamp: int) -> Path:
    """Write the records that a controller with an empty log starts from (R-LOG-10)."""
    content = _checkpoint([SnapshotHeaderRecord()], records, epoch=0, timestamp=timestamp)
    return _publish(directory / BOOTSTRAP_FILE, content)


def _checkpoint(
    header: Sequence[ControlRecord], records: Iterable[VersionedRecord], *, epoch: int, timestamp: int
) -> bytes:
    writer = LogWriter()
    writer.append(header, epoch=epoch, timestamp=timestamp)
    pending = list(records)
    for at in range(0, len(pending), RECORDS_PER_BATCH):
        writer.append(pending[at : at + RECORDS_PER_BATCH], epoch=epoch, timestamp=timestamp)
    writer.append([SnapshotFooterRecord()], epoch=epoch, timestamp=timestamp)
    return writer.bytes


def _values(records: Sequence[VersionedRecord] | Sequence[ControlRecord]) -> list[bytes] | list[ControlRecord]:
    control = [record for record in records if isinstance(record, ControlRecord)]
    return control or [encode(record) for record in records if isinstance(record, VersionedRecord)]


def _publish(path: Path, content: bytes, *, mode: int = 0o644) -> Path:
    """Rename the file to its name only once it is complete."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.chmod(mode)
    return part.replace(path)
