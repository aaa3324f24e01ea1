"""A reader of the quorum: finds the leader among the controllers, asks it, and looks for the next one when it goes.

Only reads are sent, with the replica id -1, which Kafka takes for a consumer: DescribeQuorum shows no observer, and the
high watermark does not wait for this reader. Of the batches that come only that is looked at on which a copy depends:
where whole ones end, and whether they are sound and follow each other. The readers of the copy look at everything
(R-FMT-11).
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import crc32c

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.formats.batch import MAGIC
from jbod_model.ids import Uuid
from pipelines.quorum import KAFKA
from pipelines.quorum.connection import Address, Connection, Fault, Halted
from pipelines.quorum.messages import DESCRIBE_CLUSTER, DESCRIBE_QUORUM, FETCH, FETCH_SNAPSHOT, Message
from pipelines.quorum.security import Security

Answered = TypeVar("Answered")
Data = bytes | memoryview
_HEAD = struct.Struct(">qiibIhiqq")
_BEFORE_LENGTH_ENDS = 12
_CRC_COVERS_FROM = 21
_LEAST = 49
"""The least length of a batch that its header may announce."""


class EndOfLog(NamedTuple):
    """The end of a log: the offset of the next record, and the epoch of the last one (-1 if there is none)."""

    offset: int
    epoch: int


class BatchPlace(NamedTuple):
    """Where a batch is in the bytes, and in the log."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    epoch: int
    max_timestamp: int


def sound_batches(data: Data, source: str) -> Iterator[BatchPlace]:
    """The whole batches in ``data``, whose checksums are compared. Raises MalformedLog.

    The bytes may end within a batch: that one is left out.
    """
    view, at, size = memoryview(data), 0, len(data)
    while size - at >= _HEAD.size:
        base, length, epoch, magic, crc, _, delta, _, timestamp = _HEAD.unpack_from(view, at)
        if magic != MAGIC or length < _LEAST or base < 0 or delta < 0 or epoch < 0:
            raise MalformedLog(source, base, f"byte {at} starts no record batch")
        end = at + _BEFORE_LENGTH_ENDS + length
        if end > size:
            return
        if crc32c.crc32c(view[at + _CRC_COVERS_FROM : end]) != crc:
            raise MalformedLog(source, base, "the CRC-32C of a batch does not match")
        yield BatchPlace(at, end, base, base + delta, epoch, timestamp)
        at = end


def check_follows(batch: BatchPlace, end: EndOfLog, leader_epoch: int, source: str) -> EndOfLog:
    """The end after a batch. Raises MalformedLog for one that is not the next of the log."""
    if batch.base_offset != end.offset:
        raise MalformedLog(source, batch.base_offset, f"a batch comes where offset {end.offset} is next")
    if not end.epoch <= batch.epoch <= leader_epoch:
        raise MalformedLog(source, batch.base_offset, f"epoch {batch.epoch} comes after {end.epoch}")
    return EndOfLog(batch.last_offset + 1, batch.epoch)


TOPIC = "__cluster_metadata"
PIECE = 8 << 20
"""Bytes that are asked for at once: as many as a leader returns at once."""
_MOST_OF_RECORDS = PIECE + (64 << 20) + (1 << 16)
"""A leader returns a whole batch, which may be larger than what was asked for."""
_TOPIC_ID = Uuid.from_bytes(bytes(15) + b"\1")
_OF_CONTROLLERS = 2
_SECONDS = 30.0
"""Seconds that an answer may take, besides what the leader was asked to wait."""
_CONNECT_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_FIRST_PATIENCE = 60.0
"""The most seconds until a leader is found for the first time: what is wrong then is more often a setting."""
_TELL_AFTER = 5.0
"""Seconds without a leader after which that is told, once."""
_NO_LEADER = (
    "is not the leader, and names none that can be reached: without a majority of the voters none is elected, so start "
    "the controllers that are down"
)
_CONFIRMATIONS = 2
"""How often a controller must say what needs a person, each time on a new connection."""

NOT_LEADER, FENCED_EPOCH, UNKNOWN_EPOCH = 6, 74, 75
_DENIED, _INVALID, _OTHER_CLUSTER = 31, 42, 104
_UNKNOWN, _SNAPSHOT_GONE, _POSITION = -1, 98, 99
_PASSING = {
    -1: "unknown server error",
    1: "offset out of range",
    3: "unknown topic or partition",
    5: "leader not available",
    7: "request timed out",
    13: "network exception",
    41: "not the controller",
    56: "storage error",
    100: "unknown topic id",
}
_HINTS = {
    _DENIED: "denies CLUSTER_ACTION on the cluster to this principal: kafka-acls.sh --bootstrap-server HOST:PORT --add "
    "--allow-principal User:NAME --operation ClusterAction --cluster",
    _INVALID: "refuses the request: what was read before has a newer epoch than this quorum: another cluster?",
    _OTHER_CLUSTER: "is of another cluster than this mirror",
}


