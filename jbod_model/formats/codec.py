"""Record values to records and back, by the table of ``jbod_model.formats.schema`` (docs/spec/formats.md)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.formats.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    Struct,
    TopicRecord,
    UnfenceBrokerRecord,
    UnknownRecord,
    UnregisterBrokerRecord,
    VersionedRecord,
)
from jbod_model.formats.schema import API_KEY_OF, API_KEYS, SCHEMAS, Field, Schema
from jbod_model.wire import PRIMITIVES, Read, Undecodable, Write, read_uvarint, take, write_uvarint

FRAME_VERSION = 1
HIGHEST_IN_FRAME = 0x7FFF

OF_THE_TABLES: frozenset[type[Record]] = frozenset(
    {
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        BrokerRegistrationChangeRecord,
        TopicRecord,
        RemoveTopicRecord,
        PartitionRecord,
        PartitionChangeRecord,
        ClearElrRecord,
        FeatureLevelRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
    }
)
"""Records that decide where replicas are, or which records count: an unknown version of them stops the reader
(R-REC-4)."""
UPGRADE = "upgrade jbod"
"""What to do about such a version."""


def decode(value: bytes, *, file: str = "record", offset: int = -1, keep_unknown: bool = False) -> VersionedRecord:
    """The record in a value of the metadata log.

    MalformedLog, with ``file`` and ``offset``, for bytes that no known Kafka writes. An unknown type becomes an
    UnknownRecord, and so does a later version of a type outside ``OF_THE_TABLES``; with ``keep_unknown``, a later
    version of any type (R-REC-4).

    Source: Kafka's ``AbstractApiMessageSerde``, but stricter (R-FMT-2, R-FMT-9). R-FMT-10: for any bytes the result is
    a record or MalformedLog, no other exception.
    """
    try:
        return _decode(value, keep_unknown)
    except Undecodable as problem:
        raise MalformedLog(file, offset, str(problem)) from None


def _decode(value: bytes, keep_unknown: bool) -> VersionedRecord:
    # FRAME
    frame, at = _read_frame_part(value, 0, "frame version")
    if frame != FRAME_VERSION:
        raise Undecodable(f"frame version {frame}, only {FRAME_VERSION} is known")
    api_key, at = _read_frame_part(value, at, "record type")
    version, at = _read_frame_part(value, at, "record version")
    # BODY
    record_type = API_KEYS.get(api_key)
    if record_type is None or version > SCHEMAS[record_type.__name__].max_version:
        if record_type is None or record_type not in OF_THE_TABLES or keep_unknown:
            return VersionedRecord(UnknownRecord(api_key=api_key, body=bytes(value[at:])), version)
        known = SCHEMAS[record_type.__name__].max_version
        raise Undecodable(f"{record_type.__name__} version {version}: this jbod knows up to {known}: {UPGRADE}")
    try:
        record, at = read_struct(record_type.__name__, version, value, at)
    except Undecodable as problem:
        raise Undecodable(f"{record_type.__name__} version {version}: {problem}") from None
    if at != len(value):
        raise Undecodable(f"{record_type.__name__} version {version}: {len(value) - at} bytes follow its end")
    if not isinstance(record, Record):
        raise TypeError(record_type)
    return VersionedRecord(record, version)


def _read_frame_part(value: bytes, at: int, what: str) -> tuple[int, int]:
    """R-FMT-1."""
    number, at = read_uvarint(value, at)
    if number > HIGHEST_IN_FRAME:
        raise Undecodable(f"{what} {number} is over {HIGHEST_IN_FRAME}")
    return number, at


def encode(versioned: VersionedRecord) -> bytes:
    """The value for the record; UsageError if its version cannot express it (R-FMT-8)."""
    record, version = versioned.record, versioned.version
    if isinstance(record, UnknownRecord):
        return write_uvarint(FRAME_VERSION) + write_uvarint(record.api_key) + write_uvarint(version) + record.body
    name = type(record).__name__
    if not 0 <= version <= SCHEMAS[name].max_version:
        raise UsageError(f"{name} has no version {version}: use 0 to {SCHEMAS[name].max_version}")
    head = write_uvarint(FRAME_VERSION) + write_uvarint(API_KEY_OF[type(record)]) + write_uvarint(version)
    return head + write_struct(record, version)


def read_struct(name: str, version: int, buffer: bytes, at: int) -> tuple[Struct, int]:
    """Read a struct of the table at ``version``, with its tagged section; Undecodable if the bytes do not hold one."""
    plan = _plan(name, version)
    values, unknown, at = read_fields(plan, version, buffer, at)
    return plan.cls(unknown_tags=tuple(unknown), **values), at


def read_fields(
    plan: FieldPlan, version: int, buffer: bytes, at: int
) -> tuple[dict[str, Any], list[tuple[int, bytes]], int]:
    """The values of a struct's fields, its unknown tags, and the position after it."""
    values: dict[str, Any] = {}
    for field, read, _ in plan.ordinary:
        try:
            values[field.name], at = read(buffer, at)
        except Undecodable as problem:
            raise Undecodable(f"{field.name}: {problem}") from None
    unknown: list[tuple[int, bytes]] = []
    count, at = read_uvarint(buffer, at)
    if count > len(buffer) - at:
        raise Undecodable(f"{count} tagged fields are announced, {len(buffer) - at} bytes remain")
    for _ in range(count):
        tag, at = read_uvarint(buffer, at)
        size, at = read_uvarint(buffer, at)
        content, at = take(buffer, at, size)
        if tag in plan.tagged:
            field, read, _ = plan.tagged[tag]
            values[field.name] = _read_tagged(field, read, content)
        elif tag in plan.later_tags:
            raise Undecodable(f"tag {tag} is not valid at version {version}")  # R-FMT-7
        else:
            unknown.append((tag, content))
    return values, unknown, at


