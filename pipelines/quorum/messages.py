"""The messages that a reader of the quorum, or of brokers' sizes, sends and receives, as a table of fields.

All are flexible versions (KIP-482) of Kafka 3.7 and later, except SaslHandshake. A message is a dictionary by the names
of the table. Every length is compared with the bytes that remain before it is used (`jbod_model.wire`).

Source: the JSON schemas of Kafka 4.4.0. kio has all of Kafka's messages as generated classes; these eight as a table
are less to own than its 1 MB with a compiled part, and read with the primitives that records already have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jbod_model.errors import JbodError
from jbod_model.wire import PRIMITIVES, Undecodable, read_uvarint, take, write_uvarint

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
FETCH, DESCRIBE_LOG_DIRS, DESCRIBE_QUORUM, FETCH_SNAPSHOT, DESCRIBE_CLUSTER = 1, 35, 55, 59, 60

TABLE = """
ApiVersionsRequest
    software_name string
    software_version string
ApiVersionsResponse
    error_code int16
    api_keys []ApiVersion
    throttle_time_ms int32
ApiVersion
    api_key int16
    min_version int16
    max_version int16
SaslAuthenticateRequest
    auth_bytes bytes
SaslAuthenticateResponse
    error_code int16
    error_message string?
    auth_bytes bytes
    session_lifetime_ms int64
DescribeQuorumRequest
    topics []QuorumTopicName
QuorumTopicName
    name string
    partitions []QuorumPartitionIndex
QuorumPartitionIndex
    index int32
DescribeQuorumResponse
    error_code int16
    error_message string? 2+
    topics []QuorumTopic
    nodes []QuorumNode 2+
QuorumTopic
    name string
    partitions []QuorumPartition
QuorumPartition
    index int32
    error_code int16
    error_message string? 2+
    leader_id int32
    leader_epoch int32
    high_watermark int64
    voters []QuorumReplica
    observers []QuorumReplica
QuorumReplica
    replica_id int32
    directory_id uuid 2+
    log_end_offset int64
    last_fetch_timestamp int64 1+
    last_caught_up_timestamp int64 1+
QuorumNode
    node_id int32
    listeners []QuorumListener
QuorumListener
    name string
    host string
    port uint16
DescribeClusterRequest
    include_operations bool
    endpoint_type int8 1+
DescribeClusterResponse
    throttle_time_ms int32
    error_code int16
    error_message string?
    endpoint_type int8 1+
    cluster_id string
    controller_id int32
    brokers []ClusterNode
    operations int32
ClusterNode
    node_id int32
    host string
    port int32
    rack string?
DescribeLogDirsRequest
    topics []LogDirTopicName?
LogDirTopicName
    topic string
    partitions []int32
DescribeLogDirsResponse
    throttle_time_ms int32
    error_code int16
    results []LogDirResult
LogDirResult
    error_code int16
    log_dir string
    topics []LogDirTopic
    total_bytes int64
    usable_bytes int64
    is_cordoned bool 5+
LogDirTopic
    name string
    partitions []LogDirPartition
LogDirPartition
    index int32
    size int64
    offset_lag int64
    is_future bool
FetchRequest
    cluster_id string? #0
    replica_id int32 13-14
    max_wait_ms int32
    min_bytes int32
    max_bytes int32
    isolation_level int8
    session_id int32
    session_epoch int32
    topics []FetchTopic
    forgotten []Forgotten
    rack_id string
FetchTopic
    topic_id uuid
    partitions []FetchPartition
FetchPartition
    index int32
    leader_epoch int32
    offset int64
    last_fetched_epoch int32
    log_start_offset int64
    max_bytes int32
    high_watermark int64 18+ #1
Forgotten
    topic_id uuid
    partitions []int32
FetchResponse
    throttle_time_ms int32
    error_code int16
    session_id int32
    topics []FetchedTopic
    nodes []ClusterNode 16+ #0
FetchedTopic
    topic_id uuid
    partitions []FetchedPartition
FetchedPartition
    index int32
    error_code int16
    high_watermark int64
    last_stable_offset int64
    log_start_offset int64
    diverging EpochEnd #0
    leader Leader #1
    snapshot_id SnapshotId #2
    aborted []Aborted?
    preferred_replica int32
    records records?
EpochEnd
    epoch int32
    end_offset int64
Leader
    id int32
    epoch int32
SnapshotId
    end_offset int64
    epoch int32
Aborted
    producer_id int64
    first_offset int64
FetchSnapshotRequest
    cluster_id string? #0
    replica_id int32
    max_bytes int32
    topics []SnapshotTopic
SnapshotTopic
    name string
    partitions []SnapshotPartition
SnapshotPartition
    index int32
    leader_epoch int32
    snapshot_id SnapshotId
    position int64
FetchSnapshotResponse
    throttle_time_ms int32
    error_code int16
    topics []SnapshotPieces
    nodes []SnapshotNode 1+ #0
SnapshotPieces
    name string
    partitions []SnapshotPiece
SnapshotPiece
    index int32
    error_code int16
    snapshot_id SnapshotId
    leader Leader #0
    size int64
    position int64
    records records
SnapshotNode
    node_id int32
    host string
    port uint16
