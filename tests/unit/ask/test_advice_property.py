"""An operator who does what jbod prints never loses data without having been told.

Random histories of clusters whose disks hold logs. A failure names its seed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from jbod_model.loss.losses import Loss
from pipelines.ask.advice import Advice
from tests.support.volume import amount
from tests.unit.ask.advice_operator import NAME, Operator, RecordedWorld, history, printed
from tests.unit.model.loss.loss_disks import Unsound

HISTORIES, CHUNK = amount(30, 2_000), 10
ROUNDS = 3
FOUND = (7, 23, 28, 74, 121, 220, 255, 666, 734)
"""Seeds for which the advice once gave something up."""
FORBIDDEN = (19, 28, 35)
"""Seeds for which an action is forbidden."""


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_operator_who_follows_the_advice_gives_up_nothing_that_was_not_named(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + CHUNK):
        follow(seed, tmp_path)


@pytest.mark.parametrize("seed", FOUND)
def test_history_whose_advice_once_gave_something_up_has_advice_that_does_not(seed: int, tmp_path: Path) -> None:
    follow(seed, tmp_path)


@pytest.mark.parametrize("seed", FORBIDDEN)
def test_operator_who_replaces_a_disk_against_the_advice_loses_what_it_named(seed: int, tmp_path: Path) -> None:
    """The property can fail: what jbod forbids does lose data."""
    assert disobey(seed, tmp_path) == [True]


def disobey(seed: int, path: Path) -> list[bool]:
    """Do the first action that is forbidden: whether data was lost. Empty if nothing is forbidden."""
    world, random = history(seed), Random(seed)
    lists = printed(world.lake(path / str(seed)), world, random)
    step = next((step for steps in lists for step in steps if step.forbidden), None)
    if step is None:
        return []
    assert step.cost == (NAME,)
    before = gone(world)
    Operator(world, random).follow(step)
    return [bool(gone(world) - before)]


def follow(seed: int, path: Path) -> Counter[str]:
    """Count the steps that an operator followed."""
    counts: Counter[str] = Counter()
    try:
        world = history(seed)
        random = Random(seed)
        operator = Operator(world, random)
        for number in range(ROUNDS):
            lists = printed(world.lake(path / f"{seed}-{number}"), world, random)
            if not lists:
                break
            for step in random.choice(lists):
                counts[f"forbidden {step.action}" if step.forbidden else step.action] += 1
                if not step.forbidden and told(world, operator, step):
                    break
    except Unsound:
        counts["unsound"] += 1
    return counts


def told(world: RecordedWorld, operator: Operator, step: Advice) -> bool:
    before, offset = gone(world), world.offset
    result = operator.follow(step)
    if world.partition is None:
        return True
    new = gone(world) - before
    if new and NAME not in step.cost:
        story = "\n".join(world.story[-30:])
        losses = [loss for loss in world.fate.losses if loss.offset >= offset or (loss.went_on or -1) >= offset]
        pytest.fail(f"{story}\nseed {world.seed}: {step.action} gave up {losses}", pytrace=False)
    return result


def gone(world: RecordedWorld) -> set[tuple[int, bool]]:
    """The losses, and whether each is final. Left out: what a crash may have taken, and a restart brings to light."""
    if world.partition is None:
        return set()
    return {(loss.offset, loss.went_on is not None) for loss in world.fate.losses if not crashed(loss)}


def crashed(loss: Loss) -> bool:
    """Whether the leader has the log that it had, but for what its broker had not flushed."""
    return any(
        copy.broker_id == loss.leader and copy.given_up is None and copy.level == "unsure" and copy.missed is None
        for copy in loss.copies
    )
