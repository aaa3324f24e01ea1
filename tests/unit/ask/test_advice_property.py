"""An operator who does what jbod prints never loses data without having been told.

Random histories of clusters whose disks hold logs. A failure names its seed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from pipelines.ask.advice import Advice
from tests.support.volume import amount
from tests.unit.ask.advice_operator import NAME, Operator, RecordedWorld, history, printed
from tests.unit.model.loss.loss_disks import Unsound

HISTORIES, CHUNK = amount(20, 2_000), 10
ROUNDS = 3
FOUND = (7, 23, 28, 74, 121, 220, 255)
"""Seeds for which the advice once gave something up."""


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_operator_who_follows_the_advice_gives_up_nothing_that_was_not_named(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + CHUNK):
        follow(seed, tmp_path)


@pytest.mark.parametrize("seed", FOUND)
def test_history_whose_advice_once_gave_something_up_has_advice_that_does_not(seed: int, tmp_path: Path) -> None:
    follow(seed, tmp_path)


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
    """The losses, and whether each is final.

    Left out: what a crash may have taken, and a restart brings to light; and a copy that no record has placed, of which
    nobody knows on which disk it is (docs/spec/loss.md).
    """
    if world.partition is None:
        return set()
    return {
        (loss.offset, loss.went_on is not None)
        for loss in world.fate.losses
        if not any(copy.broker_id == loss.leader and copy.given_up is None for copy in loss.copies)
        and all(copy.directory is not None for copy in loss.copies)
    }
