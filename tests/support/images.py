"""Images in every state, and lakes of given images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from jbod_model.formats.codec import encode
from jbod_model.formats.metadata_version import ELR_FEATURE, METADATA_VERSION
from jbod_model.formats.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import BrokerRegistration, Image, Partition, Topic
from pipelines.lake.reader import Lake
from tests.support.lakes import in_memory, write_lake
from tests.support.logs import Entry

BROKERS = (1, 2, 3, 4)
VERSIONS = {"RegisterBrokerRecord": 3, "PartitionRecord": 2, "PartitionChangeRecord": 2}
VERSIONS["BrokerRegistrationChangeRecord"] = 2


def lake_of(path: Path, image: Image, profile: Profile = KAFKA) -> Path:
    """A lake at ``path`` whose newest state is ``image``."""
    write_lake(path, as_entries(*_records(image)), profile=profile)
    return path


def in_memory_of(image: Image) -> Lake:
    """The same without files."""
    return in_memory(as_entries(*_records(image)))


def as_entries(*records: Record, first: int = 0) -> list[Entry]:
    """A log of these records, ten a second."""
    made = []
    for offset, record in enumerate(records, first):
        versioned = VersionedRecord(record, VERSIONS.get(type(record).__name__, 0))
        made.append(Entry(offset, 1, 100_000 * offset, offset, encode(versioned), None, versioned))
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
        for number, partition in topic.partitions.items():
            yield PartitionRecord(
                topic_id=topic.topic_id,
                partition_id=number,
                replicas=partition.replicas,
                directories=partition.directories,
                isr=partition.isr,
                removing_replicas=partition.removing_replicas,
                adding_replicas=partition.adding_replicas,
                leader=partition.leader,
                leader_recovery_state=partition.leader_recovery_state,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                eligible_leader_replicas=partition.eligible_leader_replicas or None,
                last_known_elr=partition.last_known_elr or None,
            )
    for (kind, name), values in image.configs.items():
        for key, value in values.items():
            yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


@st.composite
def images(draw: st.DrawFn) -> Image:
    """Four brokers in every state, and partitions in the states that a controller can write, and some others."""
    dirs = {broker: tuple(Uuid(broker, 1000 + n) for n in range(3)) for broker in BROKERS}
    strange = [Uuid(9, 9), KAFKA_IDS.unassigned, KAFKA_IDS.lost, KAFKA_IDS.migrating]
    brokers = {}
    for broker in draw(st.sets(st.sampled_from(BROKERS), min_size=2)):
        brokers[broker] = BrokerRegistration(
            broker_id=broker,
            epoch=broker,
            incarnation_id=Uuid(7, broker),
            fenced=draw(st.integers(0, 4)) == 0,
            in_controlled_shutdown=draw(st.integers(0, 4)) == 0,
            directories=tuple(sorted(draw(st.sets(st.sampled_from(dirs[broker]))))),
        )
    topics = {}
    configs: dict[Any, dict[str, str]] = {}
    if draw(st.booleans()):
        configs[4, ""] = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    for n in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 4))
        partitions = {m: draw(partition_of(size, dirs, strange)) for m in range(draw(st.integers(1, 8)))}
        topics[Uuid(1, n)] = Topic(name=f"it's {n}", topic_id=Uuid(1, n), partitions=partitions)
        if draw(st.booleans()):
            configs[2, f"it's {n}"] = {
                "min.insync.replicas": draw(st.sampled_from("123")),
                "unclean.leader.election.enable": draw(st.sampled_from(["true", "false"])),
            }
    return Image(
        brokers=brokers,
        topics=topics,
        topic_ids={topic.name: topic_id for topic_id, topic in topics.items()},
        features={METADATA_VERSION: 27, **({ELR_FEATURE: 1} if draw(st.booleans()) else {})},
        configs=configs,
    )


@st.composite
def partition_of(draw: st.DrawFn, size: int, dirs: dict[int, tuple[Uuid, ...]], strange: list[Uuid]) -> Partition:
    """Leader among the in-sync, eligible ones outside of these, and directories of any kind."""
    replicas = tuple(draw(st.permutations(BROKERS)))[:size]
    isr = tuple(draw(st.permutations(replicas)))[: draw(st.integers(0, size))]
    outside = [replica for replica in replicas if replica not in isr]
    eligible = tuple(draw(st.sets(st.sampled_from(outside)))) if outside else ()
    known = tuple(draw(st.sets(st.sampled_from(replicas), max_size=1)))
    everywhere = [directory for listed in dirs.values() for directory in listed] + strange
    return Partition(
        replicas=replicas,
        directories=tuple(
            draw(st.sampled_from(dirs[replica])) if draw(st.integers(0, 5)) else draw(st.sampled_from(everywhere))
            for replica in replicas
        ),
        isr=isr,
        eligible_leader_replicas=eligible,
        last_known_elr=known,
        leader=draw(st.sampled_from((*isr, *isr, -1))),
        leader_epoch=0,
        partition_epoch=0,
    )


def brokers(*directories: tuple[Uuid, ...]) -> dict[int, BrokerRegistration]:
    return {
        number: BrokerRegistration(
            broker_id=number, epoch=number, incarnation_id=Uuid(7, number), fenced=False, directories=listed
        )
        for number, listed in enumerate(directories, 1)
    }


def one_topic(*partitions: Partition, registered: dict[int, BrokerRegistration], name: str = "t") -> Image:
    topic = Topic(name=name, topic_id=Uuid(5, 5), partitions=dict(enumerate(partitions)))
    return Image(
        brokers=registered,
        topics={topic.topic_id: topic},
        topic_ids={name: topic.topic_id},
        features={"metadata.version": 27},
    )


def partition(*placed: tuple[int, Uuid], **fields: object) -> Partition:
    replicas = tuple(broker for broker, _ in placed)
    whole = {"isr": replicas, "leader": replicas[0], "leader_epoch": 0, "partition_epoch": 0, **fields}
    return Partition(replicas=replicas, directories=tuple(at for _, at in placed), **whole)  # type: ignore[arg-type]
