"""What jbod says before a restart is what a real Kafka does then.

Three controllers and six brokers of two disks in three racks, topics of one to three replicas, an idempotent producer
with acks=all and a consumer that reads everything. Plans are executed batch by batch, in order and by kills; then
batches that a plan forbids; then random brokers in random states of the cluster; then brokers whose disk failed.
"""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from pipelines.ask.next_start import HOWS, How, next_starts
from pipelines.ask.restart import RestartVerdict, safe_to_restart
from pipelines.ask.restart_plan import restart_plan
from pipelines.lake.reader import Lake
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.live.clients import Consumer, Producer
from tests.live.kafka import Cluster, wait_for

CONTROLLERS, BROKERS, DISKS = (100, 101, 102), (1, 2, 3, 4, 5, 6), 2
RACKS = ("a", "a", "b", "b", "c", "c")
SETTLES = 300.0
"""Seconds in which every replica is in sync again, on a busy machine."""
WRITTEN = "triple"
"""The topic that is written all the time."""
TOPICS = {WRITTEN: ("1:3:5,2:4:6,3:5:1,6:2:4", 2), "pair": ("1:3,5:4", 1), "solo": ("6", 1)}
"""Topic -> the brokers of its partitions, min.insync.replicas."""
Harms = dict[str, set[str]]


class Running(NamedTuple):
    """The cluster with its clients."""

    cluster: Cluster
    producer: Producer
    consumer: Consumer

    def check_data(self) -> None:
        """Everything that was acknowledged until now is read; no write failed for good."""
        acknowledged = self.producer.acknowledged
        wait_for("what was acknowledged is read", lambda: acknowledged <= self.consumer.read, SETTLES)
        assert self.producer.errors == []
        assert self.producer.process.poll() is None
        print(f"acknowledged and read: {len(acknowledged)}")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("kafka")
    settings: dict[str, str | int] = {
        "broker.session.timeout.ms": 15000,
        "controller.quorum.fetch.timeout.ms": 10000,
        "controller.quorum.election.timeout.ms": 5000,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 3,
        "auto.leader.rebalance.enable": "false",
        "replica.fetch.max.bytes": 1024,  # a throttled replica does not catch up in one fetch
    }
    cluster = Cluster(folder, controllers=CONTROLLERS, brokers=BROKERS, disks=DISKS, racks=RACKS, settings=settings)
    clients: list[Producer | Consumer] = []
    try:
        cluster.start()
        throttled = {"leader_replication_throttled_replicas": "*", "follower_replication_throttled_replicas": "*"}
        for topic, (assignment, min_isr) in TOPICS.items():
            cluster.assign(topic, assignment, min_insync_replicas=min_isr, **throttled)
        producer, consumer = Producer(cluster, folder, WRITTEN), Consumer(cluster, folder, WRITTEN)
        clients += [producer, consumer]
        wait_for("what is read", lambda: consumer.read, 120)
        wait_for("every replica in sync", lambda: settled(cluster), SETTLES)
        yield Running(cluster, producer, consumer)
    finally:
        for client in clients:
            client.stop()
        cluster.stop()


def lake_of(cluster: Cluster) -> Lake:
    """The controller's log, as ``--log`` reads it."""
    return LogLake.of(LogOptions(path=str(cluster.metadata)), None, None, profile="kafka")


def settled(cluster: Cluster) -> bool:
    lake = lake_of(cluster)
    ((moving,),) = lake.query(
        f"SELECT count(*) FROM {lake.at('partitions')} WHERE len(isr) < len(replicas) OR len(adding) > 0 "
        "OR len(removing) > 0"
    )
    ((down,),) = lake.query(f"SELECT count(*) FROM {lake.at('brokers')} WHERE fenced OR len(log_dirs) < {DISKS}")
    return not moving and not down


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


def harms(cluster: Cluster) -> Harms:
    """What Kafka's tools say about the partitions of the topics."""
    partitions: Harms = {"no_leader": set(), "writes_refused": set()}
    for (topic, number), (leader, _, isr) in cluster.describe().items():
        if topic in TOPICS:
            if leader == -1:
                partitions["no_leader"].add(f"{topic}-{number}")
            elif len(isr) < TOPICS[topic][1]:
                partitions["writes_refused"].add(f"{topic}-{number}")
    return partitions


