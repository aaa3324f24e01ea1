"""A controller of our own, which answers as Kafka's do: a log, its snapshots, a leader, and faults on demand."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from jbod_model.formats.batch import read_header
from jbod_model.ids import Uuid
from pipelines.quorum.messages import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    FETCH,
    FETCH_SNAPSHOT,
    NAMES,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Message,
    decode,
    encode,
)

OFFERED = {
    API_VERSIONS: (0, 4),
    SASL_HANDSHAKE: (0, 1),
    SASL_AUTHENTICATE: (0, 2),
    FETCH: (0, 18),
    DESCRIBE_QUORUM: (0, 2),
    FETCH_SNAPSHOT: (0, 1),
    DESCRIBE_CLUSTER: (0, 2),
}


class Log:
    """What the controllers share: batches, their high watermark, the leader."""

    def __init__(self, data: bytes = b"", *, start: int = 0, epoch: int = 1, leader: int = 1) -> None:
        self.batches: list[tuple[int, int, int, bytes]] = []
        """First offset, end offset and epoch of each batch."""
        self.start = start
        self.epoch = epoch
        self.leader = leader
        self.snapshots: dict[tuple[int, int], bytes] = {}
        self.voters: dict[int, int] = {}
        self.observers: dict[int, int] = {}
        """Node and the end of its log, for DescribeQuorum."""
        self.high_watermark = -1
        self.append(data)

    def append(self, data: bytes, *, commit: bool = True) -> None:
        at = 0
        while (header := read_header(data, at, file="")) is not None:
            piece = data[at : at + header.size]
            self.batches.append((header.base_offset, header.last_offset + 1, header.epoch, piece))
            self.epoch = max(self.epoch, header.epoch)
            at += header.size
        if commit:
            self.commit()

    def commit(self) -> None:
        self.high_watermark = self.end

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def data(self, until: int | None = None) -> bytes:
        """The bytes of the batches that end by an offset."""
        return b"".join(piece for _, end, _, piece in self.batches if until is None or end <= until)

    def cut(self, offset: int) -> None:
        """An election took what came from an offset on."""
        self.batches = [batch for batch in self.batches if batch[1] <= offset]

    def delete_before(self, offset: int, snapshot: bytes) -> None:
        """Retention: the log begins at an offset, with a snapshot there."""
        epoch = max((e for _, end, e, _ in self.batches if end <= offset), default=0)
        self.snapshots = {(offset, epoch): snapshot}
        self.batches = [batch for batch in self.batches if batch[0] >= offset]
        self.start = offset

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to one, and its end."""
        ends = [(e, end) for _, end, e, _ in self.batches if e <= epoch]
        return (ends[-1][0], self.end if epoch >= self.epoch else ends[-1][1]) if ends else (0, self.start)


