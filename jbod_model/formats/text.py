"""Records in the JSON form of Kafka's own log dump (R-REC-3)."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jbod_model.formats.codec import decode
from jbod_model.formats.control_records import DUMP_NAMES, ControlRecord
from jbod_model.formats.json_values import camel_case
from jbod_model.formats.log import read_file
from jbod_model.formats.records import TYPE_NAMES, Struct, UnknownRecord, VersionedRecord
from jbod_model.formats.schema import SCHEMAS
from jbod_model.ids import Uuid


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