def expected_harms(answer: RestartVerdict, before: Harms) -> Harms:
    """The same, as it was said: what is caused, what is so already, and elsewhere what was so."""
    stakes = [stake for stake in answer.stakes if stake.topic in TOPICS]
    here = {stake.name for stake in stakes if {*stake.replicas} & {*answer.brokers}}
    return {
        harm: {stake.name for stake in stakes if harm in (*stake.harms, *stake.already)} | (before[harm] - here)
        for harm in before
    }


# PLANS


def execute(cluster: Cluster, batch: Sequence[int], how: signal.Signals) -> None:
    """Restart a batch as soon as it is safe; while it is down nothing is harmed."""

    def safe() -> RestartVerdict | None:
        answer = safe_to_restart(lake_of(cluster), batch, kill=how is signal.SIGKILL, max_age=60)
        return answer if answer.verdict == "safe" else None

    before = wait_for(f"{batch} safe", safe, SETTLES)
    began = time.monotonic()
    stop(cluster, batch, how)
    actual_harms = harms(cluster)
    print(f"{how.name} {batch}: {time.monotonic() - began:.0f} s, next leaders {before.next_leaders}: {actual_harms}")
    assert actual_harms == {"no_leader": set(), "writes_refused": set()}
    start(cluster, batch)


@pytest.mark.parametrize("by_rack", [True, False], ids=["racks", "brokers"])
def test_plan_is_harmless_batch_by_batch_and_a_forbidden_batch_does_what_was_said(
    running: Running, by_rack: bool
) -> None:
    cluster = running.cluster
    plan = restart_plan(lake_of(cluster), by_rack=by_rack)
    print(f"\nplan {plan.batches}, bound {plan.bound}, left out {[member.node_id for member in plan.impossible]}")
    assert plan.is_best
    assert [(member.node_id, member.reason) for member in plan.impossible] == [(6, "one replica")]
    assert sorted(node for batch in plan.batches for node in batch) == [*BROKERS[:-1], *CONTROLLERS]
    of_brokers = [batch for batch in plan.batches if {*batch} <= {*BROKERS}]
    for number, batch in enumerate(plan.batches):
        execute(cluster, batch, signal.SIGKILL if number % 2 else signal.SIGTERM)
        if batch is of_brokers[-1]:
            for forbidden in ((6,), (1, 3)):
                before = safe_to_restart(lake_of(cluster), forbidden)
                assert before.verdict == "not safe"
                expected = expected_harms(before, harms(cluster))
                stop(cluster, forbidden, signal.SIGTERM)
                actual_harms = harms(cluster)
                print(f"forbidden {forbidden}: said {expected}, found {actual_harms}")
                assert actual_harms == expected != {"no_leader": set(), "writes_refused": set()}
                start(cluster, forbidden)
    running.check_data()


# RANDOM STATES


@contextmanager
def nothing(cluster: Cluster, random: Random) -> Iterator[str]:
    yield "nothing"


@contextmanager
def failed_disk(cluster: Cluster, random: Random) -> Iterator[str]:
    broker = random.choice(BROKERS)
    path = fail(cluster, broker, random.choice(disks_in_use(cluster, broker)))
    yield f"{path.name} of broker {broker} failed"
    if broker in cluster.nodes:
        stop(cluster, [broker], signal.SIGTERM)
    repair(path)
    cluster.start_node(broker)


@contextmanager
def broker_down(cluster: Cluster, random: Random) -> Iterator[str]:
    broker, how = random.choice(BROKERS), random.choice((signal.SIGTERM, signal.SIGKILL))
    stop(cluster, [broker], how)
    yield f"broker {broker} down by {how.name}"
    cluster.start_node(broker)


