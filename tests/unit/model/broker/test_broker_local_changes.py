"""What a change of the metadata means for one broker: TopicsImageTest's local changes, and directories."""

from __future__ import annotations

from jbod_model.broker.assignments import Replica
from jbod_model.broker.replicas import ReplicaChange, assigned_directories, local_changes
from jbod_model.formats.records import PartitionChangeRecord, PartitionRecord, Record, RemoveTopicRecord, TopicRecord
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import KIP858_BROKER
from jbod_model.replay.image import Image

FOO, BAR = Uuid(1, 1), Uuid(2, 2)
A, B, C = Uuid(11, 1), Uuid(11, 2), Uuid(12, 1)


def image(*records: Record, before: Image | None = None) -> Image:
    after = before or Image()
    for record in records:
        after = after.apply(record, 0)
    return after


def partition(topic_id: Uuid, number: int, replicas: tuple[int, ...], directories: tuple[Uuid, ...]) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=directories,
    )


BEFORE = image(
    TopicRecord(name="foo", topic_id=FOO),
    partition(FOO, 0, (1, 2), (A, C)),
    partition(FOO, 1, (2, 1), (C, KAFKA_IDS.unassigned)),
    TopicRecord(name="bar", topic_id=BAR),
    partition(BAR, 0, (2,), (C,)),
)


def test_first_image_lists_every_replica_with_its_directory() -> None:
    """R-LOCAL-2: so a broker compares all of them when it starts."""
    changes, deletes = local_changes(Image(), BEFORE, 1)
    assert changes == (
        ReplicaChange(Replica(FOO, 0), True, A),
        ReplicaChange(Replica(FOO, 1), False, KAFKA_IDS.unassigned),
    )
    assert deletes == ()
    assert assigned_directories(BEFORE, 1) == {Replica(FOO, 0): A, Replica(FOO, 1): KAFKA_IDS.unassigned}


def test_same_image_changes_nothing() -> None:
    assert local_changes(BEFORE, BEFORE, 1) == ((), ())


def test_change_of_a_leader_lists_no_directory() -> None:
    """R-LOCAL-1: any change of the partition counts, R-LOCAL-2: but not as one of its directory."""
    after = image(PartitionChangeRecord(partition_id=0, topic_id=FOO, leader=2), before=BEFORE)
    assert local_changes(BEFORE, after, 1) == ((ReplicaChange(Replica(FOO, 0), False, None),), ())
    assert local_changes(BEFORE, after, 2)[0] == (ReplicaChange(Replica(FOO, 0), True, None),)


def test_change_of_any_directory_lists_the_own_one() -> None:
    """R-LOCAL-2: that is how brokers that did not restart come to report after an upgrade."""
    after = image(PartitionChangeRecord(partition_id=0, topic_id=FOO, directories=(B, C)), before=BEFORE)
    assert local_changes(BEFORE, after, 1)[0] == (ReplicaChange(Replica(FOO, 0), True, B),)
    assert local_changes(BEFORE, after, 2)[0] == (ReplicaChange(Replica(FOO, 0), False, C),)


def test_replica_that_is_taken_away_is_deleted_and_one_that_comes_is_new() -> None:
    """R-LOCAL-3, R-LOCAL-4, testLocalReassignmentChanges: Kafka does not look at the directory of the new one."""
    change = PartitionChangeRecord(partition_id=0, topic_id=BAR, replicas=(1,), directories=(B,), isr=(1,), leader=1)
    after = image(change, before=BEFORE)
    assert local_changes(BEFORE, after, 1) == ((ReplicaChange(Replica(BAR, 0), True, None),), ())
    assert local_changes(BEFORE, after, 1, KIP858_BROKER) == ((ReplicaChange(Replica(BAR, 0), True, B),), ())
    assert local_changes(BEFORE, after, 2) == ((), (Replica(BAR, 0),))


def test_topic_that_is_deleted_takes_its_replicas_along() -> None:
    """R-LOCAL-3, testDeleteAfterChanges."""
    after = image(RemoveTopicRecord(topic_id=FOO), before=BEFORE)
    assert local_changes(BEFORE, after, 1) == ((), (Replica(FOO, 0), Replica(FOO, 1)))
    assert local_changes(BEFORE, after, 3) == ((), ())


def test_partition_of_other_brokers_is_no_deletion() -> None:
    """R-LOCAL-3: only a broker that was a replica can have a log to delete."""
    change = PartitionChangeRecord(partition_id=0, topic_id=FOO, isr=(1,))
    assert local_changes(BEFORE, image(change, before=BEFORE), 9) == ((), ())