"""
"""A line that is not indented starts a struct. A field: name, type, versions if not all, ``#n`` if it is tagged. ``[]``
means an array, ``?`` that null may come. Records are bytes that are not copied: a memoryview of the answer."""

NAMES: Mapping[int, str] = {
    API_VERSIONS: "ApiVersions",
    SASL_AUTHENTICATE: "SaslAuthenticate",
    FETCH: "Fetch",
    DESCRIBE_QUORUM: "DescribeQuorum",
    FETCH_SNAPSHOT: "FetchSnapshot",
    DESCRIBE_CLUSTER: "DescribeCluster",
    DESCRIBE_LOG_DIRS: "DescribeLogDirs",
}
VERSIONS: Mapping[int, tuple[int, int]] = {
    API_VERSIONS: (3, 3),
    SASL_HANDSHAKE: (1, 1),
    SASL_AUTHENTICATE: (2, 2),
    FETCH: (13, 18),
    DESCRIBE_QUORUM: (0, 2),
    FETCH_SNAPSHOT: (0, 1),
    DESCRIBE_CLUSTER: (1, 1),
    DESCRIBE_LOG_DIRS: (4, 5),
}
"""The versions of each message that the table has."""

Message = dict[str, Any]
Data = bytes | memoryview
RECORDS = "records"


class BadMessage(JbodError):
    """Bytes that are not the message that they should be."""


@dataclass(frozen=True)
class _Field:
    name: str
    type: str
    array: bool
    nullable: bool
    since: int
    until: int
    tag: int | None


def encode(name: str, version: int, message: Mapping[str, Any]) -> bytes:
    """The bytes of a message. A tagged field that is not in it is left out."""
    out, tagged = bytearray(), []
    for field in _fields(name, version):
        if field.tag is None:
            out += _encoded(field, version, message[field.name])
        elif field.name in message:
            tagged.append((field.tag, _encoded(field, version, message[field.name])))
    out += write_uvarint(len(tagged))
    for tag, content in tagged:
        out += write_uvarint(tag) + write_uvarint(len(content)) + content
    return bytes(out)


def decode(name: str, version: int, data: Data, at: int = 0) -> Message:
    """The message in the bytes from ``at`` to the end. Raises BadMessage if they are no such message."""
    try:
        message, end = _struct(name, version, data, at)
    except Undecodable as problem:
        raise BadMessage(f"{name} version {version}: {problem}") from None
    if end != len(data):
        raise BadMessage(f"{name} version {version}: {len(data) - end} bytes follow its end")
    return message


@cache
def _table() -> Mapping[str, list[_Field]]:
    structures: dict[str, list[_Field]] = {}
    for line in TABLE.strip().splitlines():
        if not line.startswith(" "):
            fields = structures.setdefault(line.strip(), [])
            continue
        name, kind, *rest = line.split()
        versions = next((word for word in rest if word[0] != "#"), "0+")
        since, _, until = versions.rstrip("+").partition("-")
        tag = next((int(word[1:]) for word in rest if word[0] == "#"), None)
        bare = kind.removeprefix("[]").removesuffix("?")
        fields.append(
            _Field(name, bare, kind.startswith("[]"), kind.endswith("?"), int(since), int(until or 1 << 15), tag)
        )
    return structures


@cache
def _fields(name: str, version: int) -> tuple[_Field, ...]:
    return tuple(field for field in _table()[name] if field.since <= version <= field.until)


def _encoded(field: _Field, version: int, value: Any) -> bytes:
    if field.array and value is None:
        return b"\0"
    if field.array:
        return write_uvarint(len(value) + 1) + b"".join(_encoded_value(field, version, each) for each in value)
    return _encoded_value(field, version, value)


def _encoded_value(field: _Field, version: int, value: Any) -> bytes:
    if field.type in PRIMITIVES or field.type == RECORDS:
        return PRIMITIVES["bytes" if field.type == RECORDS else field.type].write(value)
    return encode(field.type, version, value)


def _struct(name: str, version: int, data: Any, at: int) -> tuple[Message, int]:
    message: Message = {}
    tagged = {}
    for field in _fields(name, version):
        if field.tag is None:
            message[field.name], at = _read(field, version, data, at)
        else:
            tagged[field.tag] = field
            message[field.name] = None
    count, at = read_uvarint(data, at)
    if count > len(data) - at:
        raise Undecodable(f"{count} tagged fields are announced, {len(data) - at} bytes remain")
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        content, at = take(data, at, size)
        if tag in tagged:
            value, end = _read(tagged[tag], version, content, 0)
            if end != size:
                raise Undecodable(f"{tagged[tag].name}: takes {end} bytes, {size} are announced")
            message[tagged[tag].name] = value
    return message, at


def _read(field: _Field, version: int, data: Any, at: int) -> tuple[Any, int]:
    try:
        value, at = _read_array(field, version, data, at) if field.array else _read_one(field, version, data, at)
    except Undecodable as problem:
        raise Undecodable(f"{field.name}: {problem}") from None
    if value is None and not field.nullable:
        raise Undecodable(f"{field.name}: is null")
    return value, at


def _read_one(field: _Field, version: int, data: Any, at: int) -> tuple[Any, int]:
    if field.type == RECORDS:
        length, at = read_uvarint(data, at)
        if length - 1 > len(data) - at:
            raise Undecodable(f"{len(data) - at} bytes remain where {length - 1} are announced")
        return (None, at) if length == 0 else (memoryview(data)[at : at + length - 1], at + length - 1)
    if field.type in PRIMITIVES:
        return PRIMITIVES[field.type].read(data, at)
    return _struct(field.type, version, data, at)


def _read_array(field: _Field, version: int, data: Any, at: int) -> tuple[list[Any] | None, int]:
    count, at = read_uvarint(data, at)
    if count == 0:
        return None, at
    if count - 1 > len(data) - at:
        raise Undecodable(f"{count - 1} elements are announced, {len(data) - at} bytes remain")
    values = []
    for _ in range(count - 1):
        value, at = _read_one(field, version, data, at)
        values.append(value)
    return values, at