@contextmanager
def lagging(cluster: Cluster, random: Random) -> Iterator[str]:
    """A broker comes back, and may hardly fetch what was written meanwhile."""
    broker = random.choice(BROKERS)
    cluster.throttle(broker, 1)
    stop(cluster, [broker], signal.SIGTERM)
    time.sleep(15)
    cluster.start_node(broker)
    wait_for("unfenced", lambda: not fenced(cluster, broker), SETTLES)
    behind = [f"{topic}-{number}" for (topic, number), (_, all_, isr) in cluster.describe().items() if {*all_} - {*isr}]
    yield f"broker {broker} lags in {behind}"
    cluster.throttle(broker, None)


@contextmanager
def reassigning(cluster: Cluster, random: Random) -> Iterator[str]:
    """A replica that is added may hardly fetch."""
    number = random.randrange(4)
    replicas = cluster.describe()[WRITTEN, number][1]
    added = random.choice([broker for broker in BROKERS if broker not in replicas])
    removed = random.choice(replicas)
    cluster.throttle(added, 1)
    cluster.reassign(WRITTEN, number, [*(replica for replica in replicas if replica != removed), added])
    yield f"{WRITTEN}-{number} goes from broker {removed} to {added}"
    wait_for("up", lambda: len(cluster.log_dirs()) == len(cluster.nodes.keys() & {*BROKERS}), SETTLES)
    cluster.throttle(added, None)
    wait_for("reassigned", lambda: len(cluster.describe()[WRITTEN, number][1]) == len(replicas), SETTLES)
    cluster.reassign(WRITTEN, number, replicas)


TROUBLES: Sequence[Callable[[Cluster, Random], AbstractContextManager[str]]] = (
    failed_disk,
    broker_down,
    lagging,
    reassigning,
    nothing,
)


@pytest.mark.parametrize("seed", range(20))
def test_restart_in_a_random_state_does_what_was_said(running: Running, seed: int) -> None:
    """Who leads, and which partitions nobody leads or refuse writes, while the broker is down."""
    cluster, random = running.cluster, Random(seed)
    with TROUBLES[seed % len(TROUBLES)](cluster, random) as what:
        broker = random.choice([node for node in BROKERS if node in cluster.nodes])
        how = random.choice((signal.SIGTERM, signal.SIGKILL))
        led, before = {place for place, (leader, *_) in cluster.describe().items() if leader == broker}, harms(cluster)
        answer = safe_to_restart(lake_of(cluster), [broker], kill=how is signal.SIGKILL, max_age=60)
        stop(cluster, [broker], how)
        actual_harms, after = harms(cluster), cluster.describe()
        next_leaders = Counter(after[place][0] for place in led if after[place][0] != -1)
        print(f"\n{seed}: {what}; {how.name} {broker}: {answer.verdict}, {[cause.reason for cause in answer.blocking]}")
        print(
            f"  said {expected_harms(answer, before)} {answer.next_leaders}, found {actual_harms} {dict(next_leaders)}"
        )
        assert actual_harms == expected_harms(answer, before)
        assert next_leaders == answer.next_leaders
        if answer.verdict == "safe":
            assert actual_harms == before
        cluster.start_node(broker)
        wait_for("unfenced", lambda: not fenced(cluster, broker), SETTLES)
    wait_for("every replica in sync again", lambda: settled(cluster), SETTLES)
    running.check_data()


def fenced(cluster: Cluster, broker: int) -> bool:
    lake = lake_of(cluster)
    return bool(lake.query(f"SELECT 1 FROM {lake.at('brokers')} WHERE fenced AND broker_id = {broker}"))


# DISKS


def places(cluster: Cluster, broker: int) -> dict[str, str]:
    """Partition -> the directory of the broker's replica, by the metadata."""
    lake = lake_of(cluster)
    rows = f"SELECT topic, partition, directory_id FROM {lake.at('assignments')} WHERE broker_id = {broker}"
    return {f"{topic}-{number}": directory for topic, number, directory in lake.query(rows)}


def disks_in_use(cluster: Cluster, broker: int) -> list[Path]:
    used = {*places(cluster, broker).values()}
    disks = [cluster.disk(broker, number) for number in range(DISKS)]
    return [disk for disk in disks if cluster.directory_id(disk) in used]


