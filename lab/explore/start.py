"""The first state of every search: running brokers, and a topic that was just created on all of them."""

from __future__ import annotations

from collections.abc import Mapping

from jbod_model.formats.metadata_version import ELR_FEATURE, LEVELS, METADATA_VERSION
from jbod_model.formats.records import (
    BrokerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from jbod_model.ids import KAFKA_IDS, IdTable, Uuid
from jbod_model.profiles import REFERENCE, SUPPORTED_FEATURES, Profile
from jbod_model.replay.image import Image
from lab.explore.machine import NEW

TOPIC = Uuid(1, 1)
VERSION = LEVELS["4.1-IV1"]


def directory_ids(broker_id: int, count: int) -> tuple[Uuid, ...]:
    """The ids of a broker's directories, ascending."""
    return tuple(Uuid(1000 + broker_id, 1000 + i) for i in range(count))


def first_image(
    profile: Profile,
    names: Mapping[int, tuple[Uuid, ...]],
    partitions: int,
    *,
    elr: bool,
    ids: IdTable = KAFKA_IDS,
    replication: int = 0,
    migrating: bool = False,
) -> Image:
    """Brokers registered and unfenced, one topic on all of them with the directories that the profile gives.

    ``replication`` is the number of brokers of each partition. With ``migrating`` the cluster knows no directories yet.
    """
    image = Image(ids=ids)
    rules = profile.controller
    features = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=VERSION)]
    if elr:
        features.append(FeatureLevelRecord(name=ELR_FEATURE, feature_level=1))
    records: list[FeatureLevelRecord | RegisterBrokerRecord | TopicRecord | PartitionRecord] = [*features]
    ranges = tuple(
        BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
        for name, (least, most) in SUPPORTED_FEATURES[REFERENCE].items()
    )
    for broker_id, own in names.items():
        records.append(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=broker_id,
                incarnation_id=NEW,
                fenced=False,
                log_dirs=() if migrating else own,
                features=ranges,
            )
        )
    records.append(TopicRecord(name="t", topic_id=TOPIC))
    brokers = tuple(names)
    directories = tuple(
        ids.migrating
        if migrating
        else own[0]
        if len(own) == 1 and rules.preselects_single_directory
        else ids.unassigned
        for own in names.values()
    )
    for number in range(partitions):
        order = brokers[number % len(brokers) :] + brokers[: number % len(brokers)]
        order = order[: replication or len(order)]
        placed = tuple(directories[brokers.index(b)] for b in order)
        records.append(
            PartitionRecord(
                partition_id=number,
                topic_id=TOPIC,
                replicas=order,
                isr=order,
                leader=order[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=placed,
            )
        )
    for record in records:
        image = image.apply(record, 0, profile=profile)
    return image
