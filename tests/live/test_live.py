"""``jbod replay --follow`` beside a real Kafka: after every step the lake says what Kafka's own tools say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipelines import ask
from pipelines.ask.quorum import quorum
from tests.live.kafka import CONTROLLER, Cluster, wait_for
from tests.support.paths import ROOT

WITHIN = float(os.environ.get("LIVE_SECONDS", "15"))
"""Seconds from a record to its row; a busy machine may be given more."""
PROGRESS = re.compile(r"jbod replay: .*, \d+ s")
LEAVES = CONTROLLER + 1
"""The controller that is removed."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("kafka"), controllers=(CONTROLLER, LEAVES), brokers=(1, 2))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def lake(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake that follows the controller's directory."""
    lake = tmp_path_factory.mktemp("lake") / "lake"
    words = [
        sys.executable,
        "-m",
        "pipelines.cli.main",
        "replay",
        str(cluster.metadata),
        "--lake",
        str(lake),
        "--follow",
    ]
    errors = (lake.parent / "errors").open("wb")
    following = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
    try:
        wait_for("a lake", lambda: (lake / "ledger" / "_delta_log").is_dir() and ledger(lake), 300)
        yield lake
        following.send_signal(signal.SIGINT)
        output, _ = following.communicate(timeout=60)
        assert following.returncode == 0, (lake.parent / "errors").read_text()
        assert b"replayed offsets" in output
    finally:
        following.kill()


def ledger(lake: Path) -> list[dict[str, Any]]:
    rows = DeltaTable(str(lake / "ledger")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["end_offset"])


