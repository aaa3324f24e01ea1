"""Record batches, the unit in which a metadata log grows, and their checksum, CRC-32C (docs/spec/formats.md, R-FMT-12).

Source: Kafka's ``common.record.DefaultRecordBatch`` and ``raft.internals.RecordsIterator``, but stricter: this module
refuses bytes that Kafka never writes, even if Kafka's readers ignore them.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat

from jbod_model.errors import MalformedLog
from jbod_model.formats.codec import read_struct, write_struct
from jbod_model.formats.control_records import CONTROL_TYPE_OF, CONTROL_TYPES, ControlRecord
from jbod_model.formats.schema import SCHEMAS
from jbod_model.wire import Undecodable, read_varint, read_varlong, take, write_varlong

_POLYNOMIAL = 0x82F63B78


def _entry(byte: int) -> int:
    *_, entry = accumulate(repeat(0, 8), lambda crc, _: crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0), initial=byte)
    return entry


_TABLE = tuple(_entry(byte) for byte in range(256))


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of ``data``."""
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


MAGIC = 2
CODEC_BITS = 0b111
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""By the number in a batch's attributes."""
MAX_BATCH_BYTES = 64 << 20
"""The most bytes of a batch's records (R-FMT-16). Kafka appends at most 8 MiB at once."""
CONTROL_BIT = 1 << 5

_BEFORE_LENGTH_ENDS = 12
_MAGIC_AT = 16
_CRC_COVERS_FROM = 21
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CONTROL_KEY = struct.Struct(">hh")

Data = bytes | mmap.mmap


LAST_TIME = 253_402_300_799_999
"""The last millisecond of the year 9999, since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """The header of a batch, and its position in the file."""

    position: int
    base_offset: int
    length: int
    """Bytes after this field, which ends at byte 12."""
    epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    """When the batch was appended, in milliseconds since 1970."""
    count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return _BEFORE_LENGTH_ENDS + self.length

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        """Whether the records are control records."""
        return bool(self.attributes & CONTROL_BIT)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: either ``values`` of metadata records or ``control`` records, never both (R-FMT-17)."""

    header: BatchHeader
    values: tuple[bytes, ...]
    control: tuple[ControlRecord, ...]


def is_time(millis: int) -> bool:
    """Whether Kafka may have written this time and calendars can show it: -1 for none, or from 1970 to the end of
    9999."""
    return -1 <= millis <= LAST_TIME


def compression_problem(codec: int) -> str:
    """Why a batch with this codec, which is not 0, is refused (R-FMT-15)."""
    name = CODECS[codec] if codec < len(CODECS) else "unknown"
    return f"the batch is compressed (codec {codec}, {name}), and Kafka never compresses the metadata log"


def read_batch(data: Data, at: int, *, file: str) -> Batch | None:
    """The batch at byte ``at``, or None if it is not complete yet (R-FMT-14).

    MalformedLog, with the batch's base offset, for a batch that is damaged or that Kafka never writes.
    """
    header = read_header(data, at, file=file)
    if header is None:
        return None
    try:
        if header.size - _HEADER.size > MAX_BATCH_BYTES:
            raise Undecodable(f"the batch at byte {at} has more than {MAX_BATCH_BYTES} bytes")
        if crc32c(data[at + _CRC_COVERS_FROM : at + header.size]) != header.crc:
            raise Undecodable(f"batch at byte {at}: the CRC-32C does not match")
        records = _read_records(data[at + _HEADER.size : at + header.size], header)
        if header.is_control:
            return Batch(header, (), tuple(_read_control(key, value) for key, value in records))
        return Batch(header, tuple(_data_value(key, value) for key, value in records), ())
    except Undecodable as problem:
        raise MalformedLog(file, header.base_offset, str(problem)) from None


def read_header(data: Data, at: int, *, file: str) -> BatchHeader | None:
    """The header of the batch at byte ``at``, checked except for the CRC; None if the batch is incomplete
    (R-FMT-11)."""
    remaining = len(data) - at
    if remaining > _MAGIC_AT and data[at + _MAGIC_AT] != MAGIC:
        raise MalformedLog(file, -1, f"byte {at} starts no record batch: magic is {data[at + _MAGIC_AT]}, not {MAGIC}")
    if remaining < _HEADER.size:
        return None
    (
        base_offset,
        length,
        epoch,
        _,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        *_,
        count,
    ) = _HEADER.unpack(data[at : at + _HEADER.size])
    least = _HEADER.size - _BEFORE_LENGTH_ENDS
    problem = None
    if base_offset < 0:
        problem = f"base offset is {base_offset}"
    elif length < least:
        problem = f"length is {length}, less than the {least} of its header"
    elif epoch < 0:
        problem = f"epoch is {epoch}"
    elif not is_time(max_timestamp):
        problem = f"timestamp is {max_timestamp}"
    elif attributes & CODEC_BITS:
        problem = compression_problem(attributes & CODEC_BITS)
    elif count < 1 or last_offset_delta != count - 1:
        problem = f"{count} records end at offset delta {last_offset_delta}"
    if problem is not None:
        raise MalformedLog(file, base_offset, f"batch at byte {at}: {problem}")
    if length > remaining - _BEFORE_LENGTH_ENDS:
        return None
    return BatchHeader(
        position=at,
        base_offset=base_offset,
        length=length,
        epoch=epoch,
        crc=crc,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        count=count,
    )


