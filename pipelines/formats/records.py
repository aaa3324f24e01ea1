"""Records of whole batches in columns: the frame of each, the fields that replay needs, and the names of their types.

Frame rules: Kafka's RecordsIterator (raft) and AbstractApiMessageSerde; bodies: pipelines.formats.programs and
pipelines.formats.partitions. Each error names the offset and has the message of jbod_model's plain codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from jbod_model.errors import MalformedLog
from jbod_model.formats import codec
from jbod_model.formats.batch import read_batch
from jbod_model.formats.control_records import CONTROL_TYPE_NAMES
from jbod_model.formats.schema import API_KEY_OF, API_KEYS, TYPE_NAMES
from pipelines.formats.arrow_arrays import column, texts
from pipelines.formats.batches import BATCH_DTYPE, CONTROL_BIT, HEADER_BYTES
from pipelines.formats.kernels import helper, load_i16, njit, uvarint, varint, zero
from pipelines.formats.partitions import PARTITION, PARTITION_CHANGE, Bodies, PartitionRows, read_partition_rows
from pipelines.formats.programs import Walked, check, programs

# A control record of type t has record type CONTROL_BASE + t, above every api key.
CONTROL_BASE = 1 << 16
MAX_API_KEY = 32767
_OF_THE_TABLES = np.array(sorted(API_KEY_OF[kind] for kind in codec.OF_THE_TABLES), np.int32)

(_FINE, _LENGTH, _DELTA, _TIMESTAMP, _KEY, _NO_VALUE, _VALUE, _HEADERS, _FRAME, _REST, _COUNT) = range(11)
REPORT = "a defect of jbod, please report it"
_PROBLEMS = {
    _LENGTH: "length of the record does not fit its batch",
    _DELTA: "record has an offset delta that is not its place in the batch",
    _TIMESTAMP: "record timestamp delta is not 0",
    _KEY: "a metadata record must have no key, a control record one of at least 4 bytes",
    _NO_VALUE: "record has no value",
    _VALUE: "value length does not fit the record",
    _HEADERS: "record has headers, or bytes after them",
    _FRAME: "frame of the record value is broken (frame version 1, type and version expected)",
    _REST: "bytes follow the last record of the batch",
}


@dataclass(frozen=True)
class Records:
    """Columns of the ``n`` records of some batches, in log order.

    ``offsets`` int64[n]; ``batch`` int32[n]: row of ``headers``; ``types`` int32[n]: Kafka's apiKey, or CONTROL_BASE
    plus the control type; ``versions`` int16[n]; ``value_starts``, ``value_ends`` int64[n] into ``data``: the whole
    value, frame included. ``partition_at`` int64[m]: which records are the partition records of ``partitions``.
    ``broker_ids`` int32[n] (-1 none), ``topic_at``, ``name_at`` int64[n] (-1 none) into ``data``,
    ``name_sizes`` int64[n]: the few fields kept of the others. ``known`` bool[n]: false for records kept unread.
    """

    file: str
    data: np.ndarray
    headers: np.ndarray
    offsets: np.ndarray
    batch: np.ndarray
    types: np.ndarray
    versions: np.ndarray
    value_starts: np.ndarray
    value_ends: np.ndarray
    partition_at: np.ndarray
    partitions: PartitionRows
    broker_ids: np.ndarray
    topic_at: np.ndarray
    name_at: np.ndarray
    name_sizes: np.ndarray
    known: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets)

    def value(self, row: int) -> bytes:
        """The record value of one row."""
        return bytes(self.data[self.value_starts[row] : self.value_ends[row]])


class RecordFrames(NamedTuple):
    """Of each record its offset, batch, type and version; its value is ``data[starts[i]:ends[i]]``, without the frame
    ``data[bodies[i]:ends[i]]``. Types as in Records."""

    offsets: Any
    batch: Any
    types: Any
    versions: Any
    starts: Any
    bodies: Any
    ends: Any


@helper
def parts_of_record(data: Any, at: int, end: int, delta: int, control: bool) -> tuple[int, int, int, int]:
    """Start of the key, start and size of the value of the record at ``at``, and the index after the record: below 0, a
    code of _PROBLEMS, if it is malformed."""
    length, at, fine = varint(data, at, end)
    if not fine or length < 6 or length > end - at:  # R-FMT-13
        return 0, 0, 0, -_LENGTH
    stop = at + length
    at = zero(data, at + 1, stop, 10)  # attributes, timestamp delta
    if at < 0:
        return 0, 0, 0, -_TIMESTAMP
    place, at, fine = varint(data, at, stop)
    if not fine or place != delta:
        return 0, 0, 0, -_DELTA
    size, key, fine = varint(data, at, stop)
    # R-FMT-17: metadata records have no key, control records have one.
    if not fine or (control and (size < 4 or size > stop - key)) or (not control and size >= 0):
        return 0, 0, 0, -_KEY
    size, at, fine = varint(data, key + size if control else key, stop)
    if not fine or size <= 0:
        return 0, 0, 0, -_NO_VALUE
    if size > stop - at:
        return 0, 0, 0, -_VALUE
    if zero(data, at + size, stop, 5) != stop:
        return 0, 0, 0, -_HEADERS
    return key, at, size, stop


@helper
def _frame(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """Type (-1 if the frame is broken), version and body of the value at ``at`` (R-FMT-1)."""
    frame, at = uvarint(data, at, end)
    api_key, at = uvarint(data, at, end)
    version, at = uvarint(data, at, end)
    if frame != 1 or api_key < 0 or version < 0 or api_key > MAX_API_KEY or version > MAX_API_KEY:
        return -1, 0, at
    return api_key, version, at


@helper
def _read_frames(data: Any, headers: Any, frames: RecordFrames) -> tuple[int, int]:
    row = 0
    for b in range(len(headers)):
        header = headers[b]
        at = header.position + HEADER_BYTES
        end = header.position + header.size
        control = header.attributes & CONTROL_BIT != 0
        for k in range(header.count):
            key, start, size, at = parts_of_record(data, at, end, k, control)
            if at < 0:
                return row, -at
            frames.offsets[row] = header.base_offset + k
            frames.batch[row] = b
            frames.starts[row] = start
            frames.ends[row] = start + size
            if control:
                frames.types[row] = CONTROL_BASE + load_i16(data, key + 2)
                frames.versions[row] = load_i16(data, start) if size >= 2 else 0
                frames.bodies[row] = start
            else:
                api_key, version, body = _frame(data, start, start + size)
                if api_key < 0:
                    return row, _FRAME
                frames.types[row] = api_key
                frames.versions[row] = version
                frames.bodies[row] = body
            row += 1
        if at != end:
            return row - 1, _REST
    return row, _FINE


@njit(cache=True, nogil=True)
def _frames(data: Any, headers: Any, frames: RecordFrames) -> tuple[int, int]:
    return _read_frames(data, headers, frames)


def decode(data: np.ndarray, headers: np.ndarray, file: str, *, keep_unknown: bool = False) -> Records:
    """Columns of the records of ``headers`` (batches.scan). Their bytes are verified and not compressed.

    Raises MalformedLog at the first record that breaks a rule (R-FMT-10), an unknown version of a type that tables are
    made of included (R-FMT-2). Any other record of an unknown type or version is kept with its value, unread, and with
    ``keep_unknown`` that one, too (R-REC-4).
    """
    n = int(headers["count"].sum())
    frames = RecordFrames(
        offsets=np.empty(n, np.int64),
        batch=np.empty(n, np.int32),
        types=np.empty(n, np.int32),
        versions=np.empty(n, np.int16),
        starts=np.empty(n, np.int64),
        bodies=np.empty(n, np.int64),
        ends=np.empty(n, np.int64),
    )
    row, status = _frames(data, headers, frames)
    if status != _FINE:
        raise MalformedLog(file, _offset_of(headers, row), _PROBLEMS[status])
    return _decoded(data, headers, frames, file, keep_unknown=keep_unknown)


def decode_values(data: np.ndarray, ends: np.ndarray, offsets: np.ndarray, times: np.ndarray, file: str) -> Records:
    """Columns of record values that are consecutive in ``data``, without batches. Unknown ones are kept.

    ``ends`` int64[n + 1]: the start of each value, and the end of the last one; ``offsets`` int64[n]; ``times``
    int64[n] in milliseconds. Each value counts as a separate batch.
    """
    n = len(offsets)
    headers = np.zeros(n, BATCH_DTYPE)
    headers["base_offset"], headers["count"], headers["timestamp"] = offsets, 1, times
    types, versions, bodies = np.empty(n, np.int32), np.empty(n, np.int16), np.empty(n, np.int64)
    row = _value_frames(data, ends, types, versions, bodies)
    if row < n:
        raise MalformedLog(file, int(offsets[row]), _PROBLEMS[_FRAME])
    batch = np.arange(n, dtype=np.int32)
    frames = RecordFrames(offsets, batch, types, versions, ends[:-1], bodies, ends[1:])
    return _decoded(data, headers, frames, file, keep_unknown=True)


@njit(cache=True, nogil=True)
def _value_frames(data: Any, ends: Any, types: Any, versions: Any, bodies: Any) -> int:
    for row in range(len(types)):
        api_key, version, body = _frame(data, ends[row], ends[row + 1])
        if api_key < 0:
            return row
        types[row], versions[row], bodies[row] = api_key, version, body
    return len(types)


def _decoded(data: np.ndarray, headers: np.ndarray, frames: RecordFrames, file: str, *, keep_unknown: bool) -> Records:
    types = frames.types
    entries = programs().entries_of(types, frames.versions)
    is_partition = ((types == PARTITION) | (types == PARTITION_CHANGE)) & (entries >= 0)
    at = np.flatnonzero(is_partition)
    # Not assigned to a name, so that its memory is free for the next steps.
    partitions, done = read_partition_rows(
        Bodies(data, frames.bodies[at], frames.ends[at], types[at], frames.versions[at])
    )
    if done < len(at):
        raise _malformed(data, frames, int(at[done]), file)
    walked = ~is_partition & (types < CONTROL_BASE)
    if keep_unknown:
        walked &= entries >= 0
    else:
        walked &= (entries >= 0) | np.isin(types, _OF_THE_TABLES)
    return Records(
        file=file,
        data=data,
        headers=headers,
        offsets=frames.offsets,
        batch=frames.batch,
        types=types,
        versions=frames.versions,
        value_starts=frames.starts,
        value_ends=frames.ends,
        partition_at=at,
        partitions=partitions,
        **_walk_others(data, frames, entries, np.flatnonzero(walked), file),
        known=(entries >= 0) | (types >= CONTROL_BASE),
    )


def check_control(data: np.ndarray, headers: np.ndarray, file: str) -> None:
    """Checks control batches, of which there are few, with the plain reader (R-FMT-18, R-FMT-19, R-FMT-20)."""
    control = (headers["attributes"] & CONTROL_BIT) != 0
    for position, size in zip(headers["position"][control].tolist(), headers["size"][control].tolist(), strict=True):
        read_batch(data[position : position + size].tobytes(), 0, file=file)


def _walk_others(
    data: np.ndarray, frames: RecordFrames, entries: np.ndarray, rows: np.ndarray, file: str
) -> dict[str, np.ndarray]:
    """Walks the bodies of the records ``rows`` and returns the fields that Records keeps."""
    m = len(rows)
    table = programs()
    fields = Walked(
        broker_ids=np.full(m, -1, np.int32),
        topic_at=np.full(m, -1, np.int64),
        name_at=np.full(m, -1, np.int64),
        name_sizes=np.zeros(m, np.int64),
        suspect=np.zeros(m, np.bool_),
    )
    starts, ends = frames.bodies[rows], frames.ends[rows]
    done, _, _ = check(data, starts, ends, entries[rows], table.walked, fields)
    if done < m:
        raise _malformed(data, frames, int(rows[done]), file)
    # Text that is not ASCII, and nested structs, are rare: the plain codec checks them.
    for row in rows[fields.suspect | table.is_plain(frames.types[rows])].tolist():
        value = bytes(data[frames.starts[row] : frames.ends[row]])
        codec.decode(value, file=file, offset=int(frames.offsets[row]))
    n = len(frames.offsets)
    return {
        "broker_ids": _spread(fields.broker_ids, rows, n, -1),
        "topic_at": _spread(fields.topic_at, rows, n, -1),
        "name_at": _spread(fields.name_at, rows, n, -1),
        "name_sizes": _spread(fields.name_sizes, rows, n, 0),
    }


def _spread(values: np.ndarray, rows: np.ndarray, n: int, fill: int) -> np.ndarray:
    wide = np.full(n, fill, values.dtype)
    wide[rows] = values
    return wide


def _offset_of(headers: np.ndarray, row: int) -> int:
    firsts = np.cumsum(headers["count"]) - headers["count"]
    b = int(np.searchsorted(firsts, max(row, 0), side="right")) - 1
    return int(headers["base_offset"][b]) + max(row, 0) - int(firsts[b])


def _malformed(data: np.ndarray, frames: RecordFrames, row: int, file: str) -> MalformedLog:
    return refusal(bytes(data[frames.starts[row] : frames.ends[row]]), file, int(frames.offsets[row]))


def refusal(value: bytes, file: str, offset: int) -> MalformedLog:
    """Returns the plain codec's error for ``value``."""
    try:
        codec.decode(value, file=file, offset=offset)
    except MalformedLog as problem:
        return problem
    return MalformedLog(file, offset, f"the two readers disagree about this record: {REPORT}")


