"""Kafka's JSON form of records, requests and responses: schema names in camelCase, ids in base64 (R-JSON-1).

Of records also the form of Kafka's own log dump (R-REC-3).
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from jbod_model.formats.codec import decode
from jbod_model.formats.control_records import DUMP_NAMES, ControlRecord
from jbod_model.formats.log import read_file
from jbod_model.formats.records import Struct, UnknownRecord, VersionedRecord
from jbod_model.formats.schema import SCHEMAS, TYPE_NAMES
from jbod_model.ids import Uuid

T = TypeVar("T")


class JsonMismatch(ValueError):
    """A JSON value that does not have the form of its field; the message names the field."""


def camel_case(name: str) -> str:
    """``last_known_elr`` -> ``lastKnownElr``."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@functools.cache
def _fields(cls: Any) -> Mapping[str, tuple[str, Any]]:
    """camelCase name -> (attribute, type) of every field that has a JSON form."""
    hints = typing.get_type_hints(cls)
    return {
        camel_case(field.name): (field.name, hints[field.name])
        for field in dataclasses.fields(cls)
        if field.name != "unknown_tags"
    }


def read(cls: type[T], value: Any) -> T:
    """The ``cls`` that ``value`` describes; a missing field has its default.

    JsonMismatch if it does not describe one.
    """
    if not isinstance(value, dict):
        raise JsonMismatch(f"{cls.__name__}: an object is needed, not {value!r:.60}")
    kind: Any = cls
    fields = _fields(kind)
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise JsonMismatch(f"{cls.__name__}: there is no field {unknown[0]}")
    known = {fields[name][0]: _read(f"{cls.__name__}.{name}", fields[name][1], item) for name, item in value.items()}
    try:
        return cls(**known)
    except TypeError as problem:
        raise JsonMismatch(f"{cls.__name__}: {problem}") from None


def _read(where: str, hint: Any, value: Any) -> Any:
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        (hint,) = (choice for choice in typing.get_args(hint) if choice is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise JsonMismatch(f"{where}: a list is needed, not {value!r:.60}")
        return tuple(_read(where, typing.get_args(hint)[0], item) for item in value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read(hint, value)
    if hint is Uuid or hint is bytes:
        return _read_text(where, hint, value)
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise JsonMismatch(f"{where}: {hint.__name__} is needed, not {value!r:.60}")
    return value


def _read_text(where: str, hint: Any, value: Any) -> Any:
    if not isinstance(value, str):
        raise JsonMismatch(f"{where}: a text is needed, not {value!r:.60}")
    try:
        return Uuid.parse(value) if hint is Uuid else base64.b64decode(value, validate=True)
    except ValueError as problem:
        raise JsonMismatch(f"{where}: {problem}") from None


def write(value: Any) -> Any:
    """The JSON value of a dataclass, with every field."""
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, tuple):
        return [write(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: write(getattr(value, attribute)) for name, (attribute, _) in _fields(type(value)).items()}
    return int(value) if isinstance(value, enum.IntEnum) else value


def record_as_json(versioned: VersionedRecord) -> dict[str, Any]:
    """``{"type", "version", "data"}``; of an unknown record, ``data`` has its api key and its body in base64."""
    record = versioned.record
    if isinstance(record, UnknownRecord):
        data = {"apiKey": record.api_key, "body": _value(record.body)}
        return {"type": "UNKNOWN_RECORD", "version": versioned.version, "data": data}
    return {
        "type": TYPE_NAMES[type(record)],
        "version": versioned.version,
        "data": struct_as_json(record, versioned.version),
    }


def control_as_json(record: ControlRecord) -> dict[str, Any]:
    """``{"LeaderChange": {...}}`` and so on."""
    return {DUMP_NAMES[type(record)]: struct_as_json(record, record.version)}


def struct_as_json(struct: Struct, version: int) -> dict[str, Any]:
    """The fields of the version by their names in the schema; tagged fields only if they differ from their default."""
    schema = SCHEMAS[type(struct).__name__]
    defaults = {field.name: field.default for field in dataclasses.fields(struct)}
    fields = {
        camel_case(field.name): _value(getattr(struct, field.name), version)
        for field in schema.of(version)
        if field.tag is None or getattr(struct, field.name) != defaults[field.name]
    }
    if struct.unknown_tags:
        fields["unknownTags"] = [{"tag": tag, "bytes": _value(content)} for tag, content in struct.unknown_tags]
    return fields


def _value(value: Any, version: int = 0) -> Any:
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, tuple):
        return [_value(element, version) for element in value]
    if isinstance(value, Struct):
        return struct_as_json(value, version)
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value


def dump_lines(path: Path, *, keep_unknown: bool = False) -> Iterator[dict[str, Any]]:
    """Every record of a segment or snapshot, one JSON object each; MalformedLog at the first that cannot be read.

    ``timestamp`` is in milliseconds since 1970; ``payload`` is a metadata record, ``control`` a control record.
    """
    for batch in read_file(path):
        header = batch.header
        facts = {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.count,
            "position": header.position,
            "size": header.size,
            "codec": "none",
            "crc": header.crc,
            "isControl": header.is_control,
        }
        for index in range(header.count):
            offset = header.base_offset + index
            content = (
                {"control": control_as_json(batch.control[index])}
                if header.is_control
                else {
                    "payload": record_as_json(
                        decode(batch.values[index], file=str(path), offset=offset, keep_unknown=keep_unknown)
                    )
                }
            )
            yield {
                "offset": offset,
                "timestamp": header.max_timestamp,
                "epoch": header.epoch,
                "batch": facts,
                **content,
            }
