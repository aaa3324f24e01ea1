"""A disk that is safe to remove, or to replace by a blank one, has no acknowledged write that nothing else has.

Random histories of clusters whose disks hold logs, in which brokers die and disks fail before the controller knows:
100 in a run, 5,000 with ``--exhaustive``, and those that once failed. A failure names its seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from jbod_model.errors import UsageError
from pipelines.ask.removal import safe_to_remove
from pipelines.ask.restart import SAFE, safe_to_restart
from tests.support.volume import amount
from tests.unit.ask.advice_operator import RecordedWorld
from tests.unit.model.loss.loss_deaths import UNNOTICED, notice
from tests.unit.model.loss.loss_disks import Broker, Disk, Unsound
from tests.unit.model.loss.loss_operations import report

HISTORIES, CHUNK = amount(100, 5_000), 100
SEEDS = (458, 1_636, 1_689, 2_778, 3_117, 3_509, 3_696, 3_738, 4_260, 5_245)
"""Seeds for which a disk was once safe to remove, or to replace by a blank one."""


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_disk_that_is_safe_to_remove_has_no_write_that_nothing_else_has(first: int) -> None:
    for seed in range(first, first + CHUNK):
        judge(seed)


def test_history_in_which_a_disk_was_once_safe_to_remove_has_none() -> None:
    assert sum((judge(seed) for seed in SEEDS), Counter())["kept"] == len(SEEDS)


def judge(seed: int) -> Counter[str]:
    """Ask about the first disk of a history that is the only one, of those that work, with everything or what is left
    of it. Left out: a disk that a replica is assigned to, which is never safe."""
    counts: Counter[str] = Counter()
    try:
        for world in history(seed):
            for broker, disk in only_ones(world):
                try:
                    answer = safe_to_remove(world.lake(), f"{broker.id}:{disk.id}")
                except UsageError:
                    continue  # no record names it
                restart = safe_to_restart(world.lake(), [broker.id], blank=[str(disk.id)])
                if answer.safe or restart.verdict == SAFE:
                    pytest.fail("\n".join([*world.story[-40:], f"seed {seed}: {broker.id}:{disk.id}"]), pytrace=False)
                return Counter(kept=1)
    except Unsound:
        counts["unsound"] += 1
    return counts


def history(seed: int) -> Iterator[RecordedWorld]:
    """A history at each point where the controller knows everything."""
    world = RecordedWorld(seed)
    operations, numbers = zip(*UNNOTICED, strict=True)
    for operation in world.random.choices(operations, numbers, k=60):
        operation(world)
        world.write()
        for broker in world.brokers.values():
            report(world, broker)
        if operation is notice and world.partition is not None and not world.excused:
            yield world


def only_ones(world: RecordedWorld) -> Iterator[tuple[Broker, Disk]]:
    partition = world.partition
    assert partition is not None
    every = [(broker, disk) for broker in world.brokers.values() for disk in (*broker.disks, *broker.shelf)]
    for broker, disk in every:
        log = disk.log
        if log is None or disk.unknowable or log is world.serving(broker.id):
            continue
        if broker.id in partition.replicas and partition.directory(broker.id) == disk.id:
            continue
        elsewhere = {
            write
            for _, other in every
            if other is not disk and other.works and other.log
            for write in other.log.entries
        }
        held = set(log.entries)
        if any(writes and writes <= held and writes - elsewhere for writes in (world.every_acked, world.acked)):
            yield broker, disk
