"""Plans executed on simulated clusters, as Kafka's tool executes them: the reference controller, and reference brokers
that copy between disks, report directories and join in-sync sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jbod_model.broker.assignments import Replica
from jbod_model.formats.requests import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from jbod_model.profiles import ADDED_SUFFICE, PROFILES, as_released
from lab.simulation.scenario import cluster, run_for, topic
from lab.simulation.world import World
from pipelines.ask.whatif_places import find_place
from pipelines.lake.reader import Lake
from pipelines.plan.answer import plan
from pipelines.plan.goals import Goal, balance, drain, fill, repair, replicas
from pipelines.plan.problem import Problem
from pipelines.plan.steps import Limits
from tests.support.images import in_memory_of
from tests.support.volume import amount

PATIENCE = 300
Placed = dict[str, dict[int, str]]
"""``topic-0`` -> broker -> path."""


def started(seed: int) -> World:
    """Four brokers of three disks, an empty one, and topics of 1 to 3 replicas."""
    world = World.create(seed)
    cluster(world, disks=(3, 3, 3, 2))
    for name, replication in (("a", 3), ("b", 2), ("c", 1)):
        topic(world, name, 6, replication)
    run_for(world)
    return world


def paths(world: World) -> dict[tuple[int, str], str]:
    """(broker, directory) -> path."""
    return {
        (number, str(host.directory_id(path))): path
        for number, host in world.hosts.items()
        for path in host.log_dirs
        if host.directory_id(path) is not None
    }


def placed(world: World) -> Placed:
    """Where the brokers have the replicas. Of a new replica in an old partition the log need not say it
    (docs/spec/kafka-defects.md)."""
    names = paths(world)
    placements: Placed = {}
    for topic_id, topic_image in world.image.topics.items():
        for number, partition in topic_image.partitions.items():
            where = placements.setdefault(f"{topic_image.name}-{number}", {})
            for broker, directory in zip(partition.replicas, partition.directories, strict=True):
                process = world.hosts[broker].broker
                there = None if process is None else process.replicas.disks.current.get(Replica(topic_id, number))
                where[broker] = names.get((broker, str(there or directory)), "?")
    return placements


def sizes(path: Path, world: World, of: Mapping[str, int]) -> str:
    """What kafka-log-dirs prints."""
    now = placed(world)
    brokers = []
    for number, host in world.hosts.items():
        log_dirs = []
        for log_dir in host.log_dirs:
            held = [
                {"partition": name, "size": of[name], "offsetLag": 0, "isFuture": False}
                for name, where in now.items()
                if where.get(number) == log_dir
            ]
            used = sum(of[str(replica["partition"])] for replica in held)
            failed = None if host.disks[log_dir].works else "KafkaStorageException"
            description: dict[str, Any] = {"logDir": log_dir, "error": failed, "partitions": [] if failed else held}
            log_dirs.append(
                description if failed else {**description, "totalBytes": 2_000, "usableBytes": 2_000 - used}
            )
        if host.broker is not None:
            brokers.append({"broker": number, "logDirs": log_dirs})
    path.write_text(json.dumps({"version": 1, "brokers": brokers}) + "\n")
    return str(path)


def ask(world: World, document: Mapping[str, Any], *, cancel: bool = False) -> None:
    """Begins a reassignment, or ends what is under way of its partitions."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for reassignment in document["partitions"]:
        target = None if cancel else tuple(reassignment["replicas"])
        part = ReassignablePartition(partition_index=reassignment["partition"], replicas=target)
        topics.setdefault(reassignment["topic"], []).append(part)
    response = world.ask(
        AlterPartitionReassignmentsRequest(
            topics=tuple(ReassignableTopic(name=name, partitions=tuple(ones)) for name, ones in topics.items())
        )
    )
    assert not any(part.error_code for topic_response in response.responses for part in topic_response.partitions)  # type: ignore[attr-defined]


def execute(world: World, document: Mapping[str, Any]) -> None:
    """As kafka-reassign-partitions does: the reassignment, then the directories until every broker took them."""
    ask(world, document)
    waiting = {
        (reassignment["topic"], reassignment["partition"], broker): path
        for reassignment in document["partitions"]
        for broker, path in zip(reassignment["replicas"], reassignment["log_dirs"], strict=True)
        if path != "any"
    }
    for _ in range(PATIENCE):
        for (name, number, broker), path in [*waiting.items()]:
            replica = Replica(world.image.topic_ids[name], number)
            if world.move_replica(broker, replica, path) == 0:
                del waiting[name, number, broker]
        world.run(1)
        if not waiting and is_done(world, document):
            return
    raise AssertionError(f"not done: {waiting}")


