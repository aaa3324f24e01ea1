"""The state after the records of a metadata log, the effect of each record, and the state as records of a snapshot.

If the controller checks more strictly than brokers, the checks are the controller's: a controller that replayed the
earlier records could not have written a record that fails one of them (docs/spec/replay.md).

Source of the snapshot: Kafka's ``image.MetadataImage.write``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jbod_model.errors import ReplayViolation
from jbod_model.formats.metadata_version import (
    ELR_FEATURE,
    METADATA_VERSION,
    controllers_register,
    cordons_supported,
    directories_supported,
    partition_record_version,
    register_broker_record_version,
)
from jbod_model.formats.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnknownRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    VersionedRecord,
    ZkMigrationStateRecord,
)
from jbod_model.ids import KAFKA_IDS, IdTable, Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.registrations import (
    BrokerRegistration,
    IllegalRecord,
    Partition,
    Rewrite,
    check_directory_owners,
    registered,
    rewrite_of,
)

__all__ = ["BrokerRegistration", "Image", "Partition", "Topic"]

TOPIC_RESOURCE = 2

WITHOUT_EFFECT = frozenset(
    {
        # Offsets and transactions; jbod_model.replay.transactions removes hidden records before the replay.
        NoOpRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        # These do not affect the location of replicas.
        DelegationTokenRecord,
        RemoveDelegationTokenRecord,
        UserScramCredentialRecord,
        RemoveUserScramCredentialRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        ZkMigrationStateRecord,
        UnknownRecord,
    }
)
"""Records that leave the image as it is (R-REPLAY-3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its partitions by number."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, Partition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The whole state at one offset. ``apply`` returns the next image, which shares unchanged mappings (R-REPLAY-4).

    Source: Kafka's ``image.MetadataImage`` and, for the checks, its ``controller`` package.
    """

    ids: IdTable = KAFKA_IDS
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[Uuid, Topic] = field(default_factory=dict)
    """In the order of their creation."""
    topic_ids: Mapping[str, Uuid] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    """(resource type, resource name) -> key -> value; type 2 is a topic, 4 a broker (name "" all of them)."""
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=dict)

    def apply(self, record: Record, offset: int, *, profile: Profile = KAFKA) -> Image:
        """The image after ``record``; ReplayViolation if no controller could have written it here (R-REPLAY-1)."""
        if type(record) in WITHOUT_EFFECT:
            return self
        try:
            return HANDLERS[type(record)](self, record, profile)
        except IllegalRecord as problem:
            raise ReplayViolation(offset, f"{type(record).__name__}: {problem}") from None

    def emptied(self) -> Image:
        """The empty image that a snapshot is applied to: a snapshot replaces everything before it (R-REPLAY-2)."""
        return Image(ids=self.ids)

    def topic(self, name: str) -> Topic | None:
        """The topic with this name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: Uuid, partition_id: int) -> Partition | None:
        """A partition of the topic with this id."""
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_id)


# BROKERS


def _register_broker(image: Image, record: RegisterBrokerRecord, profile: Profile) -> Image:
    """R-BROKER-1, R-BROKER-8 and, in the draft, R-DRAFT-1 and R-DRAFT-2."""
    after = BrokerRegistration.from_record(record)
    check_directory_owners(image.brokers, after)
    if profile.logical_rewrites and record.broker_id in image.brokers:
        rewrite = rewrite_of(image.brokers[record.broker_id], after)
        if rewrite is not None:
            image = _rewrite_directories(image, rewrite)
    return _with_broker(image, after)


def _unregister_broker(image: Image, record: UnregisterBrokerRecord, _: Profile) -> Image:
    """R-BROKER-2."""
    registered(image.brokers, record.broker_id, record.broker_epoch)
    return replace(image, brokers=_without(image.brokers, record.broker_id))


def _fence_broker(image: Image, record: FenceBrokerRecord | UnfenceBrokerRecord, _: Profile) -> Image:
    """R-BROKER-3."""
    broker = registered(image.brokers, record.id, record.epoch)
    return _with_broker(image, replace(broker, fenced=isinstance(record, FenceBrokerRecord)))


def _change_broker(image: Image, record: BrokerRegistrationChangeRecord, profile: Profile) -> Image:
    """R-BROKER-4, R-BROKER-5, R-BROKER-6, R-BROKER-7, R-BROKER-8."""
    after = registered(image.brokers, record.broker_id, record.broker_epoch).merge(record, profile)
    check_directory_owners(image.brokers, after)
    return _with_broker(image, after)


