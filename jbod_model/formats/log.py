"""Reads a node's metadata directory: its files, which of them to read, and every record in order
(docs/spec/formats.md). Writes segments and snapshots that Kafka's own tools read.

``jbod_model.replay.transactions`` hides open transactions.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.formats.batch import Batch, BatchHeader, Data, is_time, read_batch, read_header, write_batch
from jbod_model.formats.codec import decode, encode
from jbod_model.formats.control_records import (
    ControlRecord,
    KRaftVersionRecord,
    QuorumVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from jbod_model.formats.records import VersionedRecord

PARTITION_DIRECTORY = "__cluster_metadata-0"

_SEGMENT = re.compile(r"([0-9]{20})\.log")
_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")

Start = Literal["earliest", "snapshot"]


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment of the log (R-LOG-2)."""

    path: Path
    base_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The state before ``end_offset``, as records (R-LOG-2)."""

    path: Path
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One record with its offset and batch.

    A record of a snapshot has the offset before the snapshot's end (R-LOG-6).
    """

    offset: int
    epoch: int
    timestamp: int
    """When its batch was appended, in milliseconds since 1970."""
    record: VersionedRecord | ControlRecord
    header: BatchHeader
    in_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class LogTail:
    """Bytes after the last complete batch: a batch that is being written or was cut off (R-LOG-5)."""

    path: Path
    position: int
    size: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """The segments and snapshots of a metadata directory, ascending."""

    directory: Path
    segments: tuple[SegmentFile, ...]
    snapshots: tuple[SnapshotFile, ...]

    @classmethod
    def open(cls, path: Path) -> MetadataLog:
        """The log in ``path``, which is the partition's directory or the metadata.log.dir that contains it (R-LOG-1).

        UsageError if there is neither, or a number of a name is too large for Kafka.
        """
        directory = path / PARTITION_DIRECTORY if (path / PARTITION_DIRECTORY).is_dir() else path
        if not directory.is_dir():
            raise UsageError(f"{path} is not a directory: name a {PARTITION_DIRECTORY} or its metadata.log.dir")
        names = sorted(entry.name for entry in directory.iterdir() if entry.is_file())
        segments = tuple(
            SegmentFile(directory / n, *_numbers(directory / n, m)) for n in names if (m := _SEGMENT.fullmatch(n))
        )
        snapshots = tuple(
            SnapshotFile(directory / n, *_numbers(directory / n, m)) for n in names if (m := _SNAPSHOT.fullmatch(n))
        )
        if not segments and not snapshots:
            raise UsageError(f"{directory} holds no segment and no snapshot: is it a {PARTITION_DIRECTORY}?")
        return cls(directory, segments, snapshots)

    def newest_snapshot(self, after: int = -1) -> SnapshotFile | None:
        """The newest complete snapshot that ends after the offset ``after``; incomplete ones are skipped, as by Kafka's
        loader (R-LOG-3), and others are not read."""
        later = (snapshot for snapshot in reversed(self.snapshots) if snapshot.end_offset > after)
        return next(filter(_is_complete, later), None)


