"""Plans on small disks of a real Kafka, typed as they are printed: drain, undo, fill, balance, repair.

Each disk is a tmpfs. While Kafka's tool executes a plan, every disk keeps its headroom and every partition its
min.insync.replicas. Afterwards kafka-log-dirs has each replica where the files put it, and ``jbod plan watch`` says
that all is done. Then disks die in the middle of plans, and plans are made from there.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jbod_model.formats.metadata_version import METADATA_VERSION, cordons_supported
from pipelines.ask.configs import features
from pipelines.ask.lost_data import losses
from pipelines.ask.plan_watch import PlanWatch, watch_plan
from pipelines.ask.whatif_places import find_place
from pipelines.lake.reader import Lake
from pipelines.plan.answer import MovePlan, plan
from pipelines.plan.files import BOOTSTRAP
from pipelines.plan.goals import LEADERS, Goal, balance, drain, fill, repair
from pipelines.plan.problem import HEADROOM, Problem
from pipelines.plan.steps import Limits
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.live.clients import Consumer, Producer
from tests.live.disks import Gauges
from tests.live.kafka import Cluster, mount, wait_for

BROKERS = (1, 2, 3, 4)
TOOL = {
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
}
TOPICS = {
    "solid": ("1:2:3,2:3:4,3:4:1,4:1:2,1:3:4,2:4:1", 12_000, 2),
    "wide": ("1:2,2:3,3:4,4:1,1:3,2:4,3:1,4:2", 16_000, 1),
    "lone": ("1,1,1,1,2,2,2,2,3,3", 24_000, 1),
}
"""Topic -> brokers of its partitions, records of 1,000 bytes, min.insync.replicas."""
WRITTEN = "written"
MIN_ISR = {topic: least for topic, (_, _, least) in TOPICS.items()} | {WRITTEN: 2}
FAST, SLOW = 20_000_000, 150_000
Placed = dict[str, dict[int, str]]
"""``topic-0`` -> broker -> path."""


@dataclass
class Running:
    """A cluster with data, which a producer goes on to write."""

    cluster: Cluster
    folder: Path
    producer: Producer
    plans: int = 0
    began: int = 0
    """The offset of the log before the newest plan was executed."""
    fullest: dict[Path, float] = field(default_factory=dict)

    @property
    def lake(self) -> Lake:
        """The controller's log, as ``--log`` reads it."""
        return LogLake.of(LogOptions(path=str(self.cluster.metadata)), None, None, profile="kafka")

    @property
    def source(self) -> str:
        return f"kafka://{self.cluster.bootstrap}"

    @property
    def disks(self) -> list[Path]:
        return [self.cluster.disk(broker, disk) for broker in BROKERS for disk in range(self.cluster.disks)]

    def planned(self, goal: Callable[[Lake, Problem], Goal], rate: int = FAST) -> MovePlan:
        def renamed() -> list[Path]:
            return [folder for disk in self.disks for folder in disk.glob("*-delete")]

        wait_for("no folder that Kafka is about to delete", lambda: not renamed(), 120)
        self.plans += 1
        limits, lake = Limits(moves=6, bytes=15_000_000, rate=rate), self.lake
        into = str(self.folder / f"plan-{self.plans}")
        return plan(lake, lambda it: goal(lake, it), [self.source], limits, headroom=HEADROOM, into=into)

    def files(self, answer: MovePlan) -> list[str]:
        """Of its steps."""
        return [answer.paths[f"step-{step.number}.json"] for step in answer.steps]

    def place(self, broker: int, disk: int) -> Callable[[Lake, Problem], Goal]:
        """The goal that a disk is empty."""
        name = f"{broker}:{self.cluster.directory_id(self.cluster.disk(broker, disk))}"
        return lambda lake, it: drain(it, find_place(lake, name))

    def watched(self, files: Sequence[str]) -> PlanWatch:
        return watch_plan(self.lake, files, sources=[self.source])

    def typed(self, command: str) -> str:
        name, *words = shlex.split(command.replace(BOOTSTRAP, self.cluster.bootstrap))
        if name == "sleep":
            time.sleep(float(words[0]))
            return ""
        return self.cluster.tool(TOOL[name], *words)

    def execute(self, commands: Sequence[str]) -> PlanWatch | None:
        """Types the commands, each step when the one before is complete. Returns what is said of the last file, and
        checks headroom and in-sync replicas on the way."""
        began, last = self.lake.offset, None
        with Gauges(self.disks) as gauges:
            for command in commands:
                if "--verify" not in command:
                    self.typed(command)
                if "--reassignment-json-file" in command:
                    last = command.split("--reassignment-json-file ")[1].split()[0]
                if "--verify" in command:
                    wait_for("a step", lambda command=command: "in progress" not in self.typed(command), 180)
            answer = None
            if last is not None:
                answer = self.done(last)
        over = {str(disk): part for disk, part in gauges.fullest.items() if part > 1 - HEADROOM / 100}
        print(f"{gauges.looks} looks at {len(self.disks)} disks, the fullest {max(gauges.fullest.values()):.1%}")
        assert gauges.looks > 20
        assert not over
        assert self.fallen(began) == []
        return answer

    def done(self, file: str) -> PlanWatch:
        """What is said of a file once all of it is done."""
        answers: list[PlanWatch] = []

        def looked() -> bool:
            answers.append(self.watched([file]))
            return answers[-1].done

        try:
            wait_for(file, looked, 120)
        except AssertionError:
            raise AssertionError(
                f"{file}: {[(move.name, move.state, move.reason) for move in answers[-1].partitions]}"
            ) from None
        return answers[-1]

    def fallen(self, began: int) -> list[tuple[str, int, int, int]]:
        """Partitions that were under min.insync.replicas, or lost a replica in sync below it, at an offset after
        ``began``: every state of the log counts, none is missed between two looks."""
        lake = self.lake
        rows = lake.query(
            f"SELECT topic, partition, from_offset, len(isr) FROM {lake.until('partitions')} "
            f"WHERE from_offset > {began}"
        )
        first = lake.query(
            f"SELECT topic, partition, min(len(isr)) FROM {lake.until('partitions')} "
            f"WHERE from_offset <= {began} AND (to_offset IS NULL OR to_offset > {began}) GROUP BY ALL"
        )
        least = {(topic, number): min(MIN_ISR.get(topic, 1), had) for topic, number, had in first}
        return [row for row in rows if row[3] < least.get((row[0], row[1]), 0)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings: dict[str, str | int] = {
        "broker.session.timeout.ms": 20000,
        "offsets.topic.num.partitions": 1,
        "replica.fetch.max.bytes": 100_000,
        "replica.fetch.response.max.bytes": 500_000,
        # The whole history is in the log.
        "internal.metadata.log.segment.bytes": 1 << 26,
        "metadata.log.max.record.bytes.between.snapshots": 1 << 30,
    }
    folder = tmp_path_factory.mktemp("kafka")
    made = Cluster(folder / "nodes", brokers=BROKERS, disks=3, settings=settings, disk_size="18m")
    producer = None
    try:
        made.start()
        for topic, (assignment, records, least) in TOPICS.items():
            made.assign(topic, assignment, min_insync_replicas=least)
            words = ["--topic", topic, "--num-records", str(records), "--record-size", "1000", "--throughput", "-1"]
            props = ["--producer-props", f"bootstrap.servers={made.bootstrap}", "acks=all", "batch.size=4000"]
            made.tool("org.apache.kafka.tools.ProducerPerformance", *words, *props)
        made.assign(WRITTEN, "1:2:3,2:3:4,3:4:1,4:1:2", min_insync_replicas=MIN_ISR[WRITTEN])
        replicas = sum(len(brokers.replace(",", ":").split(":")) for brokers, _, _ in TOPICS.values()) + 12
        wait_for("replicas", lambda: sum(map(len, placed(made).values())) == replicas, 60)
        producer = Producer(made, folder, WRITTEN)
        yield Running(made, folder, producer)
    finally:
        if producer is not None:
            producer.stop()
        made.stop()


def placed(cluster: Cluster) -> Placed:
    """As kafka-log-dirs has it."""
    places: Placed = {}
    for broker, directories in cluster.log_dirs().items():
        for path, (error, replicas) in directories.items():
            for topic, number in () if error else replicas:
                places.setdefault(f"{topic}-{number}", {})[broker] = path
    return places


def promised(before: Mapping[str, Mapping[int, str]], answer: MovePlan) -> Placed:
    """Where the files put the replicas."""
    after = {name: dict(where) for name, where in before.items()}
    for step in answer.steps:
        for partition in answer.documents[f"step-{step.number}.json"]["partitions"]:
            name = f"{partition['topic']}-{partition['partition']}"
            paths = zip(partition["replicas"], partition["log_dirs"], strict=True)
            after[name] = {broker: before[name][broker] if path == "any" else path for broker, path in paths}
    return after


def ends_so(cluster: Cluster, wanted: Placed) -> None:
    wait_for("the replicas where the files put them", lambda: placed(cluster) == wanted, 60)


def test_disk_is_drained_and_its_replicas_are_brought_back(running: Running) -> None:
    cluster, disk = running.cluster, running.cluster.disk(1, 0)
    before = placed(cluster)
    drained = running.planned(running.place(1, 0))
    assert drained.exit_code == 0 and drained.steps, drained.lacks
    cordons = cordons_supported(features(running.lake).get(METADATA_VERSION, 0))
    assert any("cordoned.log.dirs" in command for command in drained.commands) == cordons
    running.execute(drained.commands)
    ends_so(cluster, promised(before, drained))
    assert not any(where.get(1) == str(disk) for where in placed(cluster).values())
    (empty,) = running.watched(running.files(drained)).disks
    assert (empty.directory_id, empty.replicas) == (cluster.directory_id(disk), 0)
    assert empty.removal is not None and empty.removal.safe
    running.execute(drained.undo)
    ends_so(cluster, before)


def test_empty_disk_is_filled_and_the_cluster_evened(running: Running) -> None:
    cluster, now = running.cluster, placed(running.cluster)
    drained = running.planned(running.place(1, 1))
    running.execute([command for command in drained.commands if "cordoned.log.dirs" not in command])
    ends_so(cluster, promised(now, drained))
    name, now = f"1:{cluster.directory_id(cluster.disk(1, 1))}", placed(cluster)
    filled = running.planned(lambda lake, it: fill(it, find_place(lake, name)))
    assert filled.steps
    running.execute(filled.commands)
    ends_so(cluster, promised(now, filled))

    now = placed(cluster)
    evened = running.planned(lambda _, it: balance(it, None, "bytes"))
    assert evened.steps and evened.bytes is not None and evened.spread[1] < evened.spread[0]
    running.execute(evened.commands)
    ends_so(cluster, promised(now, evened))


def test_leaders_are_evened_and_brought_back(running: Running) -> None:
    before = running.cluster.describe()
    evened = running.planned(lambda _, it: balance(it, None, LEADERS))
    assert evened.steps and evened.spread[1] < evened.spread[0]
    running.execute(evened.commands)
    planned = {
        (partition["topic"], partition["partition"]): tuple(partition["replicas"])
        for step in evened.steps
        for partition in evened.documents[f"step-{step.number}.json"]["partitions"]
    }
    now = running.cluster.describe()
    assert {place: now[place][:2] for place in planned} == {place: (to[0], to) for place, to in planned.items()}
    running.execute(evened.undo)
    now = running.cluster.describe()
    assert {place: now[place][:2] for place in planned} == {place: before[place][:2] for place in planned}


def test_whole_broker_is_drained_and_its_replicas_brought_back(running: Running) -> None:
    """Every copy goes to another broker."""
    now = placed(running.cluster)
    emptied = running.planned(lambda lake, it: drain(it, find_place(lake, "4")))
    assert emptied.exit_code == 0 and len(emptied.steps) > 1, emptied.lacks
    running.execute(emptied.commands)
    ends_so(running.cluster, promised(now, emptied))
    assert not any(4 in where for where in placed(running.cluster).values())
    running.execute(emptied.undo)
    ends_so(running.cluster, now)


def begun(running: Running, broker: int, disk: int) -> tuple[MovePlan, str]:
    """Begins the first step of a slow plan that drains a disk. Returns the plan and the file."""
    slow = running.planned(running.place(broker, disk), rate=SLOW)
    assert slow.steps, slow.lacks
    running.began = running.lake.offset
    for command in [line for line in slow.commands if "--verify" not in line][: -len(slow.steps) + 1 or None]:
        running.typed(command)
    file = running.files(slow)[0]
    wait_for(
        "under way", lambda: any(partition.state == "under way" for partition in running.watched([file]).partitions), 60
    )
    return slow, file


def broken(running: Running, broker: int, disk: Path) -> set[str]:
    """A disk that fails. Returns the partitions that have no leader then."""
    running.cluster.break_disk(disk)
    wait_for("a failed disk", lambda: running.cluster.log_dirs()[broker][str(disk)][0] is not None, 60)

    def without_leader() -> set[str]:
        return {
            f"{name}-{number}" for (name, number), (leader, _, _) in running.cluster.describe().items() if leader < 0
        }

    partitions = without_leader()
    last_copies = losses(running.lake).last_copies
    assert {f"{name}-{number}" for _, members in last_copies.shapes for name, number in members} == partitions
    return partitions


def test_target_that_dies_in_the_middle_makes_the_plan_stuck_and_a_new_plan_goes_around_it(running: Running) -> None:
    """R-HOST-5: the broker moves nothing between its other disks until it is restarted, so replicas leave it."""
    cluster, broker = running.cluster, 2
    slow, file = begun(running, broker, 0)
    paths = [
        path
        for partition in slow.documents["step-1.json"]["partitions"]
        for path in partition["log_dirs"]
        if path != "any"
    ]
    target = Path(max(paths, key=paths.count))
    assert target.parent == cluster.disk(broker, 0).parent
    lost = broken(running, broker, target)
    answer = running.watched([file])
    stuck = [partition for partition in answer.partitions if partition.state == "stuck"]
    assert stuck and all("is not online" in partition.reason or "is offline" in partition.reason for partition in stuck)
    print(f"{len(stuck)} stuck: {stuck[0].reason}; without a leader: {sorted(lost)}")

    mended = running.planned(lambda _, it: repair(it))
    assert mended.steps and sum(lack.replicas for lack in mended.lacks) == len(lost)
    running.execute(mended.commands)
    healed = running.planned(running.place(broker, 0))
    assert healed.exit_code == 0, healed.lacks
    assert not any(step.between_disks for step in healed.steps)
    now = placed(cluster)
    running.execute(healed.commands)
    ends_so(cluster, promised(now, healed))


def test_disk_that_dies_while_it_is_drained_is_replaced_and_filled(running: Running) -> None:
    cluster, broker = running.cluster, 3
    disk = cluster.disk(broker, 0)
    drained, file = begun(running, broker, 0)
    identity = cluster.directory_id(disk)
    lost = broken(running, broker, disk)
    answer = running.watched([file])
    assert identity in "".join(partition.reason for partition in answer.partitions if partition.state == "stuck")
    assert not answer.done
    print(f"{[partition.state for partition in answer.partitions]}; without a leader: {sorted(lost)}")

    mended = running.planned(lambda _, it: repair(it))
    assert mended.steps
    running.execute(mended.commands)
    cluster.stop_node(broker)
    subprocess.run(["umount", str(disk)], check=True)
    subprocess.run(["umount", str(disk)], check=True)
    mount(disk, f"size={cluster.disk_size}")
    cluster.format(broker)
    cluster.start_node(broker)
    wait_for("the new disk", lambda: cluster.log_dirs().get(broker, {}).get(str(disk), ("?", set()))[0] is None, 120)
    wait_for("registered", lambda: cluster.directory_id(disk) in listed(running.lake), 60)
    for command in drained.uncordons:  # the cordon is on the path, and so on the new disk too
        running.typed(command)
    name, now = f"{broker}:{cluster.directory_id(disk)}", placed(cluster)
    filled = running.planned(lambda lake, it: fill(it, find_place(lake, name)))
    assert filled.steps, filled.lacks
    running.execute(filled.commands)
    ends_so(cluster, promised(now, filled))


def test_repair_with_a_dead_broker_recreates_its_replicas(running: Running) -> None:
    cluster = running.cluster
    cluster.stop_node(4)
    wait_for("a fenced broker", lambda: fenced(running.lake) == [4], 60)
    repaired = running.planned(lambda _, it: repair(it))
    assert repaired.steps and 4 in repaired.down
    running.execute(repaired.commands)
    left = {name for name, replicas in replicas_of(cluster).items() if 4 in replicas}
    assert len(left) <= sum(lack.replicas for lack in repaired.lacks)


def test_every_acknowledged_write_is_read(running: Running) -> None:
    running.producer.stop()
    acknowledged = running.producer.acknowledged
    assert len(acknowledged) > 500
    assert not running.producer.errors
    consumer = Consumer(running.cluster, running.folder, WRITTEN)
    try:
        wait_for("everything read", lambda: acknowledged <= consumer.read, 120)
    finally:
        consumer.stop()


def replicas_of(cluster: Cluster) -> dict[str, tuple[int, ...]]:
    return {f"{topic}-{number}": replicas for (topic, number), (_, replicas, _) in cluster.describe().items()}


def listed(lake: Lake) -> list[str]:
    """The directories that brokers list."""
    return [directory for (directory,) in lake.query(f"SELECT directory_id FROM {lake.at('directories')}")]


def fenced(lake: Lake) -> list[int]:
    return [broker for (broker,) in lake.query(f"SELECT broker_id FROM {lake.at('brokers')} WHERE fenced")]
