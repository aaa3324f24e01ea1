"""The messages that a reader of the quorum, or of brokers' sizes, sends and receives, as a table of fields.

All are flexible versions (KIP-482) of Kafka 3.7 and later, except SaslHandshake. A message is a dictionary by the names
of the table. Every length is compared with the bytes that remain before it is used (`jbod_model.wire`).

Source: the JSON schemas of Kafka 4.4.0. kio has all of Kafka's messages as generated classes; these eight as a table
are less to own than its 1 MB with a compiled part, and read with the primitives that records already have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from jbod_model.errors import JbodError
from jbod_model.formats.codec import FieldPlan, array, never_null, read_fields, write_tags
from jbod_model.formats.schema import Field
from jbod_model.wire import PRIMITIVES, Read, Undecodable, Write, read_uvarint

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
class _Field(Field):
    until: int
    """The last version that has the field."""


def encode(name: str, version: int, message: Mapping[str, Any]) -> bytes:
    """The bytes of a message. A tagged field that is not in it is left out."""
    plan = _plan(name, version)
    out = b"".join(write(message[field.name]) for field, _, write in plan.ordinary)
    given = plan.tagged.items()
    return out + write_tags((tag, write(message[of.name])) for tag, (of, _, write) in given if of.name in message)


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
            _Field(name, bare, kind.startswith("[]"), kind.endswith("?"), int(since), tag, int(until or 1 << 15))
        )
    return structures


@cache
def _plan(name: str, version: int) -> FieldPlan:
    here = [(each, *_codec(each, version)) for each in _table()[name] if each.since <= version <= each.until]
    return FieldPlan(
        ordinary=[step for step in here if step[0].tag is None],
        tagged={step[0].tag: step for step in here if step[0].tag is not None},
    )


def _codec(field: _Field, version: int) -> tuple[Read, Write]:
    read: Read
    write: Write
    if field.type == RECORDS:
        read, write = _read_records, PRIMITIVES["bytes"].write
    elif field.type in PRIMITIVES:
        read, write = PRIMITIVES[field.type].read, PRIMITIVES[field.type].write
    else:
        read, write = partial(_struct, field.type, version), partial(encode, field.type, version)
    if field.array:
        read, write = array(never_null(read), write)
    return (read if field.nullable else never_null(read)), write


def _struct(name: str, version: int, data: Any, at: int) -> tuple[Message, int]:
    plan = _plan(name, version)
    values, _, at = read_fields(plan, version, data, at)
    return {**{field.name: None for field, _, _ in plan.tagged.values()}, **values}, at


def _read_records(data: Any, at: int) -> tuple[Any, int]:
    length, at = read_uvarint(data, at)
    if length - 1 > len(data) - at:
        raise Undecodable(f"{len(data) - at} bytes remain where {length - 1} are announced")
    return (None, at) if length == 0 else (memoryview(data)[at : at + length - 1], at + length - 1)
