"""Random histories of a cluster whose disks hold logs: data loss is told if and only if there is any.

What the histories contain: ``loss_operations``. What counts as the truth, and what no reader of the metadata can know:
``loss_world``, whose ``judge`` makes the assertions after every append. ``loss_restarts`` adds restarts within a
session, disks that come back, and partial copies that live on. A failure names its seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from tests.support.volume import amount
from tests.unit.model.loss.loss_deaths import UNNOTICED
from tests.unit.model.loss.loss_disks import Unsound
from tests.unit.model.loss.loss_operations import WEIGHTS, Operation, run
from tests.unit.model.loss.loss_restarts import MORE

HISTORIES, CHUNK = amount(200, 20_000), 100
RESTARTS = amount(200, 20_000)
UNNOTICED_DEATHS = amount(100, 5_000)
SEEDS = (
    *(6_282, 8_003, 12_441, 15_235, 16_972, 18_342, 18_440, 19_936, 20_291),
    *(23_735, 31_755, 37_635, 39_615, 41_899),
)
"""Seeds that once failed."""
SEEDS_WITH_RESTARTS = (
    *(24, 207, 221, 276, 312, 463, 824, 833, 937, 940, 1_305, 1_409, 2_544, 2_676, 2_883, 2_974, 2_977, 3_080),
    *(3_124, 3_247, 3_713, 4_811, 5_115, 5_181, 5_245, 5_583, 5_658, 5_980, 6_273, 6_405),
    *(55_067, 59_371, 60_994, 63_229, 63_242, 68_330, 113_250, 114_553),
    *(808_273, 819_530, 31_013_001, 31_029_979),
    *(205_531, 224_018, 225_098, 225_843, 421_313, 423_516, 502_225, 518_236, 712_559, 719_499, 809_837),
)
"""Seeds of histories with restarts that once failed."""


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_history_of_disks_with_data_has_the_right_losses(first: int) -> None:
    told_right(range(first, first + CHUNK))


@pytest.mark.parametrize("first", range(0, UNNOTICED_DEATHS, CHUNK))
def test_history_in_which_the_controller_learns_late_of_deaths_has_the_right_losses(first: int) -> None:
    """R-LOSS-2, R-LOSS-11, R-ACT-8."""
    told_right(range(first, first + CHUNK), UNNOTICED)


def test_history_that_once_had_wrong_losses_has_the_right_ones() -> None:
    told_right(SEEDS)


@pytest.mark.parametrize("first", range(0, RESTARTS, CHUNK))
def test_history_with_restarts_in_a_session_and_disks_that_come_back_has_the_right_losses(first: int) -> None:
    """R-COPY-12, R-COPY-13, R-LOSS-4, R-LOSS-5, R-LOSS-6."""
    told_right(range(first, first + CHUNK), MORE)


def test_history_with_restarts_that_once_had_wrong_losses_has_the_right_ones() -> None:
    told_right(SEEDS_WITH_RESTARTS, MORE)


def told_right(seeds: Iterable[int], weights: Sequence[tuple[Operation, int]] = WEIGHTS) -> None:
    """One test for many seeds: they take no longer than a test."""
    for seed in seeds:
        try:
            run(seed, weights=weights)
        except Unsound as wrong:
            pytest.fail(f"seed {seed}: {wrong}", pytrace=False)


def test_histories_contain_every_outcome() -> None:
    """The property would hold of a cluster in which nothing ever happens."""
    counts: dict[str, int] = {}
    for seed in range(100):
        for outcome, number in run(seed).counts.items():
            counts[outcome] = counts.get(outcome, 0) + number
    assert counts["told lost"] > 5
    assert counts["told may lack writes"] > 20
    assert counts["pending"] > 10
    assert counts["unavailable"] > 200
