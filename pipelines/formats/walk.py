"""A kernel that checks the body of any metadata record by a program compiled from the schema table.

A program is a sequence of int32 triples ``(operation, slot, argument)``. Slots are the few fields kept of records other
than the two partition records (pipelines.formats.partitions): a broker id, a topic id, a topic name. So this module
has no code for a specific record type, and checks every type. Wire rules: Kafka's generated message classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipelines.formats.kernels import helper, njit
from pipelines.formats.native import load_i32, uvarint

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
def _check_all(data: Any, starts: Any, ends: Any, entries: Any, table: Program, found: Walked) -> tuple[int, int, int]:
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
                found.broker_ids[row] = load_i32(data, start)
            elif slot == TOPIC_ID:
                found.topic_at[row] = start
            elif slot == NAME:
                size, name, _ = compact(data, start, end, 1, 1)
                found.name_at[row], found.name_sizes[row] = name, size
            if operation == STRING:
                for k in range(start, at):
                    if data[k] >= 128:
                        found.suspect[row] = True
            pc += 1
        at, status = skip_tags(data, at, end, table.tags[table.steps[pc, 1]])
        if status != OK:
            return row, at, status
        if at != end:
            return row, at, TRAILING
    return len(starts), np.int64(0), OK


@njit(cache=True, nogil=True)
def check(data: Any, starts: Any, ends: Any, entries: Any, table: Program, found: Walked) -> tuple[int, int, int]:
    """Walks bodies ``data[starts[i]:ends[i]]`` by the program at ``entries[i]`` and fills row i of ``found``.

    Returns (rows walked, index, status). If there are fewer rows than given, the next row is malformed at that index.
    """
    return _check_all(data, starts, ends, entries, table, found)
