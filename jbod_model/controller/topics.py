"""Handles the creation and deletion of topics and partitions, and changes of what elections depend on.

That is the configuration (docs/spec/controller.md), of which only values that affect elections are validated.

Source: the topic methods of Kafka's ``ReplicationControlManager``; ``ConfigurationControlManager``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from jbod_model.controller.cluster import MIN_ISR, UNCLEAN_ELECTION, Cluster
from jbod_model.controller.context import Result, first_partition
from jbod_model.controller.partition_change import RECOVERED
from jbod_model.controller.placement import UsableBroker, place
from jbod_model.formats.metadata_version import directories_supported, partition_record_version
from jbod_model.formats.records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import (
    BROKER_RESOURCE,
    CONFIG_DELETE,
    CONFIG_SET,
    TOPIC_RESOURCE,
    AlterConfigsResource,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
)
from jbod_model.formats.responses import (
    AlterConfigsResult,
    ControllerFault,
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
    IncrementalAlterConfigsResponse,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    KafkaError,
    PolicyViolation,
    RequestRefused,
    TopicExists,
    UnknownTopicOrPartition,
)
from jbod_model.ids import Uuid
from jbod_model.java import JavaRandom, hash_order, int32, string_hash
from jbod_model.profiles import Quirk
from jbod_model.replay.image import Topic, is_number

MAX_PARTITIONS_PER_REQUEST = 10_000
LONGEST_TOPIC_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def create_topics(cluster: Cluster, request: CreateTopicsRequest) -> Result:
    """Create each topic that can be created; the answer has the errors of the others (R-CREATE-1)."""
    _check_size(cluster, request)
    random = JavaRandom.resume(cluster.context.random_state)
    topic_ids = iter(cluster.context.new_topic_ids)
    records: list[VersionedRecord] = []
    results: list[CreatableTopicResult] = []
    for topic in request.topics:
        try:
            if sum(other.name == topic.name for other in request.topics) > 1:
                raise InvalidRequest(f"topic {topic.name} is named twice in one request")
            _check_name(cluster, topic.name)
            configs = new_topic_configs(cluster, topic)
            replicas = _replicas_of_new_topic(cluster, topic, random)
            topic_id = next(topic_ids, None)
            if topic_id is None:
                raise InvalidRequest(f"no id was given for topic {topic.name}: add one to new_topic_ids")
        except RequestRefused as refused:
            results.append(
                CreatableTopicResult(name=topic.name, error_code=refused.code, error_message=refused.problem)
            )
            continue
        records.append(VersionedRecord(TopicRecord(name=topic.name, topic_id=topic_id), 0))
        records += configs
        records += [_new_partition(cluster, topic_id, index, replicas[index]) for index in range(len(replicas))]
        results.append(
            CreatableTopicResult(
                name=topic.name,
                topic_id=topic_id,
                num_partitions=len(replicas),
                replication_factor=len(replicas[0]),
            )
        )
    return Result(
        records=() if request.validate_only else tuple(records),
        response=CreateTopicsResponse(topics=tuple(results)),
        random_state=random.state,
    )


def _check_size(cluster: Cluster, request: CreateTopicsRequest) -> None:
    """Check that a request asks for at most 10,000 partitions in all (R-CREATE-5)."""
    partitions = 0
    for topic in request.topics:
        if topic.assignments:
            partitions += len(topic.assignments)
        elif topic.num_partitions == -1:
            partitions += cluster.context.default_num_partitions
        elif topic.num_partitions > 0:
            partitions += topic.num_partitions
    if cluster.rules.has(Quirk.PARTITION_COUNT_OVERFLOW):
        partitions = int32(partitions)
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolation(f"{partitions} partitions in one request; at most {MAX_PARTITIONS_PER_REQUEST} are taken")


def _check_name(cluster: Cluster, name: str) -> None:
    """Check that the name is legal and that no topic has it, even with ``.`` and ``_`` exchanged (R-CREATE-2)."""
    present = cluster.image.topic_ids
    if name in present:
        raise TopicExists(f"topic {name} exists")
    if name in (".", "..") or len(name) > LONGEST_TOPIC_NAME or not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicName(f"{name!r} is not a topic name: use 1 to 249 letters, digits, '.', '_' and '-'")
    for other in present:
        if other.replace(".", "_") == name.replace(".", "_"):
            raise InvalidTopicName(f"topic {name} differs from topic {other} only in '.' and '_'")


def _replicas_of_new_topic(cluster: Cluster, topic: CreatableTopic, random: JavaRandom) -> list[tuple[int, ...]]:
    """The replicas of each partition, from the request or the placer."""
    if topic.assignments:
        return _assigned(cluster, topic)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise InvalidReplicationFactor("the replication factor must be positive, or -1 for the default")
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise InvalidPartitions("the number of partitions must be positive, or -1 for the default")
    context = cluster.context
    if topic.num_partitions > MAX_PARTITIONS_PER_REQUEST:  # R-QUIRK-10
        raise ControllerFault(f"{topic.num_partitions} partitions are too many for the controller's memory")
    placed = place(
        usable_brokers(cluster),
        context.default_num_partitions if topic.num_partitions == -1 else topic.num_partitions,
        context.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor,
        random,
    )
    for replicas in placed:
        _check_some_active(cluster, replicas, InvalidReplicationFactor)
    return placed


def _assigned(cluster: Cluster, topic: CreatableTopic) -> list[tuple[int, ...]]:
    """Check a manual assignment: both numbers unset, partitions 0, 1, ..., all of the same size (R-CREATE-4)."""
    if topic.replication_factor != -1:
        raise InvalidRequest("an assignment was given, so the replication factor must be -1")
    if topic.num_partitions != -1:
        raise InvalidRequest("an assignment was given, so the number of partitions must be -1")
    by_index: dict[int, tuple[int, ...]] = {}
    size: int | None = None
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            raise InvalidReplicaAssignment(f"partition {assignment.partition_index} is assigned twice")
        check_assignment(cluster, assignment.broker_ids, size)
        size = len(assignment.broker_ids)
        _check_some_active(cluster, assignment.broker_ids, InvalidReplicaAssignment)
        by_index[assignment.partition_index] = assignment.broker_ids
    if sorted(by_index) != list(range(len(by_index))):
        raise InvalidReplicaAssignment("the partitions of an assignment must be 0, 1, 2 and so on")
    return [by_index[index] for index in range(len(by_index))]


def check_assignment(cluster: Cluster, replicas: Sequence[int], size: int | None) -> None:
    """Check the replicas: registered brokers with an uncordoned directory, none twice, ``size`` if known
    (R-CREATE-4)."""
    if not replicas:
        raise InvalidReplicaAssignment("a partition is assigned to no broker")
    for broker_id in sorted(replicas):
        if broker_id not in cluster.image.brokers:
            raise InvalidReplicaAssignment(f"broker {broker_id} is not registered")
        if not (cluster.rules.has(Quirk.CORDONED_ASSIGNMENT) or cluster.takes_replicas(broker_id)):
            raise InvalidReplicaAssignment(f"all directories of broker {broker_id} are cordoned")
        if replicas.count(broker_id) > 1:
            raise InvalidReplicaAssignment(f"broker {broker_id} is assigned twice to one partition")
    if size is not None and len(replicas) != size:
        raise InvalidReplicaAssignment(f"a partition has {len(replicas)} replicas, the ones before it {size}")


def _check_some_active(cluster: Cluster, replicas: Sequence[int], error: type[RequestRefused]) -> None:
    if not any(cluster.active(broker_id) for broker_id in replicas):
        raise error(f"all of brokers {list(replicas)} are fenced or shutting down")


def usable_brokers(cluster: Cluster) -> list[UsableBroker]:
    """Brokers that can receive replicas: not shutting down (fencing ends that), and not all cordoned (R-PLACE-3)."""
    if cluster.context.usable_brokers is not None:
        return [broker for broker in cluster.context.usable_brokers if cluster.takes_replicas(broker.id)]
    return [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in sorted(cluster.image.brokers.values(), key=lambda broker: broker.broker_id)
        if (broker.fenced or not broker.in_controlled_shutdown) and broker.takes_replicas
    ]


def _new_partition(cluster: Cluster, topic_id: Uuid, index: int, replicas: tuple[int, ...]) -> VersionedRecord:
    """The record of a new partition: its active replicas are in sync, and the first of them leads (R-CREATE-6,
    R-NEWDIR-1)."""
    level = cluster.metadata_version
    in_sync = tuple(broker_id for broker_id in replicas if cluster.active(broker_id))
    directories = tuple(cluster.default_dir(broker_id) for broker_id in replicas)
    record = PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=in_sync,
        leader=in_sync[0],
        leader_recovery_state=RECOVERED,
        leader_epoch=0,
        partition_epoch=0,
        directories=directories if directories_supported(level) else (),
    )
    return VersionedRecord(record, partition_record_version(level))


def create_partitions(cluster: Cluster, request: CreatePartitionsRequest) -> Result:
    """Add partitions to each topic that allows it; the answer has the errors of the others (R-CREATE-3, R-CREATE-5)."""
    bounded = not cluster.rules.has(Quirk.UNBOUNDED_GROWTH)
    if bounded:
        _check_growth(cluster, request)
    random = JavaRandom.resume(cluster.context.random_state)
    records: list[VersionedRecord] = []
    results: list[CreatePartitionsTopicResult] = []
    for growth in request.topics:
        code, message = 0, None
        added: list[VersionedRecord] = []
        try:
            _grow(cluster, growth, random, added, room=MAX_PARTITIONS_PER_REQUEST - len(records))
        except RequestRefused as refused:
            code, message = refused.code.value, refused.problem
            if not cluster.rules.has(Quirk.PARTIAL_GROWTH):
                added = []
        records += added
        results.append(CreatePartitionsTopicResult(name=growth.name, error_code=code, error_message=message))
    return Result(
        records=() if request.validate_only else tuple(records),
        response=CreatePartitionsResponse(results=tuple(results)),
        random_state=random.state,
    )


def _check_growth(cluster: Cluster, request: CreatePartitionsRequest) -> None:
    """Check that a request adds at most 10,000 partitions in all (R-CREATE-5)."""
    added = 0
    for growth in request.topics:
        topic = cluster.image.topic(growth.name)
        if topic is not None:
            added += max(growth.count - len(topic.partitions), 0)
    if added > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolation(f"{added} more partitions in one request; at most {MAX_PARTITIONS_PER_REQUEST} are taken")


def _grow(
    cluster: Cluster, growth: CreatePartitionsTopic, random: JavaRandom, added: list[VersionedRecord], *, room: int
) -> None:
    """Append the record of each added partition; if one is refused, the records before it remain.

    Kafka's list of records is bounded. Without an earlier check, Kafka fails when the list is full (R-QUIRK-9).
    """
    topic = cluster.image.topic(growth.name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {growth.name}")
    first = len(topic.partitions)
    for index, replicas in enumerate(_replicas_of_added(cluster, topic, growth, random)):
        _check_some_active(cluster, replicas, InvalidReplicationFactor)
        if len(added) == room:
            raise ControllerFault(f"the controller takes {MAX_PARTITIONS_PER_REQUEST} records of one request")
        added.append(_new_partition(cluster, topic.topic_id, first + index, replicas))


def _replicas_of_added(
    cluster: Cluster, topic: Topic, growth: CreatePartitionsTopic, random: JavaRandom
) -> list[tuple[int, ...]]:
    """The replicas of each added partition, as many as the partition that stands for the topic has (R-CREATE-9)."""
    present = len(topic.partitions)
    if growth.count <= present:
        raise InvalidPartitions(f"topic {topic.name} has {present} partitions; {growth.count} would be no increase")
    additional = growth.count - present
    if growth.assignments is not None and len(growth.assignments) != additional:
        raise InvalidReplicaAssignment(f"{len(growth.assignments)} assignments for {additional} new partitions")
    memory = cluster.context.memory
    table = None if memory is None else memory.table(topic.topic_id)
    size = len(first_partition(topic.partitions, table).replicas)
    if growth.assignments is None:
        return place(usable_brokers(cluster), min(additional, MAX_PARTITIONS_PER_REQUEST + 1), size, random)
    for assignment in growth.assignments:
        check_assignment(cluster, assignment.broker_ids, size)
        _check_some_active(cluster, assignment.broker_ids, InvalidReplicaAssignment)
    return [assignment.broker_ids for assignment in growth.assignments]


def delete_topics(cluster: Cluster, request: DeleteTopicsRequest) -> Result:
    """Delete each existing topic that is requested once; a topic that is requested twice has one answer
    (R-CREATE-7)."""
    records: list[VersionedRecord] = []
    results: list[DeletableTopicResult] = []
    for topic_id, count in Counter(request.topic_ids).items():
        if count > 1:
            results.append(DeletableTopicResult(topic_id=topic_id, error_code=KafkaError.INVALID_REQUEST))
        elif topic_id in cluster.image.topics:
            records.append(VersionedRecord(RemoveTopicRecord(topic_id=topic_id), 0))
            results.append(DeletableTopicResult(topic_id=topic_id))
        else:
            results.append(DeletableTopicResult(topic_id=topic_id, error_code=KafkaError.UNKNOWN_TOPIC_ID))
    return Result(records=tuple(records), response=DeleteTopicsResponse(responses=tuple(results)))


LONGEST_VALUE = 32_767


def alter_configs(cluster: Cluster, request: IncrementalAlterConfigsRequest) -> Result:
    """Change each resource whose changes are all allowed. A new minimum in-sync size clears ELRs (R-CFG-4)."""
    records: list[VersionedRecord] = []
    results: list[AlterConfigsResult] = []
    for resource in request.resources:
        code, message = 0, None
        try:
            records += _changes(cluster, resource)
        except RequestRefused as refused:
            code, message = refused.code.value, refused.problem
        results.append(
            AlterConfigsResult(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error_code=code,
                error_message=message,
            )
        )
    records += clear_elr_records(cluster, records)
    return Result(
        records=() if request.validate_only else tuple(records),
        response=IncrementalAlterConfigsResponse(responses=tuple(results)),
    )


def new_topic_configs(cluster: Cluster, topic: CreatableTopic) -> list[VersionedRecord]:
    """The configuration records of a new topic, in Kafka's order (R-CREATE-8)."""
    values: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"configuration {config.name} of topic {topic.name} has no value")
        values[config.name] = config.value
    records = [
        _checked(
            cluster, ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=values[name])
        )
        for name in hash_order(values, string_hash)
    ]
    return [*records, *clear_elr_records(cluster, records)]