class SnapshotId(NamedTuple):
    """A snapshot: the offset after its last record, and the epoch of that record."""

    end_offset: int
    epoch: int


@dataclass(frozen=True)
class Fetched:
    """What the leader says of an offset: the records from there on, or why there are none."""

    records: memoryview
    high_watermark: int
    log_start: int
    leader: int
    leader_epoch: int
    diverging: EndOfLog | None
    """The end of the newest epoch that leader and reader may share."""
    snapshot: SnapshotId | None
    """The leader's newest snapshot, in place of records."""


@dataclass(frozen=True)
class SnapshotPiece:
    """Bytes of a snapshot from a position on, and the size of the whole."""

    records: memoryview
    size: int


class SnapshotGone(Exception):
    """The leader has no such snapshot, or has it no more."""


def addresses_of(url: str) -> tuple[Address, ...]:
    """``kafka://HOST:PORT[,HOST:PORT...]``. Raises UsageError for anything else."""
    addresses = []
    for node in url.removeprefix(KAFKA).rstrip("/").split(","):
        host, _, port = node.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16 or "@" in node or "/" in node:
            raise UsageError(f"{url}: write kafka://HOST:PORT[,HOST:PORT...], the nodes and their listener's port")
        addresses.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(addresses)


class QuorumClient:
    """The leader of a quorum, whoever it is. ``patience``: seconds without one after which a call raises Fault."""

    def __init__(
        self,
        addresses: Sequence[Address],
        security: Security,
        *,
        stop: Callable[[], bool] = lambda: False,
        patience: float = 60.0,
        notice: Callable[[str], object] = str,
    ) -> None:
        self.cluster_id: str | None = None
        """Sent with each request, which the leader of another cluster refuses. None as long as it is not known."""
        self.leader_epoch = 0
        self._bootstrap = tuple(addresses)
        self._random = random.Random()
        self._security = security
        self._stop = stop
        self._patience = patience
        self._notice = notice
        self._silent: Callable[[float], object] = float
        self._connection: Connection | None = None
        self._leads: Connection | None = None
        """The connection on which the leader answered as such."""
        self._has_led = False
        """Whether a leader was found so far."""
        self._next: list[Address] = []
        """Where to look for the leader first."""
        self._lasting: dict[str, int] = {}
        """How often each fault that needs a person was seen in a row."""

    def when_silent(self, listener: Callable[[float], object]) -> None:
        """Calls ``listener`` with the seconds without a leader, after each attempt that found none."""
        self._silent = listener

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def address(self) -> Address | None:
        """The address of the leader, None without one."""
        return None if self._connection is None else self._connection.address

    def learns_commits(self) -> bool:
        """Whether the leader answers as soon as the high watermark moves (KIP-1166, from Kafka 4.1 on)."""
        return self._connection is not None and (self._connection.version(FETCH) or 0) >= 18

    def fetch(self, offset: int, last_epoch: int | None, wait_ms: int = 0, high_watermark: int = -1) -> Fetched:
        """Fetches from an offset on. ``last_epoch``: of the record before it, None for whatever the leader accepts.

        Raises Fault, and Halted.
        """

        def ask(connection: Connection) -> Fetched | None:
            epoch = self.leader_epoch if last_epoch is None else last_epoch
            partition = self._partition(offset, epoch, high_watermark)
            response = self._fetch(connection, partition, wait_ms)
            answer = _only(response["topics"], connection)
            return _fetched(answer) if self._may_use(connection, response, answer) else None

        return self._ask(ask)

    def fetch_snapshot(self, snapshot: SnapshotId, position: int) -> SnapshotPiece:
        """A piece of a snapshot. Raises SnapshotGone, Fault and Halted.

        Kafka cannot write an answer of FetchSnapshot that has an error of the partition (its records are null): what
        comes in its place is an unknown server error. So only who is known to lead is asked, and this error means that
        there is no such snapshot.
        """

        failed: list[Connection] = []

        def ask(connection: Connection) -> SnapshotPiece | None:
            if self._leads is not connection and not self._is_leader(connection):
                return None
            request = self._snapshot_request(snapshot, position)
            response = connection.call(FETCH_SNAPSHOT, request, _SECONDS, _MOST_OF_RECORDS)
            if response["error_code"] == _UNKNOWN:
                if failed:
                    raise SnapshotGone
                failed.append(connection)
                self._leads = None  # it may be the leader no more: once again
                return None
            self._refuse(connection, response["error_code"])
            answer = _only(response["topics"], connection)
            if answer["error_code"] in (_SNAPSHOT_GONE, _POSITION):
                raise SnapshotGone
            if not self._may_use(connection, response, answer):
                return None
            if answer["position"] != position or answer["size"] < position or not answer["records"]:
                raise Fault(str(connection.address), "answers with another piece of a snapshot than asked for")
            return SnapshotPiece(answer["records"], answer["size"])

        return self._ask(ask)

    def describe(self) -> Message:
        """DescribeQuorum: the partition, as the leader has it. Raises Fault and Halted."""

        def ask(connection: Connection) -> Message | None:
            request = {"topics": [{"name": TOPIC, "partitions": [{"index": 0}]}]}
            if self._leads is not connection and not self._is_leader(connection):
                return None
            response = connection.call(DESCRIBE_QUORUM, request, _SECONDS)
            if response["error_code"] == _DENIED:
                raise Fault(str(connection.address), "denies Describe on the cluster to this principal", passes=False)
            self._refuse(connection, response["error_code"])
            answer: Message = _only(response["topics"], connection)
            answer["leader"] = {"id": answer["leader_id"], "epoch": answer["leader_epoch"]}
            return answer if self._may_use(connection, response, answer) else None

        return self._ask(ask)

    def learn_cluster_id(self) -> str | None:
        """The cluster id, which DescribeCluster tells who may ALTER the cluster; None for all others."""
        self._ask(self._learn_nodes)
        return self.cluster_id

    # -- the leader -----------------------------------------------------------------------------------------------

    def _ask(self, ask: Callable[[Connection], Answered | None]) -> Answered:
        """Asks the leader, and each later one, until one answers. Raises Fault with all answers after ``patience``."""
        began = time.monotonic()
        answers: dict[str, str] = {}
        pause, has_told = _FIRST_PAUSE, False
        while True:
            if self._stop():
                raise Halted
            try:
                connection = self._connection or self._connect()
                answer = ask(connection)
                if answer is not None:
                    self._has_led = True
                    self._lasting.clear()
                    if has_told:
                        self._notice(f"a leader answers again, after {time.monotonic() - began:.0f} s")
                    return answer
                problem = Fault(str(connection.address), _NO_LEADER)
                if self._connection is not None or self._next:
                    pause = min(pause, _FIRST_PAUSE)
            except Fault as fault:
                problem = fault
                self.close()
                self._count(fault)
            waited = time.monotonic() - began
            answers[problem.address] = problem.problem
            if waited > (self._patience if self._has_led else min(self._patience, _FIRST_PATIENCE)):
                raise _no_leader(answers)
            self._silent(waited)
            if waited > _TELL_AFTER and not has_told:
                has_told = True
                self._notice(f"no leader for {waited:.0f} s, asking on: {_no_leader(answers)}")
            self._wait(pause * self._random.uniform(0.5, 1.5))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _count(self, fault: Fault) -> None:
        """Raises a fault that needs a person, once it was seen again: a garbled answer is not believed."""
        if not fault.passes:
            self._lasting[str(fault)] = self._lasting.get(str(fault), 0) + 1
            if self._lasting[str(fault)] >= _CONFIRMATIONS:
                raise fault

    def _connect(self) -> Connection:
        """Connects to the next address that may be the leader's. Of those without news, in a random order."""
        if not self._next:
            self._next = self._random.sample(self._bootstrap, len(self._bootstrap))
        address = self._next.pop(0)
        self._connection = Connection(address, self._security, self._stop, _CONNECT_SECONDS, known=self._has_led)
        return self._connection

    def _may_use(self, connection: Connection, response: Message, answer: Message) -> bool:
        """Whether an answer is the leader's. If not, the next attempt asks whom it names. Raises Fault."""
        error, leader, request_epoch = answer["error_code"], answer.get("leader"), self.leader_epoch
        if leader is not None and leader["epoch"] >= 0:
            self.leader_epoch = leader["epoch"]
        if error == 0:
            self._leads = connection
            return True
        if (
            error in (FENCED_EPOCH, UNKNOWN_EPOCH, _INVALID)
            and leader is not None
            and self.leader_epoch != request_epoch
        ):
            return False  # asked with an epoch that is not the leader's: ask again with the one that it told
        if error == NOT_LEADER:
            self.close()
            named = [
                Address(node["host"], node["port"])
                for node in response.get("nodes") or ()
                if leader is not None and node["node_id"] == leader["id"] and "host" in node
            ]
            self._next = [address for address in named if address != connection.address] + self._next
            return False
        self._refuse(connection, error)
        return False

    def _refuse(self, connection: Connection, error: int) -> None:
        if error in _HINTS:
            raise Fault(str(connection.address), _HINTS[error], passes=False)
        if error:
            raise Fault(str(connection.address), f"answers with error {error} ({_PASSING.get(error, 'of Kafka')})")

    def _fetch(self, connection: Connection, partition: dict[str, Any], wait_ms: int) -> Message:
        request = _fetch(partition, wait_ms)
        if self.cluster_id is not None:
            request["cluster_id"] = self.cluster_id
        response = connection.call(FETCH, request, _SECONDS + wait_ms / 1000, _MOST_OF_RECORDS)
        if response["throttle_time_ms"] > 0:
            self._wait(min(response["throttle_time_ms"] / 1000, _SECONDS))
        self._refuse(connection, response["error_code"])
        return response

    def _is_leader(self, connection: Connection) -> bool:
        """Asks by a fetch, whose errors can be read."""
        partition = self._partition(1, self.leader_epoch)
        response = self._fetch(connection, partition, 0)
        return self._may_use(connection, response, _only(response["topics"], connection))

    def _partition(self, offset: int, last_epoch: int, high_watermark: int = -1) -> dict[str, Any]:
        return {
            "index": 0,
            "leader_epoch": self.leader_epoch,
            "offset": offset,
            "last_fetched_epoch": last_epoch,
            "log_start_offset": 0,
            "max_bytes": PIECE,
            "high_watermark": high_watermark,
        }

    def _snapshot_request(self, snapshot: SnapshotId, position: int) -> dict[str, Any]:
        partition = {
            "index": 0,
            "leader_epoch": self.leader_epoch,
            "snapshot_id": {"end_offset": snapshot.end_offset, "epoch": snapshot.epoch},
            "position": position,
        }
        cluster = {} if self.cluster_id is None else {"cluster_id": self.cluster_id}
        return {"replica_id": -1, "max_bytes": PIECE, "topics": [{"name": TOPIC, "partitions": [partition]}], **cluster}

    def _learn_nodes(self, connection: Connection) -> bool:
        if connection.version(DESCRIBE_CLUSTER) is not None:
            request = {"include_operations": False, "endpoint_type": _OF_CONTROLLERS}
            response = connection.call(DESCRIBE_CLUSTER, request, _SECONDS)
            if response["error_code"] == 0 and response["cluster_id"]:
                self.cluster_id = response["cluster_id"]
        return True

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._stop():
                raise Halted
            time.sleep(min(left, 0.2))


