"""The fold's index of partitions: by topic and number, by topic, and the open slots of each partition.

``parts`` int32[*, 8] has a row for each partition (pipelines.replay.fold_columns, P_*). ``table`` int32[2^k] is a hash
table of its rows. It is never full, and an empty entry is -1. ``first`` int32[t] and P_NEXT chain the partitions of a
topic. In ``heap`` the open slots of a partition are consecutive: P_SLOTS of them from P_HEAP on, with room for P_ROOM.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.formats.kernels import helper
from pipelines.replay import fold_columns as c


@helper
def spot(table: Any, parts: Any, topic: int, partition: int) -> Any:
    """Index of (topic, partition) in the hash table, or of the empty entry for it."""
    mask = len(table) - 1
    word = (np.uint64(topic) << np.uint64(32)) ^ np.uint64(np.uint32(partition))
    word = (word ^ (word >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    at = np.int64((word ^ (word >> np.uint64(32))) & np.uint64(mask))
    while table[at] >= 0 and (parts[table[at], c.P_TOPIC] != topic or parts[table[at], c.P_NUMBER] != partition):
        at = (at + 1) & mask
    return at


@helper
def enter(parts: Any, p: int, topic: int, number: int, first: Any, fill: int) -> None:
    """Adds partition p, which has no version yet, to the chain of its topic."""
    parts[p, c.P_TOPIC] = topic
    parts[p, c.P_NUMBER] = number
    parts[p, c.P_LATEST] = -1
    parts[p, c.P_SLOTS] = 0
    parts[p, c.P_HEAP] = fill
    parts[p, c.P_ROOM] = 0
    parts[p, c.P_NEXT] = first[topic]
    first[topic] = p


@helper
def enter_all(parts: Any, old: int, table: Any, first: Any, heap: Any) -> Any:
    """Adds the partitions of the state to hash table, chains and heap. Returns the used size of the heap."""
    fill = np.int64(0)
    for p in range(old):
        topic = parts[p, c.P_TOPIC]
        table[spot(table, parts, topic, parts[p, c.P_NUMBER])] = p
        parts[p, c.P_NEXT] = first[topic]
        first[topic] = p
        parts[p, c.P_LATEST] = p
        parts[p, c.P_SEEN] = 0
        parts[p, c.P_HEAP] = fill
        parts[p, c.P_ROOM] = parts[p, c.P_SLOTS]
        for k in range(parts[p, c.P_SLOTS]):
            heap[fill + k] = fill + k
        fill += parts[p, c.P_SLOTS]
    return fill


@helper
def make_room(parts: Any, p: int, heap: Any, fill: int, count: int) -> int:
    """Moves a partition's open slots to the end of the heap, with room for ``count``. Returns the heap's new end."""
    for k in range(parts[p, c.P_SLOTS]):
        heap[fill + k] = heap[parts[p, c.P_HEAP] + k]
    parts[p, c.P_HEAP] = fill
    parts[p, c.P_ROOM] = count
    return fill + count
