"""The fold of a shard's partitions: events in log order onto the state, every version kept (docs/spec/replay.md).

Theory of operation
-------------------
An *event* is a record that touches topics or partitions, or the end of a snapshot. Each event has a *moment*, the row
of its offset, its time and whether it came from a snapshot: event e has moment ``old_moments + e``.

A *version* is a partition between two events that change it: its lists, its scalars, and the moments FROM and TO. Each
list of a partition is the last one that was given, so a version copies no list. It holds a *reference* to each: the
source row that gave it. Source row p < ``old`` is partition p as the batch found it, source row ``old + e`` is event e.
Two references do not name a row: EMPTY, and ABSENT for directories that were never given (each replica then has the
directory that its profile gives absent ones).

A *slot* is one replica of a partition for as long as its broker and its directory stay: a row of ``assignments``.

``fold`` indexes the state, makes room in the tables, and calls ``_apply``, which takes each event by its kind:

    TopicRecord                             no version; the topic exists
    PartitionRecord, PartitionChangeRecord  a version of the partition that it names; slots where replicas moved
    ClearElrRecord                          a version of each partition that has an ELR; no slot
    RemoveTopicRecord                       no version; closes the versions and slots of the topic
    end of a snapshot                       no version; closes all that the snapshot did not name

Three exceptions:
1. A record of a snapshot that equals the open version makes no new version: the open one continues (R-REPLAY-2).
2. A record of a snapshot finds only what the snapshot named before it; the state from before does not count.
3. A ClearElrRecord without a topic changes the partitions of all topics (R-CLEAR-1).

Invariants between two events:
- A partition that exists has one version with TO == OPEN, its row P_LATEST; a removed one has none.
- The open slots of a partition are the replicas of its open version, in their order.
- Within a partition, rows ascend by FROM. A version's TO is the next one's FROM, unless the partition was removed
  in between.
- The row after the last version is a draft: an event that is refused, or changes nothing, leaves it uncounted.
- Helpers never allocate. If a table is full, ``_apply`` stops (FULL), ``fold`` makes room, and the event is applied
  again. What it has already done, it does not do twice.

An event costs the length of its lists, as a hash table finds its partition. RemoveTopicRecord costs the topic's
partitions; ClearElrRecord and the end of a snapshot go through all partitions. Memory: a row for each
version and each slot that was true during the batch.

Source: Kafka's PartitionRegistration#merge, TopicsDelta, and the stricter checks of ReplicationControlManager.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jbod_model.replay.registrations import KEEP_RECOVERY_STATE, NO_LEADER_CHANGE
from pipelines.fold import tables as c
from pipelines.fold.events import CHANGE, CLEAR_ELR, PARTITION, REMOVE_TOPIC, TOPIC
from pipelines.fold.tables import (
    Counts,
    Folded,
    FoldInput,
    Lists,
    Tables,
    Topics,
    enter,
    enter_all,
    make_room,
    spot,
    wider,
    wider_flat,
)
from pipelines.formats.kernels import helper, inlined, njit
from pipelines.formats.partitions import (
    DIRECTORIES,
    ELR,
    LAST_KNOWN_ELR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    RECOVERY,
    REPLICAS,
)


@helper
def why_moved(held: int, directory: int) -> int:
    """Why an assignment to directory ``held`` ended: its broker now has the replica in ``directory``."""
    if directory == c.DIR_LOST:
        return c.LOST
    if directory in (c.DIR_UNASSIGNED, c.DIR_MIGRATING):
        return c.UNASSIGNED
    return c.MOVED if held > c.DIR_LOST else c.ASSIGNED


@helper
def reassign(
    lists: Lists, tables: Tables, p: int, row: int, now: int, slot_count: int, absent_directory: int, snapshot: bool
) -> int:
    """Closes the slots of partition p that version ``row`` lacks, opens those it adds. Returns the number of slots."""
    versions, slots, heap = tables.versions, tables.slots, tables.heap
    base, old_size = np.int64(tables.parts[p, c.P_HEAP]), tables.parts[p, c.P_SLOTS]
    replicas, reference = versions[row, c.V_LISTS + REPLICAS], versions[row, c.V_LISTS + DIRECTORIES]
    count = size_of(lists, REPLICAS, replicas)
    start = np.int64(lists.starts[REPLICAS, replicas]) if count > 0 else np.int64(0)
    for k in range(max(count, old_size)):
        broker = np.int64(lists.values[start + k]) if k < count else np.int64(-1)
        directory = np.int64(absent_directory)
        if k < count and reference >= 0:
            directory = np.int64(lists.directories[lists.directory_starts[reference] + k])
        if k < old_size:
            slot = heap[base + k]
            held = slots[slot, c.A_DIRECTORY]
            stays = k < count and slots[slot, c.A_BROKER] == broker
            if stays and held == directory:
                continue
            ended = c.REASSIGNED
            if stays:
                ended = why_moved(held, directory)
            else:
                for other in range(count):
                    if lists.values[start + other] == slots[slot, c.A_BROKER]:
                        ended = c.REORDERED
            slots[slot, c.A_TO] = now
            slots[slot, c.A_ENDED] = c.RESYNC if snapshot else ended
        if k < count:
            slots[slot_count, c.A_PARTITION] = p
            slots[slot_count, c.A_INDEX] = k
            slots[slot_count, c.A_BROKER] = broker
            slots[slot_count, c.A_DIRECTORY] = directory
            slots[slot_count, c.A_FROM] = now
            slots[slot_count, c.A_TO] = c.OPEN
            slots[slot_count, c.A_ENDED] = c.OPEN
            heap[base + k] = slot_count
            slot_count += 1
    tables.parts[p, c.P_SLOTS] = count
    return slot_count


@helper
def is_absent(directories: Any, start: int, size: int, absent_directory: int) -> bool:
    """Whether a directory list gives no directory: it is empty or holds only the absent directory (R-PART-3)."""
    for k in range(size):
        if directories[start + k] != absent_directory:
            return False
    return True


@helper
def same_list(values: Any, starts: Any, sizes: Any, reference: Any, other: Any) -> bool:
    """Whether two references name equal lists (null, EMPTY and [] are equal)."""
    if reference == other:
        return True
    size = max(sizes[reference], 0) if reference >= 0 else 0
    if size != (max(sizes[other], 0) if other >= 0 else 0):
        return False
    for k in range(size):
        if values[starts[reference] + k] != values[starts[other] + k]:
            return False
    return True


@helper
def size_of(lists: Lists, column: int, reference: Any) -> Any:
    """The length of the int list that a reference names."""
    return np.int64(max(lists.sizes[column, reference], 0)) if reference >= 0 else np.int64(0)


@helper
def place_of(lists: Lists, column: int, reference: Any, broker: Any) -> Any:
    """The place of a broker in the int list that a reference names, -1 if it is not there."""
    for k in range(size_of(lists, column, reference)):
        if lists.values[lists.starts[column, reference] + k] == broker:
            return k
    return np.int64(-1)


@helper
def _merge_lists(
    lists: Lists, versions: Any, draft: int, before: int, is_change: bool, row: int, absent_directory: int
) -> int:
    """Sets the draft's references: those of source row ``row``, or of the version before if the row gives none."""
    # LISTS (R-PART-1, R-PART-4, R-MERGE-1)
    for k in range(DIRECTORIES):
        if lists.sizes[k, row] >= 0:
            versions[draft, c.V_LISTS + k] = row
        else:
            versions[draft, c.V_LISTS + k] = versions[before, c.V_LISTS + k] if is_change else c.EMPTY
    count = size_of(lists, REPLICAS, versions[draft, c.V_LISTS + REPLICAS])
    # DIRECTORIES (R-PART-2, R-PART-3, R-MERGE-2, R-MERGE-3, R-MERGE-4)
    given = lists.directory_sizes[row]
    if is_change:
        if given > 0 and lists.sizes[REPLICAS, row] >= 0 and given != count:
            return c.ARITY_CHANGE
        reference = row if given >= 0 else np.int64(versions[before, c.V_LISTS + DIRECTORIES])
    else:
        if given > 0 and given != count:
            return c.ARITY_RECORD
        reference = row if given > 0 else np.int64(c.ABSENT)
    if reference >= 0:
        if is_absent(
            lists.directories, lists.directory_starts[reference], lists.directory_sizes[reference], absent_directory
        ):
            reference = np.int64(c.ABSENT)
        elif lists.directory_sizes[reference] != count:
            return c.ARITY_MERGED
    versions[draft, c.V_LISTS + DIRECTORIES] = reference
    return c.FINE