def _fetch(partition: Mapping[str, Any], wait_ms: int) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": PIECE,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": _TOPIC_ID, "partitions": [partition]}],
        "forgotten": [],
        "rack_id": "",
    }


def _no_leader(answers: Mapping[str, str]) -> Fault:
    """The last answer of each node as one fault: one node alone does not show which of them run."""
    (address, problem), *others = sorted(answers.items())
    return Fault(address, "; ".join([problem, *(f"{where}: {what}" for where, what in others)]))


def _only(topics: Sequence[Message], connection: Connection) -> Message:
    """The answer for the one partition that was asked for."""
    if len(topics) != 1 or len(topics[0]["partitions"]) != 1 or topics[0]["partitions"][0]["index"] != 0:
        raise Fault(str(connection.address), "answers for other partitions than the one asked for")
    partition: Message = topics[0]["partitions"][0]
    return partition


def _fetched(answer: Message) -> Fetched:
    diverging, snapshot, leader = answer["diverging"], answer["snapshot_id"], answer["leader"]
    return Fetched(
        records=answer["records"] or memoryview(b""),
        high_watermark=answer["high_watermark"],
        log_start=answer["log_start_offset"],
        leader=-1 if leader is None else leader["id"],
        leader_epoch=-1 if leader is None else leader["epoch"],
        diverging=None if diverging is None else EndOfLog(diverging["end_offset"], diverging["epoch"]),
        snapshot=None if snapshot is None else SnapshotId(snapshot["end_offset"], snapshot["epoch"]),
    )
