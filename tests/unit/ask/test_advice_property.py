"""An operator who does what jbod prints never loses data without having been told.

Random histories of clusters whose disks hold logs, with and without restarts in a session: 10 of each in a run, 2,000
of each with ``--exhaustive``, and half of those that once failed. A failure names its seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from random import Random

import pytest

from jbod_model.loss.copies import Loss
from pipelines.ask.advice import Advice
from tests.support.volume import amount, sampled
from tests.unit.ask.advice_operator import NAME, Operator, RecordedWorld, history, printed
from tests.unit.model.loss.loss_deaths import UNNOTICED, notice
from tests.unit.model.loss.loss_disks import Unsound
from tests.unit.model.loss.loss_operations import WEIGHTS, Operation
from tests.unit.model.loss.loss_restarts import MORE

HISTORIES, CHUNK = amount(3, 2_000), amount(3, 10)
UNNOTICED_DEATHS = amount(3, 2_000)
ROUNDS = 3
SEEDS = (7, 23, 28, 74, 121, 190, 220, 255, 666, 734, 1071, 1258, 1712, 52002, 52114, 62140, 80258, 500071)
"""Seeds for which the advice once gave something up; 1712: the operator started without a broken disk, against it;
52114: he replaced a disk, and another one had been taken out; 62140: he brought back a disk that he did not have."""
SEEDS_WITH_RESTARTS = (746, 991, 1437, 1602, 52186, 52547, 62546, 70042, 80046, 91278, 400225, 910241, 2000043)
"""The same, for histories with restarts; 1437, 1602: somebody had taken the disks of a broker that was down; 52186: he
replaced a disk, and another one did not work; 70042, 80046: he cancelled a reassignment that he was not told to."""
FORBIDDEN = (19, 28, 35)
"""Seeds for which an action is forbidden."""


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_operator_who_follows_the_advice_gives_up_nothing_that_was_not_named(first: int) -> None:
    for seed in range(first, first + CHUNK):
        follow(seed)


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_operator_who_follows_the_advice_after_restarts_in_a_session_gives_up_nothing_that_was_not_named(
    first: int,
) -> None:
    for seed in range(first, first + CHUNK):
        follow(seed, MORE)


@pytest.mark.parametrize("first", range(0, UNNOTICED_DEATHS, CHUNK))
def test_operator_who_follows_the_advice_after_deaths_that_the_controller_learned_late_gives_up_nothing_not_named(
    first: int,
) -> None:
    for seed in range(first, first + min(CHUNK, UNNOTICED_DEATHS)):
        follow(seed, UNNOTICED, then=notice)


@pytest.mark.parametrize("seed", sampled(SEEDS, 2))
def test_history_whose_advice_once_gave_something_up_has_advice_that_does_not(seed: int) -> None:
    follow(seed)


@pytest.mark.parametrize("seed", sampled(SEEDS_WITH_RESTARTS, 1))
def test_history_with_restarts_whose_advice_once_gave_something_up_has_advice_that_does_not(seed: int) -> None:
    follow(seed, MORE)


@pytest.mark.parametrize("seed", FORBIDDEN)
def test_operator_who_replaces_a_disk_against_the_advice_loses_what_it_named(seed: int) -> None:
    """The property can fail: what jbod forbids does lose data."""
    assert disobey(seed) == [True]


def disobey(seed: int) -> list[bool]:
    """Do the first action that is forbidden: whether data was lost. Empty if nothing is forbidden."""
    world, random = history(seed), Random(seed)
    lists = printed(world.lake(), world, random)
    step = next((step for steps in lists for step in steps if step.forbidden), None)
    if step is None:
        return []
    assert step.cost == (NAME,)
    operator = Operator(world, random)
    return [lost(world, lambda: operator.follow(step))]


def follow(
    seed: int, weights: Sequence[tuple[Operation, int]] = WEIGHTS, then: Operation | None = None
) -> Counter[str]:
    """Count the steps that an operator followed. ``then``: what happens before the first question."""
    counts: Counter[str] = Counter()
    try:
        world = history(seed, weights=weights)
        if then is not None:
            then(world)
        random = Random(seed)
        operator = Operator(world, random)
        for _ in range(ROUNDS):
            lists = printed(world.lake(), world, random)
            if not lists:
                break
            cost: set[str] = set()
            for step in random.choice(lists):
                cost |= set(step.cost)
                counts[f"forbidden {step.action}" if step.forbidden else step.action] += 1
                if not step.forbidden and needs_new_advice(world, operator, step, cost):
                    break
    except Unsound:
        counts["unsound"] += 1
    return counts


def needs_new_advice(world: RecordedWorld, operator: Operator, step: Advice, cost: Collection[str]) -> bool:
    """Do a step; whether it did something after which jbod is asked again. ``cost``: the partitions whose data this
    step and those before it in the list name as its cost."""
    offset, results = world.offset, []
    gave_up = lost(world, lambda: results.append(operator.follow(step)))
    if world.partition is None:
        return True
    if gave_up and NAME not in cost:
        story = "\n".join(world.story[-30:])
        losses = [loss for loss in world.fate.losses if loss.offset >= offset or (loss.went_on or -1) >= offset]
        pytest.fail(f"{story}\nseed {world.seed}: {step.action} gave up {losses}", pytrace=False)
    return results[0]


def gone(world: RecordedWorld) -> dict[tuple[int, bool], Loss]:
    """The losses, by offset and whether each is final."""
    if world.partition is None:
        return {}
    return {(loss.offset, loss.went_on is not None): loss for loss in world.fate.losses}


def lost(world: RecordedWorld, act: Callable[[], object]) -> bool:
    """Whether an act lost data. Left out: what a crash before it may have taken, and a restart brings to light."""
    before = gone(world)
    disks = [disk for broker in world.brokers.values() for disk in (*broker.disks, *broker.shelf)]
    logs = [world.copy(broker) for broker in world.brokers] + [disk.log for disk in disks]
    act()
    new = [loss for key, loss in gone(world).items() if key not in before]
    return not all(
        loss.leader is not None
        and any(world.copy(loss.leader) is log for log in logs)
        and any(copy.broker_id == loss.leader and copy.usable and copy.level == "unsure" for copy in loss.copies)
        for loss in new
    )
