"""The part of a lake that failures can affect, as an image for the reference controller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from jbod_model.controller.cluster import MIN_ISR
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.formats.requests import BROKER_RESOURCE, TOPIC_RESOURCE
from jbod_model.ids import ID_TABLES, Uuid
from jbod_model.replay.image import BrokerRegistration, Image, Partition, Topic
from pipelines.ask.configs import UNCLEAN_ELECTION, features, setting
from pipelines.lake.reader import Lake

RECOVERY_STATES = {"RECOVERED": 0, "RECOVERING": 1}

_uuid = cache(Uuid.parse)


def touched(lake: Lake, brokers: Sequence[int], directories: Sequence[str]) -> Image:
    """Every broker, and the partitions with a replica on one of ``brokers`` or in one of ``directories``."""
    return image_of(lake, _condition(brokers, directories))


def image_of(lake: Lake, condition: str) -> Image:
    """Every broker, and the partitions for which an SQL condition on the table partitions holds.

    Partition 0 of their topics is included, because the controller reads the replication factor from it. A log without
    a metadata.version counts as the first version with directories.
    """
    topics: dict[Uuid, Topic] = {}
    partitions: dict[Uuid, dict[int, Partition]] = {}
    for name, id_text, number, partition in _partitions(lake, condition):
        topic_id = _uuid(id_text)
        if topic_id not in topics:
            partitions[topic_id] = {}
            topics[topic_id] = Topic(name=name, topic_id=topic_id, partitions=partitions[topic_id])
        partitions[topic_id][number] = partition
    levels = features(lake)
    return Image(
        ids=ID_TABLES[lake.published.ids],
        brokers={broker.broker_id: broker for broker in registrations(lake)},
        topics=topics,
        topic_ids={topic.name: topic_id for topic_id, topic in topics.items()},
        features={METADATA_VERSION: LEVELS["3.7-IV2"], **levels},
        configs=_configs(lake),
    )


def _condition(brokers: Sequence[int], directories: Sequence[str]) -> str:
    failing = ", ".join(map(str, brokers))
    ids = ", ".join(f"'{directory}'" for directory in directories)
    return (
        f"list_has_any(replicas, [{failing}]::INT[]) OR list_has_any(isr, [{failing}]::INT[]) "
        f"OR list_has_any(directories, [{ids}]::VARCHAR[])"
    )


def _partitions(lake: Lake, condition: str) -> Iterable[tuple[str, str, int, Partition]]:
    rows = lake.query(
        f"""
        WITH p AS (SELECT * FROM {lake.at("partitions")})
        SELECT topic, topic_id, partition, replicas, directories, isr, removing, adding, elr, last_known_elr, leader,
               leader_recovery, leader_epoch, partition_epoch
        FROM p
        WHERE {condition} OR (partition = 0 AND topic_id IN (SELECT topic_id FROM p WHERE {condition}))
        ORDER BY topic, partition
        """
    )
    for (
        topic,
        topic_id,
        number,
        replicas,
        directories,
        isr,
        removing,
        adding,
        elr,
        known,
        leader,
        recovery,
        *epochs,
    ) in rows:
        yield (
            topic,
            topic_id,
            number,
            Partition(
                replicas=tuple(replicas),
                directories=tuple(map(_uuid, directories)),
                isr=tuple(isr),
                removing_replicas=tuple(removing),
                adding_replicas=tuple(adding),
                eligible_leader_replicas=tuple(elr),
                last_known_elr=tuple(known),
                leader=leader,
                leader_recovery_state=RECOVERY_STATES[recovery],
                leader_epoch=epochs[0],
                partition_epoch=epochs[1],
            ),
        )


def registrations(lake: Lake) -> Iterable[BrokerRegistration]:
    """Every broker that is registered, by id."""
    rows = lake.query(
        "SELECT broker_id, broker_epoch, incarnation_id, fenced, in_controlled_shutdown, rack, log_dirs, "
        "cordoned_log_dirs "
        f"FROM {lake.at('brokers')} ORDER BY broker_id"
    )
    for broker_id, epoch, incarnation, fenced, stopping, rack, directories, cordoned in rows:
        yield BrokerRegistration(
            broker_id=broker_id,
            epoch=epoch,
            incarnation_id=_uuid(incarnation),
            fenced=fenced,
            in_controlled_shutdown=stopping,
            rack=rack,
            directories=tuple(map(_uuid, directories)),
            cordoned_directories=None if cordoned is None else tuple(map(_uuid, cordoned)),
        )


def _configs(lake: Lake) -> dict[tuple[int, str], dict[str, str]]:
    """The configurations that elections read."""
    configs: dict[tuple[int, str], dict[str, str]] = {}
    for name in (MIN_ISR, UNCLEAN_ELECTION):
        said = setting(lake, name)
        for topic, value in said.topics.items():
            configs.setdefault((TOPIC_RESOURCE, topic), {})[name] = value
        if said.cluster is not None:
            configs.setdefault((BROKER_RESOURCE, ""), {})[name] = said.cluster
    return configs