@helper
def _merge_scalars(change: Any, e: int, versions: Any, draft: int, before: int, is_change: bool) -> int:
    """Sets the scalars of the draft (R-MERGE-5, R-MERGE-6, R-MERGE-7)."""
    recovery = change[RECOVERY, e]
    if is_change and recovery == KEEP_RECOVERY_STATE:
        recovery = versions[before, c.V_SCALARS + RECOVERY]
    if recovery != 0 and recovery != 1:
        return c.BAD_RECOVERY
    leader = change[LEADER, e]
    leader_epoch = change[LEADER_EPOCH, e]
    partition_epoch = change[PARTITION_EPOCH, e]
    if is_change:
        partition_epoch = versions[before, c.V_SCALARS + PARTITION_EPOCH] + 1
        leader_epoch = versions[before, c.V_SCALARS + LEADER_EPOCH]
        if leader == NO_LEADER_CHANGE:
            leader = versions[before, c.V_SCALARS + LEADER]
        else:
            leader_epoch += 1
    versions[draft, c.V_SCALARS + LEADER] = leader
    versions[draft, c.V_SCALARS + LEADER_EPOCH] = leader_epoch
    versions[draft, c.V_SCALARS + PARTITION_EPOCH] = partition_epoch
    versions[draft, c.V_SCALARS + RECOVERY] = recovery
    return c.FINE


