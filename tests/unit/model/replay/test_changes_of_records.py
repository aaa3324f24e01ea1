"""The changes that a record makes, from the images before and after it."""

from __future__ import annotations

import pytest

from jbod_model.formats import records as r
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.replay.changes import StateChange, changes_between, why_gone
from jbod_model.replay.image import Image

D0, D1, D2, D3 = (Uuid(8, n) for n in range(4))
TOPIC, OTHER = Uuid(9, 1), Uuid(9, 2)


def registered(broker_id: int, *log_dirs: Uuid, fenced: bool = False, epoch: int = 0) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id=broker_id, broker_epoch=epoch or 10 * broker_id, fenced=fenced, log_dirs=log_dirs
    )


def created(topic: Uuid = TOPIC, *directories: Uuid, leader: int = 1) -> r.PartitionRecord:
    where = directories or (D0, D2)
    brokers = tuple(range(1, len(where) + 1))
    return r.PartitionRecord(
        topic_id=topic, partition_id=0, replicas=brokers, isr=brokers, leader=leader, directories=where
    )


def changed(**values: object) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **values)  # type: ignore[arg-type]


def image(*records: r.Record) -> Image:
    made = Image()
    for offset, record in enumerate(records):
        made = made.apply(record, offset)
    return made


CLUSTER = image(registered(1, D0, D1), registered(2, D2, D3), r.TopicRecord(name="t", topic_id=TOPIC), created())


def after(record: r.Record, before: Image = CLUSTER) -> list[StateChange]:
    return list(changes_between(before, before.apply(record, 99), record))


def brief(changes: list[StateChange]) -> list[tuple[object, ...]]:
    return [
        (change.what, change.broker_id, change.directory_id, change.before, change.after, change.why)
        for change in changes
    ]


def test_changes_of_several_brokers_are_in_the_order_of_their_ids() -> None:
    """R-EVENT-1: a set of 8 and 1 begins with 8."""
    many = image(registered(8, D0), registered(1, D1))
    broker_ids = [change.broker_id for change in changes_between(Image(), many, None)]
    assert broker_ids == sorted(broker_ids, key=lambda broker_id: broker_id or 0)
    assert {1, 8} <= set(broker_ids)


def test_registration_tells_epoch_fencing_directories_and_cordons() -> None:
    """R-EVENT-5, R-EVENT-6."""
    record = r.RegisterBrokerRecord(
        broker_id=3,
        broker_epoch=30,
        fenced=True,
        in_controlled_shutdown=True,
        log_dirs=(D1, D0),
        cordoned_log_dirs=(D1,),
    )
    assert brief(after(record, Image())) == [
        ("registration", 3, None, None, "30", "registered"),
        ("fencing", 3, None, None, "fenced", "registered"),
        ("controlled shutdown", 3, None, None, "shutting down", "registered"),
        ("directory", 3, D0, None, "online", "registered"),
        ("directory", 3, D1, None, "online", "registered"),
        ("cordon", 3, D1, None, "cordoned", "registered"),
    ]


def test_registration_after_a_restart_tells_what_differs() -> None:
    """R-EVENT-5, R-EVENT-6: a directory that another broker now has moved; one that none has is deregistered."""
    assert brief(after(registered(1, D0, epoch=11)))[:2] == [
        ("registration", 1, None, "10", "11", "registered"),
        ("directory", 1, D1, "online", None, "deregistered"),
    ]
    elsewhere = image(registered(1, D0), registered(2, D1, D2))
    assert why_gone(registered(1, D0), elsewhere, D1) == "moved"
    assert why_gone(registered(1, D0), elsewhere, D3) == "deregistered"


def test_brokers_topics_partitions_and_directories_are_in_order() -> None:
    """R-EVENT-1."""
    many = tuple(Uuid(8, n) for n in range(40, 20, -1))
    record = r.RegisterBrokerRecord(broker_id=3, log_dirs=many, cordoned_log_dirs=many)
    changes = after(record, Image())
    for what in ("directory", "cordon"):
        assert [change.directory_id for change in changes if change.what == what] == sorted(many)
    snapshot = image(
        r.TopicRecord(name="t", topic_id=TOPIC),
        *(
            r.PartitionRecord(
                topic_id=TOPIC, partition_id=number, replicas=(16, 8, 24), isr=(8,), leader=8, directories=(D2, D1, D0)
            )
            for number in (16, 8, 24)
        ),
    )
    assignments = [change for change in changes_between(Image(), snapshot, None) if change.what == "assignment"]
    assert [(assignment.partition, assignment.broker_id) for assignment in assignments] == [
        (p, b) for p in (8, 16, 24) for b in (8, 16, 24)
    ]
    topics = image(
        *(creation for at in (OTHER, TOPIC) for creation in (r.TopicRecord(name=str(at), topic_id=at), created(at)))
    )
    assert [change.topic_id for change in changes_between(Image(), topics, None) if change.what == "leader"] == [
        TOPIC,
        OTHER,
    ]


def test_failed_directory_takes_its_replicas_offline() -> None:
    """R-EVENT-3, R-EVENT-6."""
    record = r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=20, log_dirs=(D3,))
    changes = after(record)
    assert brief(changes) == [
        ("directory", 2, D2, "online", None, "failed"),
        ("offline", 2, D2, None, "directory offline", None),
    ]
    assert [(change.topic_id, change.topic, change.partition) for change in changes] == [
        (None, None, None),
        (TOPIC, "t", 0),
    ]


