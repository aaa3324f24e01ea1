"""Chooses one of the states that differ only in names (R-EXPLORE-4)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from jbod_model.explore import symmetry
from jbod_model.explore.cluster import Cluster, State
from jbod_model.ids import Uuid

Order = tuple[int, ...]
Orders = tuple[Order | None, ...]
Signs = tuple[int, ...]


class Canonical:
    """Orders the directories of states by their marks, and caches the results."""

    def __init__(self, cluster: Cluster, names: Mapping[int, tuple[Uuid, ...]]) -> None:
        self.cluster = cluster
        self.names = names
        self._marks: dict[tuple[bool, int, int], tuple[str, ...]] = {}
        self._signs: tuple[dict[int, Signs], dict[int, Signs]] = ({}, {})
        self._renamed: dict[tuple[object, ...], int] = {}

    def __call__(self, state: State) -> tuple[State, Orders]:
        """The state with each broker's directories in the order of their marks, and those orders."""
        orders: list[Order | None] = []
        for broker_id in self.names:
            order = self._order(state, broker_id)
            orders.append(order)
            if order is not None:
                state = self._ordered(state, broker_id, order)
        return state, tuple(orders)

    def ordered(self, state: State) -> bool:
        """Whether the directories of each broker are in the order of their marks."""
        of_images, of_machines = self._signs
        first = of_images.get(state[0]) or self._signs_of(True, state[0])
        rest = [of_machines.get(number) or self._signs_of(False, number) for number in state[1:]]
        for pair, sign in enumerate(first):
            if sign > 0:
                return False
            if not sign:
                for signs in rest:
                    if signs[pair]:
                        if signs[pair] > 0:
                            return False
                        break
        return True

    def _signs_of(self, of_image: bool, number: int) -> Signs:
        """How the marks of neighbouring directories compare, for those of every broker: -1, 0 or 1."""
        signs = tuple(
            (one > other) - (one < other)
            for broker_id in self.names
            for one, other in itertools.pairwise(self._marks_of(of_image, number, broker_id))
        )
        self._signs[0 if of_image else 1][number] = signs
        return signs

    def _order(self, state: State, broker_id: int) -> Order | None:
        """The order of the broker's directories by their marks; None if they are in this order already."""
        marks = [self._marks_of(True, state[0], broker_id)]
        marks += [self._marks_of(False, number, broker_id) for number in state[1:]]
        by_directory = list(zip(*marks, strict=True))
        if all(one <= other for one, other in itertools.pairwise(by_directory)):
            return None
        return tuple(sorted(range(len(by_directory)), key=by_directory.__getitem__))

    def _ordered(self, state: State, broker_id: int, order: Order) -> State:
        names = self.names[broker_id]
        mapping = {names[old]: names[new] for new, old in enumerate(order)}
        renamed = [self._renamed_controller(state[0], broker_id, order, mapping)]
        for number in state[1:]:
            key = (False, number, broker_id, order)
            if key not in self._renamed:
                machines = self.cluster.machines
                self._renamed[key] = machines.number(symmetry.rename_machine(machines.states[number], mapping))
            renamed.append(self._renamed[key])
        return tuple(renamed)

    def _renamed_controller(self, number: int, broker_id: int, order: Order, mapping: Mapping[Uuid, Uuid]) -> int:
        key = (True, number, broker_id, order)
        if key not in self._renamed:
            metadata = self.cluster.controller.states[number]
            listed = {
                b: None if each is None else frozenset(mapping.get(d, d) for d in each)
                for b, each in metadata.listed.items()
            }
            image = symmetry.rename_image(metadata.image, mapping)
            self._renamed[key] = self.cluster.controller.number(image, listed, metadata.acknowledged)
        return self._renamed[key]

    def _marks_of(self, of_image: bool, number: int, broker_id: int) -> tuple[str, ...]:
        key = (of_image, number, broker_id)
        found = self._marks.get(key)
        if found is None:
            names = self.names[broker_id]
            if of_image:
                image = self.cluster.controller.images[number]
                found = tuple(repr(symmetry.image_marks(image, name)) for name in names)
            else:
                machine = self.cluster.machines.states[number]
                found = tuple(repr(symmetry.machine_marks(machine, name)) for name in names)
            self._marks[key] = found
        return found
