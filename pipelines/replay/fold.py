"""The fold of a shard's partitions: events in log order onto the state, every version kept (docs/spec/replay.md).

Each list of a partition is "the last one that was given", so a version of a partition is a row of references: which
source row (of the state, or an event) each list comes from. Two are not a row: ABSENT (directories never given: the
profile's default for every replica) and EMPTY. Source: Kafka's PartitionRegistration#merge, TopicsDelta, and the
stricter checks of ReplicationControlManager.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pipelines.formats.partitions import (
    DIRECTORIES,
    ELR,
    LAST_KNOWN_ELR,
    LEADER,
    LEADER_EPOCH,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    PARTITION_EPOCH,
    RECOVERY,
    REPLICAS,
)
from pipelines.replay.events import CHANGE, CLEAR_ELR, PARTITION, REMOVE_TOPIC, SNAPSHOT_END, TOPIC
from pipelines.replay.kernel_tables import wider, wider_flat

ABSENT, EMPTY = -1, -2
OPEN = -1
ALL_TOPICS = -1
# Why an assignment ended, as numbered in pipelines.replay.rows.ENDED_BY.
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
) = range(8)
PROBLEMS = {
    NO_TOPIC: "names a topic that does not exist (R-TOPIC-2, R-PART-1)",
    NO_PARTITION: "changes a partition that does not exist (R-MERGE-1)",
    TOPIC_EXISTS: "creates a topic that exists (R-TOPIC-1)",
    ARITY_RECORD: "lists a number of directories other than that of replicas (R-PART-2)",
    ARITY_CHANGE: "changes replicas and directories to different numbers (R-MERGE-2)",
    ARITY_MERGED: "leaves a number of directories other than that of replicas (R-MERGE-4)",
    BAD_RECOVERY: "has a leader recovery state that is none (R-PART-4, R-MERGE-7)",
}

# Columns of a version and of a slot's assignment (int32). FROM and TO are moments: rows of Moments. A version has the
# references of its seven lists from V_LISTS on, and its four scalars from V_SCALARS on.
V_PARTITION, V_FROM, V_TO, V_LISTS = range(4)
V_SCALARS = V_LISTS + DIRECTORIES + 1
VERSION_COLUMNS = V_SCALARS + 4
A_PARTITION, A_INDEX, A_BROKER, A_DIRECTORY, A_FROM, A_TO, A_ENDED = range(7)
# Columns of a partition while it is folded (int32), in one line of the cache: its topic and number, its newest version
# (-1: gone), whether a snapshot has named it, its slots: how many, where in the heap and with room for how many; and
# the topic's next partition.
P_TOPIC, P_NUMBER, P_LATEST, P_SEEN, P_SLOTS, P_HEAP, P_ROOM, P_NEXT = range(8)
PARTITION_COLUMNS = P_NEXT + 1


@njit(cache=True, nogil=True)
def _spot(table: Any, parts: Any, topic: int, partition: int) -> int:
    """Index in the hash table where (topic, partition) is, or where it would go."""
    mask = len(table) - 1
    word = (np.uint64(topic) << np.uint64(32)) ^ np.uint64(np.uint32(partition))
    word = (word ^ (word >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    at = np.int64((word ^ (word >> np.uint64(32))) & np.uint64(mask))
    while table[at] >= 0 and (parts[table[at], P_TOPIC] != topic or parts[table[at], P_NUMBER] != partition):
        at = (at + 1) & mask
    return at


@njit(inline="always")
def _is_absent(directories: Any, start: int, size: int, default: int) -> bool:
    """Whether a directory list says nothing: empty, or the default id throughout (R-PART-3)."""
    for k in range(size):
        if directories[start + k] != default:
            return False
    return True


@njit(inline="always")
def _same_list(values: Any, starts: Any, sizes: Any, one: int, other: int) -> bool:
    """Whether two references name equal lists (null, EMPTY and [] are equal)."""
    if one == other:
        return True
    size = max(sizes[one], 0) if one >= 0 else 0
    if size != (max(sizes[other], 0) if other >= 0 else 0):
        return False
    for k in range(size):
        if values[starts[one] + k] != values[starts[other] + k]:
            return False
    return True


@njit(cache=True, nogil=True)
def fold(
    state_rows: int,
    default: int,
    moment: int,
    event: Any,
    lists: Any,
    parts: Any,
    alive: Any,
    versions: Any,
    slots: Any,
) -> Any:
    """Apply all events. ``state_rows`` partitions exist before; row h < state_rows is partition h's open version.

    Event e happens at moment ``moment + e``. ``event`` = (kinds, snapshot, topic numbers, partitions, scalars
    int32[4, m], list source rows); ``lists`` = (int values, starts[6, S], sizes[6, S], directory numbers, starts[S],
    sizes[S]); ``parts`` int32[*, 8] has room for all partitions there will be, and of those before the batch topic,
    number and number of slots, whose rows in ``slots`` are in order. ``versions`` int32[*, 14] and ``slots`` grow as
    needed and are returned: (status, event, versions, version count, slots, slot count, partition count). On a status
    other than FINE the event at that index broke the rule.
    """
    kinds, snapshot, topic_of, partition_of, change, source = event
    values, starts, sizes, directories, dir_starts, dir_sizes = lists
    known = state_rows
    rows = state_rows
    slot_count = len(slots)
    topics = len(alive)
    room = np.int64(64)
    while room < 2 * (state_rows + len(kinds)):
        room *= 2
    table = np.full(room, -1, np.int32)
    first = np.full(topics, -1, np.int32)
    seen_topic = np.zeros(topics, np.bool_)
    heap = np.empty(max(slot_count, 64), np.int32)
    fill = np.int64(0)
    for p in range(state_rows):
        topic = parts[p, P_TOPIC]
        table[_spot(table, parts, topic, parts[p, P_NUMBER])] = p
        parts[p, P_NEXT] = first[topic]
        first[topic] = p
        parts[p, P_LATEST] = p
        parts[p, P_SEEN] = 0
        parts[p, P_HEAP] = fill
        parts[p, P_ROOM] = parts[p, P_SLOTS]
        for k in range(parts[p, P_SLOTS]):
            heap[fill + k] = fill + k
        fill += parts[p, P_SLOTS]
    new_refs = np.empty(7, np.int32)
    status = FINE
    failed = np.int64(-1)
    for e in range(len(kinds)):
        failed = e
        now = np.int32(moment + e)
        kind = kinds[e]
        topic = topic_of[e]
        if kind == TOPIC:
            if alive[topic] and (not snapshot[e] or seen_topic[topic]):
                status = TOPIC_EXISTS
                break
            alive[topic] = True
            seen_topic[topic] = True
            continue
        if kind in (PARTITION, CHANGE):
            # A snapshot replaces everything: only what it said before counts (R-REPLAY-2).
            if not alive[topic] or (snapshot[e] and not seen_topic[topic]):
                status = NO_TOPIC
                break
            number = partition_of[e]
            at = _spot(table, parts, topic, number)
            p = np.int64(table[at])
            row = source[e]
            if kind == CHANGE and (p < 0 or parts[p, P_LATEST] < 0 or (snapshot[e] and parts[p, P_SEEN] == 0)):
                status = NO_PARTITION
                break
            if p < 0:
                p = np.int64(known)
                known += 1
                parts[p, P_TOPIC] = topic
                parts[p, P_NUMBER] = number
                parts[p, P_LATEST] = -1
                parts[p, P_SLOTS] = 0
                parts[p, P_HEAP] = fill
                parts[p, P_ROOM] = 0
                parts[p, P_NEXT] = first[topic]
                table[at] = p
                first[topic] = p
            before = np.int64(parts[p, P_LATEST])
            # LISTS (R-PART-1, R-PART-4, R-MERGE-1)
            for k in range(DIRECTORIES):
                if sizes[k, row] >= 0:
                    new_refs[k] = row
                else:
                    new_refs[k] = versions[before, V_LISTS + k] if kind == CHANGE else EMPTY
            count = sizes[REPLICAS, new_refs[REPLICAS]] if new_refs[REPLICAS] >= 0 else 0
            # DIRECTORIES (R-PART-2, R-PART-3, R-MERGE-2, R-MERGE-3, R-MERGE-4)
            given = dir_sizes[row]
            if kind == PARTITION:
                if given > 0 and given != count:
                    status = ARITY_RECORD
                    break
                new_refs[DIRECTORIES] = row if given > 0 else ABSENT
            else:
                if given > 0 and sizes[REPLICAS, row] >= 0 and given != count:
                    status = ARITY_CHANGE
                    break
                new_refs[DIRECTORIES] = row if given >= 0 else versions[before, V_LISTS + DIRECTORIES]
            reference = new_refs[DIRECTORIES]
            if reference >= 0:
                if _is_absent(directories, dir_starts[reference], dir_sizes[reference], default):
                    new_refs[DIRECTORIES] = ABSENT
                elif dir_sizes[reference] != count:
                    status = ARITY_MERGED
                    break
            # SCALARS (R-MERGE-5, R-MERGE-6, R-MERGE-7)
            recovery = change[RECOVERY, e]
            if kind == CHANGE and recovery == NO_RECOVERY_CHANGE:
                recovery = versions[before, V_SCALARS + RECOVERY]
            if recovery != 0 and recovery != 1:
                status = BAD_RECOVERY
                break
            leader = change[LEADER, e]
            leader_epoch = change[LEADER_EPOCH, e]
            partition_epoch = change[PARTITION_EPOCH, e]
            if kind == CHANGE:
                partition_epoch = versions[before, V_SCALARS + PARTITION_EPOCH] + 1
                leader_epoch = versions[before, V_SCALARS + LEADER_EPOCH]
                if leader == NO_LEADER_CHANGE:
                    leader = versions[before, V_SCALARS + LEADER]
                else:
                    leader_epoch += 1
            # SNAPSHOT onto an existing partition: what it repeats goes on (R-REPLAY-2)
            if snapshot[e] and before >= 0:
                parts[p, P_SEEN] = 1
                same = (
                    leader == versions[before, V_SCALARS + LEADER]
                    and leader_epoch == versions[before, V_SCALARS + LEADER_EPOCH]
                    and partition_epoch == versions[before, V_SCALARS + PARTITION_EPOCH]
                    and recovery == versions[before, V_SCALARS + RECOVERY]
                )
                for k in range(DIRECTORIES):
                    same = same and _same_list(values, starts[k], sizes[k], new_refs[k], versions[before, V_LISTS + k])
                was = versions[before, V_LISTS + DIRECTORIES]
                if new_refs[DIRECTORIES] < 0 or was < 0:
                    same = same and new_refs[DIRECTORIES] == was
                else:
                    same = same and _same_list(directories, dir_starts, dir_sizes, new_refs[DIRECTORIES], was)
                if same:
                    continue
            # APPLY: a new version, the one before closed
            versions = wider(versions, rows + 1)
            versions[rows, V_PARTITION] = p
            versions[rows, V_FROM] = now
            versions[rows, V_TO] = OPEN
            for k in range(7):
                versions[rows, V_LISTS + k] = new_refs[k]
            versions[rows, V_SCALARS + LEADER] = leader
            versions[rows, V_SCALARS + LEADER_EPOCH] = leader_epoch
            versions[rows, V_SCALARS + PARTITION_EPOCH] = partition_epoch
            versions[rows, V_SCALARS + RECOVERY] = recovery
            if before >= 0:
                versions[before, V_TO] = now
            parts[p, P_LATEST] = rows
            parts[p, P_SEEN] = 1
            # SLOTS: a replica's assignment lasts as long as its broker and directory do
            unmoved = (
                before >= 0
                and versions[before, V_LISTS + REPLICAS] == new_refs[REPLICAS]
                and versions[before, V_LISTS + DIRECTORIES] == new_refs[DIRECTORIES]
            )
            rows += 1
            if unmoved:
                continue
            old_size = np.int64(parts[p, P_SLOTS]) if before >= 0 else np.int64(0)
            replica_at = starts[REPLICAS, new_refs[REPLICAS]] if count > 0 else 0
            base = np.int64(parts[p, P_HEAP])
            if count > parts[p, P_ROOM]:
                heap = wider_flat(heap, fill + count)
                for k in range(old_size):
                    heap[fill + k] = heap[base + k]
                base = fill
                parts[p, P_HEAP] = fill
                parts[p, P_ROOM] = count
                fill += count
            for k in range(max(count, old_size)):
                broker = np.int64(values[replica_at + k]) if k < count else np.int64(-1)
                directory = np.int64(default)
                if k < count and new_refs[DIRECTORIES] >= 0:
                    directory = np.int64(directories[dir_starts[new_refs[DIRECTORIES]] + k])
                if k < old_size:
                    slot = heap[base + k]
                    held = slots[slot, A_DIRECTORY]
                    if k < count and slots[slot, A_BROKER] == broker and held == directory:
                        continue
                    ended = REASSIGNED
                    if k < count and slots[slot, A_BROKER] == broker:
                        if directory == DIR_LOST:
                            ended = LOST
                        elif directory in (DIR_UNASSIGNED, DIR_MIGRATING):
                            ended = UNASSIGNED
                        elif held > DIR_LOST:
                            ended = MOVED
                        else:
                            ended = ASSIGNED
                    else:
                        for other in range(count):
                            if values[replica_at + other] == slots[slot, A_BROKER]:
                                ended = REORDERED
                    slots[slot, A_TO] = now
                    slots[slot, A_ENDED] = RESYNC if snapshot[e] else ended
                if k < count:
                    slots = wider(slots, slot_count + 1)
                    slots[slot_count, A_PARTITION] = p
                    slots[slot_count, A_INDEX] = k
                    slots[slot_count, A_BROKER] = broker
                    slots[slot_count, A_DIRECTORY] = directory
                    slots[slot_count, A_FROM] = now
                    slots[slot_count, A_TO] = OPEN
                    slots[slot_count, A_ENDED] = OPEN
                    heap[base + k] = slot_count
                    slot_count += 1
            parts[p, P_SLOTS] = count
            continue
        if kind == CLEAR_ELR:  # R-CLEAR-1
            if topic != ALL_TOPICS and not alive[topic]:
                continue
            for p in range(known):
                before = np.int64(parts[p, P_LATEST])
                if before < 0 or (topic != ALL_TOPICS and parts[p, P_TOPIC] != topic):
                    continue
                elr, last = versions[before, V_LISTS + ELR], versions[before, V_LISTS + LAST_KNOWN_ELR]
                if (elr < 0 or sizes[ELR, elr] <= 0) and (last < 0 or sizes[LAST_KNOWN_ELR, last] <= 0):
                    continue
                versions = wider(versions, rows + 1)
                versions[rows] = versions[before]
                versions[rows, V_FROM] = now
                versions[before, V_TO] = now
                versions[rows, V_LISTS + ELR] = EMPTY
                versions[rows, V_LISTS + LAST_KNOWN_ELR] = EMPTY
                versions[rows, V_SCALARS + PARTITION_EPOCH] += 1
                parts[p, P_LATEST] = rows
                rows += 1
            continue
        # REMOVE_TOPIC (R-TOPIC-2), or SNAPSHOT_END (R-REPLAY-2): whatever the snapshot did not mention is gone
        if kind == REMOVE_TOPIC and (not alive[topic] or (snapshot[e] and not seen_topic[topic])):
            status = NO_TOPIC
            break
        ended = REMOVED if kind == REMOVE_TOPIC else RESYNC
        for gone in range(topic if kind == REMOVE_TOPIC else 0, topic + 1 if kind == REMOVE_TOPIC else topics):
            if kind == SNAPSHOT_END and alive[gone] and seen_topic[gone]:
                p = np.int64(first[gone])
            elif alive[gone]:
                alive[gone] = False
                p = np.int64(first[gone])
            else:
                continue
            keep = alive[gone]
            while p >= 0:
                if parts[p, P_LATEST] >= 0 and not (keep and parts[p, P_SEEN] != 0):
                    versions[parts[p, P_LATEST], V_TO] = now
                    parts[p, P_LATEST] = -1
                    for k in range(parts[p, P_SLOTS]):
                        slot = heap[parts[p, P_HEAP] + k]
                        slots[slot, A_TO] = now
                        slots[slot, A_ENDED] = ended
                    parts[p, P_SLOTS] = 0
                p = np.int64(parts[p, P_NEXT])
        if kind == SNAPSHOT_END:
            parts[:known, P_SEEN] = 0
            seen_topic[:] = False
    return status, failed, versions, rows, slots, slot_count, known
