"""The explorer finds bugs: each of a table, seeded into the code of the controller, the broker or the replay."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from jbod_model.profiles import KIP858
from lab.explore.bounds import Bounds
from lab.explore.search import Findings, explore
from tests.support.seeded_bugs import BUGS, Bug, seeded
from tests.support.volume import sampled


def bounds(bug: Bug, **more: Any) -> Bounds:
    return Bounds(**{"brokers": 1, "depth": 100, **bug.bounds, **more})


@functools.cache
def without_bugs(each: Bounds) -> Findings:
    return explore(KIP858, each)


@pytest.mark.parametrize("bug", sampled(BUGS, 12), ids=lambda bug: bug.name)
def test_explorer_finds_the_bug(bug: Bug) -> None:
    """With the bug there is a way to break the property, step by step; without it there is none as short."""
    with seeded(bug):
        findings = explore(KIP858, bounds(bug, first=isinstance(bug.breaks, int)))
    if isinstance(bug.breaks, int):
        steps = findings.counterexamples[bug.breaks].steps
        clean = without_bugs(bounds(bug, depth=len(steps), liveness=False))
        assert bug.breaks not in clean.counterexamples
    else:
        steps = findings.runs[bug.breaks].steps
        clean = without_bugs(bounds(bug))
        assert clean.complete
        assert bug.breaks not in clean.runs
    assert steps


def test_bugs_are_many_and_differ() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 40


def test_seeding_leaves_no_trace() -> None:
    before = explore(KIP858, bounds(BUGS[0]))
    with seeded(BUGS[0]):
        assert explore(KIP858, bounds(BUGS[0])).runs
    after = explore(KIP858, bounds(BUGS[0]))
    assert (before.states, before.steps, before.runs) == (after.states, after.steps, after.runs)
