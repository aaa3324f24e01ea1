"""Handles leader elections, on request and as periodic work (docs/spec/controller.md).

Source: Kafka's ``ReplicationControlManager#electLeaders`` and its two periodic tasks.
"""

from __future__ import annotations

from jbod_model.controller.cluster import Cluster, PartitionAt
from jbod_model.controller.context import Result
from jbod_model.controller.election import Election
from jbod_model.controller.partition_change import Wish, partition_change
from jbod_model.controller.reassignment_requests import find_partition
from jbod_model.formats.kafka_errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from jbod_model.formats.records import VersionedRecord
from jbod_model.formats.requests import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    BalanceLeaders,
    ElectLeadersRequest,
    ElectUncleanLeaders,
)
from jbod_model.formats.responses import ElectionPartitionResult, ElectLeadersResponse, MoreWork, ReplicaElectionResult
from jbod_model.replay.image import Partition

_ELECTIONS = {PREFERRED_ELECTION: Election.PREFERRED, UNCLEAN_ELECTION: Election.UNCLEAN}
_FAILED = {
    Election.PREFERRED: KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
    Election.UNCLEAN: KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


def elect_leaders(cluster: Cluster, request: ElectLeadersRequest) -> Result:
    """Hold the elections that are needed.

    A request for all partitions answers only with those that need one (R-ELECT-9).
    """
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        raise InvalidRequest(f"there is no election type {request.election_type}: use 0 (preferred) or 1 (unclean)")
    records: list[VersionedRecord] = []
    results: list[ReplicaElectionResult] = []
    if request.topic_partitions is None:
        for topic in cluster.image.topics.values():
            answers = []
            for partition_id, partition in topic.partitions.items():
                error = _elect(cluster, PartitionAt(topic, partition_id, partition), election, records)
                if error is not KafkaError.ELECTION_NOT_NEEDED:
                    answers.append(ElectionPartitionResult(partition_id=partition_id, error_code=error))
            results.append(ReplicaElectionResult(topic=topic.name, partition_result=tuple(answers)))
    else:
        for asked in request.topic_partitions:
            answers = []
            for partition_id in asked.partitions:
                try:
                    error = _elect(cluster, find_partition(cluster, asked.topic, partition_id), election, records)
                    answers.append(ElectionPartitionResult(partition_id=partition_id, error_code=error))
                except UnknownTopicOrPartition as refused:
                    answers.append(
                        ElectionPartitionResult(
                            partition_id=partition_id, error_code=refused.code, error_message=refused.problem
                        )
                    )
            results.append(ReplicaElectionResult(topic=asked.topic, partition_result=tuple(answers)))
    return Result(records=tuple(records), response=ElectLeadersResponse(replica_election_results=tuple(results)))


def led_by_preferred(partition: Partition) -> bool:
    """Whether the first replica leads; False if there is no leader."""
    return partition.leader == partition.replicas[0]


def _elect(cluster: Cluster, at: PartitionAt, election: Election, records: list[VersionedRecord]) -> KafkaError:
    """Elect one leader. Without a record, no better replica can lead (R-ELECT-10)."""
    satisfied = led_by_preferred(at.partition) if election is Election.PREFERRED else at.partition.leader >= 0
    if satisfied:
        return KafkaError.ELECTION_NOT_NEEDED
    surroundings = cluster.surroundings(at.topic, at.partition)
    record = partition_change(at.topic.topic_id, at.partition_id, at.partition, Wish(election=election), surroundings)
    if record is None:
        return _FAILED[election]
    records.append(record)
    return KafkaError.NONE


def balance_leaders(cluster: Cluster, request: BalanceLeaders) -> Result:
    """Preferred elections for partitions that another replica leads, up to a limit (R-ELECT-11)."""
    records: list[VersionedRecord] = []
    for at in cluster.partitions():
        if len(records) >= request.max_elections:
            break
        _elect(cluster, at, Election.PREFERRED, records)
    return Result(records=tuple(records), response=MoreWork(more=len(records) >= request.max_elections))


def elect_unclean_leaders(cluster: Cluster, request: ElectUncleanLeaders) -> Result:
    """Unclean elections for leaderless partitions of topics that allow them, up to a limit (R-ELECT-11)."""
    records: list[VersionedRecord] = []
    for at in cluster.partitions_without_leader():
        if len(records) >= request.max_elections:
            break
        if cluster.unclean_election(at.topic.name) is Election.UNCLEAN:
            _elect(cluster, at, Election.UNCLEAN, records)
    return Result(records=tuple(records), response=MoreWork(more=len(records) >= request.max_elections))
