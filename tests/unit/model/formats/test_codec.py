from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.formats import records
from jbod_model.formats.codec import decode, encode, read_struct, write_struct
from jbod_model.formats.control_records import CONTROL_TYPES
from jbod_model.formats.json_values import camel_case, record_as_json
from jbod_model.formats.records import Record, Struct, UnknownRecord, VersionedRecord
from jbod_model.formats.schema import API_KEY_OF, API_KEYS, SCHEMAS, Field
from jbod_model.ids import Uuid
from jbod_model.wire import LONGEST_STRING, Undecodable, read_varlong, write_uvarint, write_varlong
from tests.support.paths import GOLDEN
from tests.support.volume import amount

TOPIC_BYTES = "00000000000000010000000000000001"
CHANGE = "00000000" + TOPIC_BYTES


def golden() -> list[list[str]]:
    lines = (GOLDEN / "golden_records_4.1.2.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t") for line in lines if line]


# THE TABLE


def golden_schemas() -> dict[str, dict[int, list[str]]]:
    """Record -> version -> lines of the golden dump."""
    schemas: dict[str, dict[int, list[str]]] = {}
    for line in (GOLDEN / "schemas_4.3.1.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("==="):
            name = line.split()[2]
            schemas[name] = {}
        elif line.startswith("  -- v"):
            version = int(line[6:])
            schemas[name][version] = []
        elif line.strip() and line.strip() != "_tagged_fields":
            schemas[name][version].append(line[5:].rstrip())
    return schemas


KAFKA_TYPES = {"bool": "BOOLEAN", "float64": "FLOAT64", "string": "COMPACT_{}STRING", "bytes": "COMPACT_{}BYTES"}


def as_golden(field: Field, version: int) -> list[str]:
    """The lines that Kafka's own description has for a field."""
    kind = KAFKA_TYPES.get(field.type, field.type.upper())
    null = "NULLABLE_" if field.nullable else ""
    nested = SCHEMAS.get(field.type)
    lines = []
    if nested:
        inner = [line for part in nested.of(version) for line in as_golden(part, version)]
        kind = "{" + ",".join(re.sub(" nullable=.*", "", line).replace(" : ", ":") for line in inner)
        kind += ",_tagged_fields:TAGGED_FIELDS_TYPE_NAME()}"
        lines = ["    " + line for line in inner]
    if field.array:
        kind = f"COMPACT_{null}ARRAY({kind.replace('{}', '')})"
    kind = kind.replace("{}", null)
    if field.tag is not None:
        return [f"   tag {field.tag} {field.name} : {kind}"]
    return [f"{field.name} : {kind} nullable={str(field.nullable).lower()}", *lines]


def test_schema_table_equals_kafkas_own_of_every_version() -> None:
    """R-FMT-3."""
    ours: dict[str, dict[int, list[str]]] = {}
    for record in API_KEYS.values():
        ours[record.__name__] = {}
        for version in range(SCHEMAS[record.__name__].max_version + 1):
            fields = SCHEMAS[record.__name__].of(version)
            tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
            ordinary = [field for field in fields if field.tag is None]
            lines = [line for field in (*ordinary, *tagged) for line in as_golden(field, version)]
            ours[record.__name__][version] = lines
    since = {"UnregisterControllerRecord": {0: ["controller_id : INT32 nullable=false"]}}
    assert ours == golden_schemas() | since, "Kafka 4.3.1's and what 4.4.0 added"


def test_schema_table_and_classes_have_the_same_fields() -> None:
    """R-REC-2."""
    for name, schema in SCHEMAS.items():
        assert name == schema.cls.__name__
        assert [f.name for f in schema.fields] == [
            f.name for f in dataclasses.fields(schema.cls) if f.name != "unknown_tags"
        ] or issubclass(schema.cls, tuple(CONTROL_TYPES.values()))


# GOLDEN BYTES


@pytest.mark.parametrize(("label", "version", "value", "text"), golden(), ids=lambda part: part[:30])
def test_golden_record_is_read_and_written_the_same(label: str, version: str, value: str, text: str) -> None:
    """R-FMT-1, R-FMT-2, R-FMT-3, R-FMT-4, R-FMT-5, R-FMT-6, R-FMT-7, R-FMT-8: what Kafka's own serializer wrote."""
    decoded = decode(bytes.fromhex(value))
    assert decoded.version == int(version)
    assert encode(decoded).hex() == value
    assert java_text(decoded.record) == text


def java_text(value: Any) -> str:
    """A record as Kafka's generated ``toString`` has it."""
    if isinstance(value, Struct):
        schema = SCHEMAS[type(value).__name__]
        fields = [
            (camel_case(field.name), getattr(value, field.name))
            for field in schema.fields
            if "cordoned" not in field.name
        ]
        texts = (f"{name}=" + (f"'{item}'" if isinstance(item, str) else java_text(item)) for name, item in fields)
        return f"{type(value).__name__}({', '.join(texts)})"
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(java_text, value)) + "]"
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value in (None,) or value is True or value is False
        else str(value)
    )