class Controller:
    """A server on loopback. ``fault`` may change an answer; after one that it makes shorter, the connection closes."""

    def __init__(
        self,
        log: Log,
        node: int = 1,
        *,
        peers: Mapping[int, Controller] | None = None,
        offered: Mapping[int, tuple[int, int]] = OFFERED,
        context: ssl.SSLContext | None = None,
        log_in: Callable[[str], Callable[[bytes], bytes | None] | None] | None = None,
    ) -> None:
        self.log = log
        self.node = node
        self.peers = {} if peers is None else peers
        self.offered = offered
        self.cluster_id = "abcdefghijklmnopqrstuQ"
        self.denied = False
        self.fault: Callable[[bytes], bytes] = bytes
        self.requests: list[tuple[int, Message]] = []
        self.max_bytes = 1 << 30
        self.log_in = log_in
        self._context = context
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"kafka://127.0.0.1:{self.port}"

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # which ends the wait for the next connection
        self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, EOFError):
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            mechanism = None
            while True:
                (size,) = struct.unpack(">i", _exactly(connection, 4))
                if not 0 < size <= 100 << 20:  # socket.request.max.bytes
                    connection.close()
                    return
                data = _exactly(connection, size)
                api, version, number, name = struct.unpack_from(">hhih", data)
                at = 10 + name
                if api == SASL_HANDSHAKE:
                    (length,) = struct.unpack_from(">h", data, at)
                    wanted = data[at + 2 : at + 2 + length].decode()
                    mechanism = self.log_in(wanted) if self.log_in else None
                    body = struct.pack(">hih", 0 if mechanism else 33, 1, 5) + b"PLAIN"
                else:
                    request = decode(f"{NAMES[api]}Request", version, data, at + 1)
                    self.requests.append((api, request))
                    if api == SASL_AUTHENTICATE:
                        challenge = mechanism(request["auth_bytes"]) if mechanism else None
                        answer: Message = {"error_message": None, "session_lifetime_ms": 0}
                        answer |= {"error_code": 58 if challenge is None else 0, "auth_bytes": challenge or b""}
                    else:
                        answer = self._answer(api, request)
                    head = b"" if api == API_VERSIONS else b"\0"
                    body = head + encode(f"{NAMES[api]}Response", version, answer)
                whole = struct.pack(">ii", len(body) + 4, number) + body
                sent = self.fault(whole)
                connection.sendall(sent)
                if len(sent) < len(whole):
                    connection.close()
                    return

    def _answer(self, api: int, request: Message) -> Message:
        if api == API_VERSIONS:
            keys = [
                {"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in self.offered.items()
            ]
            return {"error_code": 0, "api_keys": keys, "throttle_time_ms": 0}
        if api == FETCH:
            return self._fetch(request)
        if api == FETCH_SNAPSHOT:
            return self._snapshot(request)
        if api == DESCRIBE_CLUSTER:
            description = {"throttle_time_ms": 0, "error_code": 0, "error_message": None, "endpoint_type": 2}
            return description | {"cluster_id": self.cluster_id, "controller_id": 1, "brokers": [], "operations": 0}
        partition: Message = {
            "index": 0,
            "error_code": 0 if self.log.leader == self.node else 6,
            "error_message": None,
            "leader_id": self.log.leader,
            "leader_epoch": self.log.epoch,
            "high_watermark": self.log.high_watermark,
            "voters": _replicas(self.log.voters),
            "observers": _replicas(self.log.observers),
        }
        topics = [{"name": "__cluster_metadata", "partitions": [partition]}]
        return {"error_code": 0, "error_message": None, "topics": topics, "nodes": []}

    def _fetch(self, request: Message) -> Message:
        response: Message = {
            "throttle_time_ms": 0,
            "error_code": 31 if self.denied else 0,
            "session_id": 0,
            "topics": [],
        }
        if self.denied:
            return response
        if request["cluster_id"] not in (None, self.cluster_id):
            return response | {"error_code": 104}
        (partition,) = request["topics"][0]["partitions"]
        log, offset, epoch = self.log, partition["offset"], partition["last_fetched_epoch"]
        end = time.monotonic() + request["max_wait_ms"] / 1000
        while log.leader == self.node and offset >= log.end and time.monotonic() < end:
            if partition.get("high_watermark") not in (None, log.high_watermark):
                break
            time.sleep(0.002)
        answer: Message = {
            "index": 0,
            "error_code": self._error(partition["leader_epoch"], epoch),
            "high_watermark": log.high_watermark,
            "last_stable_offset": -1,
            "log_start_offset": log.start,
            "leader": {"id": log.leader, "epoch": log.epoch},
            "aborted": [],
            "preferred_replica": -1,
            "records": b"",
        }
        if answer["error_code"] == 0:
            answer |= self._read(offset, epoch)
        nodes = [
            {"node_id": node, "host": "127.0.0.1", "port": peer.port, "rack": None} for node, peer in self.peers.items()
        ]
        topic = {"topic_id": request["topics"][0]["topic_id"], "partitions": [answer]}
        return response | {"topics": [topic], "nodes": nodes}

    def _read(self, offset: int, epoch: int) -> Message:
        log = self.log
        if (
            (offset == 0 and log.snapshots)
            or offset < log.start
            or (offset == log.start and log.start and not self._at_start(epoch))
        ):
            newest = max(log.snapshots)
            return {"snapshot_id": {"end_offset": newest[0], "epoch": newest[1]}}
        known, end = log.end_of_epoch(epoch)
        if offset and ((known != epoch and log.epoch != epoch) or end < offset):
            return {"diverging": {"epoch": known, "end_offset": end}}
        records = b""
        for _, ends, _, piece in log.batches:
            if ends <= offset:
                continue
            if records and len(records) + len(piece) > self.max_bytes:
                break
            records += piece
        return {"records": records}

    def _at_start(self, epoch: int) -> bool:
        return (self.log.start, epoch) in self.log.snapshots

    def _error(self, leader_epoch: int, last_epoch: int) -> int:
        if last_epoch > leader_epoch:
            return 42
        if leader_epoch != self.log.epoch:
            return 74 if leader_epoch < self.log.epoch else 75
        return 0 if self.log.leader == self.node else 6

    def _snapshot(self, request: Message) -> Message:
        (partition,) = request["topics"][0]["partitions"]
        named = (partition["snapshot_id"]["end_offset"], partition["snapshot_id"]["epoch"])
        data, at = self.log.snapshots.get(named), partition["position"]
        error = self._error(partition["leader_epoch"], 0)
        if error or data is None:  # Kafka fails to write an answer without records
            return {"throttle_time_ms": 0, "error_code": -1, "topics": [], "nodes": []}
        answer = {
            "index": 0,
            "error_code": 0,
            "snapshot_id": partition["snapshot_id"],
            "leader": {"id": self.log.leader, "epoch": self.log.epoch},
            "size": len(data),
            "position": at,
            "records": data[at : at + min(request["max_bytes"], self.max_bytes)],
        }
        topics = [{"name": "__cluster_metadata", "partitions": [answer]}]
        return {"throttle_time_ms": 0, "error_code": 0, "topics": topics, "nodes": []}


def _replicas(ends: Mapping[int, int]) -> list[Message]:
    times = {"last_fetch_timestamp": 1_800_000_000_000, "last_caught_up_timestamp": -1}
    return [
        {"replica_id": node, "directory_id": Uuid(0, 0), "log_end_offset": end, **times} for node, end in ends.items()
    ]


def quorum_of(log: Log, nodes: Sequence[int] = (1, 2, 3)) -> dict[int, Controller]:
    """Controllers with one log between them."""
    peers: dict[int, Controller] = {}
    for node in nodes:
        peers[node] = Controller(log, node, peers=peers)
    return peers


def url_of(peers: Mapping[int, Controller]) -> str:
    return "kafka://" + ",".join(f"127.0.0.1:{peer.port}" for peer in peers.values())


def _exactly(connection: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