def fail(cluster: Cluster, broker: int, disk: Path) -> Path:
    """The disk is gone under the broker; until the controller knows."""
    directory = cluster.directory_id(disk)
    away = disk.with_name(f"{disk.name}.away")
    shutil.rmtree(away, ignore_errors=True)  # the disk that it replaced
    disk.rename(away)
    disk.write_text("this is no directory")

    def known() -> bool:
        lake = lake_of(cluster)
        ((listed,),) = lake.query(f"SELECT log_dirs FROM {lake.at('brokers')} WHERE broker_id = {broker}")
        return directory not in listed

    wait_for(f"{disk} offline", known, 120)
    return disk


def repair(disk: Path) -> None:
    """The same disk is back."""
    disk.unlink()
    disk.with_name(f"{disk.name}.away").rename(disk)


@pytest.mark.parametrize("how", HOWS)
def test_start_with_a_disk_that_failed_does_what_was_said(running: Running, tmp_path: Path, how: How) -> None:
    """Before the start: which replicas are recreated, who leads, what is given up. After it: the metadata says so, and
    a consumer reads what is left."""
    cluster, broker, topic, written = running.cluster, 1, f"disk-{how}", 200
    cluster.assign(topic, f"{broker}", min_insync_replicas=1)
    producer = Producer(cluster, tmp_path, topic, most=written, throughput=-1)
    wait_for("written", lambda: len(producer.acknowledged) == written, 120)
    by_id = {cluster.directory_id(cluster.disk(broker, number)): number for number in range(DISKS)}
    name = f"{topic}-0"
    wait_for("placed", lambda: places(cluster, broker).get(name) in by_id, 60)
    before = places(cluster, broker)
    number = by_id[before[name]]
    disk = fail(cluster, broker, cluster.disk(broker, number))
    wait_for("no leader", lambda: cluster.describe()[topic, 0][0] == -1, 60)
    outcome = next_starts(lake_of(cluster), broker).starts[HOWS.index(how)]

    stop(cluster, [broker], signal.SIGTERM)
    if how == "back":
        repair(disk)
    elif how == "blank":
        disk.unlink()
        disk.mkdir()
        cluster.format(broker)
    elif how == "gone":
        cluster.mount(broker, *(index for index in range(DISKS) if index != number))
    cluster.start_node(broker)
    wait_for("unfenced", lambda: not fenced(cluster, broker), SETTLES)
    lost = {partition.name for partition in outcome.gives_up}

    def recreated() -> set[str]:
        after = places(cluster, broker)
        return {partition for partition, directory in after.items() if directory != before.get(partition, directory)}

    wait_for("what is recreated is reported", lambda: recreated() == {*outcome.recreated}, 120)
    leader = cluster.describe()[topic, 0][0]
    assert leader == (broker if name in outcome.leads else -1) or (name in outcome.perhaps_leads and leader == -1)
    assert leader != -1 or name in outcome.without_leader
    if name in outcome.perhaps_leads and leader == -1:  # until a broker is unfenced
        stop(cluster, [broker], signal.SIGTERM)
        cluster.start_node(broker)
        wait_for("led", lambda: cluster.describe()[topic, 0][0] == broker, SETTLES)
    left = set[str]()
    if name in outcome.leads:
        words = ("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "15000")
        read = cluster.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *words)
        left = {*re.findall(r"^\d+$", read, re.MULTILINE)}
        assert (producer.acknowledged <= left) == (name not in lost)
    print(
        f"\n{how}: {outcome.recreated} recreated, leads {outcome.leads}, gives up {lost}: leader {leader}, "
        f"{len(left)} of {written} read"
    )

    if how in ("gone", "broken"):
        stop(cluster, [broker], signal.SIGTERM)
        if how == "gone":
            disk.unlink()
            disk.mkdir()
            cluster.mount(broker, *range(DISKS))
            cluster.format(broker)
        else:
            repair(disk)
        cluster.start_node(broker)
    wait_for("every replica in sync again", lambda: settled(cluster), SETTLES)
    running.check_data()