@helper
def merge(
    lists: Lists,
    scalars: Any,
    e: int,
    row: int,
    versions: Any,
    draft: int,
    before: int,
    is_change: bool,
    absent_directory: int,
) -> int:
    """Fills the lists and scalars of the draft from event e (source row ``row``) and the version before."""
    status = _merge_lists(lists, versions, draft, before, is_change, row, absent_directory)
    return _merge_scalars(scalars, e, versions, draft, before, is_change) if status == c.FINE else status


@helper
def repeats(lists: Lists, versions: Any, draft: int, before: int) -> bool:
    """Whether all lists and scalars of the draft equal those of the version before (R-REPLAY-2)."""
    for k in range(c.V_SCALARS, c.V_LOSS):
        if versions[draft, k] != versions[before, k]:
            return False
    for k in range(DIRECTORIES):
        if not same_list(
            lists.values,
            lists.starts[k],
            lists.sizes[k],
            versions[draft, c.V_LISTS + k],
            versions[before, c.V_LISTS + k],
        ):
            return False
    reference, other = versions[draft, c.V_LISTS + DIRECTORIES], versions[before, c.V_LISTS + DIRECTORIES]
    if reference < 0 or other < 0:
        return bool(reference == other)
    return same_list(lists.directories, lists.directory_starts, lists.directory_sizes, reference, other)


@helper
def is_moved(versions: Any, draft: int, before: int) -> bool:
    """Whether a version may have other slots than the one before: its references differ."""
    replicas, directories = c.V_LISTS + REPLICAS, c.V_LISTS + DIRECTORIES
    return bool(
        versions[draft, replicas] != versions[before, replicas]
        or versions[draft, directories] != versions[before, directories]
    )


@helper
def _create_topic(topics: Topics, topic: int, snapshot: bool) -> int:
    """Applies a TopicRecord (R-TOPIC-1). Returns the status."""
    if topics.alive[topic] and (not snapshot or topics.seen[topic]):
        return c.TOPIC_EXISTS
    topics.alive[topic] = True
    topics.seen[topic] = True
    return c.FINE


@helper
def _check_target(parts: Any, p: int, topics: Topics, topic: int, is_change: bool, snapshot: bool) -> int:
    """Checks that the topic of a record exists, and for a change record also partition p (-1: none). A status."""
    # A snapshot replaces everything: only the snapshot's earlier records count (R-REPLAY-2).
    if not topics.alive[topic] or (snapshot and not topics.seen[topic]):
        return c.NO_TOPIC
    if is_change and (p < 0 or parts[p, c.P_LATEST] < 0 or (snapshot and parts[p, c.P_SEEN] == 0)):
        return c.NO_PARTITION
    return c.FINE