def type_names(types: np.ndarray) -> pa.Array:
    """Kafka's names of record types: dictionary<string>[n]."""
    distinct, numbers = np.unique(types, return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        column(numbers.astype(np.int16)), texts([type_name(int(record_type)) for record_type in distinct])
    )


def type_name(number: int) -> str:
    """Kafka's name of a record type, UNKNOWN_n if it has none."""
    if number >= CONTROL_BASE:
        return CONTROL_TYPE_NAMES.get(number - CONTROL_BASE, f"UNKNOWN_CONTROL_{number - CONTROL_BASE}")
    return TYPE_NAMES[API_KEYS[number]] if number in API_KEYS else f"UNKNOWN_{number}"


def kind_of(number: int, version: int) -> str:
    """What a record is called that is not known: ``record type 35``, ``ConfigRecord version 1``."""
    return f"{API_KEYS[number].__name__} version {version}" if number in API_KEYS else f"record type {number}"


def unknown_kinds(records: Records, kept: np.ndarray, snapshot: int | None) -> dict[str, int]:
    """The kinds of records that count and are not known, each with the offset of the first (R-REC-4).

    ``snapshot``: last contained offset where they are those of a snapshot.
    """
    first_offsets: dict[str, int] = {}
    for row in np.flatnonzero(kept & ~records.known).tolist():
        kind = kind_of(int(records.types[row]), int(records.versions[row]))
        first_offsets.setdefault(kind, int(records.offsets[row]) if snapshot is None else snapshot)
    return first_offsets


def first_of(kinds_of_slices: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The kinds of unknown records of several slices, each with the offset of the first."""
    first: dict[str, int] = {}
    for kinds in kinds_of_slices:
        for kind, offset in kinds.items():
            first[kind] = min(offset, first.get(kind, offset))
    return first