def clear_elr_records(cluster: Cluster, records: Iterable[VersionedRecord]) -> list[VersionedRecord]:
    """If eligible leader replicas are on, one ClearElrRecord for each change of the minimum in-sync size (R-CFG-4)."""
    if not cluster.elr_enabled:
        return []
    cleared = []
    for versioned in records:
        record = versioned.record
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR:
            topic_name = record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
            cleared.append(VersionedRecord(ClearElrRecord(topic_name=topic_name), 0))
    return cleared


def _changes(cluster: Cluster, resource: AlterConfigsResource) -> list[VersionedRecord]:
    """The records of one resource. An unchanged value is written only for brokers, which then reload it (R-CFG-5)."""
    if resource.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE):
        raise InvalidRequest(f"resource type {resource.resource_type} is neither a topic (2) nor a broker (4)")
    present = cluster.image.configs.get((resource.resource_type, resource.resource_name), {})
    records: list[VersionedRecord] = []
    for config in resource.configs:
        if config.config_operation not in (CONFIG_SET, CONFIG_DELETE):
            raise InvalidConfig(f"{config.name} is not a list: use operation 0 (set) or 1 (delete)")
        value = config.value if config.config_operation == CONFIG_SET else None
        if value == present.get(config.name) and resource.resource_type != BROKER_RESOURCE:
            continue
        record = ConfigRecord(
            resource_type=resource.resource_type, resource_name=resource.resource_name, name=config.name, value=value
        )
        records.append(_checked(cluster, record))
    if resource.resource_type == TOPIC_RESOURCE and cluster.image.topic(resource.resource_name) is None:
        raise UnknownTopicOrPartition(f"there is no topic {resource.resource_name}")
    return records


