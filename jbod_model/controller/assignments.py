"""Handles AssignReplicasToDirs: a broker reports the directories of its replicas (docs/spec/controller.md).

Source: Kafka's ``ReplicationControlManager#handleAssignReplicasToDirs``.
"""

from __future__ import annotations

from dataclasses import replace

from jbod_model.controller.cluster import Cluster, PartitionAt
from jbod_model.controller.context import Result
from jbod_model.controller.leader_updates import leader_and_isr_updates
from jbod_model.controller.partition_change import Wish, partition_change
from jbod_model.formats.kafka_errors import DirectoriesNotSupported, KafkaError
from jbod_model.formats.records import VersionedRecord
from jbod_model.formats.requests import AssignReplicasToDirsRequest
from jbod_model.formats.responses import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsResponse,
)
from jbod_model.ids import ZERO, Uuid
from jbod_model.profiles.controller_rules import Quirk


def assign(cluster: Cluster, request: AssignReplicasToDirsRequest) -> Result:
    """Write the directory of each replica; a replica in an offline directory loses its leadership (R-ASSIGN-3,
    R-ASSIGN-5).

    All records are computed from the state before the request, even several of one partition (R-CTL-7).
    """
    # VALIDATE
    if not cluster.directories_supported:
        raise DirectoriesNotSupported("directories are assigned from metadata.version 3.7-IV2 on")
    registration = cluster.broker(request.broker_id, request.broker_epoch)

    # RECORDS
    records: list[VersionedRecord] = []
    offline: dict[tuple[Uuid, int], PartitionAt] = {}
    directories: list[AssignedDirectoryResult] = []
    for directory in request.directories:
        assigned = directory.id
        if assigned == ZERO and cluster.rules.zero_assignment_is_lost:  # R-DRAFT-5
            assigned = cluster.image.ids.lost
        online = cluster.has_online_dir(registration.broker_id, assigned)
        topics: list[AssignedTopicResult] = []
        for topic in directory.topics:
            results: list[AssignedPartitionResult] = []
            for asked in topic.partitions:
                at, error = _find(cluster, request.broker_id, topic.topic_id, asked.partition_index)
                if at is not None:
                    record = _assignment(cluster, request.broker_id, assigned, online, at)
                    if record is not None:
                        records.append(record)
                    if not online:
                        offline[at.topic.topic_id, at.partition_id] = at
                results.append(AssignedPartitionResult(partition_index=asked.partition_index, error_code=error))
            topics.append(AssignedTopicResult(topic_id=topic.topic_id, partitions=tuple(results)))
        directories.append(AssignedDirectoryResult(id=directory.id, topics=tuple(topics)))
    if cluster.rules.election_after_assignment == "old directory":
        records += leader_and_isr_updates(cluster, offline.values(), remove=request.broker_id)
    return Result(records=tuple(records), response=AssignReplicasToDirsResponse(directories=tuple(directories)))


def _find(
    cluster: Cluster, broker_id: int, topic_id: Uuid, partition_index: int
) -> tuple[PartitionAt | None, KafkaError]:
    """The partition of an entry. Raises one of three errors, which becomes the entry's answer (R-ASSIGN-4)."""
    topic = cluster.image.topics.get(topic_id)
    if topic is None:
        return None, KafkaError.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(partition_index)
    if partition is None:
        return None, KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return None, KafkaError.NOT_LEADER_OR_FOLLOWER
    return PartitionAt(topic, partition_index, partition), KafkaError.NONE


def _assignment(
    cluster: Cluster, broker_id: int, directory: Uuid, online: bool, at: PartitionAt
) -> VersionedRecord | None:
    """The record of an assignment.

    Like every change it holds an election, which sees the old directories (R-ASSIGN-6).
    """
    partition = at.partition
    wish = Wish(directories={broker_id: directory})
    acceptable = cluster.acceptable(partition)
    if cluster.rules.election_after_assignment == "new directory":
        index = partition.replicas.index(broker_id)
        moved = (*partition.directories[:index], directory, *partition.directories[index + 1 :])
        acceptable = cluster.acceptable(replace(partition, directories=moved))
        if not online:
            wish = Wish(
                isr=tuple(replica for replica in partition.isr if replica != broker_id),
                election=cluster.unclean_election(at.topic.name),
                directories={broker_id: directory},
            )
    elr = not cluster.rules.has(Quirk.ELR_WIPE)
    surroundings = cluster.surroundings(at.topic, partition, acceptable, elr=elr)
    return partition_change(at.topic.topic_id, at.partition_id, partition, wish, surroundings)
