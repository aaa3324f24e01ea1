"""What happens around the brokers in an exploration, and the counts that the documentation gives."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from jbod_model.profiles import KAFKA, KIP858, PROFILES
from lab.explore.actions import KINDS
from lab.explore.bounds import Bounds
from lab.explore.search import Search, explore
from tests.support.paths import ROOT
from tests.support.volume import rare, sampled

QUIET = {"crashes": False, "expiry": False, "failures": False}

WORLDS: dict[str, dict[str, Any]] = {
    "moves": {"moves": True, "expiry": False},
    "lost": {"lost": True, **QUIET, "crashes": True, "moves": True},
    "late": {"late": 1, "doubled": True, **QUIET, "directories": 1, "expiry": True},
    "cut": {"cut": True, "timeouts": True, "crashes": False, "expiry": False},
    "disks": {"directories": 1, "add": 1, "replace": True, "remove": True, "repair": True, "expiry": False},
    "stop": {**QUIET, "shutdown": True},
    "delete": {**QUIET, "delete": True},
    "reassign": {**QUIET, "brokers": 2, "replication": 1, "reassign": True},
    "shrink": {**QUIET, "brokers": 2, "directories": 1, "crashes": True, "shrink": True, "records": 1},
    "failover": {**QUIET, "failures": True, "failover": True},
}
"""Clusters in which something happens, for at most 400 states each."""


def test_every_kind_of_action_is_taken() -> None:
    """R-EXPLORE-7."""
    taken: set[str] = set()
    for world in WORLDS.values():
        bounds = Bounds(**{"brokers": 1, "depth": 100, "states": 400, "liveness": False, **world})
        taken |= explore(KIP858, bounds).kinds.keys()
    assert taken == KINDS.keys()


@pytest.mark.parametrize("world", ["delete", "failover", "reassign"])
def test_step_that_changes_nothing_is_no_step(world: str) -> None:
    """R-EXPLORE-1: a new controller that forgets nothing, a second deletion, a reassignment to what there is."""
    search = Search(KIP858, Bounds(**{"brokers": 1, **WORLDS[world]}))
    states = [search.first()]
    for state in itertools.islice(states, 50):
        steps = list(search.cluster.steps(state))
        assert [action for action, after, breaches in steps if after == state and not breaches] == []
        states += [after for _, after, _ in steps]


ROW = re.compile(
    r"^\| `python -m lab explore(?P<options>[^`]*)` \| (?P<states>[\d,]+) \| (?P<steps>[\d,]+) \| (?P<depth>\d+) \|"
)
DOCUMENTED = [
    match for line in (ROOT / "docs" / "spec" / "simulation.md").read_text().splitlines() if (match := ROW.match(line))
]


def quick(row: re.Match[str]) -> bool:
    """Whether the search takes less than half a second."""
    return int(row["states"].replace(",", "")) < 700


@pytest.mark.parametrize(
    "row", [row if quick(row) else rare(row) for row in DOCUMENTED], ids=lambda row: row["options"].strip()
)
def test_explorer_counts_what_the_documentation_says(row: re.Match[str]) -> None:
    """R-EXPLORE-5: complete, and as many states as the page says."""
    words = row["options"].split()
    bounds: dict[str, Any] = {"brokers": 1, "depth": 1000, "states": 10_000_000, "liveness": False}
    profile = "kafka"
    names = {"dirs": "directories"}
    while words:
        name = words.pop(0).removeprefix("--")
        if name == "profile":
            profile = words.pop(0)
        elif name.startswith("no-"):
            bounds[name.removeprefix("no-")] = False
        elif words and words[0].isdigit():
            bounds[names.get(name, name)] = int(words.pop(0))
        else:
            bounds[name] = True
    findings = explore(PROFILES[profile], Bounds(**bounds))
    assert findings.complete
    counted = (f"{findings.states:,}", f"{findings.steps:,}", str(findings.depth))
    assert counted == (row["states"], row["steps"], row["depth"])


def test_documentation_counts_something() -> None:
    assert len(DOCUMENTED) >= 6


@pytest.mark.parametrize("name", sampled(["lost", "cut", "stop", "delete", "failover"], 2))
def test_nothing_breaks_under_the_kip(name: str) -> None:
    """R-EXPLORE-6: complete, with what must happen in the end."""
    findings = explore(KIP858, Bounds(**{"brokers": 1, "depth": 100, **WORLDS[name]}))
    assert findings.complete
    assert findings.counterexamples == {}
    assert findings.runs == {}


def test_kafka_leaves_a_leader_on_a_dead_disk_with_a_move() -> None:
    """R-INV-36: the move begins anew at a change of the partition, and its report outlives it."""
    findings = explore(KAFKA, Bounds(brokers=1, depth=100, moves=True, crashes=False))
    assert findings.complete
    assert "dead leader" in findings.runs
    assert 36 in findings.counterexamples
