"""The bodies of all metadata records: a kernel checks each by a program that is compiled from the schema table.

A program is a sequence of int32 triples ``(operation, slot, argument)``. Slots are the few fields kept of records other
than the two partition records (pipelines.formats.partitions): a broker id, a topic id, a topic name. So this module
has no code for a specific record type, and checks every type. Wire rules: Kafka's generated message classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from jbod_model.formats.schema import API_KEYS, SCHEMAS, Field
from pipelines.formats.kernels import helper, load_i32, njit, uvarint

# Operations. The argument of STRING and ARRAY says whether null is allowed, that of STRUCTS where its elements begin.
END, I8, I16, I32, I64, UUID, F64, STRING, INTS, UUIDS, STRINGS, STRUCTS = range(12)
NO_SLOT, BROKER_ID, TOPIC_ID, NAME = range(-1, 3)
KNOWN_TAGS = 16

OK, SHORT, BAD_VARINT, BAD_NULL, BAD_LENGTH, BAD_TAG, TRAILING, UNKNOWN = range(8)


@njit(inline="always")
def compact(data: Any, at: int, end: int, width: int, nullable: int) -> tuple[int, int, int]:
    """Length of a compact string or array, at most the remaining bytes (R-FMT-6): (elements or -1, next, status)."""
    raw, at = uvarint(data, at, end)
    count = raw - 1
    if raw < 0:
        return count, at, BAD_VARINT
    if count < 0:
        return count, at, OK if nullable else BAD_NULL
    if count * width > end - at:
        return count, at, BAD_LENGTH
    return count, at, OK


@njit(cache=True, nogil=True)
def _width(operation: int) -> int:
    """Bytes of a type of a fixed size (R-FMT-5), or of an element."""
    if operation == I8:
        return 1
    if operation == I16:
        return 2
    if operation in (I32, INTS):
        return 4
    if operation in (UUID, UUIDS):
        return 16
    if operation in (I64, F64):
        return 8
    return 1


@njit(cache=True, nogil=True)
def skip_field(data: Any, at: int, end: int, operation: int, argument: int) -> tuple[int, int]:
    """Walks one field that holds no structs. Returns (next index, status)."""
    width = _width(operation)
    if operation < STRING:
        return at + width, OK if width <= end - at else SHORT
    count, at, status = compact(data, at, end, width, argument)
    if status != OK or count < 0:
        return at, status
    if operation != STRINGS:
        return at + count * width, OK
    for _ in range(count):
        size, at, status = compact(data, at, end, 1, 0)
        if status != OK:
            return at, status
        at += size
    return at, OK


@njit(cache=True, nogil=True)
def skip_tags(data: Any, at: int, end: int, tags: Any) -> tuple[int, int]:
    """Walks a tagged section (R-FMT-7). ``tags`` int32[KNOWN_TAGS, 3]: operation, argument, status if refused."""
    count, at = uvarint(data, at, end)
    if count < 0:
        return at, BAD_VARINT
    for _ in range(count):
        tag, at = uvarint(data, at, end)
        size, at = uvarint(data, at, end)
        if tag < 0 or size < 0:
            return at, BAD_VARINT
        if size > end - at:
            return at, BAD_LENGTH
        stop = at + size
        if tag < KNOWN_TAGS:
            if tags[tag, 2] != OK:
                return at, BAD_TAG
            if tags[tag, 0] != END:
                at, status = skip_field(data, at, stop, tags[tag, 0], tags[tag, 1])
                if status != OK:
                    return at, status
                # R-FMT-9: Kafka does not compare a known tag with its declared size.
                if at != stop:
                    return at, BAD_LENGTH
        at = stop
    return at, OK


@njit(cache=True, nogil=True)
def _skip_structs(data: Any, at: int, end: int, program: Any, pc: int, no_tags: Any) -> tuple[int, int]:
    count, at, status = compact(data, at, end, 1, 0)
    if status != OK:
        return at, status
    for _ in range(count):
        step = pc
        while program[step, 0] != END:
            at, status = skip_field(data, at, end, program[step, 0], program[step, 2])
            if status != OK:
                return at, status
            step += 1
        at, status = skip_tags(data, at, end, no_tags)
        if status != OK:
            return at, status
    return at, OK


class Program(NamedTuple):
    """The programs of all record versions, made by pipelines.formats.programs.

    ``steps`` int32[*, 3], ``tags`` int32[sections, KNOWN_TAGS, 3], ``no_tags`` int32[KNOWN_TAGS, 3].
    """

    steps: Any
    tags: Any
    no_tags: Any


class Walked(NamedTuple):
    """The fields kept of each body, -1 if it has no such field.

    ``broker_ids`` int32; ``topic_at``, ``name_at`` int64 into the data, ``name_sizes`` int64; ``suspect`` bool: text
    that is not ASCII (or a long length). Its UTF-8 must still be checked.
    """

    broker_ids: Any
    topic_at: Any
    name_at: Any
    name_sizes: Any
    suspect: Any


@helper
def _check_all(data: Any, starts: Any, ends: Any, entries: Any, table: Program, fields: Walked) -> tuple[int, int, int]:
    for row in range(len(starts)):
        at, end, pc = starts[row], ends[row], np.int64(entries[row])
        if pc < 0:
            return row, at, UNKNOWN
        while table.steps[pc, 0] != END:
            operation, slot, argument = table.steps[pc, 0], table.steps[pc, 1], table.steps[pc, 2]
            start = at
            if operation == STRUCTS:
                at, status = _skip_structs(data, at, end, table.steps, np.int64(argument), table.no_tags)
            else:
                at, status = skip_field(data, at, end, operation, argument)
            if status != OK:
                return row, at, status
            if slot == BROKER_ID:
                fields.broker_ids[row] = load_i32(data, start)
            elif slot == TOPIC_ID:
                fields.topic_at[row] = start
            elif slot == NAME:
                size, name, _ = compact(data, start, end, 1, 1)
                fields.name_at[row], fields.name_sizes[row] = name, size
            if operation == STRING:
                for k in range(start, at):
                    if data[k] >= 128:
                        fields.suspect[row] = True
            pc += 1
        at, status = skip_tags(data, at, end, table.tags[table.steps[pc, 1]])
        if status != OK:
            return row, at, status
        if at != end:
            return row, at, TRAILING
    return len(starts), np.int64(0), OK


@njit(cache=True, nogil=True)
def check(data: Any, starts: Any, ends: Any, entries: Any, table: Program, fields: Walked) -> tuple[int, int, int]:
    """Walks bodies ``data[starts[i]:ends[i]]`` by the program at ``entries[i]`` and fills row i of ``fields``.

    Returns (rows walked, index, status). If there are fewer rows than given, the next row is malformed at that index.
    """
    return _check_all(data, starts, ends, entries, table, fields)


_OPERATIONS = {
    "bool": I8,
    "int8": I8,
    "int16": I16,
    "uint16": I16,
    "int32": I32,
    "int64": I64,
    "float64": F64,
    "uuid": UUID,
    "string": STRING,
    "bytes": STRING,
}
_ARRAYS = {"int32": INTS, "uuid": UUIDS, "string": STRINGS}
# The fields kept of a record: which field of which type fills which slot.
_SLOTS = {
    ("TopicRecord", "name"): NAME,
    ("TopicRecord", "topic_id"): TOPIC_ID,
    ("RemoveTopicRecord", "topic_id"): TOPIC_ID,
    ("ClearElrRecord", "topic_name"): NAME,
    ("RegisterBrokerRecord", "broker_id"): BROKER_ID,
    ("UnregisterBrokerRecord", "broker_id"): BROKER_ID,
    ("BrokerRegistrationChangeRecord", "broker_id"): BROKER_ID,
    ("FenceBrokerRecord", "id"): BROKER_ID,
    ("UnfenceBrokerRecord", "id"): BROKER_ID,
    ("ProducerIdsRecord", "broker_id"): BROKER_ID,
}
_TYPES = max(API_KEYS) + 2
_VERSIONS = max(schema.max_version for schema in SCHEMAS.values() if schema.max_version < 32767) + 2


@dataclass(frozen=True)
class Programs:
    """``walked``: the programs of the kernel.

    ``entries`` int32[types, versions]: start of the program of each body, -1 if it is unknown. ``plain`` bool: types
    whose strings the kernel does not check, so that the plain codec must check them.
    """

    walked: Program
    entries: np.ndarray
    plain: np.ndarray

    def entries_of(self, types: np.ndarray, versions: np.ndarray) -> np.ndarray:
        """Entry of each record: int32[n], -1 if the type or version is unknown."""
        entries: np.ndarray = self.entries[np.minimum(types, _TYPES - 1), np.minimum(versions, _VERSIONS - 1)]
        return entries

    def is_plain(self, types: np.ndarray) -> np.ndarray:
        """Which records the plain codec must check: bool[n]."""
        mask: np.ndarray = self.plain[np.minimum(types, _TYPES - 1)]
        return mask


@cache
def programs() -> Programs:
    """The programs of every record version."""
    lines: list[tuple[int, int, int]] = []
    sections: list[np.ndarray] = []
    structs: dict[tuple[str, int], int] = {}
    entries = np.full((_TYPES, _VERSIONS), -1, np.int32)
    plain = np.zeros(_TYPES, np.bool_)
    for api_key, cls in API_KEYS.items():
        schema = SCHEMAS[cls.__name__]
        plain[api_key] = any(
            f.type in SCHEMAS or (f.type == "string" and (f.array or f.tag is not None)) for f in schema.fields
        )
        for version in range(schema.max_version + 1):
            fields = [field for field in schema.of(version) if field.tag is None]
            for field in fields:
                if field.type in SCHEMAS and (field.type, version) not in structs:
                    structs[(field.type, version)] = len(lines)
                    lines += [_line("", part, version, structs) for part in SCHEMAS[field.type].of(version)]
                    lines.append((END, NO_SLOT, 0))
            entries[api_key, version] = len(lines)
            lines += [_line(cls.__name__, field, version, structs) for field in fields]
            lines.append((END, len(sections), 0))
            sections.append(_section(schema.fields, version))
    return Programs(
        Program(
            steps=np.array(lines, np.int32),
            tags=np.array(sections, np.int32),
            no_tags=np.zeros((KNOWN_TAGS, 3), np.int32),
        ),
        entries,
        plain,
    )


def _line(owner: str, field: Field, version: int, structs: dict[tuple[str, int], int]) -> tuple[int, int, int]:
    slot = _SLOTS.get((owner, field.name), NO_SLOT)
    if field.array and field.type in SCHEMAS:
        return STRUCTS, slot, structs[(field.type, version)]
    if field.array:
        return _ARRAYS[field.type], slot, int(field.nullable)
    return _OPERATIONS[field.type], slot, int(field.nullable)


def _section(fields: tuple[Field, ...], version: int) -> np.ndarray:
    section = np.zeros((KNOWN_TAGS, 3), np.int32)
    for field in fields:
        if field.tag is None:
            continue
        if field.since > version:
            section[field.tag, 2] = BAD_TAG
        else:
            operation, _, argument = _line("", field, version, {})
            section[field.tag] = operation, argument, OK
    return section
