"""Handles the requests that change existing partitions: reassignments, elections, in-sync sets, directories.

Elections are also periodic work. AlterPartition ignores directories, as in Kafka; AssignReplicasToDirs reports them
(docs/spec/controller.md). Source: Kafka's ``ReplicationControlManager``: ``alterPartitionReassignments``,
``electLeaders`` and its two periodic tasks, ``alterPartition``, ``handleAssignReplicasToDirs``.
"""

from __future__ import annotations

from dataclasses import replace

from jbod_model.controller.cluster import Cluster, PartitionAt
from jbod_model.controller.context import Result
from jbod_model.controller.leader_updates import leader_and_isr_updates
from jbod_model.controller.partition_change import (
    RECOVERED,
    RECOVERING,
    Election,
    Reassignment,
    Revert,
    Wish,
)
from jbod_model.controller.topics import check_assignment
from jbod_model.formats.records import PartitionChangeRecord, VersionedRecord
from jbod_model.formats.requests import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    AlterPartitionPartition,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BalanceLeaders,
    BrokerState,
    ElectLeadersRequest,
    ElectUncleanLeaders,
)
from jbod_model.formats.responses import (
    AlterPartitionPartitionResult,
    AlterPartitionReassignmentsResponse,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsResponse,
    DirectoriesNotSupported,
    ElectionPartitionResult,
    ElectLeadersResponse,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
    MoreWork,
    NoReassignmentInProgress,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
    RequestRefused,
    UnknownTopicOrPartition,
)
from jbod_model.ids import ZERO, Uuid
from jbod_model.profiles import Quirk
from jbod_model.replay.image import Partition
from jbod_model.replay.registrations import NO_LEADER_CHANGE