def test_fencing_and_unfencing_tell_the_replicas() -> None:
    """R-EVENT-3, R-EVENT-5."""
    record = r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=20, fenced=1, in_controlled_shutdown=1)
    assert brief(after(record)) == [
        ("fencing", 2, None, "unfenced", "fenced", "changed"),
        ("controlled shutdown", 2, None, None, "shutting down", "changed"),
        ("offline", 2, D2, None, "broker fenced", None),
    ]
    fenced = CLUSTER.apply(record, 50)
    back = r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=20, fenced=-1)
    assert brief(after(back, fenced)) == [
        ("fencing", 2, None, "fenced", "unfenced", "changed"),
        ("offline", 2, D2, "broker fenced", None, None),
    ]


def test_cordon_that_is_lifted_is_told() -> None:
    """R-EVENT-6."""
    cordoned = CLUSTER.apply(
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, cordoned_log_dirs=(D0,)), 50
    )
    record = r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, cordoned_log_dirs=(D1,))
    assert brief(after(record, cordoned)) == [
        ("cordon", 1, D0, "cordoned", None, "changed"),
        ("cordon", 1, D1, None, "cordoned", "changed"),
    ]


def test_unregistered_broker_takes_everything_along() -> None:
    """R-EVENT-3, R-EVENT-5, R-EVENT-6."""
    assert brief(after(r.UnregisterBrokerRecord(broker_id=2, broker_epoch=20))) == [
        ("registration", 2, None, "20", None, "unregistered"),
        ("fencing", 2, None, "unfenced", None, "unregistered"),
        ("directory", 2, D2, "online", None, "unregistered"),
        ("directory", 2, D3, "online", None, "unregistered"),
        ("offline", 2, D2, None, "broker missing", None),
    ]


def test_created_and_removed_partition() -> None:
    """R-EVENT-2, R-EVENT-3, R-EVENT-4."""
    empty = image(registered(1, D0, D1), r.TopicRecord(name="t", topic_id=TOPIC))
    assert brief(after(created(leader=0), empty)) == [
        ("leader", None, None, None, "0", "created"),
        ("isr", None, None, None, "[1,2]", "created"),
        ("assignment", 1, None, None, str(D0), "created"),
        ("assignment", 2, None, None, str(D2), "created"),
        ("offline", 2, D2, None, "broker missing", None),
    ]
    assert brief(after(r.RemoveTopicRecord(topic_id=TOPIC), empty.apply(created(), 50))) == [
        ("leader", None, None, "1", None, "removed"),
        ("isr", None, None, "[1,2]", None, "removed"),
        ("assignment", 1, None, str(D0), None, "removed"),
        ("assignment", 2, None, str(D2), None, "removed"),
        ("offline", 2, D2, "broker missing", None, None),
    ]


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        (D0, D1, "moved"),
        (KAFKA_IDS.unassigned, D0, "assigned"),
        (KAFKA_IDS.migrating, D0, "assigned"),
        (D0, KAFKA_IDS.unassigned, "unassigned"),
        (D0, KAFKA_IDS.migrating, "unassigned"),
    ],
)
def test_assignment_says_why_it_changed(first: Uuid, then: Uuid, why: str) -> None:
    """R-EVENT-2."""
    before = CLUSTER.apply(changed(directories=(first, D2)), 50)
    assert brief(after(changed(directories=(then, D2)), before)) == [
        ("assignment", 1, None, str(first), str(then), why)
    ]


def test_lost_directory_is_told_with_the_replica_that_is_offline() -> None:
    """R-EVENT-2, R-EVENT-3."""
    lost = KAFKA_IDS.lost
    assert brief(after(changed(directories=(lost, D2)))) == [
        ("assignment", 1, None, str(D0), str(lost), "lost"),
        ("offline", 1, lost, None, "directory lost", None),
    ]


def test_replica_that_changes_brokers_is_reassigned() -> None:
    """R-EVENT-2."""
    record = changed(replicas=(1,), isr=(1,), directories=(D0,))
    assert brief(after(record)) == [
        ("isr", None, None, "[1,2]", "[1]", None),
        ("assignment", 2, None, str(D2), None, "reassigned"),
    ]
    back = changed(replicas=(1, 2), isr=(1,), directories=(D0, D3))
    assert brief(after(back, CLUSTER.apply(record, 50))) == [("assignment", 2, None, None, str(D3), "reassigned")]


def test_leader_and_in_sync_replicas_are_told_without_a_reason() -> None:
    """R-EVENT-4: no leader is no value."""
    assert brief(after(changed(leader=-1, isr=(1,)))) == [
        ("leader", None, None, "1", None, None),
        ("isr", None, None, "[1,2]", "[1]", None),
    ]


def test_snapshot_counts_as_one_record_whose_changes_have_one_reason() -> None:
    """R-EVENT-1: brokers in order, then partitions by topic id; equal ones are left out."""
    snapshot = image(
        registered(1, D0),
        r.TopicRecord(name="o", topic_id=OTHER),
        created(OTHER, D0),
        r.TopicRecord(name="t", topic_id=TOPIC),
        created(TOPIC, D1, D3),
    )
    changes = list(changes_between(CLUSTER, snapshot, None))
    assert {change.why for change in changes} == {"resync"}
    assert [(change.what, change.topic, change.broker_id) for change in changes] == [
        ("directory", None, 1),
        ("registration", None, 2),
        ("fencing", None, 2),
        ("directory", None, 2),
        ("directory", None, 2),
        ("assignment", "t", 1),
        ("offline", "t", 1),
        ("assignment", "t", 2),
        ("offline", "t", 2),
        ("leader", "o", None),
        ("isr", "o", None),
        ("assignment", "o", 1),
    ]
    assert list(changes_between(snapshot, snapshot, None)) == []