def _checked(cluster: Cluster, record: ConfigRecord) -> VersionedRecord:
    """The record of a change. Raises for the changes that are not allowed (R-CFG-2, R-CFG-6)."""
    if record.name == MIN_ISR and record.resource_type == BROKER_RESOURCE and cluster.elr_enabled:
        if record.resource_name:
            raise InvalidConfig(f"{MIN_ISR} of one broker cannot change while eligible leader replicas are on")
        if record.value is None:
            raise InvalidConfig(f"{MIN_ISR} of all brokers cannot be removed while eligible leader replicas are on")
    if record.value is not None and record.resource_type == TOPIC_RESOURCE:
        if record.name == MIN_ISR and not (is_number(record.value) and int(record.value) > 0):
            raise InvalidConfig(f"{MIN_ISR} is {record.value!r:.40}; use a number from 1 on")
        if record.name == UNCLEAN_ELECTION and record.value.strip().lower() not in ("true", "false"):
            raise InvalidConfig(f"{UNCLEAN_ELECTION} is {record.value!r:.40}; use true or false")
    if record.value is not None and len(record.value) > LONGEST_VALUE:
        raise InvalidConfig(f"the value of {record.name} has {len(record.value)} characters; at most {LONGEST_VALUE}")
    return VersionedRecord(record, 0)
