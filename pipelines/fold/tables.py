"""The columns and tables that the kernels of the fold read and write, and the index by which they find a partition."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipelines.fold import tables as c
from pipelines.formats.kernels import helper, njit
from pipelines.formats.partitions import DIRECTORIES


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


@njit(cache=True, nogil=True)
def wider(table: Any, rows: int) -> Any:
    """The same table with room for at least ``rows`` rows."""
    if rows <= len(table):
        return table
    wide = np.empty((max(rows, 2 * len(table)), table.shape[1]), table.dtype)
    wide[: len(table)] = table
    return wide


@njit(cache=True, nogil=True)
def wider_flat(values: Any, rows: int) -> Any:
    """The same column with room for at least ``rows`` values."""
    if rows <= len(values):
        return values
    wide = np.empty(max(rows, 2 * len(values)), values.dtype)
    wide[: len(values)] = values
    return wide


ABSENT, EMPTY = -1, -2
OPEN = -1
ALL_TOPICS = -1
# Reasons why an assignment ended, and their numbers.
ENDED_BY = ("assigned", "moved", "unassigned", "lost", "reassigned", "reordered", "removed", "resync")
ASSIGNED, MOVED, UNASSIGNED, LOST, REASSIGNED, REORDERED, REMOVED, RESYNC = range(8)
# The first three directory numbers of every shard are the reserved ids, in this order.
DIR_MIGRATING, DIR_UNASSIGNED, DIR_LOST = range(3)

(
    FINE,
    NO_TOPIC,
    NO_PARTITION,
    TOPIC_EXISTS,
    ARITY_RECORD,
    ARITY_CHANGE,
    ARITY_MERGED,
    BAD_RECOVERY,
    FULL,
) = range(9)
PROBLEMS = {
    NO_TOPIC: "names a topic that does not exist (R-TOPIC-2, R-PART-1)",
    NO_PARTITION: "changes a partition that does not exist (R-MERGE-1)",
    TOPIC_EXISTS: "creates a topic that exists (R-TOPIC-1)",
    ARITY_RECORD: "lists a number of directories other than that of replicas (R-PART-2)",
    ARITY_CHANGE: "changes replicas and directories to different numbers (R-MERGE-2)",
    ARITY_MERGED: "leaves a number of directories other than that of replicas (R-MERGE-4)",
    BAD_RECOVERY: "has a leader recovery state that is none (R-PART-4, R-MERGE-7)",
}

# Columns of a version and of a slot's assignment (int32). FROM and TO are moments: rows of Moments. The references of
# a version's seven lists begin at V_LISTS, its four scalars at V_SCALARS. V_LOSS: whether it can follow a loss of data.
V_PARTITION, V_FROM, V_TO, V_LISTS = range(4)
V_SCALARS = V_LISTS + DIRECTORIES + 1
V_LOSS = V_SCALARS + 4
VERSION_COLUMNS = V_LOSS + 1
A_PARTITION, A_INDEX, A_BROKER, A_DIRECTORY, A_FROM, A_TO, A_ENDED = range(7)
# Columns of a partition while it is folded (int32), in one cache line: topic, number, newest version (-1: gone),
# whether the snapshot has named it, the topic's next partition; and of its slots: count, start in the heap, capacity.
P_TOPIC, P_NUMBER, P_LATEST, P_SEEN, P_SLOTS, P_HEAP, P_ROOM, P_NEXT = range(8)
PARTITION_COLUMNS = P_NEXT + 1


class EventColumns(NamedTuple):
    """The columns of Events that kernels read. ``topics`` int32[m]: the shard's topic numbers, ALL_TOPICS for none.

    ``partitions`` int32[m]: the number of the partition.
    """

    kinds: Any
    snapshot: Any
    topics: Any
    partitions: Any
    scalars: Any


class Lists(NamedTuple):
    """The lists of all source rows.

    Int list k of row r is ``values[starts[k, r]:][:sizes[k, r]]``, its directory numbers are
    ``directories[directory_starts[r]:][:directory_sizes[r]]``; a size of -1 is null. All int32.
    """

    values: Any
    starts: Any
    sizes: Any
    directories: Any
    directory_starts: Any
    directory_sizes: Any


class FoldInput(NamedTuple):
    """The input of a fold: events that apply to ``old`` partitions. The first event has moment ``old_moments``.

    ``absent_directory`` is the number of the directory that ABSENT means.
    """

    old: int
    absent_directory: int
    old_moments: int
    events: EventColumns
    lists: Lists


class Topics(NamedTuple):
    """For each topic number: whether it exists, whether the snapshot has named it, its newest partition (-1: none)."""

    alive: Any
    seen: Any
    first: Any


class Tables(NamedTuple):
    """The output of kernels: partitions, their hash table and heap (pipelines.fold.tables), the results."""

    parts: Any
    table: Any
    heap: Any
    versions: Any
    slots: Any


class Counts(NamedTuple):
    """The number of rows in use of each table."""

    partitions: int
    versions: int
    slots: int
    heap: int


class Folded(NamedTuple):
    """The result of ``fold``. If the status is not FINE, the event at that index broke a rule."""

    status: int
    event: int
    versions: Any
    version_count: int
    slots: Any
    slot_count: int
    partition_count: int


def ended_and_open(table: np.ndarray, begin: int, end: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a table that ended, without those that are true at no offset, and those that are open."""
    still = table[:, end] == OPEN
    ended = ~still & (offsets[table[:, begin]] != offsets[table[:, end]])
    return np.flatnonzero(ended), np.flatnonzero(still)
