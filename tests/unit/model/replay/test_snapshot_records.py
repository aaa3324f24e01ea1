"""What a snapshot writes of an image, and what the drafts rewrite when a broker registers."""

from __future__ import annotations

import pytest

from jbod_model.formats.metadata_version import LEVELS
from jbod_model.formats.records import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image, snapshot_records
from jbod_model.replay.registrations import BrokerRegistration, Partition, Rewrite, rewrite_of

TOPIC = Uuid(7, 7)
A, B, C = (Uuid(n, n) for n in (11, 12, 13))


@pytest.mark.parametrize(
    ("elr", "eligible", "last_known", "written"),
    [
        (1, (2,), (3,), ((2,), (3,))),
        (1, (), (), (None, None)),
        (0, (2,), (3,), (None, None)),
    ],
)
def test_snapshot_has_eligible_leaders_only_where_the_feature_is_on_and_there_are_some(
    elr: int, eligible: tuple[int, ...], last_known: tuple[int, ...], written: tuple[object, object]
) -> None:
    image = Image()
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=max(LEVELS.values())),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=elr),
        TopicRecord(name="t", topic_id=TOPIC),
        PartitionRecord(
            topic_id=TOPIC,
            partition_id=0,
            replicas=(1, 2, 3),
            isr=(1,),
            leader=1,
            directories=(A, B, C),
            eligible_leader_replicas=eligible,
            last_known_elr=last_known,
        ),
    ]
    for offset, record in enumerate(records):
        image = image.apply(record, offset)
    (partition,) = (
        versioned.record for versioned in snapshot_records(image) if isinstance(versioned.record, PartitionRecord)
    )
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == written


def registration(*directories: Uuid) -> BrokerRegistration:
    return BrokerRegistration(broker_id=1, epoch=1, incarnation_id=Uuid(1, 1), directories=directories)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((A, B), (A, B), None),
        ((A, B), (A, B, C), None),
        ((A, B), (A,), Rewrite(broker_id=1, all_in=None, lost=frozenset({B}))),
        ((A,), (A, B), Rewrite(broker_id=1, all_in=A, lost=frozenset())),
    ],
)
def test_registration_rewrites_only_replicas_of_a_directory_that_went_or_was_the_only_one(
    before: tuple[Uuid, ...], after: tuple[Uuid, ...], expected: Rewrite | None
) -> None:
    """R-DRAFT-1, R-DRAFT-2."""
    assert rewrite_of(registration(*before), registration(*after)) == expected


def test_snapshot_begins_with_the_metadata_version_and_has_the_other_features_by_name() -> None:
    """R-SNAP-1: records after the version are read by its rules."""
    image = Image()
    for name in ("share.version", "metadata.version", "group.version", "eligible.leader.replicas.version"):
        image = image.apply(FeatureLevelRecord(name=name, feature_level=max(LEVELS.values())), 0)
    names = [
        versioned.record.name
        for versioned in snapshot_records(image)
        if isinstance(versioned.record, FeatureLevelRecord)
    ]
    assert names == ["metadata.version", "eligible.leader.replicas.version", "group.version", "share.version"]


@pytest.mark.parametrize(
    ("level", "directories", "cordoned"),
    [("3.7-IV1", (), None), ("3.7-IV2", (A,), None), ("4.2-IV1", (A,), None), ("4.3-IV0", (A,), (A,))],
)
def test_snapshot_leaves_out_what_its_metadata_version_cannot_record(
    level: str, directories: tuple[Uuid, ...], cordoned: tuple[Uuid, ...] | None
) -> None:
    """R-SNAP-2."""
    image = Image()
    for offset, record in enumerate(
        (
            FeatureLevelRecord(name="metadata.version", feature_level=LEVELS[level]),
            RegisterBrokerRecord(broker_id=1, incarnation_id=Uuid(1, 1), log_dirs=(A,), cordoned_log_dirs=(A,)),
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1,), isr=(1,), leader=1, directories=(A,)),
        )
    ):
        image = image.apply(record, offset)
    records = [versioned.record for versioned in snapshot_records(image)]
    (broker,) = (candidate for candidate in records if isinstance(candidate, RegisterBrokerRecord))
    (partition,) = (candidate for candidate in records if isinstance(candidate, PartitionRecord))
    assert (broker.log_dirs, broker.cordoned_log_dirs, partition.directories) == (directories, cordoned, directories)


@pytest.mark.parametrize(
    ("level", "version", "migrating", "controllers"),
    [("3.3-IV3", 1, False, 0), ("3.4-IV0", 2, True, 0), ("3.7-IV0", 2, True, 1), ("3.7-IV2", 3, True, 1)],
)
def test_snapshot_of_an_old_cluster_has_the_records_of_its_time(
    level: str, version: int, migrating: bool, controllers: int
) -> None:
    """R-SNAP-1, R-SNAP-2: a broker in ZooKeeper mode from version 2 on, controllers from 3.7-IV0 on."""
    image = Image()
    for offset, record in enumerate(
        (
            FeatureLevelRecord(name="metadata.version", feature_level=LEVELS[level]),
            RegisterBrokerRecord(broker_id=1, incarnation_id=Uuid(1, 1), is_migrating_zk_broker=True),
            RegisterControllerRecord(controller_id=100),
        )
    ):
        image = image.apply(record, offset)
    records = list(snapshot_records(image))
    ((broker, written),) = (
        (versioned.record, versioned.version)
        for versioned in records
        if isinstance(versioned.record, RegisterBrokerRecord)
    )
    assert (broker.is_migrating_zk_broker, written) == (migrating, version)
    assert sum(isinstance(versioned.record, RegisterControllerRecord) for versioned in records) == controllers


def test_snapshot_without_a_metadata_version_is_of_the_oldest() -> None:
    image = Image().apply(RegisterBrokerRecord(broker_id=1, incarnation_id=Uuid(1, 1)), 0)
    assert [versioned.version for versioned in snapshot_records(image)] == [1]


def test_partition_that_no_record_describes_has_neither_leader_nor_epoch() -> None:
    partition = Partition(replicas=(1,), directories=(A,), isr=())
    assert (partition.leader, partition.leader_recovery_state) == (-1, 0)
    assert (partition.leader_epoch, partition.partition_epoch) == (-1, -1)


def test_directory_of_a_broker_without_a_replica_is_a_key_error() -> None:
    partition = Partition(replicas=(1, 2), directories=(A, B), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
    assert partition.directory(2) == B
    with pytest.raises(KeyError, match="3"):
        partition.directory(3)


def test_registration_that_no_record_describes_is_fenced() -> None:
    broker = BrokerRegistration(broker_id=1, epoch=1, incarnation_id=Uuid(1, 1))
    assert (broker.fenced, broker.in_controlled_shutdown, broker.is_migrating_zk_broker) == (True, False, False)
