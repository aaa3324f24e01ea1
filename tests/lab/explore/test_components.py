"""The strongly connected components of a graph, in which leads-to properties look for a cycle (R-EXPLORE-6)."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

from hypothesis import given, note
from hypothesis import strategies as st

from lab.explore.lassos import components


class Graph:
    """Targets of each state, as the search's steps give them."""

    def __init__(self, targets: list[list[int]]) -> None:
        self.targets = targets

    def targets_of(self, state: int) -> list[int]:
        return self.targets[state]


GRAPHS = st.integers(1, 7).flatmap(
    lambda size: st.tuples(
        st.lists(st.lists(st.integers(0, size - 1), max_size=4), min_size=size, max_size=size),
        st.lists(st.booleans(), min_size=size, max_size=size),
    )
)


def reachable(targets: list[list[int]], inside: set[int]) -> set[tuple[int, int]]:
    """(from, to) of every path inside, found by joining steps until nothing is new."""
    paths = {(state, target) for state in inside for target in targets[state] if target in inside}
    while more := {(a, d) for (a, b), (c, d) in product(paths, paths) if b == c} - paths:
        paths |= more
    return paths


@given(GRAPHS)
def test_components_are_the_states_that_reach_each_other(graph: tuple[list[list[int]], list[bool]]) -> None:
    targets, marked = graph
    inside = {state for state, mark in enumerate(marked) if mark}
    paths = reachable(targets, inside)
    expected = {
        frozenset({state, *(other for other in inside if {(state, other), (other, state)} <= paths)})
        for state in inside
    }
    answer = list(components(sorted(inside), cast("Any", Graph(targets)), [int(mark) for mark in marked], 1))
    note(f"{answer} instead of {expected}")
    assert sum(map(len, answer)) == len(inside)
    assert set(map(frozenset, answer)) == expected
