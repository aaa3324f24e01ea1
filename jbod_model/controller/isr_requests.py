"""Handles AlterPartition: a leader changes in-sync sets (docs/spec/controller.md). As in Kafka, directories are
ignored.

Source: Kafka's ``ReplicationControlManager#alterPartition``.
"""

from __future__ import annotations

from jbod_model.controller.cluster import Cluster, PartitionAt
from jbod_model.controller.context import Result
from jbod_model.controller.partition_change import (
    RECOVERED,
    RECOVERING,
    Wish,
    partition_change,
)
from jbod_model.formats.kafka_errors import KafkaError
from jbod_model.formats.records import PartitionChangeRecord, VersionedRecord
from jbod_model.formats.requests import AlterPartitionPartition, AlterPartitionRequest, BrokerState
from jbod_model.formats.responses import (
    AlterPartitionPartitionResult,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
)
from jbod_model.ids import Uuid
from jbod_model.replay.registrations import NO_LEADER_CHANGE


def alter_partition(cluster: Cluster, request: AlterPartitionRequest) -> Result:
    """Write each in-sync set that passes the checks, in the order of the request (R-ISR-1)."""
    cluster.broker(request.broker_id, request.broker_epoch)
    records: list[VersionedRecord] = []
    topics: list[AlterPartitionTopicResult] = []
    for topic in request.topics:
        results: list[AlterPartitionPartitionResult] = []
        for asked in topic.partitions:
            result, record = _alter(cluster, request.broker_id, topic.topic_id, asked)
            results.append(result)
            if record is not None:
                records.append(record)
        topics.append(AlterPartitionTopicResult(topic_id=topic.topic_id, partitions=tuple(results)))
    return Result(records=tuple(records), response=AlterPartitionResponse(topics=tuple(topics)))


def _alter(
    cluster: Cluster, broker_id: int, topic_id: Uuid, asked: AlterPartitionPartition
) -> tuple[AlterPartitionPartitionResult, VersionedRecord | None]:
    """The answer for one partition.

    If the change itself replaces the leader, it is written and answered with 108 (R-ISR-4).
    """
    index = asked.partition_index
    topic = cluster.image.topics.get(topic_id)
    if topic is None:
        return _error(index, KafkaError.UNKNOWN_TOPIC_ID), None
    partition = topic.partitions.get(index)
    if partition is None:
        return _error(index, KafkaError.UNKNOWN_TOPIC_OR_PARTITION), None
    problem = _problem(cluster, broker_id, PartitionAt(topic, index, partition), asked)
    if problem is not None:
        return _error(index, problem), None

    wish = Wish(
        isr=tuple(member.broker_id for member in asked.new_isr_with_epochs),
        leader_recovery_state=asked.leader_recovery_state,
        election=cluster.unclean_election(topic.name),
    )
    record = partition_change(topic_id, index, partition, wish, cluster.surroundings(topic, partition))
    if record is not None:
        assert isinstance(record.record, PartitionChangeRecord)
        if record.record.leader not in (broker_id, NO_LEADER_CHANGE):
            return _error(index, KafkaError.NEW_LEADER_ELECTED), record
        partition = partition.merge(record.record, cluster.image.ids, cluster.profile)
    after = AlterPartitionPartitionResult(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
    return after, record


def _error(index: int, error: KafkaError) -> AlterPartitionPartitionResult:
    return AlterPartitionPartitionResult(partition_index=index, error_code=error)


def _problem(cluster: Cluster, broker_id: int, at: PartitionAt, asked: AlterPartitionPartition) -> KafkaError | None:
    """The first check that fails (R-ISR-2): epochs, leadership of the sender, a legal set, members that may join."""
    partition = at.partition
    members = [member.broker_id for member in asked.new_isr_with_epochs]
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        return KafkaError.NOT_CONTROLLER
    if asked.leader_epoch < partition.leader_epoch:
        return KafkaError.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return KafkaError.INVALID_REQUEST
    if asked.partition_epoch < partition.partition_epoch:
        return KafkaError.INVALID_UPDATE_VERSION
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return KafkaError.INVALID_REQUEST
    if partition.leader not in members:
        return KafkaError.INVALID_REQUEST
    if asked.leader_recovery_state not in (RECOVERED, RECOVERING):
        return KafkaError.INVALID_REQUEST
    if asked.leader_recovery_state == RECOVERING and (len(members) > 1 or partition.leader_recovery_state == RECOVERED):
        return KafkaError.INVALID_REQUEST
    if not all(_may_join(cluster, member) for member in asked.new_isr_with_epochs):
        return KafkaError.INELIGIBLE_REPLICA
    return None


def _may_join(cluster: Cluster, member: BrokerState) -> bool:
    """Whether the member is alive with the epoch that the leader knows; its directory is ignored (R-ISR-3)."""
    registration = cluster.image.brokers.get(member.broker_id)
    if registration is None or registration.in_controlled_shutdown or registration.fenced:
        return False
    return member.broker_epoch in (-1, registration.epoch)
