"""Records of every type and version, and logs of them, for hypothesis."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from jbod_model.formats.control_records import CONTROL_TYPES, ControlRecord
from jbod_model.formats.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    VersionedRecord,
)
from jbod_model.formats.schema import API_KEYS, SCHEMAS
from jbod_model.ids import Uuid

_INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in _INTS.items()},
    "uint16": st.integers(0, 65535),
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.builds(Uuid, *[st.integers(-(2**63), 2**63 - 1)] * 2),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.just("x" * 200),
    "bytes": st.binary(max_size=8),
}
MARKERS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


@cache
def structs(name: str, version: int) -> st.SearchStrategy[Any]:
    """Any struct of the schema that the version can say, unknown tags included."""
    schema = SCHEMAS[name]
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in schema.of(version):
        strategy = _PRIMITIVES[field.type] if field.type in _PRIMITIVES else structs(field.type, version)
        if field.array:
            strategy = st.lists(strategy, max_size=4).map(tuple)
        fields[field.name] = st.none() | strategy if field.nullable else strategy
    unknown = {30: st.binary(max_size=4), 300: st.binary(max_size=200)}
    tags = st.fixed_dictionaries({}, optional=unknown).map(lambda tag_values: tuple(sorted(tag_values.items())))
    return st.builds(schema.cls, unknown_tags=tags, **fields)


VERSIONED: st.SearchStrategy[VersionedRecord] = st.sampled_from(
    [
        (record, version)
        for record in API_KEYS.values()
        for version in range(SCHEMAS[record.__name__].max_version + 1)
        if record not in MARKERS
    ]
).flatmap(lambda pair: structs(pair[0].__name__, pair[1]).map(lambda made: VersionedRecord(made, pair[1])))

CONTROL: st.SearchStrategy[ControlRecord] = st.sampled_from([name.__name__ for name in CONTROL_TYPES.values()]).flatmap(
    lambda name: structs(name, 0).map(lambda made: type(made)(**{**_fields(made), "version": 0}))
)


def _fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__dataclass_fields__}
