"""The actions that change partitions and no broker: assignments, in-sync sets, moves, elections (R-BEHAVE-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from jbod_model.controller.partition_change import NO_LEADER
from jbod_model.formats.records import PartitionChangeRecord
from jbod_model.formats.requests import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    AlterPartitionPartition,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionTopic,
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BalanceLeaders,
    BrokerState,
    ElectLeadersRequest,
    ElectUncleanLeaders,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image, Partition, Topic
from jbod_model.replay.registrations import KEEP_RECOVERY_STATE, NO_LEADER_CHANGE
from lab.behaviour.guess import Ahead, Guess

T = TypeVar("T")

Change = tuple[PartitionChangeRecord, Topic, Partition]
"""A record, with the topic and the partition before it."""


def changes_of_partitions(ahead: Ahead) -> Iterator[Guess]:
    """What may have changed the partition of the first record ahead, with those that follow or alone."""
    changes = list(_changes(ahead))
    if not changes:
        return
    record, _, before = changes[0]
    if record.directories is not None and record.replicas is None:
        yield from _assignments(ahead, changes)
    yield from _in_sync_sets(ahead.image, changes)
    if not (record.replicas is record.removing_replicas is record.adding_replicas is None):
        yield from _reassignments(changes)
    if record.leader not in (NO_LEADER_CHANGE, NO_LEADER):
        yield Guess(BalanceLeaders())
        yield from _elections(changes, PREFERRED_ELECTION)
        if before.leader == NO_LEADER:
            yield Guess(ElectUncleanLeaders())
            yield from _elections(changes, UNCLEAN_ELECTION)


def _changes(ahead: Ahead) -> Iterator[Change]:
    """The changes that follow each other, up to the second one of a partition."""
    met = set()
    for record in ahead.records:
        if not isinstance(record, PartitionChangeRecord) or (record.topic_id, record.partition_id) in met:
            return
        topic = ahead.image.topics.get(record.topic_id)
        before = None if topic is None else topic.partitions.get(record.partition_id)
        if topic is None or before is None:
            return
        met.add((record.topic_id, record.partition_id))
        yield record, topic, before


def _runs(changes: Sequence[Change], read: Callable[[Change], T | None]) -> Iterator[list[T]]:
    """What ``read`` finds in the changes, up to one that it finds nothing in; then in the first alone."""
    parts: list[T] = []
    for change in changes:
        part = read(change)
        if part is None:
            break
        parts.append(part)
    if parts:
        yield parts
    if len(parts) > 1:
        yield parts[:1]


def _assignments(ahead: Ahead, changes: Sequence[Change]) -> Iterator[Guess]:
    """The broker whose replica is elsewhere afterwards, if its process has that directory (R-BEHAVE-3)."""
    first = _moved(changes[0])
    if first is None:
        return
    broker_id = first[0]
    registration = ahead.image.brokers.get(broker_id)
    if registration is None:
        return

    def read(change: Change) -> tuple[Uuid, AssignedTopic] | None:
        moved = _moved(change)
        if moved is None or moved[0] != broker_id:
            return None
        if moved[1] != ahead.lost and not ahead.registrations.may_have(registration, moved[1], ahead.offset):
            return None
        partition = AssignedPartition(partition_index=change[0].partition_id)
        return moved[1], AssignedTopic(topic_id=change[0].topic_id, partitions=(partition,))

    for run in _runs(changes, read):
        directories = tuple(AssignedDirectory(id=directory, topics=(topic,)) for directory, topic in run)
        yield Guess(
            AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=registration.epoch, directories=directories)
        )


def _moved(change: Change) -> tuple[int, Uuid] | None:
    """The one broker whose directory changes, and to which."""
    record, _, before = change
    if record.directories is None or len(record.directories) != len(before.replicas):
        return None
    moved = [
        (broker_id, after)
        for broker_id, old, after in zip(before.replicas, before.directories, record.directories, strict=True)
        if old != after
    ]
    return moved[0] if len(moved) == 1 else None


def _in_sync_sets(image: Image, changes: Sequence[Change]) -> Iterator[Guess]:
    """The leader, for the set that the record has; where that completes a reassignment, for all that was in sync."""
    leader = changes[0][2].leader
    registration = image.brokers.get(leader)
    if registration is None:
        return

    def in_sync_set(change: Change, whole: bool) -> AlterPartitionTopic | None:
        record, _, before = change
        changes_set = record.isr is not None or record.leader_recovery_state != KEEP_RECOVERY_STATE
        completes = record.replicas is not None and bool(before.adding_replicas or before.removing_replicas)
        if before.leader != leader or not (changes_set or completes):
            return None
        after = before.isr if record.isr is None else record.isr
        if whole:
            after = (*before.isr, *(broker_id for broker_id in after if broker_id not in before.isr))
        recovery = record.leader_recovery_state
        partition = AlterPartitionPartition(
            partition_index=record.partition_id,
            leader_epoch=before.leader_epoch,
            new_isr_with_epochs=tuple(BrokerState(broker_id=broker_id) for broker_id in after),
            leader_recovery_state=before.leader_recovery_state if recovery == KEEP_RECOVERY_STATE else recovery,
            partition_epoch=before.partition_epoch,
        )
        return AlterPartitionTopic(topic_id=record.topic_id, partitions=(partition,))

    for whole in (False, True):
        for run in _runs(changes, partial(in_sync_set, whole=whole)):
            yield Guess(AlterPartitionRequest(broker_id=leader, broker_epoch=registration.epoch, topics=tuple(run)))


def _reassignments(changes: Sequence[Change]) -> Iterator[Guess]:
    """To the replicas that stay; cancelled, where one is under way."""

    def begun(change: Change) -> ReassignableTopic | None:
        record, topic, before = change
        if record.replicas is record.removing_replicas is record.adding_replicas is None:
            return None
        replicas = before.replicas if record.replicas is None else record.replicas
        leaving = before.removing_replicas if record.removing_replicas is None else record.removing_replicas
        target = tuple(broker_id for broker_id in replicas if broker_id not in leaving)
        partition = ReassignablePartition(partition_index=record.partition_id, replicas=target)
        return ReassignableTopic(name=topic.name, partitions=(partition,))

    def cancelled(change: Change) -> ReassignableTopic | None:
        record, topic, before = change
        if not (before.adding_replicas or before.removing_replicas):
            return None
        partition = ReassignablePartition(partition_index=record.partition_id, replicas=None)
        return ReassignableTopic(name=topic.name, partitions=(partition,))

    for read in (begun, cancelled):
        for run in _runs(changes, read):
            yield Guess(AlterPartitionReassignmentsRequest(topics=tuple(run)))


def _elections(changes: Sequence[Change], election: int) -> Iterator[Guess]:
    def topic_partitions(change: Change) -> TopicPartitions | None:
        record, topic, _ = change
        if record.leader in (NO_LEADER_CHANGE, NO_LEADER):
            return None
        return TopicPartitions(topic=topic.name, partitions=(record.partition_id,))

    for run in _runs(changes, topic_partitions):
        yield Guess(ElectLeadersRequest(election_type=election, topic_partitions=tuple(run)))
