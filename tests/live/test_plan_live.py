"""Plans, executed on a real Kafka with its own tools as they are printed: drain, undo, fill, balance, repair.

After each of them kafka-log-dirs has every replica where the files of the plan put it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pipelines.ask.whatif_places import find_place
from pipelines.lake.reader import Lake
from pipelines.plan.answer import BOOTSTRAP, MovePlan, plan
from pipelines.plan.goals import Goal, balance, drain, fill, repair
from pipelines.plan.problem import Problem
from pipelines.plan.steps import Limits
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.live.kafka import Cluster, wait_for

BROKERS = (1, 2, 3)
TOOL = {
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
}
TOPICS = {"wide": ("1:2,2:3,3:1,1:3,2:1,3:2", 3_000), "lone": ("1,1,1,1", 8_000), "small": ("1:2,2:3", 200)}
"""Topic -> brokers of its partitions, records of 1,000 bytes."""
Placed = dict[str, dict[int, str]]
"""``topic-0`` -> broker -> path."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    slow: dict[str, str | int] = {"broker.session.timeout.ms": 20000, "offsets.topic.num.partitions": 1}
    made = Cluster(tmp_path_factory.mktemp("kafka"), brokers=BROKERS, disks=3, settings=slow)
    try:
        made.start()
        for topic, (assignment, records) in TOPICS.items():
            made.assign(topic, assignment)
            words = ["--topic", topic, "--num-records", str(records), "--record-size", "1000", "--throughput", "-1"]
            props = ["--producer-props", f"bootstrap.servers={made.bootstrap}", "acks=all"]
            made.tool("org.apache.kafka.tools.ProducerPerformance", *words, *props)
        yield made
    finally:
        made.stop()


def lake_of(cluster: Cluster) -> Lake:
    """The controller's log, as ``--log`` reads it."""
    return LogLake.of(LogOptions(path=str(cluster.metadata)), None, None, profile="kafka")


def placed(cluster: Cluster) -> Placed:
    """As kafka-log-dirs has it."""
    found: Placed = {}
    for broker, directories in cluster.log_dirs().items():
        for path, (error, replicas) in directories.items():
            for topic, number in () if error else replicas:
                found.setdefault(f"{topic}-{number}", {})[broker] = path
    return found


def planned(cluster: Cluster, goal: Callable[[Problem], Goal], path: Path) -> MovePlan:
    said = cluster.tool("org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", cluster.bootstrap, "--describe")
    path.mkdir()
    (path / "sizes.txt").write_text(said)
    limits = Limits(moves=6, rate=20_000_000)
    return plan(lake_of(cluster), goal, [str(path / "sizes.txt")], limits, into=str(path / "files"))


def typed(cluster: Cluster, commands: Sequence[str]) -> None:
    """The commands, each step when the one before is complete."""
    for command in commands:
        name, *words = shlex.split(command.replace(BOOTSTRAP, cluster.bootstrap))
        if "--verify" not in words:
            cluster.tool(TOOL[name], *words)
            continue

        def complete(name: str = name, words: Sequence[str] = words) -> bool:
            return "in progress" not in cluster.tool(TOOL[name], *words)

        wait_for("a step", complete, 120)


def promised(before: Placed, answer: MovePlan) -> Placed:
    """Where the files put the replicas."""
    after = {name: dict(where) for name, where in before.items()}
    for step in answer.steps:
        for one in answer.documents[f"step-{step.number}.json"]["partitions"]:
            name = f"{one['topic']}-{one['partition']}"
            paths = zip(one["replicas"], one["log_dirs"], strict=True)
            after[name] = {broker: before[name][broker] if path == "any" else path for broker, path in paths}
    return after


def is_so(cluster: Cluster, wanted: Placed) -> Callable[[], bool]:
    return lambda: placed(cluster) == wanted


def test_drain_undo_fill_balance_and_repair_end_as_their_files_say(cluster: Cluster, tmp_path: Path) -> None:
    wait_for("replicas", lambda: sum(map(len, placed(cluster).values())) == 20 + len(offsets(cluster)), 60)
    disk = cluster.disk(1, 0)
    place = find_place(lake_of(cluster), f"1:{cluster.directory_id(disk)}")
    before = placed(cluster)

    drained = planned(cluster, lambda it: drain(it, place), tmp_path / "drain")
    assert drained.exit_code == 0 and drained.steps, drained.lacks
    typed(cluster, drained.commands)
    wait_for("drained", is_so(cluster, promised(before, drained)), 60)
    assert not any(where.get(1) == str(disk) for where in placed(cluster).values())

    typed(cluster, drained.undo)
    wait_for("undone", is_so(cluster, before), 120)

    typed(cluster, drained.commands[1:])
    wait_for("drained again", is_so(cluster, promised(before, drained)), 60)
    cluster.cordon(1)
    now = placed(cluster)
    filled = planned(
        cluster, lambda it: fill(it, find_place(lake_of(cluster), f"1:{cluster.directory_id(disk)}")), tmp_path / "fill"
    )
    assert filled.steps
    typed(cluster, filled.commands)
    wait_for("filled", is_so(cluster, promised(now, filled)), 60)

    now = placed(cluster)
    evened = planned(cluster, lambda it: balance(it, None, "bytes"), tmp_path / "balance")
    assert evened.steps and evened.bytes is not None and evened.spread[1] < evened.spread[0]
    typed(cluster, evened.commands)
    wait_for("balanced", is_so(cluster, promised(now, evened)), 60)

    cluster.stop_node(3)
    wait_for("a fenced broker", lambda: fenced(cluster) == [3], 60)
    repaired = planned(cluster, repair, tmp_path / "repair")
    assert repaired.steps and repaired.down == [3]
    typed(cluster, repaired.commands)
    left = {name for name, (_, replicas, _) in named(cluster).items() if 3 in replicas}
    assert len(left) == sum(one.replicas for one in repaired.lacks)
    assert json.loads((tmp_path / "repair" / "files" / "step-1.json").read_text())["partitions"]


def offsets(cluster: Cluster) -> list[str]:
    return [name for name in placed(cluster) if name.startswith("__")]


def named(cluster: Cluster) -> dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]]:
    return {f"{topic}-{number}": said for (topic, number), said in cluster.describe().items()}


def fenced(cluster: Cluster) -> list[int]:
    lake = lake_of(cluster)
    return [broker for (broker,) in lake.query(f"SELECT broker_id FROM {lake.at('brokers')} WHERE fenced")]
