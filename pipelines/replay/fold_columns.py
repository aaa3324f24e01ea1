"""Columns of the tables that pipelines.replay.fold works on, and its reasons to refuse an event."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipelines.formats.partitions import DIRECTORIES

ABSENT, EMPTY = -1, -2
OPEN = -1
ALL_TOPICS = -1
# Reasons why an assignment ended, as numbered in pipelines.replay.rows.ENDED_BY.
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
# a version's seven lists begin at V_LISTS, its four scalars at V_SCALARS.
V_PARTITION, V_FROM, V_TO, V_LISTS = range(4)
V_SCALARS = V_LISTS + DIRECTORIES + 1
VERSION_COLUMNS = V_SCALARS + 4
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


class Batch(NamedTuple):
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
    """The output of kernels: partitions, their hash table and heap (pipelines.replay.partition_index), the results."""

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
