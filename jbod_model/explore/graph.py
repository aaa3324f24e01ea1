"""The states of a search and the steps between them, as numbers."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator

from jbod_model.explore.actions import Action
from jbod_model.explore.canonical import Orders
from jbod_model.explore.cluster import State


class Graph:
    """States in the order of discovery, every step, and for each state the step that first reached it."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.numbers: dict[State, int] = {}
        self.actions: list[Action] = []
        self._action_numbers: dict[Action, int] = {}
        self._orders: dict[int, Orders] = {}
        self._parents = array("q")
        self._by = array("l")
        self._sources = array("q")
        self._targets = array("q")
        self._actions = array("l")
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.states)

    def add(self, state: State) -> int:
        """The number of a new state."""
        number = len(self.states)
        self.numbers[state] = number
        self.states.append(state)
        self._parents.append(-1)
        self._by.append(-1)
        return number

    def step(self, source: int, action: Action, state: State, orders: Orders) -> bool:
        """Note a step. The result is whether its target state is new."""
        by = self._action_numbers.get(action)
        if by is None:
            by = self._action_numbers[action] = len(self.actions)
            self.actions.append(action)
        target = self.numbers.get(state)
        new = target is None
        if target is None:
            target = self.add(state)
            self._parents[target] = source
            self._by[target] = by
            if any(orders):
                self._orders[target] = orders
        self._sources.append(source)
        self._targets.append(target)
        self._actions.append(by)
        return new

    def counted(self) -> tuple[int, dict[str, int]]:
        """The number of steps so far, and of those of each kind."""
        self._counts.update(self._actions[self._counts.total() :])
        kinds: dict[str, int] = {}
        for number, count in self._counts.items():
            kind = self.actions[number].kind
            kinds[kind] = kinds.get(kind, 0) + count
        return len(self._actions), kinds

    def way(self, number: int) -> list[tuple[State, Action, Orders]]:
        """The steps that first reached a state: the state before, the action, the orders of the directories."""
        steps = []
        while self._parents[number] >= 0:
            parent = self._parents[number]
            steps.append((self.states[parent], self.actions[self._by[number]], self._orders.get(number, ())))
            number = parent
        return steps[::-1]

    def edges(self) -> Iterator[tuple[int, int, int]]:
        """Every step: the numbers of both states and of the action."""
        return zip(self._sources, self._targets, self._actions, strict=True)