def _with_broker(image: Image, registration: BrokerRegistration) -> Image:
    return replace(image, brokers={**image.brokers, registration.broker_id: registration})


def _rewrite_directories(image: Image, rewrite: Rewrite) -> Image:
    """The draft's rewrite of the broker's replicas. Unchanged partitions stay the same objects (R-REPLAY-4)."""
    topics = dict(image.topics)
    for topic_id, topic in image.topics.items():
        changed = {}
        for number, partition in topic.partitions.items():
            directories = tuple(
                rewrite.directory(directory, image.ids) if broker_id == rewrite.broker_id else directory
                for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
            )
            if directories != partition.directories:
                changed[number] = replace(partition, directories=directories)
        if changed:
            topics[topic_id] = replace(topic, partitions={**topic.partitions, **changed})
    return replace(image, topics=topics)


# TOPICS AND PARTITIONS


def _create_topic(image: Image, record: TopicRecord, _: Profile) -> Image:
    """R-TOPIC-1."""
    if record.name in image.topic_ids:
        raise IllegalRecord(f"topic {record.name} exists already, as {image.topic_ids[record.name]}")
    if record.topic_id in image.topics:
        raise IllegalRecord(f"topic id {record.topic_id} is of topic {image.topics[record.topic_id].name}")
    return replace(
        image,
        topics={**image.topics, record.topic_id: Topic(name=record.name, topic_id=record.topic_id)},
        topic_ids={**image.topic_ids, record.name: record.topic_id},
    )


def _remove_topic(image: Image, record: RemoveTopicRecord, _: Profile) -> Image:
    """R-TOPIC-2: the topic's configuration is removed, too."""
    topic = _existing(image, record.topic_id)
    return replace(
        image,
        topics=_without(image.topics, record.topic_id),
        topic_ids=_without(image.topic_ids, topic.name),
        configs=_without(image.configs, (TOPIC_RESOURCE, topic.name)),
    )


def _set_partition(image: Image, record: PartitionRecord, profile: Profile) -> Image:
    """R-PART-1: this also applies to an existing partition."""
    topic = _existing(image, record.topic_id)
    try:
        partition = Partition.from_record(record, image.ids, profile)
    except IllegalRecord as problem:
        raise IllegalRecord(f"{topic.name}-{record.partition_id}: {problem}") from None
    return _with_partition(image, topic, record.partition_id, partition)


def _change_partition(image: Image, record: PartitionChangeRecord, profile: Profile) -> Image:
    """R-MERGE-1, R-MERGE-2, R-MERGE-3, R-MERGE-4, R-MERGE-5, R-MERGE-6, R-MERGE-7."""
    topic = _existing(image, record.topic_id)
    before = topic.partitions.get(record.partition_id)
    if before is None:
        raise IllegalRecord(f"{topic.name}-{record.partition_id}: there is no such partition")
    try:
        after = before.merge(record, image.ids, profile)
    except IllegalRecord as problem:
        raise IllegalRecord(f"{topic.name}-{record.partition_id}: {problem}") from None
    return _with_partition(image, topic, record.partition_id, after)


def _clear_elr(image: Image, record: ClearElrRecord, profile: Profile) -> Image:
    """R-CLEAR-1: partitions with eligible leaders change, and so does their epoch; the others do not."""
    if record.topic_name and record.topic_name not in image.topic_ids:
        raise IllegalRecord(f"there is no topic {record.topic_name}")
    clear = PartitionChangeRecord(eligible_leader_replicas=(), last_known_elr=())
    topics = dict(image.topics)
    for topic_id, topic in image.topics.items():
        if record.topic_name in ("", topic.name):
            cleared = {
                number: partition.merge(clear, image.ids, profile)
                if partition.eligible_leader_replicas or partition.last_known_elr
                else partition
                for number, partition in topic.partitions.items()
            }
            topics[topic_id] = replace(topic, partitions=cleared)
    return replace(image, topics=topics)


def _existing(image: Image, topic_id: Uuid) -> Topic:
    topic = image.topics.get(topic_id)
    if topic is None:
        raise IllegalRecord(f"there is no topic {topic_id}")
    return topic


def _with_partition(image: Image, topic: Topic, number: int, partition: Partition) -> Image:
    changed = replace(topic, partitions={**topic.partitions, number: partition})
    return replace(image, topics={**image.topics, topic.topic_id: changed})


# THE REST

_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,10}\s*", re.ASCII)


