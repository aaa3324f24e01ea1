"""Sizes from brokers: who is asked, what they answer, and what needs a person."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from pipelines.ask.log_dirs import BrokerLogDir, ReplicaSize, read_brokers
from pipelines.ask.sizes import CERTAIN, sizes
from pipelines.cli.main import application
from pipelines.quorum.connection import MOST_BYTES, Fault
from tests.support.brokers import OF_BROKERS, Broker, log_dir, topic
from tests.support.controller import Controller, Log, url_of
from tests.unit.check.story import Story, disk


@pytest.fixture
def peers() -> Iterator[dict[int, Controller]]:
    brokers: dict[int, Controller] = {}
    brokers[1] = Broker(
        1, [log_dir("/data/x", [topic("t", 10, 30)]), log_dir("/data/y", [topic("u", 5)])], peers=brokers
    )
    brokers[2] = Broker(2, [log_dir("/data/x", [topic("t", 7)], is_cordoned=True)], peers=brokers)
    yield brokers
    for peer in brokers.values():
        peer.close()


def log_dirs_of(url: str) -> tuple[list[BrokerLogDir], list[str]]:
    _, log_dirs, faults = read_brokers(url, "")
    return log_dirs, faults


@pytest.mark.parametrize("node", [1, 2])
def test_every_broker_is_asked_whichever_is_named(peers: dict[int, Controller], node: int) -> None:
    log_dirs, faults = log_dirs_of(peers[node].url)
    assert [
        (directory.broker_id, directory.path, directory.total_bytes, directory.free_bytes, directory.cordoned)
        for directory in log_dirs
    ] == [
        (1, "/data/x", 1000, 400, False),
        (1, "/data/y", 1000, 400, False),
        (2, "/data/x", 1000, 400, True),
    ]
    assert log_dirs[0].replicas == [ReplicaSize("t-0", 10, False), ReplicaSize("t-1", 30, False)]
    assert not faults
    assert peers[1].requests[-1][1]["topics"] is None


def test_broker_of_before_cordons_says_nothing_of_them(peers: dict[int, Controller]) -> None:
    peers[1].offered = peers[2].offered = {**OF_BROKERS, 35: (0, 4)}
    log_dirs, _ = log_dirs_of(peers[1].url)
    assert {directory.cordoned for directory in log_dirs} == {None}
    assert {directory.total_bytes for directory in log_dirs} == {1000}


def test_directory_that_cannot_be_read_and_a_volume_of_unknown_size(peers: dict[int, Controller]) -> None:
    peers[2].directories = [log_dir("/a", error_code=56), log_dir("/b", total_bytes=-1, usable_bytes=-1)]  # type: ignore[attr-defined]
    failed, unknown = log_dirs_of(peers[1].url)[0][2:]
    assert (failed.error, unknown.error) == ("KAFKA_STORAGE_ERROR", "")
    assert (unknown.total_bytes, unknown.free_bytes) == (None, None)


def test_broker_that_does_not_answer_is_left_out_with_the_reason(peers: dict[int, Controller]) -> None:
    peers[2].close()
    log_dirs, faults = log_dirs_of(url_of(peers))
    assert {directory.broker_id for directory in log_dirs} == {1}
    assert faults == [f"broker 2 is left out: 127.0.0.1:{peers[2].port}: cannot be reached (Connection refused)"]


def test_second_address_is_asked_if_nobody_is_at_the_first(peers: dict[int, Controller]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert len(log_dirs_of(f"kafka://127.0.0.1:{port},127.0.0.1:{peers[1].port}")[0]) == 3


def refusal(url: str) -> str:
    with pytest.raises(Fault) as refused:
        read_brokers(url, "")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_denied_reader_is_told_which_right_it_lacks(peers: dict[int, Controller]) -> None:
    peers[1].denied = peers[2].denied = True
    assert "denies DESCRIBE on the cluster" in refusal(peers[1].url)


def test_controller_is_told_from_a_broker() -> None:
    controller = Controller(Log())
    assert "is a controller, or older than Kafka 3.7: name brokers" in refusal(controller.url)
    controller.close()


@pytest.mark.parametrize("cut", range(0, 120, 7))
def test_answer_that_is_cut_is_a_fault(peers: dict[int, Controller], cut: int) -> None:
    del peers[2]
    peers[1].fault = lambda answer: answer[:cut] if b"/data/x" in answer else answer
    assert "closes the connection" in refusal(peers[1].url)


def test_answer_that_is_longer_than_any_is_not_read(peers: dict[int, Controller]) -> None:
    peers[1].fault = lambda answer: b"\x7f" + answer[1:] if b"/data/x" in answer else answer
    peers[2].fault = peers[1].fault
    assert "answers what no broker of Kafka does (an answer of 2,1" in refusal(peers[1].url)


def test_answer_with_many_replicas_is_read(peers: dict[int, Controller]) -> None:
    many = [topic(f"topic-{number}", *range(1000)) for number in range(60)]
    peers[1].directories = [log_dir("/data/x", many)]  # type: ignore[attr-defined]
    log_dirs, _ = log_dirs_of(peers[1].url)
    assert len(log_dirs[0].replicas) == 60_000
    assert MOST_BYTES < 60_000 * 22


def test_login_is_that_of_the_properties_file(tmp_path: Path) -> None:
    brokers: dict[int, Controller] = {}
    brokers[1] = Broker(
        1, [log_dir("/data/x")], peers=brokers, log_in=lambda _: lambda login: b"" if b"secret" in login else None
    )
    for password, reason in (("secret", ""), ("wrong", "refuses the login by PLAIN")):
        jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{password}";'
        config = tmp_path / "client.properties"
        config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
        if reason:
            with pytest.raises(Fault, match=reason):
                read_brokers(brokers[1].url, str(config))
        else:
            assert len(read_brokers(brokers[1].url, str(config))[1]) == 1
    brokers[1].close()


# JOINED WITH THE LOG


def test_sizes_of_brokers_are_joined_with_the_log(tmp_path: Path, peers: dict[int, Controller]) -> None:
    story = Story(30).broker(1, "ab").broker(2, "c", cordoned="c")
    story.topic("t", {1: "a", 2: "c"}, {1: "a"}).topic("u", {1: "b"}).lake(tmp_path / "lake")
    line = ["sizes", peers[1].url, "--lake", str(tmp_path / "lake")]
    other = CliRunner().invoke(application(line), line)
    assert isinstance(other.exception, UsageError)
    assert "belongs to cluster abcdefghijklmnopqrstuQ, not to test" in str(other.exception)
    for peer in peers.values():
        peer.cluster_id = "test"
    answer: dict[str, Any] = json.loads(CliRunner().invoke(application(line), [*line, "--json"]).stdout)
    assert [
        (
            directory["broker_id"],
            directory["path"],
            directory["directory_id"],
            directory["pairing"],
            directory["used_percent"],
            directory["cordoned"],
        )
        for directory in answer["directories"]
    ] == [
        (1, "/data/x", str(disk("a")), CERTAIN, 60, False),
        (1, "/data/y", str(disk("b")), CERTAIN, 60, False),
        (2, "/data/x", str(disk("c")), CERTAIN, 60, True),
    ]


def test_cordons_are_those_of_the_log_where_the_source_says_none(tmp_path: Path, peers: dict[int, Controller]) -> None:
    peers[1].offered = peers[2].offered = {**OF_BROKERS, 35: (0, 4)}
    peers[1].cluster_id = "test"
    lake = Story(30).broker(2, "c", cordoned="c").topic("t", {2: "c"}).lake(tmp_path / "lake")
    assert [
        directory.cordoned for directory in sizes(lake, [peers[1].url]).directories if directory.broker_id == 2
    ] == [True]