@helper
def _clears(lists: Lists, parts: Any, p: int, topic: int, versions: Any) -> bool:
    """Whether a ClearElrRecord of a topic, or of ALL_TOPICS, changes a partition (R-CLEAR-1)."""
    if parts[p, c.P_LATEST] < 0 or (topic != c.ALL_TOPICS and parts[p, c.P_TOPIC] != topic):
        return False
    row = parts[p, c.P_LATEST]
    elr, last = versions[row, c.V_LISTS + ELR], versions[row, c.V_LISTS + LAST_KNOWN_ELR]
    return bool((elr >= 0 and lists.sizes[ELR, elr] > 0) or (last >= 0 and lists.sizes[LAST_KNOWN_ELR, last] > 0))


@helper
def _clear_elr(lists: Lists, tables: Tables, counts: Counts, topic: int, now: int) -> Any:
    """ClearElrRecord (R-CLEAR-1): adds a version without ELR to each partition that has one; (status, room, counts)."""
    parts, versions = tables.parts, tables.versions
    known, rows, slot_count, fill = counts
    missing = np.int64(0)
    for p in range(known):
        missing += np.int64(_clears(lists, parts, p, topic, versions))
    if rows + missing > len(versions):
        return c.FULL, missing, counts
    for p in range(known):
        if not _clears(lists, parts, p, topic, versions):
            continue
        before = np.int64(parts[p, c.P_LATEST])
        for column in range(c.VERSION_COLUMNS):
            versions[rows, column] = versions[before, column]
        versions[before, c.V_TO] = now
        versions[rows, c.V_FROM] = now
        versions[rows, c.V_LISTS + ELR] = c.EMPTY
        versions[rows, c.V_LISTS + LAST_KNOWN_ELR] = c.EMPTY
        versions[rows, c.V_SCALARS + PARTITION_EPOCH] += 1
        parts[p, c.P_LATEST] = rows
        rows += 1
    return c.FINE, np.int64(0), Counts(known, rows, slot_count, fill)


@helper
def _close(tables: Tables, first: int, keep_seen: bool, now: int, ended: int) -> None:
    """Closes the versions and slots of a topic (newest partition: ``first``), except those that a snapshot contains."""
    parts, versions, slots = tables.parts, tables.versions, tables.slots
    p = np.int64(first)
    while p >= 0:
        if parts[p, c.P_LATEST] >= 0 and not (keep_seen and parts[p, c.P_SEEN] != 0):
            versions[parts[p, c.P_LATEST], c.V_TO] = now
            parts[p, c.P_LATEST] = -1
            for k in range(parts[p, c.P_SLOTS]):
                slot = tables.heap[parts[p, c.P_HEAP] + k]
                slots[slot, c.A_TO] = now
                slots[slot, c.A_ENDED] = ended
            parts[p, c.P_SLOTS] = 0
        p = np.int64(parts[p, c.P_NEXT])


@helper
def _end_snapshot(tables: Tables, known: int, topics: Topics, now: int) -> None:
    """The end of a snapshot: closes everything that it did not contain and resets the marks (R-REPLAY-2)."""
    for topic in range(len(topics.alive)):
        if topics.alive[topic]:
            _close(tables, topics.first[topic], topics.seen[topic], now, c.RESYNC)
            topics.alive[topic] = topics.seen[topic]
    for p in range(known):
        tables.parts[p, c.P_SEEN] = 0
    for topic in range(len(topics.seen)):
        topics.seen[topic] = False