def _read_records(body: bytes, header: BatchHeader) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each record (R-FMT-13)."""
    if header.count > len(body):
        raise Undecodable(f"{header.count} records are announced in {len(body)} bytes")
    records = []
    at = 0
    for index in range(header.count):
        try:
            size, at = read_varint(body, at)
            if size <= 0:
                raise Undecodable(f"size is {size}")
            record, at = take(body, at, size)
            records.append(_read_record(record, index))
        except Undecodable as problem:
            raise Undecodable(f"record {index} of {header.count}: {problem}") from None
    if at != len(body):
        raise Undecodable(f"{len(body) - at} bytes follow the last record")
    return records


def _read_record(record: bytes, index: int) -> tuple[bytes | None, bytes | None]:
    at = 1  # no version uses the attributes of a record
    timestamp_delta, at = read_varlong(record, at)
    offset_delta, at = read_varint(record, at)
    if timestamp_delta != 0:
        raise Undecodable(f"timestamp delta is {timestamp_delta}; in this log it is always 0")
    if offset_delta != index:
        raise Undecodable(f"offset delta is {offset_delta}")
    key, at = _read_part(record, at)
    value, at = _read_part(record, at)
    headers, at = read_varint(record, at)
    if headers != 0:
        raise Undecodable(f"{headers} headers; this log has none")
    if at != len(record):
        raise Undecodable(f"{len(record) - at} bytes follow its end")
    return key, value


def _read_part(record: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(record, at)
    return (None, at) if size < 0 else take(record, at, size)


def _data_value(key: bytes | None, value: bytes | None) -> bytes:
    if key is not None:
        raise Undecodable("a metadata record has a key")
    if not value:
        raise Undecodable("a metadata record has no value")
    return value


def _read_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """R-FMT-18, R-FMT-19, R-FMT-20."""
    if key is None or value is None or len(key) < _CONTROL_KEY.size or len(value) < 2:
        raise Undecodable("a control record has no key or no value")
    key_version, number = _CONTROL_KEY.unpack_from(key)
    if key_version < 0 or number not in CONTROL_TYPES:
        raise Undecodable(f"control record type {number} (key version {key_version}) does not belong in this log")
    return read_control(number, value)


def read_control(number: int, value: bytes) -> ControlRecord:
    """The control record of a known type in ``value``; Undecodable if it is malformed (R-FMT-20)."""
    name = CONTROL_TYPES[number].__name__
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= SCHEMAS[name].max_version:
        raise Undecodable(f"{name} version {version} is unknown")
    record, at = read_struct(name, version, value, 0)
    if at != len(value):
        raise Undecodable(f"{name}: {len(value) - at} bytes follow its end")
    if not isinstance(record, ControlRecord):
        raise TypeError(name)
    return record


# WRITE


def write_batch(
    content: Sequence[bytes] | Sequence[ControlRecord],
    *,
    base_offset: int,
    epoch: int,
    timestamp: int,
) -> bytes:
    """A batch of metadata record values, or of control records; ``timestamp`` in milliseconds since 1970."""
    parts = [_written(item) for item in content]
    body = b"".join(_write_record(index, *part) for index, part in enumerate(parts))
    control = bool(content) and isinstance(content[0], ControlRecord)
    packed = _HEADER.pack(
        base_offset,
        _HEADER.size - _BEFORE_LENGTH_ENDS + len(body),
        epoch,
        MAGIC,
        0,
        CONTROL_BIT if control else 0,
        len(parts) - 1,
        timestamp,
        timestamp,
        -1,  # no producer id, epoch or sequence
        -1,
        -1,
        len(parts),
    )
    covered = packed[_CRC_COVERS_FROM:] + body
    return packed[: _MAGIC_AT + 1] + crc32c(covered).to_bytes(4, "big") + covered


def _written(item: bytes | ControlRecord) -> tuple[bytes | None, bytes]:
    if isinstance(item, bytes):
        return None, item
    return _CONTROL_KEY.pack(0, CONTROL_TYPE_OF[type(item)]), write_struct(item, item.version)


def _write_record(index: int, key: bytes | None, value: bytes) -> bytes:
    head = b"\0" + write_varlong(0) + write_varlong(index)
    key_part = write_varlong(-1) if key is None else write_varlong(len(key)) + key
    record = head + key_part + write_varlong(len(value)) + value + write_varlong(0)
    return write_varlong(len(record)) + record