# PROPERTIES


INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in INTS.items()},
    "uint16": st.integers(0, 65535),
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.builds(Uuid, *[st.integers(-(2**63), 2**63 - 1)] * 2),
    "string": TEXT,
    "bytes": st.binary(max_size=8),
}


def structs(name: str, version: int) -> st.SearchStrategy[Any]:
    """Any struct of the table that the version can say, unknown tags included."""
    schema = SCHEMAS[name]
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in schema.of(version):
        strategy = PRIMITIVES[field.type] if field.type in PRIMITIVES else structs(field.type, version)
        if field.array:
            strategy = st.lists(strategy, max_size=3).map(tuple)
        fields[field.name] = st.none() | strategy if field.nullable else strategy
    later = {30: st.binary(max_size=4)}
    tags = st.fixed_dictionaries({}, optional=later).map(lambda values: tuple(sorted(values.items())))
    return st.builds(schema.cls, unknown_tags=tags, **fields)


VERSIONED = st.sampled_from(
    [(record, version) for record in API_KEYS.values() for version in range(SCHEMAS[record.__name__].max_version + 1)]
).flatmap(lambda pair: structs(pair[0].__name__, pair[1]).map(lambda made: VersionedRecord(made, pair[1])))


@settings(max_examples=amount(100, 800))
@given(VERSIONED)
def test_record_of_any_type_and_version_comes_back(versioned: VersionedRecord) -> None:
    """R-FMT-8."""
    value = encode(versioned)
    assert decode(value) == versioned
    assert encode(decode(value)) == value


@settings(max_examples=amount(50, 400))
@given(VERSIONED, st.data())
def test_record_cut_anywhere_is_malformed(versioned: VersionedRecord, data: st.DataObject) -> None:
    value = encode(versioned)
    with pytest.raises(MalformedLog):
        decode(value[: data.draw(st.integers(0, len(value) - 1))])


@settings(max_examples=amount(100, 800))
@given(st.binary(max_size=60), st.sampled_from([*sorted(API_KEYS), 6, 29]), st.integers(0, 5), st.booleans())
def test_arbitrary_bytes_are_a_record_or_malformed(body: bytes, api_key: int, version: int, keep: bool) -> None:
    """R-FMT-10: no other error, ever."""
    try:
        versioned = decode(bytes([1, api_key, version]) + body, keep_unknown=keep)
    except MalformedLog as problem:
        assert (problem.file, problem.offset) == ("record", -1)
    else:
        assert isinstance(versioned.record, Record)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_comes_back(number: int) -> None:
    """R-FMT-4."""
    assert read_varlong(write_varlong(number), 0) == (number, len(write_varlong(number)))


@settings(max_examples=amount(25, 200))
@given(st.sampled_from(sorted(CONTROL_TYPES)).flatmap(lambda t: structs(CONTROL_TYPES[t].__name__, 0)))
def test_control_struct_comes_back(struct: Struct) -> None:
    """R-FMT-18."""
    raw = write_struct(struct, 0)
    assert read_struct(type(struct).__name__, 0, raw, 0) == (struct, len(raw))


# WHAT KAFKA'S READER TAKES OR REFUSES


def test_tags_in_any_order_and_twice_are_read_as_kafka_does() -> None:
    """R-FMT-7: any order, the last of the same tag wins, unknown ones are kept."""
    leader_twice = decode(bytes.fromhex(f"010501{CHANGE}02 0104 00000002 0104 00000003"))
    assert leader_twice.record == records.PartitionChangeRecord(partition_id=0, topic_id=Uuid(1, 1), leader=3)
    descending = decode(bytes.fromhex(f"010500{CHANGE}02 0104 00000002 0005 02 00000002"))
    assert isinstance(descending.record, records.PartitionChangeRecord)
    assert (descending.record.isr, descending.record.leader) == ((2,), 2)
    unknown = decode(bytes.fromhex(f"010501{CHANGE}01 1402 abcd"))
    assert unknown.record.unknown_tags == ((20, b"\xab\xcd"),)
    assert encode(unknown).hex() == f"010501{CHANGE}011402abcd"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "ends inside a varint"),
        ("00140000", "frame version 0"),
        ("02140000", "frame version 2"),
        ("0180808080800000", "more than 5 bytes"),
        ("01ffffffff1f0000", "over 32 bits"),
        ("018080020000", "record type 32768 is over"),
        ("01050300", "PartitionChangeRecord version 3: this jbod knows up to 2: upgrade jbod"),
        ("01170100", "BeginTransactionRecord version 1: this jbod knows up to 0: upgrade jbod"),
        ("0114000000", "1 bytes follow"),
        ("0114", "ends inside a varint"),
        (f"010500{CHANGE}01080101", "tag 8 is not valid at version 0"),
        (f"010501{CHANGE}01060101", "tag 6 is not valid at version 1"),
        (f"010500{CHANGE}01000a0200000002", "10 are announced"),
        (f"010500{CHANGE}010006020000000200", "takes 5 bytes, 6 are announced"),
        (f"010500{CHANGE}0100060300000002", "6 are announced"),
        (f"010500{CHANGE}05", "5 tagged fields are announced"),
        ("01020000" + TOPIC_BYTES + "00", "name: is null"),
        ("0102000480" + "00" * 20, "UTF-8"),
        ("010200ffff7f00", "announced"),
        ("01030000000000" + TOPIC_BYTES + "ffffffff0f", "elements are announced"),
        ("0103000000", "remain where 4 are needed"),
    ],
)
def test_malformed_value_is_refused_with_the_reason(value: str, problem: str) -> None:
    """R-FMT-1, R-FMT-2, R-FMT-3, R-FMT-4, R-FMT-5, R-FMT-6, R-FMT-7, R-FMT-8, R-FMT-9, R-FMT-10."""
    with pytest.raises(MalformedLog, match=problem) as caught:
        decode(bytes.fromhex(value), file="a.log", offset=7)
    assert str(caught.value).startswith("a.log: offset 7: ")


