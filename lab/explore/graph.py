"""The states of a search and the steps between them, as numbers."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

from lab.explore.actions import Action
from lab.explore.canonical import Orders
from lab.explore.cluster import State


class Graph:
    """States in the order of discovery, every step, and for each state the step that first reached it.

    ``actions`` are those of the steps, by number. States are expanded in the order of their numbers, so the steps of a
    state are neighbours: ``first[n]`` to ``first[n + 1]`` are those of state n.
    """

    def __init__(self, actions: Sequence[Action]) -> None:
        self.states: list[State] = []
        self.numbers: dict[State, int] = {}
        self.actions = actions
        self.first = array("q", [0])
        self.targets = array("i")
        self.taken = array("i")
        """For each step the number of its target and of its action."""
        self._orders: dict[int, Orders] = {}
        self._parents = array("i")
        self._by = array("i")
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.states)

    def add(self, state: State, source: int = -1, action: int = -1, orders: Orders = ()) -> int:
        """The number of a new state, which a step from ``source`` reached."""
        number = len(self.states)
        self.numbers[state] = number
        self.states.append(state)
        self._parents.append(source)
        self._by.append(action)
        if orders:
            self._orders[number] = orders
        return number

    def expanded(self) -> None:
        """All steps of the next state are in ``targets`` and ``taken``."""
        self.first.append(len(self.targets))

    def counted(self) -> tuple[int, dict[str, int]]:
        """The number of steps so far, and of those of each kind."""
        self._counts.update(self.taken[self._counts.total() :])
        kinds: dict[str, int] = {}
        for number, count in self._counts.items():
            kind = self.actions[number].kind
            kinds[kind] = kinds.get(kind, 0) + count
        return len(self.taken), kinds

    def way(self, number: int) -> list[tuple[State, Action, Orders]]:
        """The steps that first reached a state: the state before, the action, the orders of the directories."""
        steps = []
        while self._parents[number] >= 0:
            parent = self._parents[number]
            steps.append((self.states[parent], self.actions[self._by[number]], self._orders.get(number, ())))
            number = parent
        return steps[::-1]
