"""What only live nodes know: how far voters and observers are behind their leader, and what is in brokers' directories.

The directories are asked for by DescribeLogDirs, sent to every broker that is not fenced. Source: KIP-113, KIP-827 (the
size of the volumes), KIP-1066 (cordons), and the JSON schemas of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from jbod_model.ids import Uuid
from pipelines.quorum.client import QuorumClient
from pipelines.quorum.connection import Address, Connection, Fault
from pipelines.quorum.messages import DESCRIBE_CLUSTER, DESCRIBE_LOG_DIRS, Message
from pipelines.quorum.security import Security

_NO_DIRECTORY = Uuid(0, 0)


@dataclass(frozen=True)
class Follower:
    """A voter or an observer, as the leader sees it."""

    kind: str
    """``voter`` or ``observer``."""
    node_id: int
    directory_id: str | None
    log_end_offset: int | None
    lag: int | None
    """Records that it has not fetched yet, None if the leader never heard of it."""
    last_fetch_time: datetime | None
    """When it fetched last. None for the leader itself."""
    last_caught_up_time: datetime | None


@dataclass(frozen=True)
class LiveQuorum:
    """The answer of DescribeQuorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    time: datetime
    followers: tuple[Follower, ...]


def live_quorum(quorum: QuorumClient) -> LiveQuorum:
    """Asks the leader. Raises Fault."""
    description = quorum.describe()
    end = max([voter["log_end_offset"] for voter in description["voters"]], default=-1)
    followers = [
        _follower(kind, replica, end)
        for kind, key in (("voter", "voters"), ("observer", "observers"))
        for replica in description[key]
    ]
    return LiveQuorum(
        description["leader_id"],
        description["leader_epoch"],
        description["high_watermark"],
        datetime.now(UTC),
        tuple(followers),
    )


def _follower(kind: str, replica: Message, end: int) -> Follower:
    directory: Uuid | None = replica.get("directory_id")
    known = replica["log_end_offset"] >= 0
    return Follower(
        kind,
        replica["replica_id"],
        None if directory is None or directory == _NO_DIRECTORY else str(directory),
        replica["log_end_offset"] if known else None,
        max(end - replica["log_end_offset"], 0) if known else None,
        _time(replica.get("last_fetch_timestamp", -1)),
        _time(replica.get("last_caught_up_timestamp", -1)),
    )


def _time(millis: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC) if millis >= 0 else None
    except (ValueError, OverflowError, OSError):
        return None


_CONNECT_SECONDS = 10.0
_SECONDS = 30.0
"""Seconds that an answer may take: a broker adds up the segments of every replica."""
_MOST_BYTES = 64 << 20
"""The most bytes of an answer: 22 for each replica, and the names of topics."""
_OF_BROKERS = 1
_ERRORS = {31: "denies DESCRIBE on the cluster to this principal", 56: "KAFKA_STORAGE_ERROR"}
_DENIED = 31


@dataclass(frozen=True)
class BrokerDirs:
    """The answer of one broker."""

    broker_id: int
    address: Address
    directories: Sequence[Message]
    """DescribeLogDirsResponse: error_code, log_dir, topics, total_bytes, usable_bytes, is_cordoned (null before 4.3)"""


@dataclass(frozen=True)
class Described:
    """The answers of the brokers."""

    cluster_id: str
    brokers: Sequence[BrokerDirs]
    faults: Sequence[tuple[int, Fault]]
    """Brokers that did not answer, and why."""


def describe_log_dirs(bootstrap: Sequence[Address], security: Security) -> Described:
    """Finds the brokers by the first of the addresses that answers, and asks each of them.

    Raises Fault if none of the addresses answers, or if no broker does.
    """
    cluster_id, nodes = _brokers(bootstrap, security)
    brokers, faults = [], []
    for broker, address in nodes:
        try:
            brokers.append(BrokerDirs(broker, address, _directories(address, security)))
        except Fault as fault:
            faults.append((broker, fault))
    if not brokers and faults:
        raise faults[0][1]
    return Described(cluster_id, brokers, faults)


def error_name(code: int) -> str:
    """Kafka's name of the error of a directory; empty for none."""
    return _ERRORS.get(code, f"error {code}") if code else ""


def _brokers(bootstrap: Sequence[Address], security: Security) -> tuple[str, list[tuple[int, Address]]]:
    """The cluster id, and the brokers that are not fenced."""
    problems = []
    for address in bootstrap:
        try:
            with closing(_connect(address, security)) as connection:
                request = {"include_operations": False, "endpoint_type": _OF_BROKERS}
                response = connection.call(DESCRIBE_CLUSTER, request, _SECONDS)
            _refuse(address, response["error_code"])
            nodes = [(node["node_id"], Address(node["host"], node["port"])) for node in response["brokers"]]
            if not nodes:
                raise Fault(str(address), "knows no broker that is not fenced")
            return response["cluster_id"], sorted(nodes)
        except Fault as fault:
            problems.append(fault)
    raise problems[0]


def _directories(address: Address, security: Security) -> Sequence[Message]:
    with closing(_connect(address, security)) as connection:
        response = connection.call(DESCRIBE_LOG_DIRS, {"topics": None}, _SECONDS, _MOST_BYTES)
    _refuse(address, response["error_code"])
    log_dirs: Sequence[Message] = response["results"]
    return log_dirs


def _connect(address: Address, security: Security) -> Connection:
    return Connection(address, security, lambda: False, _CONNECT_SECONDS, broker=True)


def _refuse(address: Address, error: int) -> None:
    if error == _DENIED:
        command = "kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation Describe"
        raise Fault(str(address), f"{_ERRORS[error]}: {command} --cluster", passes=False)
    if error:
        raise Fault(str(address), f"answers with error {error}")
