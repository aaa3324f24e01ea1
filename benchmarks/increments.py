"""What a controller adds to a log: a failed disk, a lost broker, a day. Made from a lake that is at the log's end.

Failures are what the reference controller of `jbod_model` answers to the heartbeat that reports them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from jbod_model.controller import Context, Controller
from jbod_model.formats.metadata_version import METADATA_VERSION, partition_record_version
from jbod_model.formats.records import (
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import BrokerHeartbeatRequest, SessionExpired
from jbod_model.ids import ID_TABLES, Uuid
from jbod_model.whatif import BEFORE_EVERY_SHUTDOWN
from pipelines.ask.configs import features
from pipelines.ask.whatif_places import find_place, touched
from pipelines.lake.reader import Lake

DAY = 86_400_000
"""Milliseconds."""
IDLE = 500
"""Milliseconds between two NoOpRecords of an idle controller."""
CHURN = 100
"""One in so many partitions leaves its normal state that day, and comes back after BACK milliseconds."""
BACK = 30_000
GROWTH = 1_000
"""One new partition to so many; they come in topics of PARTITIONS."""
PARTITIONS = 50

Batches = Iterator[tuple[int, list[VersionedRecord]]]
"""Milliseconds since the first, and the records."""


def disk_failure(lake: Lake, broker: int, directory: str) -> list[VersionedRecord]:
    """A broker reports a directory: new leaders and in-sync sets, then the registration without it."""
    failed = Uuid.parse(directory)
    image = touched(lake, [], [find_place(lake, f"{broker}:{directory}")])
    report = BrokerHeartbeatRequest(
        broker_id=broker, broker_epoch=image.brokers[broker].epoch, offline_log_dirs=(failed,)
    )
    return [*Controller().handle(image, report, Context(lowest_active_offset=BEFORE_EVERY_SHUTDOWN)).records]


def broker_loss(lake: Lake, broker: int) -> list[VersionedRecord]:
    """A broker's session expires: it is fenced, and leaves every in-sync set."""
    image = touched(lake, [broker], [])
    return [*Controller().handle(image, SessionExpired(broker_id=broker), Context()).records]


def day(lake: Lake, seed: int = 1) -> Batches:
    """An ordinary day: NoOpRecords, churn of leaders and in-sync sets, and new topics with their assignments."""
    chance, version = random.Random(seed), partition_record_version(features(lake)[METADATA_VERSION])
    unassigned = ID_TABLES[lake.published.ids].unassigned
    events = [(at, 0, [VersionedRecord(NoOpRecord(), 0)]) for at in range(0, DAY, IDLE)]
    churning = lake.query(
        f"""
        SELECT topic_id, partition, isr, leader FROM {lake.at("partitions")}
        WHERE hash(topic_id, partition) % {CHURN} = 0 AND len(isr) > 1 ORDER BY topic_id, partition
        """
    )
    for topic, partition, isr, leader in churning:
        where = {"topic_id": Uuid.parse(topic), "partition_id": partition}
        if chance.random() < 0.25:
            away, back = {"leader": next(broker for broker in isr if broker != leader)}, {"leader": leader}
        else:
            left = tuple(broker for broker in isr if broker == leader or broker != isr[-1])
            away, back = {"isr": left}, {"isr": tuple(isr)}
        at = chance.randrange(DAY - BACK)
        events.append((at, 1, [VersionedRecord(PartitionChangeRecord(**where, **away), version)]))
        events.append((at + BACK, 1, [VersionedRecord(PartitionChangeRecord(**where, **back), version)]))
    brokers = dict(lake.query(f"SELECT broker_id, log_dirs FROM {lake.at('brokers')} WHERE NOT fenced"))
    ((count,),) = lake.query(f"SELECT count(*) FROM {lake.at('partitions')}")
    for number in range(max(1, count // GROWTH // PARTITIONS)):
        at = chance.randrange(DAY - BACK)
        for step, made in enumerate(_topic(f"new-{lake.offset}-{number}", brokers, unassigned, chance)):
            versioned = [VersionedRecord(record, 0 if isinstance(record, TopicRecord) else version) for record in made]
            events.append((at + step, 2, versioned))
    for at, _, records in sorted(events, key=lambda event: event[:2]):
        yield at, records


def _topic(name: str, brokers: dict[int, list[str]], unassigned: Uuid, chance: random.Random) -> Iterator[list[Record]]:
    """A topic as it is made, then as each replica says where it is."""
    topic = Uuid(chance.getrandbits(63), chance.getrandbits(63))
    placed = [tuple(chance.sample([*brokers], min(3, len(brokers)))) for _ in range(PARTITIONS)]
    held = [[unassigned] * len(replicas) for replicas in placed]
    created = [
        PartitionRecord(
            partition_id=number,
            topic_id=topic,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(held[number]),
        )
        for number, replicas in enumerate(placed)
    ]
    yield [TopicRecord(name=name, topic_id=topic), *created]
    for index in range(len(placed[0])):
        changes: list[Record] = []
        for number, replicas in enumerate(placed):
            held[number][index] = Uuid.parse(chance.choice(brokers[replicas[index]]))
            changes.append(PartitionChangeRecord(partition_id=number, topic_id=topic, directories=tuple(held[number])))
        yield changes
