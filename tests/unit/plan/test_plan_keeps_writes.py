"""A reassignment that nothing blocks ends as its file says, and deletes no acknowledged write that nothing else has.

Random histories of clusters whose disks hold logs, in which brokers die and disks fail before the controller knows, and
reassignments are under way: 10 in a run, 1,000 with ``--exhaustive``. A failure names its seed. So is it with one that
is undone on the way, while more brokers die and disks fail: 10, and 300.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from pipelines.ask.plan_check import NO_WAY_BACK, check_plan
from pipelines.ask.plan_watch import watch_plan
from tests.support.volume import amount
from tests.unit.ask.advice_operator import RecordedWorld
from tests.unit.ask.test_removal_property import history
from tests.unit.model.loss import loss_operations as happens
from tests.unit.model.loss.loss_deaths import die, fail, notice
from tests.unit.model.loss.loss_disks import Unsound
from tests.unit.model.loss.loss_operations import alter_isr, reassign_to, report
from tests.unit.model.loss.loss_world import TOPIC

HISTORIES, CHUNK = amount(10, 1_000), 10
SEEDS = (16, 88)
"""Seeds for which nothing blocked a reassignment that should not run."""
UNDONE = (58, 85)
"""Seeds for which nothing was said against a cancellation that deleted writes."""
ON_THE_WAY = (happens.expand, happens.expand, happens.fetch, happens.shrink, happens.start, die, fail, notice)
"""What happens while a reassignment is under way."""


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_reassignment_that_nothing_blocks_ends_and_deletes_no_write_that_nothing_else_has(
    tmp_path: Path, first: int
) -> None:
    counts = sum((execute_some(seed, tmp_path / "plan.json") for seed in range(first, first + CHUNK)), Counter())
    assert counts["done"] or counts["blocked"]


def test_history_in_which_nothing_blocked_a_reassignment_that_should_not_run_has_none(tmp_path: Path) -> None:
    """88: it kept the replicas that another one was removing (R-REASSIGN-7). 16: it removed the last complete copy."""
    assert sum((execute_some(seed, tmp_path / "plan.json") for seed in SEEDS), Counter())["blocked"]


@pytest.mark.parametrize("first", range(0, amount(10, 300), CHUNK))
def test_reassignment_that_is_undone_as_advised_deletes_no_write_that_nothing_else_has(
    tmp_path: Path, first: int
) -> None:
    for seed in range(first, first + CHUNK):
        undo_some(seed, tmp_path / "plan.json")


def test_history_in_which_the_commands_that_undo_a_reassignment_deleted_writes_has_advice_against_them(
    tmp_path: Path,
) -> None:
    """R-REASSIGN-3. Its copy was elected uncleanly, and acknowledged more."""
    counts = sum((undo_some(seed, tmp_path / "plan.json") for seed in UNDONE), Counter())
    assert counts["not to be cancelled"] == len(UNDONE)


def execute_some(seed: int, file: Path) -> Counter[str]:
    """Judge a random reassignment at each point of a history where the controller knows everything, and execute it if
    nothing blocks it."""
    counts: Counter[str] = Counter()
    random = Random(seed)
    try:
        for world in history(seed):
            partition = world.partition
            assert partition is not None
            among = sorted(world.brokers) if random.random() < 0.7 else partition.replicas
            target = random.sample(among, random.randint(1, len(among)))
            write(file, target)
            if {*target} == {*partition.replicas}:
                counts["the same"] += 1
            elif not check_plan(world.lake(), str(file)).ok:
                counts["blocked"] += 1
            elif all(world.serving(broker) is not None for broker in target if broker in partition.replicas):
                execute(world, target)
                counts["done"] += 1
    except Unsound:
        counts["unsound"] += 1
    return counts


def undo_some(seed: int, file: Path) -> Counter[str]:
    """Begin a random reassignment that nothing blocks, at each point of a history where the controller knows all. After
    more events cancel it, unless that is advised against, and execute what undoes it."""
    counts: Counter[str] = Counter()
    random = Random(seed)
    try:
        for world in history(seed):
            assert world.partition is not None
            before = world.partition.replicas
            target = random.sample(sorted(world.brokers), random.randint(1, len(world.brokers)))
            write(file, target)
            if {*target} == {*before} or not check_plan(world.lake(), str(file)).ok:
                continue
            reassign_to(world, tuple(target))
            for operation in random.choices(ON_THE_WAY, k=random.randint(0, 8)):
                operation(world)
                world.write()
            learn(world)
            if world.excused:
                break
            if NO_WAY_BACK in watch_plan(world.lake(), [str(file)]).partitions[0].reason:
                counts["not to be cancelled"] += 1
            else:
                cancel(world)
                counts["cancelled"] += 1
            write(file, before)
            running = all(world.serving(broker) is not None for broker in before if broker in world.partition.replicas)
            if running and check_plan(world.lake(), str(file)).ok:
                execute(world, before)
                counts["back"] += 1
    except Unsound:
        counts["unsound"] += 1
    return counts


def learn(world: RecordedWorld) -> None:
    """The controller hears of everything."""
    for _ in range(2):
        notice(world)
        for broker in world.brokers.values():
            report(world, broker)


def cancel(world: RecordedWorld) -> None:
    """The brokers follow who leads before and afterwards."""
    truncate(world)
    held = writes(world)
    reassign_to(world, None)
    learn(world)
    truncate(world)
    if lost := held - writes(world):
        story = "\n".join(world.story[-30:])
        pytest.fail(f"{story}\nseed {world.seed}: cancelled, lost {sorted(lost)}, {world.partition}", pytrace=False)


def truncate(world: RecordedWorld) -> None:
    """Who follows truncates what its leader lacks."""
    assert world.partition is not None
    for broker in world.partition.replicas:
        world.sync(broker, 0)


def write(file: Path, replicas: Sequence[int]) -> None:
    file.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": 0, "replicas": [*replicas]}]}))


def execute(world: RecordedWorld, target: Sequence[int]) -> None:
    """As the controller and the brokers do: every new replica that can copies, and joins the in-sync set."""
    assert world.partition is not None
    truncate(world)
    held = writes(world)
    away = [disk.log for broker, disk in world.at.items() if disk not in world.brokers[broker].online and disk.log]
    kept = {write for log in away for write in log.entries}  # R-COPY-11: it is a stray when it is back
    reassign_to(world, tuple(target))
    for broker in target:
        partition = world.partition
        assert partition is not None and partition.leader >= 0, "no replica leads"
        if broker not in partition.isr:
            world.sync(broker)
            alter_isr(world, [*partition.isr, broker])
        world.report(world.brokers[broker])
    partition = world.partition
    done = partition.replicas == tuple(target) and not (partition.adding_replicas or partition.removing_replicas)
    lost = held - writes(world) - kept
    if lost or not done:
        story = "\n".join(world.story[-30:])
        pytest.fail(f"{story}\nseed {world.seed}: to {target}, lost {sorted(lost)}, {partition}", pytrace=False)


def writes(world: RecordedWorld) -> set[int]:
    """The acknowledged writes that a disk holds."""
    disks = [disk for broker in world.brokers.values() for disk in (*broker.disks, *broker.shelf)]
    return {write for disk in disks if disk.log for write in disk.log.entries} & world.every_acked
