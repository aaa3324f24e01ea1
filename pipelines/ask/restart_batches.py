"""The fewest batches in which nodes can be restarted: a colouring of a hypergraph.

A limit says how many of some nodes may be in a batch. Limits of one are the edges of a graph, whose cliques give a
lower bound. Nodes are coloured in the order of DSATUR (Brélaz, 1979): the node with the fewest possible batches first.
A search goes through the other choices until the bound is met, or a number of steps is used up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

STEPS = 20_000
"""Nodes that the search places before it gives up to find fewer batches, where limits are few."""
_WORK = 20_000_000
"""The product of placed nodes and members of limits at which it gives up. It always finds batches."""
_CLIQUES = 20
"""Nodes from which a clique is grown."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BatchLimits:
    """How many of some nodes may be in a batch. Nodes are numbers from 0."""

    nodes: int
    members: Flags
    """A row for each limit: the nodes that it is about."""
    most: npt.NDArray[np.int64]
    """How many of them may be in a batch, at least 1."""
    most_in_all: int
    """How many nodes may be in a batch."""

    def neighbours(self) -> Flags:
        """Which two nodes may never be in the same batch."""
        pairs = self.members[self.most == 1].astype(np.float32)
        adjacency: Flags = (pairs.T @ pairs) > 0
        np.fill_diagonal(adjacency, val=False)
        return adjacency


@dataclass(frozen=True)
class NodeBatches:
    """Nodes in batches."""

    batches: Sequence[Sequence[int]]
    bound: int
    """No fewer batches are possible."""
    steps: int = 0


def fewest(limits: BatchLimits, steps: int | None = None) -> NodeBatches:
    """The fewest batches that the search finds in at most so many ``steps``, and the bound."""
    if not limits.nodes:
        return NodeBatches((), 0)
    if steps is None:
        steps = min(STEPS, max(limits.nodes, _WORK // max(1, int(limits.members.sum()))))
    neighbours = limits.neighbours()
    search = _Search(limits, neighbours, _bound(limits, neighbours), steps)
    search.go()
    batches: dict[int, list[int]] = {}
    for node, batch in enumerate(search.best):
        batches.setdefault(batch, []).append(node)
    # A search that went through everything has proved its number.
    proved = search.bound if search.steps >= steps else len(batches)
    return NodeBatches(sorted(batches.values()), max(search.bound, proved), search.steps)


def _bound(limits: BatchLimits, neighbours: Flags) -> int:
    """A lower bound of the number of batches: a clique, the sizes of limits, and the size of a batch."""
    lower_bound = -(-limits.nodes // limits.most_in_all)
    if len(limits.most):
        lower_bound = max(lower_bound, int((-(-limits.members.sum(axis=1) // limits.most)).max()))
    degrees = neighbours.sum(axis=1)
    for first in np.argsort(-degrees)[:_CLIQUES].tolist():
        clique, candidates = 1, neighbours[first].copy()
        while candidates.any():
            node = int(np.where(candidates, (neighbours & candidates).sum(axis=1), -1).argmax())
            clique, candidates = clique + 1, candidates & neighbours[node]
        lower_bound = max(lower_bound, clique)
    return int(lower_bound)


@dataclass
class _Search:
    limits: BatchLimits
    neighbours: Flags
    bound: int
    most_steps: int
    steps: int = 0
    best: list[int] = field(default_factory=list)
    """The batch of each node."""
    number: int = 0

    def __post_init__(self) -> None:
        nodes = self.limits.nodes
        self.number = nodes + 1
        self.of_node = [np.flatnonzero(self.limits.members[:, node]) for node in range(nodes)]
        self.degree = self.neighbours.sum(axis=1)
        self.used = np.zeros((nodes, len(self.limits.most)), np.int64)
        self.size = np.zeros(nodes, np.int64)
        self.batch = np.full(nodes, -1, np.int64)
        self.forbidden = np.zeros((nodes, nodes), np.int64)
        """Node, batch -> neighbours of the node in the batch."""

    def go(self) -> None:
        """Depth first, without recursion: a stack of (node, batches still to try)."""
        stack: list[tuple[int, list[int]]] = [self._choices(0)]
        while stack:
            node, choices = stack[-1]
            if self.batch[node] >= 0:
                self._take_back(node)
            if not choices or self.number <= self.bound or (self.best and self.steps >= self.most_steps):
                stack.pop()
                continue
            self._place(node, choices.pop(0))
            opened = int((self.size > 0).sum())
            if opened >= self.number:
                continue
            if len(stack) == self.limits.nodes:
                self.best, self.number = self.batch.tolist(), opened
                continue
            stack.append(self._choices(opened))

    def _choices(self, opened: int) -> tuple[int, list[int]]:
        """The node with the fewest possible batches, and these batches, fullest first, then a new one."""
        left = self.batch < 0
        saturation = (self.forbidden > 0).sum(axis=1)
        node = int(np.where(left, saturation * (self.limits.nodes + 1) + self.degree, -1).argmax())
        able = [batch for batch in range(opened) if self._fits(node, batch)]
        able.sort(key=lambda batch: -int(self.size[batch]))
        return node, [*able, *([opened] if opened + 1 < self.number else [])]

    def _fits(self, node: int, batch: int) -> bool:
        if self.forbidden[node, batch] or self.size[batch] >= self.limits.most_in_all:
            return False
        of = self.of_node[node]
        return bool((self.used[batch, of] < self.limits.most[of]).all())

    def _place(self, node: int, batch: int) -> None:
        self.steps += 1
        self._count(node, batch, 1)
        self.batch[node] = batch

    def _take_back(self, node: int) -> None:
        self._count(node, int(self.batch[node]), -1)
        self.batch[node] = -1

    def _count(self, node: int, batch: int, by: int) -> None:
        self.size[batch] += by
        self.used[batch, self.of_node[node]] += by
        self.forbidden[self.neighbours[node], batch] += by