class LogReader:
    """Iterates over the entries of a log once: a snapshot if one is needed, then the log after it (R-LOG-4), then a
    snapshot whose end is after the log's.

    ``start``: ``earliest`` reads the log from offset 0 if the log still begins there, ``snapshot`` starts from the
    newest snapshot if there is one. After the iteration ``tail`` has the remaining bytes and ``next_offset`` the end.
    """

    def __init__(self, log: MetadataLog, *, start: Start = "earliest", keep_unknown: bool = False) -> None:
        self.log = log
        self.keep_unknown = keep_unknown
        self.tail: LogTail | None = None
        first = log.segments[0].base_offset if log.segments else None
        from_zero = start == "earliest" and first == 0
        self.snapshot = None if from_zero else log.newest_snapshot()
        self.next_offset = self.snapshot.end_offset if self.snapshot else 0
        self._epoch = self.snapshot.epoch if self.snapshot else 0
        if first is not None and first > self.next_offset:
            raise MalformedLog(
                str(log.segments[0].path),
                self.next_offset,
                f"the log starts at {first}, and no complete snapshot covers the offsets before it",
            )

    def __iter__(self) -> Iterator[LogEntry]:
        if self.snapshot is not None:
            yield from self._read_snapshot(self.snapshot)
        yield from self._read_segments(self.next_offset)
        newest = self.log.newest_snapshot(after=self.next_offset)
        if newest is not None and newest.epoch >= self._epoch:
            self.snapshot, self.next_offset = newest, newest.end_offset
            yield from self._read_snapshot(newest)

    def _read_snapshot(self, snapshot: SnapshotFile) -> Iterator[LogEntry]:
        timestamp = 0
        for batch in _whole(snapshot):
            if batch.header.epoch != snapshot.epoch:
                raise MalformedLog(
                    str(snapshot.path),
                    batch.header.base_offset,
                    f"epoch {batch.header.epoch} in a snapshot of epoch {snapshot.epoch}",
                )
            if batch.control and isinstance(batch.control[0], SnapshotHeaderRecord):
                timestamp = batch.control[0].last_contained_log_timestamp
                if not is_time(timestamp):
                    raise MalformedLog(str(snapshot.path), 0, f"last contained log timestamp is {timestamp}")
            for entry in self._entries(batch, str(snapshot.path)):
                yield LogEntry(
                    snapshot.end_offset - 1, entry.epoch, timestamp, entry.record, entry.header, in_snapshot=True
                )

    def _read_segments(self, start: int) -> Iterator[LogEntry]:
        expected: int | None = None
        for index, segment in enumerate(self.log.segments):
            file = str(segment.path)
            is_last = index == len(self.log.segments) - 1
            if not is_last and self.log.segments[index + 1].base_offset <= start:
                continue  # the snapshot covers all of it
            if expected is not None and segment.base_offset != expected:
                what = "a segment is missing" if segment.base_offset > expected else "segments overlap"
                raise MalformedLog(file, expected, f"the log continues at {segment.base_offset}: {what}")
            expected = segment.base_offset
            for batch in self._read_segment(segment, is_last=is_last):
                header = batch.header
                # VALIDATE
                if header.base_offset != expected:
                    raise MalformedLog(file, expected, f"the next batch starts at {header.base_offset}")
                if header.last_offset >= start and header.epoch < self._epoch:
                    raise MalformedLog(file, header.base_offset, f"epoch {header.epoch} follows epoch {self._epoch}")
                if header.base_offset < start <= header.last_offset:
                    raise MalformedLog(file, header.base_offset, f"the snapshot ends inside this batch, at {start}")
                # APPLY
                expected = header.last_offset + 1
                if header.base_offset >= start:
                    self._epoch = header.epoch
                    yield from self._entries(batch, file)
                    self.next_offset = expected

    def _read_segment(self, segment: SegmentFile, *, is_last: bool) -> Iterator[Batch]:
        data = _contents(segment.path)
        at, next_offset = 0, segment.base_offset
        while at < len(data):
            batch = read_batch(data, at, file=str(segment.path))
            if batch is None:
                if not is_last:
                    raise MalformedLog(str(segment.path), next_offset, "the segment is cut off, but another follows")
                self.tail = LogTail(segment.path, at, len(data) - at, next_offset)
                return
            yield batch
            at, next_offset = at + batch.header.size, batch.header.last_offset + 1

    def _entries(self, batch: Batch, file: str) -> Iterator[LogEntry]:
        header = batch.header
        records: Iterator[VersionedRecord | ControlRecord] = (
            iter(batch.control)
            if header.is_control
            else (
                decode(value, file=file, offset=header.base_offset + index, keep_unknown=self.keep_unknown)
                for index, value in enumerate(batch.values)
            )
        )
        for index, record in enumerate(records):
            yield LogEntry(header.base_offset + index, header.epoch, header.max_timestamp, record, header)


def read_file(path: Path) -> Iterator[Batch]:
    """Every batch of one segment or snapshot; MalformedLog if its end is cut off."""
    data = _contents(path)
    at, next_offset = 0, -1
    while at < len(data):
        batch = read_batch(data, at, file=str(path))
        if batch is None:
            raise MalformedLog(str(path), next_offset, f"the batch at byte {at} is cut off")
        yield batch
        at, next_offset = at + batch.header.size, batch.header.last_offset + 1


def _numbers(path: Path, name: re.Match[str]) -> Iterator[int]:
    """The offset in a file's name, then the epoch if there is one."""
    for digits, bits in zip(name.groups(), (63, 31), strict=False):
        if int(digits) >= 1 << bits:
            raise UsageError(f"{path}: no file of Kafka has an offset above int64 or an epoch above int32: remove it")
        yield int(digits)


def _whole(snapshot: SnapshotFile) -> Iterator[Batch]:
    """The batches of a snapshot, which starts with its header and ends with its footer (R-LOG-7)."""
    batch: Batch | None = None
    expected = 0
    for batch in read_file(snapshot.path):
        if batch.header.base_offset != expected:
            raise MalformedLog(str(snapshot.path), expected, f"the next batch starts at {batch.header.base_offset}")
        if expected == 0 and not (batch.control and isinstance(batch.control[0], SnapshotHeaderRecord)):
            raise MalformedLog(str(snapshot.path), 0, "a snapshot starts with its header record")
        expected = batch.header.last_offset + 1
        yield batch
    if batch is None or not batch.control or not isinstance(batch.control[-1], SnapshotFooterRecord):
        raise MalformedLog(str(snapshot.path), expected, "the snapshot has no footer record")


def _is_complete(snapshot: SnapshotFile) -> bool:
    """Whether the last batch is complete and is a footer (R-LOG-3). Other damage is found when the file is read."""
    data = _contents(snapshot.path)
    file, at, last = str(snapshot.path), 0, None
    while at < len(data):
        header = read_header(data, at, file=file)
        if header is None:
            return False
        last, at = at, at + header.size
    batch = None if last is None else read_batch(data, last, file=file)
    return batch is not None and bool(batch.control) and isinstance(batch.control[-1], SnapshotFooterRecord)


def _contents(path: Path) -> Data:
    with path.open("rb") as source:
        if path.stat().st_size == 0:
            return b""
        return mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)


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