def is_done(world: World, document: Mapping[str, Any]) -> bool:
    now = placed(world)
    for reassignment in document["partitions"]:
        partition = world.image.topics[world.image.topic_ids[reassignment["topic"]]].partitions[
            reassignment["partition"]
        ]
        where = now[f"{reassignment['topic']}-{reassignment['partition']}"]
        wanted = dict(zip(reassignment["replicas"], reassignment["log_dirs"], strict=True))
        if partition.adding_replicas or partition.removing_replicas or [*where] != reassignment["replicas"]:
            return False
        if any(path not in ("any", where[broker]) for broker, path in wanted.items()):
            return False
    return True


def some_goals(lake: Lake, chance: Random) -> list[Callable[[Problem], Goal]]:
    disk, new = find_place(lake, "1:" + first_disk(lake, 1)), find_place(lake, "4:" + first_disk(lake, 4))
    broker = find_place(lake, "4")
    number = chance.choice((2, 3))
    return [
        lambda it: drain(it, disk),
        lambda it: drain(it, broker),
        lambda it: fill(it, new),
        lambda it: balance(it, None, "bytes"),
        lambda it: balance(it, 2, "bytes"),
        lambda it: replicas(it, {"c": number, "a": 2}),
    ]


def first_disk(lake: Lake, broker: int) -> str:
    rows = lake.query(f"SELECT min(directory_id) FROM {lake.at('directories')} WHERE broker_id = {broker}")
    return str(rows[0][0])


@pytest.mark.parametrize("seed", range(amount(1, 40)))
@pytest.mark.parametrize("kind", range(6))
def test_executed_plan_ends_as_its_files_say_and_its_undo_leads_back(tmp_path: Path, seed: int, kind: int) -> None:
    print("seed", seed)
    world, chance = started(seed), Random(seed)
    size = {name: chance.choice((1, 10, 40, 90)) for name in placed(world)}
    lake = in_memory_of(world.image)
    goal = some_goals(lake, chance)[kind]
    answer = plan(lake, goal, [sizes(tmp_path / "sizes.txt", world, size)], Limits(moves=chance.choice((3, 100))))
    assert answer.steps or not answer.lacks or kind == 0
    before = placed(world)
    for step in answer.steps:
        execute(world, answer.documents[f"step-{step.number}.json"])
    assert all(
        len(partition.isr) == len(partition.replicas)
        for of in world.image.topics.values()
        for partition in of.partitions.values()
    )
    if answer.steps:
        for command in answer.undo:
            if "--execute" in command:
                execute(world, answer.documents[command.split("--reassignment-json-file ")[1].split()[0]])
        assert placed(world) == before


def test_step_that_is_undone_while_it_is_under_way_is_as_before_from_release_4_3_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RELEASE-4: without the command that cancels it, all partitions were reassigned for ever."""
    monkeypatch.setitem(PROFILES, "kafka", as_released(PROFILES["kafka"], ADDED_SUFFICE))
    world = started(3)
    size, lake, before = dict.fromkeys(placed(world), 10), in_memory_of(world.image), placed(world)
    broker = find_place(lake, "4")
    answer = plan(lake, lambda it: drain(it, broker), [sizes(tmp_path / "sizes.txt", world, size)])
    ask(world, answer.documents["step-1.json"])
    for command in answer.undo:
        if "kafka-reassign-partitions" in command:
            document = answer.documents[command.split("--reassignment-json-file ")[1].split()[0]]
            if "--cancel" in command:
                ask(world, document, cancel=True)
            elif "--execute" in command:
                execute(world, document)
    assert placed(world) == before


@pytest.mark.parametrize("seed", range(amount(1, 40)))
def test_repair_after_a_broker_was_killed_and_a_disk_died_brings_every_replica_back(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    world, chance = started(seed), Random(seed)
    size = {name: chance.choice((1, 10, 40)) for name in placed(world)}
    world.kill_broker(4)
    run_for(world, 60)
    answer = plan(in_memory_of(world.image), repair, [sizes(tmp_path / "sizes.txt", world, size)])
    for step in answer.steps:
        execute(world, answer.documents[f"step-{step.number}.json"])
    left = {name for name, where in placed(world).items() if 4 in where}
    assert len(left) == sum(lack.replicas for lack in answer.lacks)
    assert all(name.startswith("c-") for name in left) or answer.lacks