def test_string_longer_than_kafka_reads_is_refused_both_ways() -> None:
    """R-FMT-6."""
    record = records.ClearElrRecord(topic_name="n" * LONGEST_STRING)
    assert decode(encode(VersionedRecord(record, 0))).record == record
    with pytest.raises(UsageError):
        encode(VersionedRecord(records.ClearElrRecord(topic_name="n" * (LONGEST_STRING + 1)), 0))
    with pytest.raises(MalformedLog, match="32768 bytes"):
        decode(b"\x01\x1c\x00" + write_uvarint(LONGEST_STRING + 2) + b"n" * (LONGEST_STRING + 1) + b"\0")


@pytest.mark.parametrize("value", ["01060000", "01230000", "01140942", "01040100", "0112017f"])
def test_record_outside_the_tables_that_is_not_known_is_kept(value: str) -> None:
    """R-REC-4: of a type that is not known, or a later version of NoOp, Config or AccessControlEntry."""
    versioned = decode(bytes.fromhex(value))
    assert isinstance(versioned.record, UnknownRecord)
    assert encode(versioned).hex() == value


@pytest.mark.parametrize("value", ["011d0500ff", "01140942", "01050942"])
def test_unknown_record_is_kept_on_request(value: str) -> None:
    """R-REC-4."""
    kept = decode(bytes.fromhex(value), keep_unknown=True)
    assert isinstance(kept.record, UnknownRecord)
    assert encode(kept).hex() == value
    assert record_as_json(kept)["type"] == "UNKNOWN_RECORD"


@pytest.mark.parametrize(
    ("record", "version"),
    [
        (records.RegisterBrokerRecord(log_dirs=(Uuid(5, 5),)), 2),
        (records.RegisterBrokerRecord(is_migrating_zk_broker=True), 1),
        (records.PartitionRecord(directories=(Uuid(5, 5),)), 0),
        (records.PartitionChangeRecord(directories=()), 0),
        (records.PartitionChangeRecord(last_known_elr=()), 1),
        (records.NoOpRecord(), 1),
        (records.NoOpRecord(), -1),
        (records.TopicRecord(name=None), 0),  # type: ignore[arg-type]
        (records.TopicRecord(name="\ud800"), 0),
        (records.FeatureLevelRecord(feature_level=40_000), 0),
        (records.PartitionChangeRecord(unknown_tags=((8, b""),)), 0),
        (records.PartitionChangeRecord(unknown_tags=((8, b""),)), 1),
    ],
    ids=repr,
)
def test_record_that_its_version_cannot_say_is_refused(record: Record, version: int) -> None:
    """R-FMT-8."""
    with pytest.raises(UsageError):
        encode(VersionedRecord(record, version))


def test_not_a_number_has_its_json_form() -> None:
    """R-REC-3."""
    for value, text in ((math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (1.5, 1.5)):
        record = record_as_json(VersionedRecord(records.ClientQuotaRecord(value=value), 0))
        assert record["data"]["value"] == text


def test_primitive_over_its_width_is_refused() -> None:
    with pytest.raises(Undecodable, match="64 bits"):
        read_varlong(b"\xff" * 9 + b"\x7f", 0)
    with pytest.raises(Undecodable, match="10 bytes"):
        read_varlong(b"\xff" * 11, 0)


def test_api_keys_are_written_as_kafka_numbers_them() -> None:
    for record, api_key in API_KEY_OF.items():
        assert encode(VersionedRecord(record(), 0))[1] == api_key
