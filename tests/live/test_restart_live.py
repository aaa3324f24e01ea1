"""The plan of restarts, executed batch by batch on a real Kafka while a producer writes; then a batch that it forbids.

Three controllers and six brokers of two disks. While a batch is down, Kafka's own tools show a leader and enough
replicas in sync for every partition. In the end the log has every write that was acknowledged with acks=all.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pipelines.ask.restart import Verdict, safe_to_restart
from pipelines.ask.restart_plan import restart_plan
from pipelines.lake.reader import Lake
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.live.kafka import TOOLS, Cluster, wait_for

CONTROLLERS, BROKERS = (100, 101, 102), (1, 2, 3, 4, 5, 6)
SETTLES = 300.0
"""Seconds in which every replica is in sync again, on a busy machine."""
TOPICS = {"triple": ("1:2:3,4:5:6,2:3:1,5:6:4", 2), "pair": ("1:2,5:4", 1)}
"""Topic -> the brokers of its partitions, min.insync.replicas."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    slow: dict[str, str | int] = {
        "broker.session.timeout.ms": 20000,
        "controller.quorum.fetch.timeout.ms": 10000,
        "controller.quorum.election.timeout.ms": 5000,
        "offsets.topic.num.partitions": 1,
    }
    made = Cluster(tmp_path_factory.mktemp("kafka"), controllers=CONTROLLERS, brokers=BROKERS, disks=2, settings=slow)
    try:
        made.start()
        for topic, (assignment, min_isr) in TOPICS.items():
            words = ("--create", "--topic", topic, "--replica-assignment", assignment)
            config = ("--config", f"min.insync.replicas={min_isr}")
            made.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", made.bootstrap, *words, *config)
        yield made
    finally:
        made.stop()


class Producer:
    """Writes with acks=all and idempotence until it is stopped."""

    def __init__(self, cluster: Cluster, said: Path) -> None:
        self.said = said
        java = [*cluster.java(TOOLS, "-Xmx128m"), "org.apache.kafka.tools.ProducerPerformance"]
        servers = ",".join(f"127.0.0.1:{cluster.ports[broker]}" for broker in BROKERS)
        words = ["--topic", "triple", "--num-records", "1000000", "--record-size", "100", "--throughput", "20"]
        props = [f"bootstrap.servers={servers}", "acks=all", "enable.idempotence=true", "delivery.timeout.ms=300000"]
        with said.open("wb") as out:
            self.process = subprocess.Popen([*java, *words, "--producer-props", *props], stdout=out, stderr=out)

    @property
    def text(self) -> str:
        return self.said.read_text(encoding="utf-8", errors="replace")

    @property
    def acknowledged(self) -> int:
        return sum(int(sent) for sent in re.findall(r"^(\d+) records sent", self.text, re.MULTILINE))


def lake_of(cluster: Cluster) -> Lake:
    """The controller's log, as ``--log`` reads it."""
    return LogLake.of(LogOptions(path=str(cluster.metadata)), None, None, profile="kafka")


def settled(cluster: Cluster) -> bool:
    lake = lake_of(cluster)
    ((lagging,),) = lake.query(f"SELECT count(*) FROM {lake.at('partitions')} WHERE len(isr) < len(replicas)")
    ((down,),) = lake.query(f"SELECT count(*) FROM {lake.at('brokers')} WHERE fenced")
    return not lagging and not down


def stop(cluster: Cluster, nodes: Sequence[int], how: signal.Signals) -> None:
    """All of them at once; then until the controller knows."""
    for node in nodes:
        cluster.nodes[node].send_signal(how)
    for node in nodes:
        cluster.nodes.pop(node).wait(120)

    def known() -> bool:
        lake = lake_of(cluster)
        rows = lake.query(f"SELECT broker_id FROM {lake.at('brokers')} WHERE fenced")
        return {node for (node,) in rows} >= {*nodes} & {*BROKERS}

    wait_for(f"{nodes} fenced", known, 120)


def start(cluster: Cluster, nodes: Sequence[int]) -> None:
    for node in nodes:
        cluster.start_node(node)
    wait_for(f"{nodes} in sync again", lambda: settled(cluster), SETTLES)


def execute(cluster: Cluster, batch: Sequence[int], how: signal.Signals) -> None:
    """Restart a batch as soon as it is safe; while it is down nothing is harmed."""

    def safe() -> Verdict | None:
        answer = safe_to_restart(lake_of(cluster), batch, kill=how is signal.SIGKILL, max_age=60)
        return answer if answer.verdict == "safe" else None

    before = wait_for(f"{batch} safe", safe, SETTLES)
    began = time.monotonic()
    stop(cluster, batch, how)
    found = harms(cluster)
    print(f"{how.name} {batch}: {time.monotonic() - began:.0f} s, next leaders {before.next_leaders}: {found}")
    assert found == {"no_leader": set(), "writes_refused": set()}
    start(cluster, batch)


def harms(cluster: Cluster) -> dict[str, set[str]]:
    """What Kafka's tools say about the partitions of the topics."""
    found: dict[str, set[str]] = {"no_leader": set(), "writes_refused": set()}
    for (topic, number), (leader, _, isr) in cluster.describe().items():
        if topic in TOPICS:
            if leader == -1:
                found["no_leader"].add(f"{topic}-{number}")
            elif len(isr) < TOPICS[topic][1]:
                found["writes_refused"].add(f"{topic}-{number}")
    return found


def said(answer: Verdict) -> dict[str, set[str]]:
    return {harm: {one.name for one in answer.caused(harm)} for harm in ("no_leader", "writes_refused")}


def test_plan_is_harmless_batch_by_batch_and_a_forbidden_batch_does_what_was_said(
    cluster: Cluster, tmp_path: Path
) -> None:
    wait_for("every replica in sync", lambda: settled(cluster), SETTLES)
    producer = Producer(cluster, tmp_path / "producer")
    try:
        wait_for("acknowledged writes", lambda: producer.acknowledged, 120)
        plan = restart_plan(lake_of(cluster))
        print(f"\nplan {plan.batches}, bound {plan.bound}, left out {[one.node_id for one in plan.impossible]}")
        assert (plan.is_best, plan.impossible) == (True, [])
        assert sorted(node for batch in plan.batches for node in batch) == [*BROKERS, *CONTROLLERS]
        of_brokers = [batch for batch in plan.batches if {*batch} <= {*BROKERS}]
        for number, batch in enumerate(of_brokers):
            execute(cluster, batch, signal.SIGKILL if number % 2 else signal.SIGTERM)
        assert producer.process.poll() is None

        forbidden = (1, 2)
        before = safe_to_restart(lake_of(cluster), forbidden)
        assert before.verdict == "not safe"
        stop(cluster, forbidden, signal.SIGTERM)
        found = harms(cluster)
        print(f"forbidden {forbidden}: said {said(before)}, found {found}")
        assert found == said(before)
        start(cluster, forbidden)
        for number, batch in enumerate(plan.batches[len(of_brokers) :]):
            execute(cluster, batch, signal.SIGTERM if number % 2 else signal.SIGKILL)
    finally:
        producer.process.kill()
        producer.process.wait()
    of = ("--bootstrap-server", cluster.bootstrap, "--topic", "triple")
    ends = cluster.tool("org.apache.kafka.tools.GetOffsetShell", *of)
    written = sum(int(end) for end in re.findall(r"^triple:\d+:(\d+)$", ends, re.MULTILINE))
    print(f"acknowledged {producer.acknowledged}, in the log {written}")
    assert written >= producer.acknowledged > 0
