"""The states and steps of bounded searches. A step that is more or less, or a state that is told apart, changes them.

Whoever changes a number here says in the commit which step or which part of the normal form changed, and why.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from jbod_model.profiles import PROFILES
from lab.explore.bounds import Bounds
from lab.explore.search import explore
from tests.support.volume import sampled

NO_CRASHES: dict[str, Any] = {"crashes": False}
NO_EXPIRY: dict[str, Any] = {"expiry": False}
QUIET: dict[str, Any] = {"crashes": False, "expiry": False, "failures": False}

COUNTS: dict[str, tuple[dict[str, Any], int, tuple[int, int], tuple[int, int]]] = {
    # bounds, depth, (states, steps) of kafka, of kip858
    "moves": ({"moves": True, **NO_EXPIRY}, 7, (621, 1_582), (607, 1_563)),
    "moves and losses": ({"moves": True, "lost": True, **NO_EXPIRY}, 6, (402, 943), (399, 954)),
    "moves and records": ({"moves": True, "records": 1, **NO_EXPIRY, **NO_CRASHES}, 9, (664, 1_729), (519, 1_452)),
    "moves, late and doubled": (
        {"moves": True, "late": 1, "doubled": True, **NO_EXPIRY, **NO_CRASHES},
        5,
        (561, 1_279),
        (561, 1_279),
    ),
    "late twice": ({**NO_CRASHES, "failures": False, "late": 2, "directories": 1}, 8, (64, 208), (64, 208)),
    "moves without symmetry": (
        {"moves": True, "symmetry": False, **NO_EXPIRY, **NO_CRASHES},
        7,
        (361, 817),
        (329, 773),
    ),
    "lost": ({"lost": True, "moves": True, **QUIET, "crashes": True}, 10, (585, 2_054), (480, 1_797)),
    "cut off": ({"cut": True, "timeouts": True, **NO_EXPIRY, **NO_CRASHES}, 10, (369, 798), (370, 897)),
    "disks": (
        {"directories": 1, "add": 1, "replace": True, "remove": True, "repair": True, **NO_EXPIRY},
        7,
        (430, 995),
        (430, 995),
    ),
    "reassigned": ({**QUIET, "brokers": 2, "replication": 1, "reassign": True}, 7, (496, 1_372), (466, 1_284)),
    "shrinking": (
        {**QUIET, "brokers": 2, "directories": 1, "crashes": True, "shrink": True, "records": 1},
        7,
        (593, 1_537),
        (593, 1_537),
    ),
    "failover": ({**QUIET, "failures": True, "failover": True}, 7, (76, 206), (76, 206)),
    "two partitions": ({"partitions": 2}, 7, (590, 1_779), (555, 1_646)),
    "two brokers": ({"brokers": 2, "records": 1}, 3, (272, 614), (250, 572)),
    "eligible leaders": ({"brokers": 2, "directories": 1, "elr": True}, 5, (644, 2_010), (644, 2_010)),
    "migrating": ({"migrating": True, **NO_EXPIRY}, 11, (677, 2_682), (663, 2_621)),
    "stopped": ({**QUIET, "shutdown": True}, 9, (76, 171), (73, 165)),
}


@pytest.mark.parametrize(("world", "profile"), sampled(product(COUNTS, ["kafka", "kip858"]), 7))
def test_search_meets_the_known_states_and_steps(world: str, profile: str) -> None:
    """R-EXPLORE-1, R-EXPLORE-2, R-EXPLORE-4."""
    options, depth, *counts = COUNTS[world]
    bounds = Bounds(**{"brokers": 1, "liveness": False, **options, "depth": depth})
    findings = explore(PROFILES[profile], bounds)
    assert (findings.states, findings.steps) == counts[profile == "kip858"]