def is_number(text: str) -> bool:
    """Whether Kafka parses the value as an integer: 32 bits, with or without spaces around it."""
    return _NUMBER.fullmatch(text) is not None and -(1 << 31) <= int(text) < 1 << 31


def min_isr_of(value: str | None) -> int | None:
    """The min.insync.replicas that a configuration sets; None if it sets none, as brokers ignore it (R-CFG-7)."""
    return int(value) if value is not None and is_number(value) and int(value) > 0 else None


def _set_config(image: Image, record: ConfigRecord, _: Profile) -> Image:
    """R-CONFIG-1."""
    resource = (record.resource_type, record.resource_name)
    values = dict(image.configs.get(resource, {}))
    values.pop(record.name, None)
    if record.value is not None:
        values[record.name] = record.value
    configs = {**image.configs, resource: values}
    return replace(image, configs=configs if values else _without(configs, resource))


def _set_feature(image: Image, record: FeatureLevelRecord, _: Profile) -> Image:
    """R-FEATURE-1."""
    if record.feature_level == 0:
        return replace(image, features=_without(image.features, record.name))
    return replace(image, features={**image.features, record.name: record.feature_level})


def _register_controller(image: Image, record: RegisterControllerRecord, _: Profile) -> Image:
    """R-CONTROLLER-1."""
    return replace(image, controllers={**image.controllers, record.controller_id: record})


def _unregister_controller(image: Image, record: UnregisterControllerRecord, _: Profile) -> Image:
    """R-CONTROLLER-2."""
    if record.controller_id not in image.controllers:
        raise IllegalRecord(f"controller {record.controller_id} is not registered (R-CONTROLLER-2)")
    return replace(image, controllers=_without(image.controllers, record.controller_id))


def _without(mapping: Mapping[Any, Any], key: Any) -> Mapping[Any, Any]:
    return {kept: value for kept, value in mapping.items() if kept != key}


HANDLERS: Mapping[type[Record], Callable[[Image, Any, Profile], Image]] = {
    RegisterBrokerRecord: _register_broker,
    UnregisterBrokerRecord: _unregister_broker,
    FenceBrokerRecord: _fence_broker,
    UnfenceBrokerRecord: _fence_broker,
    BrokerRegistrationChangeRecord: _change_broker,
    TopicRecord: _create_topic,
    RemoveTopicRecord: _remove_topic,
    PartitionRecord: _set_partition,
    PartitionChangeRecord: _change_partition,
    ClearElrRecord: _clear_elr,
    ConfigRecord: _set_config,
    FeatureLevelRecord: _set_feature,
    RegisterControllerRecord: _register_controller,
    UnregisterControllerRecord: _unregister_controller,
}
"""The handler of each record type that changes the image."""


def snapshot_records(image: Image) -> Iterator[VersionedRecord]:
    """Features first, then brokers, controllers, topics with their partitions, configuration (R-SNAP-1).

    As in Kafka, directories are dropped below metadata.version 3.7-IV2, and cordons below 4.3-IV0 (R-SNAP-2).
    """
    level = image.features.get(METADATA_VERSION, 0)
    with_elr = image.features.get(ELR_FEATURE, 0) > 0
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield VersionedRecord(FeatureLevelRecord(name=name, feature_level=image.features[name]), 0)
    for broker in image.brokers.values():
        yield VersionedRecord(_register(broker, level), register_broker_record_version(level))
    if controllers_register(level):
        for controller in image.controllers.values():
            yield VersionedRecord(controller, 0)
    for topic in image.topics.values():
        yield VersionedRecord(TopicRecord(name=topic.name, topic_id=topic.topic_id), 0)
        for number, partition in topic.partitions.items():
            record = _partition(topic.topic_id, number, partition, level, with_elr=with_elr)
            yield VersionedRecord(record, partition_record_version(level))
    for (resource_type, resource_name), values in image.configs.items():
        for key, value in values.items():
            yield VersionedRecord(
                ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=key, value=value), 0
            )


def _register(broker: BrokerRegistration, level: int) -> RegisterBrokerRecord:
    version = register_broker_record_version(level)
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker and version >= 2,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=broker.listeners,
        features=broker.features,
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.directories if directories_supported(level) else (),
        cordoned_log_dirs=broker.cordoned_directories if cordons_supported(level) else None,
    )


def _partition(topic_id: Uuid, number: int, partition: Partition, level: int, *, with_elr: bool) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories if directories_supported(level) else (),
        eligible_leader_replicas=(partition.eligible_leader_replicas or None) if with_elr else None,
        last_known_elr=(partition.last_known_elr or None) if with_elr else None,
    )
