"""Chooses one of the states that differ only in names (R-EXPLORE-4)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from jbod_model.ids import Uuid
from lab.explore import symmetry
from lab.explore.cluster import Cluster, State

Order = tuple[int, ...]
Orders = tuple[Order | None, ...]
Signs = tuple[int, int]
"""Pairs of neighbouring directories as bits: those whose marks differ, and those in the wrong order."""


class Canonical:
    """Orders the directories of states by their marks, and caches the results."""

    def __init__(self, cluster: Cluster, names: Mapping[int, tuple[Uuid, ...]]) -> None:
        self.cluster = cluster
        self.names = names
        self._pairs = _pairs(names)
        self._marks: dict[tuple[bool, int, int], tuple[str, ...]] = {}
        self._signs: tuple[dict[int, Signs], dict[int, Signs]] = ({}, {})
        self._renamed: dict[tuple[bool, int, int, Order], int] = {}

    def __call__(self, state: State) -> tuple[State, Orders]:
        """The state with each broker's directories in the order of their marks, and those orders; none if all
        directories are in this order already."""
        wrong = self._wrong(state)
        if not wrong:
            return state, ()
        orders: list[Order | None] = []
        for broker_id in self.names:
            order = self._order(state, broker_id) if wrong & self._pairs[broker_id] else None
            orders.append(order)
            if order is not None:
                state = self._reordered(state, broker_id, order)
        return state, tuple(orders)

    def _wrong(self, state: State) -> int:
        """The pairs of neighbouring directories that are in the wrong order, as bits: the first part of the state in
        which their marks differ decides."""
        of_images, of_machines = self._signs
        differ, wrong = of_images.get(state[0]) or self._signs_of(True, state[0])
        for number in state[1:]:
            differences, other = of_machines.get(number) or self._signs_of(False, number)
            wrong |= other & ~differ
            differ |= differences
        return wrong

    def _signs_of(self, of_image: bool, number: int) -> Signs:
        """How the marks of neighbouring directories compare: a bit for each pair that differs, and for each that is
        in the wrong order."""
        decided = against = 0
        bit = 1
        for broker_id in self.names:
            for mark, other in itertools.pairwise(self._marks_of(of_image, number, broker_id)):
                decided |= bit * (mark != other)
                against |= bit * (mark > other)
                bit <<= 1
        self._signs[0 if of_image else 1][number] = decided, against
        return decided, against

    def _order(self, state: State, broker_id: int) -> Order:
        """The order of the broker's directories by their marks. Some of them are in the wrong order."""
        if len(self.names[broker_id]) == 2:
            return (1, 0)
        marks = [self._marks_of(True, state[0], broker_id)]
        marks += [self._marks_of(False, number, broker_id) for number in state[1:]]
        by_directory = list(zip(*marks, strict=True))
        return tuple(sorted(range(len(by_directory)), key=by_directory.__getitem__))

    def _reordered(self, state: State, broker_id: int, order: Order) -> State:
        renamed = []
        for part, number in enumerate(state):
            key = (not part, number, broker_id, order)
            new_number = self._renamed.get(key)
            if new_number is None:
                names = self.names[broker_id]
                mapping = {names[old]: names[new] for new, old in enumerate(order)}
                rename = self._renamed_machine if part else self._renamed_controller
                new_number = self._renamed[key] = rename(number, mapping)
            renamed.append(new_number)
        return tuple(renamed)

    def _renamed_machine(self, number: int, mapping: Mapping[Uuid, Uuid]) -> int:
        machines = self.cluster.machines
        return machines.number(symmetry.rename_machine(machines.states[number], mapping))

    def _renamed_controller(self, number: int, mapping: Mapping[Uuid, Uuid]) -> int:
        metadata = self.cluster.controller.states[number]
        listed = {
            b: None if each is None else frozenset(mapping.get(d, d) for d in each)
            for b, each in metadata.listed.items()
        }
        image = symmetry.rename_image(metadata.image, mapping)
        return self.cluster.controller.number(image, listed, metadata.acknowledged)

    def _marks_of(self, of_image: bool, number: int, broker_id: int) -> tuple[str, ...]:
        key = (of_image, number, broker_id)
        marks = self._marks.get(key)
        if marks is None:
            names = self.names[broker_id]
            if of_image:
                image = self.cluster.controller.images[number]
                marks = tuple(repr(symmetry.image_marks(image, name)) for name in names)
            else:
                machine = self.cluster.machines.states[number]
                marks = tuple(repr(symmetry.machine_marks(machine, name)) for name in names)
            self._marks[key] = marks
        return marks


def _pairs(names: Mapping[int, tuple[Uuid, ...]]) -> dict[int, int]:
    """The bits of the pairs of each broker's neighbouring directories."""
    bits, pairs = 0, {}
    for broker_id, own in names.items():
        pairs[broker_id] = (1 << bits + len(own) - 1) - (1 << bits)
        bits += len(own) - 1
    return pairs
