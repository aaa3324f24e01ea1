"""An image as the records of a snapshot, in the versions that its metadata.version writes (docs/spec/replay.md).

Source: Kafka's ``image.MetadataImage.write``.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image
from jbod_model.replay.registrations import BrokerRegistration, Partition


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
