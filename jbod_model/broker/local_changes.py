"""The effect of a metadata change on one broker (docs/spec/simulation.md).

Source: Kafka's ``TopicDelta.localChanges``.
"""

from __future__ import annotations

from collections.abc import Mapping

from jbod_model.broker.assignments import Replica
from jbod_model.broker.replicas import ReplicaChange
from jbod_model.ids import Uuid
from jbod_model.profiles.broker_rules import KAFKA_BROKER, BrokerRules
from jbod_model.replay.image import Image, Partition, Topic


def local_changes(
    before: Image, after: Image, broker_id: int, rules: BrokerRules = KAFKA_BROKER
) -> tuple[tuple[ReplicaChange, ...], tuple[Replica, ...]]:
    """The broker's replicas that changed between two images, and those that it no longer has.

    A replica changed if it is new or its partition has another epoch (R-LOCAL-1). The change lists its directory if
    the partition is new (so the first image after a start lists all directories), or if any replica of the partition
    was assigned to another directory (R-LOCAL-2): Kafka compares objects, and a change of one directory creates new
    objects for all. Kafka does not list it if the broker joins an existing partition (R-LOCAL-4). A replica is removed
    with its topic, or when the partition's replicas no longer name the broker (R-LOCAL-3).
    """
    changes = []
    deletes = []
    for topic_id, topic in after.topics.items():
        old = before.topics.get(topic_id)
        if old is topic:
            continue
        for number, partition in topic.partitions.items():
            replica = Replica(topic_id, number)
            previous = None if old is None else old.partitions.get(number)
            if broker_id in partition.replicas:
                change = _change(replica, previous, partition, broker_id, rules)
                if change is not None:
                    changes.append(change)
            elif previous is not None and broker_id in previous.replicas:
                deletes.append(replica)
    for topic_id, topic in before.topics.items():
        if topic_id not in after.topics:
            deletes += _replicas_of(topic, broker_id)
    return tuple(changes), tuple(deletes)


def assigned_directories(image: Image, broker_id: int) -> Mapping[Replica, Uuid]:
    """The directory of every replica that the image gives to the broker."""
    return {
        Replica(topic_id, number): partition.directory(broker_id)
        for topic_id, topic in image.topics.items()
        for number, partition in topic.partitions.items()
        if broker_id in partition.replicas
    }


def _change(
    replica: Replica, before: Partition | None, after: Partition, broker_id: int, rules: BrokerRules
) -> ReplicaChange | None:
    leads = after.leader == broker_id
    directory = after.directory(broker_id)
    if before is None:
        return ReplicaChange(replica, leads, directory)
    if before.partition_epoch == after.partition_epoch:
        return None
    if broker_id not in before.replicas:
        return ReplicaChange(replica, leads, None if rules.overlooks_added_replicas else directory)
    return ReplicaChange(replica, leads, None if before.directories == after.directories else directory)


def _replicas_of(topic: Topic, broker_id: int) -> list[Replica]:
    return [Replica(topic.topic_id, n) for n, partition in topic.partitions.items() if broker_id in partition.replicas]