def alter_reassignments(cluster: Cluster, request: AlterPartitionReassignmentsRequest) -> Result:
    """Begin, replace or cancel the reassignment of each partition (R-REASSIGN-6)."""
    records: list[VersionedRecord] = []
    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        results: list[ReassignablePartitionResponse] = []
        for partition in topic.partitions:
            code, message = 0, None
            try:
                at = find_partition(cluster, topic.name, partition.partition_index)
                if partition.replicas is None:
                    record = _cancel(cluster, at)
                else:
                    record = _reassign(cluster, at, partition.replicas, request.allow_replication_factor_change)
                if record is not None:
                    records.append(record)
            except RequestRefused as refused:
                code, message = refused.code.value, refused.problem
            results.append(
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=code, error_message=message
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
    return cluster.change(at, wish)


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
    return cluster.change(at, wish)


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
        for topic_partitions in request.topic_partitions:
            answers = []
            for partition_id in topic_partitions.partitions:
                try:
                    error = _elect(
                        cluster, find_partition(cluster, topic_partitions.topic, partition_id), election, records
                    )
                    answers.append(ElectionPartitionResult(partition_id=partition_id, error_code=error))
                except UnknownTopicOrPartition as refused:
                    answers.append(
                        ElectionPartitionResult(
                            partition_id=partition_id, error_code=refused.code, error_message=refused.problem
                        )
                    )
            results.append(ReplicaElectionResult(topic=topic_partitions.topic, partition_result=tuple(answers)))
    return Result(records=tuple(records), response=ElectLeadersResponse(replica_election_results=tuple(results)))


def led_by_preferred(partition: Partition) -> bool:
    """Whether the first replica leads; False if there is no leader."""
    return partition.leader == partition.replicas[0]


def _elect(cluster: Cluster, at: PartitionAt, election: Election, records: list[VersionedRecord]) -> KafkaError:
    """Elect one leader. Without a record, no better replica can lead (R-ELECT-10)."""
    satisfied = led_by_preferred(at.partition) if election is Election.PREFERRED else at.partition.leader >= 0
    if satisfied:
        return KafkaError.ELECTION_NOT_NEEDED
    record = cluster.change(at, Wish(election=election))
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


def alter_partition(cluster: Cluster, request: AlterPartitionRequest) -> Result:
    """Write each in-sync set that passes the checks, in the order of the request (R-ISR-1)."""
    cluster.broker(request.broker_id, request.broker_epoch)
    records: list[VersionedRecord] = []
    topics: list[AlterPartitionTopicResult] = []
    for topic in request.topics:
        results: list[AlterPartitionPartitionResult] = []
        for partition in topic.partitions:
            result, record = _alter(cluster, request.broker_id, topic.topic_id, partition)
            results.append(result)
            if record is not None:
                records.append(record)
        topics.append(AlterPartitionTopicResult(topic_id=topic.topic_id, partitions=tuple(results)))
    return Result(records=tuple(records), response=AlterPartitionResponse(topics=tuple(topics)))


def _alter(
    cluster: Cluster, broker_id: int, topic_id: Uuid, change: AlterPartitionPartition
) -> tuple[AlterPartitionPartitionResult, VersionedRecord | None]:
    """The answer for one partition.

    If the change itself replaces the leader, it is written and answered with 108 (R-ISR-4).
    """
    index = change.partition_index
    topic = cluster.image.topics.get(topic_id)
    if topic is None:
        return _error(index, KafkaError.UNKNOWN_TOPIC_ID), None
    partition = topic.partitions.get(index)
    if partition is None:
        return _error(index, KafkaError.UNKNOWN_TOPIC_OR_PARTITION), None
    at = PartitionAt(topic, index, partition)
    problem = _problem(cluster, broker_id, at, change)
    if problem is not None:
        return _error(index, problem), None

    wish = Wish(
        isr=tuple(member.broker_id for member in change.new_isr_with_epochs),
        leader_recovery_state=change.leader_recovery_state,
        election=cluster.unclean_election(topic.name),
    )
    record = cluster.change(at, wish)
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


def _problem(cluster: Cluster, broker_id: int, at: PartitionAt, change: AlterPartitionPartition) -> KafkaError | None:
    """The first check that fails (R-ISR-2): epochs, leadership of the sender, a legal set, members that may join."""
    partition = at.partition
    members = [member.broker_id for member in change.new_isr_with_epochs]
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return KafkaError.NOT_CONTROLLER
    if change.leader_epoch < partition.leader_epoch:
        return KafkaError.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return KafkaError.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return KafkaError.INVALID_UPDATE_VERSION
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return KafkaError.INVALID_REQUEST
    if partition.leader not in members:
        return KafkaError.INVALID_REQUEST
    if change.leader_recovery_state not in (RECOVERED, RECOVERING):
        return KafkaError.INVALID_REQUEST
    if change.leader_recovery_state == RECOVERING and (
        len(members) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        return KafkaError.INVALID_REQUEST
    if not all(_may_join(cluster, member) for member in change.new_isr_with_epochs):
        return KafkaError.INELIGIBLE_REPLICA
    return None


def _may_join(cluster: Cluster, member: BrokerState) -> bool:
    """Whether the member is alive with the epoch that the leader knows; its directory is ignored (R-ISR-3)."""
    registration = cluster.image.brokers.get(member.broker_id)
    if registration is None or registration.in_controlled_shutdown or registration.fenced:
        return False
    return member.broker_epoch in (-1, registration.epoch)


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
            for partition in topic.partitions:
                at, error = _find(cluster, request.broker_id, topic.topic_id, partition.partition_index)
                if at is not None:
                    record = _assignment(cluster, request.broker_id, assigned, online, at)
                    if record is not None:
                        records.append(record)
                    if not online:
                        offline[at.topic.topic_id, at.partition_id] = at
                results.append(AssignedPartitionResult(partition_index=partition.partition_index, error_code=error))
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
    return cluster.change(at, wish, acceptable, elr=not cluster.rules.has(Quirk.ELR_WIPE))
