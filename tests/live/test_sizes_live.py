"""``jbod sizes`` and ``jbod plan watch`` beside real brokers: the sizes are those of Kafka's own tool."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jbod_model.storage.properties import read_meta_properties
from pipelines.ask.log_dirs import BrokerLogDir, read_brokers, read_log_dirs, read_sources
from pipelines.ask.plan_watch import watch_plan
from pipelines.ask.sizes import CERTAIN, sizes
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.live.kafka import Cluster, wait_for

TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Throttles count what was fetched: one fetch must not be a whole replica.
    fetched: dict[str, str | int] = {"replica.fetch.max.bytes": 50_000, "replica.fetch.response.max.bytes": 100_000}
    kafka = Cluster(tmp_path_factory.mktemp("kafka"), brokers=(1, 2, 3), disks=2, settings=fetched)
    try:
        kafka.start()
        kafka.create_topic(TOPIC, 6, 2)
        produce(kafka)
        yield kafka
    finally:
        kafka.stop()


def produce(cluster: Cluster) -> None:
    """Some megabytes."""
    cluster.tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", "5000", "--record-size", "1000", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=all"),
    )


def url(cluster: Cluster) -> str:
    return f"kafka://{cluster.bootstrap}"


def log(cluster: Cluster) -> LogLake:
    return LogLake.of(LogOptions(path=str(cluster.metadata)))


def throttles(rate: int) -> tuple[str, ...]:
    """Bytes a second for copies between brokers and between disks."""
    return ("--throttle", str(rate), "--replica-alter-log-dirs-throttle", str(rate))


def printed(cluster: Cluster, path: Path) -> list[BrokerLogDir]:
    """What Kafka's own tool says."""
    words = ("--bootstrap-server", cluster.bootstrap, "--describe")
    path.write_text(cluster.tool("org.apache.kafka.tools.LogDirsCommand", *words))
    return [*read_log_dirs(path, path.read_text())]


def held(log_dirs: list[BrokerLogDir]) -> dict[tuple[int | None, str], tuple[bool, list[Any]]]:
    return {(log_dir.broker_id, log_dir.path): (bool(log_dir.error), sorted(log_dir.replicas)) for log_dir in log_dirs}


def test_sizes_are_those_of_kafka_log_dirs_and_paths_those_of_meta_properties(cluster: Cluster, tmp_path: Path) -> None:
    cluster_id, log_dirs, faults = read_brokers(url(cluster), "")
    assert (cluster_id, faults) == (cluster.cluster_id, [])
    assert held(log_dirs) == held(printed(cluster, tmp_path / "sizes.txt"))
    assert sum(replica.bytes for log_dir in log_dirs for replica in log_dir.replicas) > 10_000_000
    usage = os.statvfs(cluster.disk(1, 0))
    for log_dir in log_dirs:
        assert log_dir.total_bytes == usage.f_blocks * usage.f_frsize
        assert log_dir.free_bytes is not None
        assert abs(log_dir.free_bytes - usage.f_bavail * usage.f_frsize) < 1 << 30
    answer = sizes(log(cluster), [url(cluster)])
    certain = [each for each in answer.directories if each.pairing == CERTAIN]
    assert certain
    for each in certain:
        assert each.path is not None
        assert each.directory_id == str(read_meta_properties(each.path).directory_id)
        assert (each.missing, each.astray) == (0, 0)


def test_watch_follows_a_reassignment_until_its_broker_is_back_and_the_disk_is_empty(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Broker 3 is drained, slowly, and broker 2 stops meanwhile; the plan names directories.

    It stops in order: a broker that is killed as a copy between its disks ends has two folders of a partition.
    """
    before = {key: replicas for key, (_, replicas, _) in cluster.describe().items() if key[0] == TOPIC}
    leaving = {key: replicas for key, replicas in before.items() if 3 in replicas}
    target = {key: [1, 2] if 1 in replicas else [2, 1] for key, replicas in leaving.items()}
    plan = {
        "version": 1,
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "replicas": target[topic, number],
                "log_dirs": [str(cluster.disk(broker, 0)) for broker in target[topic, number]],
            }
            for topic, number in leaving
        ],
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    names = [str(cluster.root / str(broker)) for broker in cluster.brokers]

    def looked() -> Any:
        lake = log(cluster)
        return watch_plan(replace(lake, named=read_sources(lake, names).statements), [str(file)])

    assert {partition.state for partition in looked().partitions} <= {"not begun"}
    words = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(file))
    reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    cluster.tool(reassign, *words, "--execute", *throttles(5_000))
    cluster.stop_node(2)

    def stuck() -> Any:
        return any(
            partition.state == "stuck" and "broker 2 is fenced" in partition.reason for partition in looked().partitions
        )

    wait_for("a reassignment that waits for broker 2", stuck, 60)
    cluster.start_node(2)
    wait_for("broker 2", lambda: all(partition.state != "stuck" for partition in looked().partitions), 180)
    cluster.tool(reassign, *words, "--execute", "--additional", *throttles(50_000_000))

    def done() -> Any:
        answer = looked()
        return answer if answer.done else None

    answer = wait_for("the end of the reassignment", done, 180)
    of_3 = [disk for disk in answer.disks if disk.broker_id == 3]
    assert all(not disk.replicas and disk.removal is not None for disk in of_3)
    here = {key: replicas for key, (_, replicas, _) in cluster.describe().items() if key in leaving}
    assert here == {key: tuple(brokers) for key, brokers in target.items()}
    for log_dir in read_brokers(url(cluster), "")[1]:
        moved = {f"{topic}-{number}" for topic, number in leaving}
        names_here = {each.partition for each in log_dir.replicas if not each.future}
        if log_dir.broker_id == 3 or log_dir.path == str(cluster.disk(log_dir.broker_id or 0, 1)):
            assert not moved & names_here