def _read_tagged(field: Field, read: Read, content: bytes) -> Any:
    """R-FMT-9: the announced size of a known tag must be the size that its value takes."""
    try:
        value, end = read(content, 0)
    except Undecodable as problem:
        raise Undecodable(f"{field.name} (tag {field.tag}): {problem}") from None
    if end != len(content):
        raise Undecodable(f"{field.name} (tag {field.tag}): takes {end} bytes, {len(content)} are announced")
    return value


def write_struct(struct: Struct, version: int) -> bytes:
    """Write a struct of the table with its tagged section, tags ascending (R-FMT-7, R-FMT-8)."""
    name = type(struct).__name__
    plan = _plan(name, version)
    out = [write(getattr(struct, field.name)) for field, _, write in plan.ordinary]
    for missing, default in plan.missing.items():
        if getattr(struct, missing) != default:
            raise UsageError(f"{name} version {version} has no {missing}: use a later version")
    tags = list(struct.unknown_tags)
    if any(tag in plan.tagged or tag in plan.later_tags for tag, _ in tags):
        raise UsageError(f"{name}: an unknown tag has the number of a known one")
    for tag, (field, _, write) in plan.tagged.items():
        value = getattr(struct, field.name)
        if value != plan.defaults[field.name]:
            tags.append((tag, write(value)))
    return b"".join(out) + write_tags(tags)


def write_tags(tags: Iterable[tuple[int, bytes]]) -> bytes:
    """A tagged section."""
    ordered = sorted(tags, key=lambda entry: entry[0])
    parts = (write_uvarint(tag) + write_uvarint(len(content)) + content for tag, content in ordered)
    return write_uvarint(len(ordered)) + b"".join(parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldPlan:
    """How to read and write the fields of a struct at one version."""

    ordinary: Sequence[tuple[Field, Read, Write]]
    tagged: Mapping[int, tuple[Field, Read, Write]]
    later_tags: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _StructPlan(FieldPlan):
    """The same of a struct of the schema table."""

    cls: type[Struct]
    defaults: Mapping[str, Any]
    missing: Mapping[str, Any]
    """Field that only later versions have -> its default."""


@functools.cache
def _plan(name: str, version: int) -> _StructPlan:
    schema: Schema = SCHEMAS[name]
    defaults = {field.name: field.default for field in dataclasses.fields(schema.cls)}
    here = [(field, *_field_codec(field, version)) for field in schema.of(version)]
    later = [field for field in schema.fields if field.since > version]
    return _StructPlan(
        cls=schema.cls,
        ordinary=tuple(step for step in here if step[0].tag is None),
        tagged={step[0].tag: step for step in here if step[0].tag is not None},
        later_tags=frozenset(field.tag for field in later if field.tag is not None),
        defaults=defaults,
        missing={field.name: defaults[field.name] for field in later},
    )


def _field_codec(field: Field, version: int) -> tuple[Read, Write]:
    read: Read
    write: Write
    if field.type in PRIMITIVES:
        read, write = PRIMITIVES[field.type].read, PRIMITIVES[field.type].write
    else:
        read, write = functools.partial(read_struct, field.type, version), lambda struct: write_struct(struct, version)
    if field.array:
        read, write = array(never_null(read), write)
    return (read, write) if field.nullable else (never_null(read), _not_null(field, write))


def array(read_one: Read, write_one: Write) -> tuple[Read, Write]:
    """How to read and write an array (R-FMT-6)."""

    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        count, at = read_uvarint(buffer, at)
        if count == 0:
            return None, at
        if count - 1 > len(buffer) - at:
            raise Undecodable(f"{count - 1} elements are announced, {len(buffer) - at} bytes remain")
        elements = []
        for _ in range(count - 1):
            element, at = read_one(buffer, at)
            elements.append(element)
        return tuple(elements), at

    def write(value: Any) -> bytes:
        if value is None:
            return b"\0"
        return write_uvarint(len(value) + 1) + b"".join(map(write_one, value))

    return read, write


def never_null(read: Read) -> Read:
    """The same for a value that may not be null."""

    def checked(buffer: bytes, at: int) -> tuple[Any, int]:
        value, at = read(buffer, at)
        if value is None:
            raise Undecodable("is null")
        return value, at

    return checked


def _not_null(field: Field, write: Write) -> Write:
    def checked(value: Any) -> bytes:
        if value is None:
            raise UsageError(f"{field.name} may not be null")
        return write(value)

    return checked