@inlined
def _partition(batch: FoldInput, tables: Tables, topics: Topics, counts: Counts, e: int) -> Any:
    """Applies a PartitionRecord or PartitionChangeRecord: (status, number of missing rows, counts)."""
    parts, versions, lists = tables.parts, tables.versions, batch.lists
    topic, number, snapshot = batch.events.topics[e], batch.events.partitions[e], batch.events.snapshot[e]
    is_change = batch.events.kinds[e] == CHANGE
    known, rows, slot_count, fill = counts
    at = spot(tables.table, parts, topic, number)
    p = np.int64(tables.table[at])
    status = _check_target(parts, p, topics, topic, is_change, snapshot)
    if status != c.FINE:
        return status, np.int64(0), counts
    if p < 0:
        p = known
        known += 1
        tables.table[at] = p
        enter(parts, p, topic, number, topics.first, fill)
    if rows == len(versions):
        return c.FULL, np.int64(1), Counts(known, rows, slot_count, fill)
    before = np.int64(parts[p, c.P_LATEST])
    status = merge(
        lists, batch.events.scalars, e, batch.old + e, versions, rows, before, is_change, batch.absent_directory
    )
    if status != c.FINE:
        return status, np.int64(0), counts
    if not (snapshot and before >= 0 and repeats(lists, versions, rows, before)):
        now = np.int32(batch.old_moments + e)
        if before < 0 or is_moved(versions, rows, before):
            count = size_of(lists, REPLICAS, versions[rows, c.V_LISTS + REPLICAS])
            if slot_count + count > len(tables.slots) or fill + count > len(tables.heap):
                return c.FULL, count, Counts(known, rows, slot_count, fill)
            if count > parts[p, c.P_ROOM]:
                fill = make_room(parts, p, tables.heap, fill, count)
            slot_count = reassign(lists, tables, p, rows, now, slot_count, batch.absent_directory, snapshot)
        versions[rows, c.V_PARTITION] = p
        versions[rows, c.V_FROM] = now
        versions[rows, c.V_TO] = c.OPEN
        if before >= 0:
            versions[before, c.V_TO] = now
        parts[p, c.P_LATEST] = rows
        rows += 1
    parts[p, c.P_SEEN] = 1
    return c.FINE, np.int64(0), Counts(known, rows, slot_count, fill)


@helper
def _apply(batch: FoldInput, tables: Tables, topics: Topics, counts: Counts, start: int) -> Any:
    """Applies events from ``start`` on: (status, event, number of missing rows, counts)."""
    events = batch.events
    for e in range(start, len(events.kinds)):
        kind, snapshot, topic = events.kinds[e], events.snapshot[e], events.topics[e]
        now = np.int32(batch.old_moments + e)
        status, missing = c.FINE, np.int64(0)
        if kind in (PARTITION, CHANGE):
            status, missing, counts = _partition(batch, tables, topics, counts, e)
        elif kind == TOPIC:
            status = _create_topic(topics, topic, snapshot)
        elif kind == REMOVE_TOPIC:
            status = _check_target(tables.parts, -1, topics, topic, False, snapshot)
            if status == c.FINE:
                topics.alive[topic] = False
                _close(tables, topics.first[topic], False, now, c.REMOVED)
        elif kind == CLEAR_ELR:
            status, missing, counts = _clear_elr(batch.lists, tables, counts, topic, now)
        else:
            _end_snapshot(tables, counts.partitions, topics, now)
        if status != c.FINE:
            return status, e, missing, counts
    return c.FINE, len(events.kinds), np.int64(0), counts


@njit(cache=True, nogil=True)
def fold(batch: FoldInput, parts: Any, alive: Any, versions: Any, slots: Any) -> Folded:
    """Applies all events in log order.

    ``parts`` int32[*, 8] has room for all old and new partitions; topic, number and slot count of the old ones are set.
    ``alive`` bool[t] says which topics exist. ``versions`` int32[*, 15] begins with the versions of the old partitions,
    in their order, and ``slots`` int32[*, 7] with their slots. The function changes ``parts`` and ``alive`` in place.
    Versions and slots grow and are returned.
    """
    room = np.int64(64)
    while room < 2 * (batch.old + len(batch.events.kinds)):
        room *= 2
    table = np.full(room, -1, np.int32)
    topics = Topics(alive, np.zeros(len(alive), np.bool_), np.full(len(alive), -1, np.int32))
    heap = np.empty(max(len(slots), 64), np.int32)
    fill = enter_all(parts, batch.old, table, topics.first, heap)
    counts = Counts(np.int64(batch.old), np.int64(batch.old), np.int64(len(slots)), fill)
    status, event = c.FULL, np.int64(0)
    while status == c.FULL:
        tables = Tables(parts, table, heap, versions, slots)
        status, event, missing, counts = _apply(batch, tables, topics, counts, event)
        if status == c.FULL:
            versions = wider(versions, counts.versions + missing)
            slots = wider(slots, counts.slots + missing)
            heap = wider_flat(heap, counts.heap + missing)
    return Folded(status, event, versions, counts.versions, slots, counts.slots, counts.partitions)
