"""Compiles the schema table of jbod_model to the programs that pipelines.formats.walk executes (R-FMT-3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from jbod_model.formats.records import API_KEYS
from jbod_model.formats.schema import SCHEMAS, Field
from pipelines.formats import walk as w

_OPERATIONS = {
    "bool": w.I8,
    "int8": w.I8,
    "int16": w.I16,
    "uint16": w.I16,
    "int32": w.I32,
    "int64": w.I64,
    "float64": w.F64,
    "uuid": w.UUID,
    "string": w.STRING,
    "bytes": w.STRING,
}
_ARRAYS = {"int32": w.INTS, "uuid": w.UUIDS, "string": w.STRINGS}
# The fields kept of a record: which field of which type fills which slot.
_SLOTS = {
    ("TopicRecord", "name"): w.NAME,
    ("TopicRecord", "topic_id"): w.TOPIC_ID,
    ("RemoveTopicRecord", "topic_id"): w.TOPIC_ID,
    ("ClearElrRecord", "topic_name"): w.NAME,
    ("RegisterBrokerRecord", "broker_id"): w.BROKER_ID,
    ("UnregisterBrokerRecord", "broker_id"): w.BROKER_ID,
    ("BrokerRegistrationChangeRecord", "broker_id"): w.BROKER_ID,
    ("FenceBrokerRecord", "id"): w.BROKER_ID,
    ("UnfenceBrokerRecord", "id"): w.BROKER_ID,
    ("ProducerIdsRecord", "broker_id"): w.BROKER_ID,
}
_TYPES = max(API_KEYS) + 2
_VERSIONS = max(schema.max_version for schema in SCHEMAS.values() if schema.max_version < 32767) + 2


@dataclass(frozen=True)
class Programs:
    """``walked``: the programs of the kernel.

    ``entries`` int32[types, versions]: start of the program of each body, -1 if it is unknown. ``plain`` bool: types
    whose strings the kernel does not check, so that the plain codec must check them.
    """

    walked: w.Program
    entries: np.ndarray
    plain: np.ndarray

    def entries_of(self, types: np.ndarray, versions: np.ndarray) -> np.ndarray:
        """Entry of each record: int32[n], -1 if the type or version is unknown."""
        found: np.ndarray = self.entries[np.minimum(types, _TYPES - 1), np.minimum(versions, _VERSIONS - 1)]
        return found

    def is_plain(self, types: np.ndarray) -> np.ndarray:
        """Which records the plain codec must check: bool[n]."""
        found: np.ndarray = self.plain[np.minimum(types, _TYPES - 1)]
        return found


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
                    lines.append((w.END, w.NO_SLOT, 0))
            entries[api_key, version] = len(lines)
            lines += [_line(cls.__name__, field, version, structs) for field in fields]
            lines.append((w.END, len(sections), 0))
            sections.append(_section(schema.fields, version))
    return Programs(
        w.Program(
            steps=np.array(lines, np.int32),
            tags=np.array(sections, np.int32),
            no_tags=np.zeros((w.KNOWN_TAGS, 3), np.int32),
        ),
        entries,
        plain,
    )


def _line(owner: str, field: Field, version: int, structs: dict[tuple[str, int], int]) -> tuple[int, int, int]:
    slot = _SLOTS.get((owner, field.name), w.NO_SLOT)
    if field.array and field.type in SCHEMAS:
        return w.STRUCTS, slot, structs[(field.type, version)]
    if field.array:
        return _ARRAYS[field.type], slot, int(field.nullable)
    return _OPERATIONS[field.type], slot, int(field.nullable)


def _section(fields: tuple[Field, ...], version: int) -> np.ndarray:
    section = np.zeros((w.KNOWN_TAGS, 3), np.int32)
    for field in fields:
        if field.tag is None:
            continue
        if field.since > version:
            section[field.tag, 2] = w.BAD_TAG
        else:
            operation, _, argument = _line("", field, version, {})
            section[field.tag] = operation, argument, w.OK
    return section
