"""A reader of the quorum beside controllers of our own: leaders that change, faults, and what needs a person."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jbod_model.errors import UsageError
from pipelines.quorum.client import QuorumClient, SnapshotGone, SnapshotId, addresses_of
from pipelines.quorum.connection import Address, Fault, Halted
from pipelines.quorum.security import Security
from tests.support.controller import OFFERED, Controller, Log, quorum_of, url_of
from tests.support.paths import metadata_dir

DATA = (metadata_dir("kafka-4.4.0") / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()


@pytest.fixture
def log() -> Log:
    return Log(DATA)


@pytest.fixture
def peers(log: Log) -> Iterator[dict[int, Controller]]:
    controllers = quorum_of(log)
    yield controllers
    for peer in controllers.values():
        peer.close()


def reader(url: str, **options: Any) -> QuorumClient:
    return QuorumClient(addresses_of(url), Security(), **{"patience": 5.0, **options})


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("kafka://a:9093", [("a", 9093)]),
        ("kafka://a:1,b.c:2/", [("a", 1), ("b.c", 2)]),
        ("kafka://[::1]:9093", [("::1", 9093)]),
    ],
)
def test_address_is_host_and_port(url: str, addresses: list[tuple[str, int]]) -> None:
    assert list(addresses_of(url)) == [Address(*address) for address in addresses]


@pytest.mark.parametrize(
    "url", ["kafka://", "kafka://a", "kafka://a:x", "kafka://a:0", "kafka://a:70000", "kafka://u@a:1"]
)
def test_other_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="write kafka://HOST:PORT"):
        addresses_of(url)


@pytest.mark.parametrize("leader", [1, 2, 3])
def test_leader_is_found_from_any_controller(peers: dict[int, Controller], log: Log, leader: int) -> None:
    log.leader = leader
    for peer in peers.values():
        answer = reader(peer.url).fetch(1, None)
        assert (bytes(answer.records), answer.high_watermark, answer.leader) == (DATA, log.end, leader)


def test_reader_is_no_observer_and_names_its_cluster(peers: dict[int, Controller]) -> None:
    client = reader(peers[1].url)
    assert client.learn_cluster_id() == peers[1].cluster_id
    client.fetch(1, None)
    request = peers[1].requests[-1][1]
    assert request["cluster_id"] == peers[1].cluster_id
    assert "replica_id" not in request  # from version 15 on it is a tagged field, whose default is -1


def test_next_leader_is_followed(peers: dict[int, Controller], log: Log) -> None:
    client = reader(url_of(peers))
    client.fetch(1, None)
    for leader in (2, 3, 1):
        log.leader, log.epoch = leader, log.epoch + 1
        peers[leader % 3 + 1].hang_up()
        assert client.fetch(5, None).leader == leader
        assert client.leader_epoch == log.epoch


def test_snapshot_that_is_gone_is_told(peers: dict[int, Controller], log: Log) -> None:
    log.snapshots[(3, 1)] = b"x" * 100
    client = reader(peers[1].url)
    assert client.fetch_snapshot(SnapshotId(3, 1), 90).records == b"x" * 10
    with pytest.raises(SnapshotGone):
        client.fetch_snapshot(SnapshotId(3, 0), 0)


def test_answers_that_are_cut_or_garbled_are_asked_for_again(peers: dict[int, Controller]) -> None:
    faults = iter([b"", b"\0", b"HTTP", b"\x7f\xff\xff\xff", b""])
    client = reader(peers[1].url)
    client.fetch(1, None)
    peers[1].fault = lambda answer: next(faults, answer)
    assert client.fetch(1, None).records == DATA


def refusal(client: QuorumClient) -> str:
    with pytest.raises(Fault) as refused:
        client.fetch(1, None)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_denied_reader_is_told_which_right_it_lacks(peers: dict[int, Controller]) -> None:
    peers[1].denied = True
    assert "denies CLUSTER_ACTION" in refusal(reader(peers[1].url))


def test_other_cluster_is_refused(peers: dict[int, Controller]) -> None:
    client = reader(peers[1].url)
    client.cluster_id = "other"
    assert "is of another cluster" in refusal(client)


def test_broker_is_told_from_a_controller(log: Log) -> None:
    broker = Controller(log, offered={api: versions for api, versions in OFFERED.items() if api != 59})
    assert "is a broker" in refusal(reader(broker.url))
    broker.close()


def served(answer: bytes | None) -> Iterator[str]:
    """A server that answers everything with the same bytes; None: with nothing."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        kept = []
        try:
            while True:
                connection, _ = server.accept()
                kept.append(connection)
                connection.recv(1 << 16)
                if answer is not None:
                    connection.sendall(answer)
                    connection.close()
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    yield f"kafka://127.0.0.1:{server.getsockname()[1]}"
    server.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it is an HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "it speaks TLS"),
        (b"\x7f\xff\xff\xff" * 9, "an answer of 2,147,483,647 bytes is announced"),
        (b"", "closes the connection: does it want TLS"),
    ],
)
def test_server_that_is_no_controller_is_told_from_one(answer: bytes, reason: str) -> None:
    for url in served(answer):
        assert reason in refusal(reader(url, patience=1.0))


def test_nobody_at_the_address_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "cannot be reached (Connection refused)" in refusal(reader(f"kafka://127.0.0.1:{port}", patience=0.2))


def test_client_that_asks_again_draws_no_number_from_the_generator_of_the_process() -> None:
    """Cause: Hypothesis warned of strategies in other threads, while a client of an earlier test still asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    before = random.getstate()
    refusal(reader(f"kafka://127.0.0.1:{port}", patience=0.5))
    assert random.getstate() == before


def test_quorum_without_a_majority_is_told_with_the_answer_of_each_controller(
    peers: dict[int, Controller], log: Log
) -> None:
    """The error had one answer by chance, nobody saw which controllers run; ``jbod status`` sends its reader here."""
    url, log.leader = url_of(peers), -1
    for number in (1, 2):
        peers[number].close()
    message = refusal(reader(url, patience=2.0))
    for number in (1, 2):
        assert f"{peers[number].url.removeprefix('kafka://')}: cannot be reached" in message
    assert f"{peers[3].url.removeprefix('kafka://')}: is not the leader" in message
    assert "start the controllers that are down" in message


def test_stop_ends_a_wait_for_a_server_that_says_nothing() -> None:
    for url in served(None):
        stopped: list[int] = []
        threading.Timer(0.3, stopped.append, [1]).start()
        began = time.monotonic()
        with pytest.raises(Halted):
            reader(url, stop=stopped.__len__).fetch(1, None)
        assert time.monotonic() - began < 2


@pytest.mark.parametrize("node", ["a..b:9093", f"{'x' * 64}:9093"])
def test_name_that_no_host_has_is_told(node: str) -> None:
    assert f"{node}: cannot be reached (" in refusal(reader(f"kafka://{node}", patience=0.0))  # was a traceback
