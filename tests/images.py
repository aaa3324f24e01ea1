"""Lakes of given images: what a snapshot of one would hold, replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jbod_model.codec import encode
from jbod_model.image import Image
from jbod_model.profiles import KAFKA, Profile
from jbod_model.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from tests.lakes import write_lake
from tests.logs import Entry

VERSIONS = {"RegisterBrokerRecord": 3, "PartitionRecord": 2, "PartitionChangeRecord": 2}
VERSIONS["BrokerRegistrationChangeRecord"] = 2


def lake_of(path: Path, image: Image, profile: Profile = KAFKA) -> Path:
    """A lake at ``path`` whose newest state is ``image``."""
    write_lake(path, as_entries(*_records(image)), profile=profile)
    return path


def as_entries(*records: Record, first: int = 0) -> list[Entry]:
    """A log of these records, one a second."""
    made = []
    for offset, record in enumerate(records, first):
        versioned = VersionedRecord(record, VERSIONS.get(type(record).__name__, 0))
        made.append(Entry(offset, 1, 1_000_000 * offset, offset, encode(versioned), None, versioned))
    return made


def _records(image: Image) -> Iterator[Record]:
    for name, level in image.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield RegisterBrokerRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            incarnation_id=broker.incarnation_id,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=broker.directories,
        )
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for number, one in topic.partitions.items():
            yield PartitionRecord(
                topic_id=topic.topic_id,
                partition_id=number,
                replicas=one.replicas,
                directories=one.directories,
                isr=one.isr,
                removing_replicas=one.removing_replicas,
                adding_replicas=one.adding_replicas,
                leader=one.leader,
                leader_recovery_state=one.leader_recovery_state,
                leader_epoch=one.leader_epoch,
                partition_epoch=one.partition_epoch,
                eligible_leader_replicas=one.eligible_leader_replicas or None,
                last_known_elr=one.last_known_elr or None,
            )
    for (kind, name), values in image.configs.items():
        for key, value in values.items():
            yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
