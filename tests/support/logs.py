"""A plain reader of uncompressed segments and snapshots, independent of the project's own readers."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copy

from jbod_model.formats.batch import read_control
from jbod_model.formats.codec import decode
from jbod_model.formats.control_records import CONTROL_TYPE_NAMES, CONTROL_TYPES, ControlRecord
from jbod_model.formats.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    Record,
    VersionedRecord,
)

_CONTROL_NUMBERS = {name: number for number, name in CONTROL_TYPE_NAMES.items()}
_BATCH = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True)
class Entry:
    """A record of a log or a snapshot; ``time`` in microseconds since 1970."""

    offset: int
    epoch: int
    time: int
    batch_offset: int
    value: bytes
    control: str | None = None
    versioned: VersionedRecord | None = None
    snapshot_index: int | None = None

    @property
    def record(self) -> Record | None:
        """The metadata record, None for a control record."""
        return None if self.versioned is None else self.versioned.record

    @property
    def control_record(self) -> ControlRecord | None:
        """The control record, None for a metadata record."""
        number = _CONTROL_NUMBERS.get(self.control or "", 0)
        return read_control(number, self.value) if number in CONTROL_TYPES else None


def read_file(path: Path) -> Iterator[Entry]:
    """Every record of a file, control records included."""
    raw = path.read_bytes()
    at = 0
    while at < len(raw):
        base, length, epoch, magic, _, attributes, _, _, time, _, _, _, count = _BATCH.unpack_from(raw, at)
        assert magic == 2
        assert attributes & 7 == 0
        end, at = at + 12 + length, at + _BATCH.size
        for _ in range(count):
            size, at = _varint(raw, at)
            after = at + size
            _, at = _varint(raw, at + 1)
            delta, at = _varint(raw, at)
            key, at = _bytes(raw, at)
            value, at = _bytes(raw, at)
            assert value is not None
            at = after
            entry = Entry(base + delta, epoch, time * 1000, base, value)
            if attributes & 0x20:
                assert key is not None
                yield replace(entry, control=CONTROL_TYPE_NAMES[int.from_bytes(key[2:4], "big")])
            else:
                yield replace(entry, versioned=decode(value, file=path.name, offset=entry.offset))
        assert at == end


def read_log(metadata_dir: Path, start: str = "log") -> list[Entry]:
    """The entries of a ``metadata.log.dir`` in order, without those of aborted transactions.

    ``start`` is "log" for all segments, or "snapshot" for the newest snapshot and what follows it. The entries of a
    snapshot carry its last contained offset, the time of that offset, and their place in it.
    """
    folder = metadata_dir / "__cluster_metadata-0"
    log = [entry for segment in sorted(folder.glob("*.log")) for entry in read_file(segment)]
    if start == "log":
        return list(_settled(log))
    newest = max(path for path in folder.glob("*.checkpoint") if re.fullmatch(r"\d{20}-\d{10}\.checkpoint", path.name))
    end = int(newest.name[:20])
    header, *rest = read_file(newest)
    assert header.control == "SNAPSHOT_HEADER"
    time = int.from_bytes(header.value[2:10], "big") * 1000
    snapshot = [replace(record, offset=end - 1, time=time, snapshot_index=record.offset) for record in (header, *rest)]
    return snapshot + list(_settled(entry for entry in log if entry.offset >= end))


def segments(source: Path, target: Path, *, most: int | None = None) -> Path:
    """Copies a ``metadata.log.dir`` with its first ``most`` segments and no snapshot. Returns ``target``."""
    folder = target / "__cluster_metadata-0"
    folder.mkdir(parents=True, exist_ok=True)
    copy(source / "meta.properties", target)
    for path in sorted((source / "__cluster_metadata-0").glob("*.log"))[:most]:
        copy(path, folder)
    return target


def first_batches(segment: bytes, end_offset: int) -> bytes:
    """The batches of a segment that begin before an offset."""
    at = 0
    while at < len(segment):
        base, length, *_ = _BATCH.unpack_from(segment, at)
        if base >= end_offset:
            break
        at += 12 + length
    return segment[:at]


def _settled(entries: Iterator[Entry] | list[Entry]) -> Iterator[Entry]:
    """The controller's rule: records of an aborted or open transaction do not count (docs/spec/replay.md)."""
    held: list[Entry] | None = None
    for entry in entries:
        if isinstance(entry.record, BeginTransactionRecord):
            held = []
        if held is None:
            yield entry
            continue
        held.append(entry)
        if isinstance(entry.record, EndTransactionRecord | AbortTransactionRecord):
            if isinstance(entry.record, EndTransactionRecord):
                yield from held
            held = None


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = raw[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at


def _bytes(raw: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(raw, at)
    return (None, at) if size < 0 else (raw[at : at + size], at + size)