def partitions(lake: ask.Lake) -> dict[tuple[str, int], tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """As ``kafka-topics --describe`` has it."""
    rows = lake.query(f"SELECT topic, partition, leader, replicas, isr FROM {lake.at('partitions')}")
    return {(topic, number): (leader, tuple(replicas), tuple(isr)) for topic, number, leader, replicas, isr in rows}


def places(lake: ask.Lake, brokers: set[int]) -> dict[tuple[int, str], set[tuple[str, int]]]:
    """As ``kafka-log-dirs`` has it: the replicas of every directory that is online, of brokers that run."""
    replicas: dict[tuple[int, str], set[tuple[str, int]]] = {
        (broker, directory): set()
        for broker, directory in lake.query(f"SELECT broker_id, directory_id FROM {lake.at('directories')}")
        if broker in brokers
    }
    rows = lake.query(f"SELECT broker_id, directory_id, topic, partition FROM {lake.at('assignments')}")
    for broker, directory, topic, number in rows:
        if (broker, directory) in replicas:
            replicas[(broker, directory)].add((topic, number))
    return replicas


def kafkas_places(cluster: Cluster) -> dict[tuple[int, str], set[tuple[str, int]]]:
    return {
        (broker, cluster.directory_id(Path(path))): replicas
        for broker, directories in cluster.log_dirs().items()
        for path, (error, replicas) in directories.items()
        if error is None
    }


def voters(lake: ask.Lake) -> dict[int, str]:
    """As ``kafka-metadata-quorum describe`` has it."""
    return dict(lake.query(f"SELECT node_id, directory_id FROM {lake.at('voters')} WHERE voter"))


def cordons(lake: ask.Lake) -> set[tuple[int, str]]:
    return set(lake.query(f"SELECT broker_id, unnest(cordoned_log_dirs) FROM {lake.at('brokers')}"))


def kafkas_cordons(cluster: Cluster) -> set[tuple[int, str]]:
    brokers = [broker for broker in cluster.brokers if broker in cluster.nodes]
    return {(broker, cluster.directory_id(path)) for broker in brokers for path in cluster.cordoned(broker)}


def agrees(cluster: Cluster, lake: Path) -> Callable[[], bool]:
    """Whether lake and Kafka say the same; the lake is asked before Kafka and after, as both go on."""

    def answer() -> bool:
        kafka = cluster.describe(), kafkas_places(cluster), kafkas_cordons(cluster), cluster.voters()
        opened = ask.Lake.open(lake)
        return (partitions(opened), places(opened, set(cluster.nodes)), cordons(opened), voters(opened)) == kafka

    return answer


def check(cluster: Cluster, lake: Path, done: Callable[[], bool]) -> None:
    """Wait until Kafka shows the step, then until the lake says the same of everything."""
    wait_for("Kafka", done, 120)
    wait_for("the lake", agrees(cluster, lake), 60)


def test_lake_says_what_kafka_says_after_every_step(cluster: Cluster, lake: Path) -> None:
    check(cluster, lake, lambda: True)
    first = ledger(lake)[-1]["end_offset"]

    cluster.create_topic("orders", 6, 2)
    cluster.create_topic("payments", 3, 1)
    check(cluster, lake, lambda: len(cluster.describe()) == 9)

    drained = cluster.disk(2, 1)
    cluster.cordon(2, drained)
    check(cluster, lake, lambda: cluster.cordoned(2) == {drained})
    cluster.create_topic("later", 6, 2)
    check(cluster, lake, lambda: len(cluster.describe()) == 15)
    identity = cluster.directory_id(drained)
    assert cordons(ask.Lake.open(lake)) == {(2, identity)}
    assert "later" not in {topic for topic, _ in places(ask.Lake.open(lake), {2})[(2, identity)]}
    cluster.cordon(2)
    check(cluster, lake, lambda: not cluster.cordoned(2))

    assert controllers(lake) == {CONTROLLER, LEAVES}
    cluster.remove_controller(LEAVES)
    check(cluster, lake, lambda: set(cluster.voters()) == {CONTROLLER})
    wait_for("the controller is gone", lambda: controllers(lake) == {CONTROLLER}, 30)
    assert [controller.node_id for controller in quorum(ask.Lake.open(lake)).gone] == [LEAVES]

    broken = cluster.disk(1, 0)
    lost = kafkas_places(cluster)[(1, cluster.directory_id(broken))]
    directory = cluster.directory_id(broken)
    broken.rename(broken.with_name("broken"))
    broken.write_text("this is no directory")
    check(cluster, lake, lambda: cluster.log_dirs()[1][str(broken)][0] is not None)
    offline = {
        (topic, number): (reason, place)
        for topic, number, broker, reason, place in offline_replicas(lake)
        if broker == 1
    }
    assert offline == dict.fromkeys(lost, ("directory offline", directory))
    assert lost

    cluster.stop_node(1)
    broken.unlink()
    broken.mkdir()
    cluster.format(1)
    cluster.start_node(1)
    check(cluster, lake, lambda: healthy(partition for partition in cluster.describe().values() if partition[0] != -1))
    wait_for("every replica is online", lambda: offline_replicas(lake) == [], 60)
    assert cluster.directory_id(broken) != directory
    if not healthy(cluster.describe().values()):
        # Kafka unfenced the broker before it had assigned its replicas, which elects nobody: the next start does.
        cluster.stop_node(1)
        cluster.start_node(1)
    check(cluster, lake, lambda: healthy(cluster.describe().values()))

    cluster.stop_node(2)
    cluster.unregister(2)
    check(cluster, lake, lambda: True)
    wait_for("broker 2 is gone", lambda: 2 not in brokers(lake), 30)
    assert {broker: reason for _, _, broker, reason, _ in offline_replicas(lake)} == {2: "broker missing"}
    lines = (lake.parent / "errors").read_text().splitlines()
    assert not [line for line in lines if not PROGRESS.fullmatch(line)]

    assert ledger(lake)[-1]["unknown_from"] is None

    late = lateness(lake, first)
    median = sorted(late)[len(late) // 2]
    print(f"{len(late)} records, from the record to its row: {median:.1f} s in the median, {max(late):.1f} s at most")
    assert max(late) <= WITHIN


def lateness(lake: Path, first: int) -> list[float]:
    """Seconds from the append of each record, NoOpRecords aside, to the publication of its row."""
    opened = ask.Lake.open(lake)
    published = [(row["end_offset"], row["published_time"].timestamp()) for row in ledger(lake)]
    records = opened.query(
        f"SELECT log_offset, epoch_ms(append_time) FROM {opened.records()} "
        f"WHERE log_offset >= {first} AND record_type <> 'NO_OP_RECORD' ORDER BY log_offset"
    )
    return [next(time for end, time in published if end > offset) - appended / 1000 for offset, appended in records]


def healthy(partitions: Iterable[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> bool:
    return all(set(replicas) == set(isr) for _, replicas, isr in partitions)


def offline_replicas(lake: Path) -> list[tuple[str, int, int, str, str]]:
    opened = ask.Lake.open(lake)
    rows = f"SELECT topic, partition, broker_id, reason, directory_id FROM {opened.at('offline_replicas')}"
    return [tuple(row) for row in opened.query(rows)]


def controllers(lake: Path) -> set[int]:
    """The controllers that are registered."""
    opened = ask.Lake.open(lake)
    return {controller for (controller,) in opened.query(f"SELECT controller_id FROM {opened.at('controllers')}")}


def brokers(lake: Path) -> set[int]:
    opened = ask.Lake.open(lake)
    return {broker for (broker,) in opened.query(f"SELECT broker_id FROM {opened.at('brokers')}")}
