"""Handles reassignments of partitions to other brokers (docs/spec/controller.md).

Source: Kafka's ``ReplicationControlManager#alterPartitionReassignments``.
"""

from __future__ import annotations

from jbod_model.controller.cluster import Cluster, PartitionAt
from jbod_model.controller.context import Result
from jbod_model.controller.election import Election
from jbod_model.controller.partition_change import Wish, partition_change
from jbod_model.controller.reassignment import Reassignment, Revert
from jbod_model.controller.topics import check_assignment
from jbod_model.formats.kafka_errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    RequestRefused,
    UnknownTopicOrPartition,
)
from jbod_model.formats.records import VersionedRecord
from jbod_model.formats.requests import AlterPartitionReassignmentsRequest
from jbod_model.formats.responses import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from jbod_model.replay.image import Partition


def alter_reassignments(cluster: Cluster, request: AlterPartitionReassignmentsRequest) -> Result:
    """Begin, replace or cancel the reassignment of each partition (R-REASSIGN-6)."""
    records: list[VersionedRecord] = []
    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        results: list[ReassignablePartitionResponse] = []
        for asked in topic.partitions:
            code, message = 0, None
            try:
                at = find_partition(cluster, topic.name, asked.partition_index)
                if asked.replicas is None:
                    record = _cancel(cluster, at)
                else:
                    record = _reassign(cluster, at, asked.replicas, request.allow_replication_factor_change)
                if record is not None:
                    records.append(record)
            except RequestRefused as refused:
                code, message = refused.code.value, refused.problem
            results.append(
                ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_code=code, error_message=message
                )
            )
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(results)))
    return Result(records=tuple(records), response=AlterPartitionReassignmentsResponse(responses=tuple(topics)))


def find_partition(cluster: Cluster, topic_name: str, partition_index: int) -> PartitionAt:
    """A partition by its topic's name; UnknownTopicOrPartition if there is none."""
    topic = cluster.image.topic(topic_name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {topic_name}")
    partition = topic.partitions.get(partition_index)
    if partition is None:
        raise UnknownTopicOrPartition(f"topic {topic_name} has no partition {partition_index}")
    return PartitionAt(topic, partition_index, partition)


def under_way(partition: Partition) -> Reassignment:
    """The reassignment of a partition that is in progress."""
    return Reassignment(partition.replicas, partition.removing_replicas, partition.adding_replicas)


def _cancel(cluster: Cluster, at: PartitionAt) -> VersionedRecord | None:
    """Return to the original replicas; uncleanly only if the topic allows it (R-REASSIGN-5)."""
    present = under_way(at.partition)
    if not present.in_progress:
        raise NoReassignmentInProgress("no reassignment is in progress")
    revert = Revert.of(present, at.partition.isr)
    election = cluster.unclean_election(at.topic.name)
    if revert.unclean and election is not Election.UNCLEAN:
        raise InvalidReplicaAssignment("no original replica is in sync, and the topic forbids unclean elections")
    wish = Wish(isr=revert.isr, replicas=revert.replicas, removing=(), adding=(), election=election)
    return _change(cluster, at, wish)


def _reassign(
    cluster: Cluster, at: PartitionAt, target: tuple[int, ...], size_may_change: bool
) -> VersionedRecord | None:
    """Add the new replicas to the old ones. The reassignment completes at once if they are in sync (R-REASSIGN-7)."""
    check_assignment(cluster, target, None)
    present = under_way(at.partition)
    size = len(set(present.replicas) - set(present.removing))
    if not size_may_change and size != len(target):
        raise InvalidReplicationFactor(f"the partition has {size} replicas, the request names {len(target)}")
    move = Reassignment.between(at.partition.replicas, target)
    wish = Wish(replicas=move.replicas, removing=move.removing or None, adding=move.adding or None)
    return _change(cluster, at, wish)


def _change(cluster: Cluster, at: PartitionAt, wish: Wish) -> VersionedRecord | None:
    surroundings = cluster.surroundings(at.topic, at.partition)
    return partition_change(at.topic.topic_id, at.partition_id, at.partition, wish, surroundings)
