"""Brokers and directories that may fail or have failed, and the part of a lake that a failure can affect.

A place is named ``3``, or ``3:r60J`` with the first characters of the id, a path or a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import TypeVar

from jbod_model.controller.cluster import MIN_ISR
from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.formats.requests import BROKER_RESOURCE, TOPIC_RESOURCE
from jbod_model.formats.responses import ControllerFault
from jbod_model.ids import ID_TABLES, Uuid
from jbod_model.profiles import Profile
from jbod_model.replay.image import BrokerRegistration, Image, Partition, Topic
from pipelines.ask.configs import UNCLEAN_ELECTION, features, setting, unclean_elections, zookeeper_brokers
from pipelines.ask.lake_status import ended_as
from pipelines.ask.loss import partition_of
from pipelines.lake.kept_sizes import kept_sizes
from pipelines.lake.ledger import time_if_any
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Place:
    """A broker, or one of its directories."""

    broker_id: int
    broker: str
    """online, fenced or missing."""
    directory_id: str | None = None
    """None for the whole broker."""
    listed: bool = True
    """For a directory: whether the broker lists it as online."""
    only: bool = False
    """Whether it is the only online directory of its broker."""
    metadata: bool = False
    """Whether a record says that it has the node's metadata log."""
    zookeeper: bool = False
    """Whether its broker runs in ZooKeeper mode."""

    @property
    def name(self) -> str:
        """``broker 1``, or ``directory D of broker 1``."""
        broker = f"broker {self.broker_id}"
        return broker if self.directory_id is None else f"directory {self.directory_id} of {broker}"

    @property
    def halts(self) -> bool:
        """Whether the broker stops when it fails (R-PROC-2, R-ZK-2)."""
        return self.directory_id is None or self.only or self.metadata or self.zookeeper

    @property
    def online(self) -> bool:
        """Whether anything is lost if it fails now."""
        return self.listed and self.broker == "online"


def find_place(lake: Lake, text: str, *, listed: bool = False) -> Place:
    """The broker or directory that ``text`` names. Raises UsageError, with the known names, for none or several.

    ``listed``: of several with one path or label, as after a disk was replaced, the one that the broker lists is meant.
    """
    number, colon, prefix = text.partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 11):
        raise UsageError(f"{text}: no broker: write one BROKER or BROKER:DIRECTORY at a time, for instance 1 or 1:r60J")
    broker = int(number)
    registered = {
        row[0]: row[1:] for row in lake.query(f"SELECT broker_id, fenced, log_dirs FROM {lake.at('brokers')}")
    }
    fenced, online = registered.get(broker, (None, ()))
    state = "missing" if fenced is None else "fenced" if fenced else "online"
    if not colon:
        if fenced is None:
            known = ", ".join(map(str, sorted(registered))) or "none"
            raise UsageError(f"{text}: broker {broker} is not registered at offset {lake.offset}; registered: {known}")
        return Place(broker, state)
    directory = _find_directory(lake, text.removesuffix(":"), broker, prefix, online if listed else ())
    here = directory in online
    metadata = metadata_directories(lake).get(broker) == directory
    return Place(
        broker, state, directory, here, here and len(online) == 1, metadata, here and broker in zookeeper_brokers(lake)
    )


def metadata_directories(lake: Lake) -> dict[int, str]:
    """The directory of the metadata log by node, as far as records name it: of voters, from kraft.version 1 on."""
    return dict(lake.query(f"SELECT node_id, directory_id FROM {lake.at('voters')} WHERE directory_id IS NOT NULL"))


def find_directory(lake: Lake, text: str) -> Place:
    """The same for a directory only."""
    if ":" not in text:
        raise UsageError(f"{text}: no directory: write BROKER:DIRECTORY, with an id or the beginning of one")
    return find_place(lake, text)


def _find_directory(lake: Lake, text: str, broker: int, prefix: str, preferred: Sequence[str]) -> str:
    """Searches the directories that were ever online on the broker, and those that its replicas name."""
    known = {
        str(directory)
        for (directory,) in lake.query(
            f"""
            SELECT directory_id FROM {lake.until("directories")} WHERE broker_id = {broker}
            UNION
            SELECT directory_id FROM {lake.at("assignments")} WHERE broker_id = {broker} AND kind = 'assigned'
            """
        )
    }
    matching = sorted(directory_id for directory_id in known if prefix in (lake.names.get(directory_id) or ()))
    if len(matching) > 1:
        matching = [directory for directory in matching if directory in preferred] or matching
    if not matching:
        matching = sorted(directory for directory in known if directory.startswith(prefix))
    if len(matching) == 1:
        return matching[0]
    if not known:
        raise UsageError(f"{text}: broker {broker} never had a directory, up to offset {lake.offset}")
    if not matching:
        raise UsageError(f"{text}: broker {broker} has no such directory; it has, or had: {_listed(lake, known)}")
    raise UsageError(f"{text}: several directories match: {_listed(lake, matching)}")


def directories_by_path(
    lake: Lake, paths: Mapping[tuple[int, str], str] | None = None
) -> Mapping[tuple[int, str], str]:
    """(broker, path) -> directory: those that jbod sizes --keep was certain of, those of jbod label, and ``paths``.

    A disk that was replaced leaves its path to another directory: the one that the broker lists is meant.
    """
    certain = "SELECT broker_id, path, arg_max(directory_id, time) FROM kept WHERE pairing = 'certain' GROUP BY ALL"
    rows = kept_sizes(lake, certain)
    for directory, broker in lake.query(
        f"SELECT directory_id, arg_max(broker_id, from_offset) FROM {lake.until('directories')} "
        "GROUP BY ALL ORDER BY max(from_offset), directory_id"
    ):
        name = lake.names.get(directory)
        if name is not None and name.path is not None:
            rows.append((broker, name.path, directory))
    rows += [(*place, directory) for place, directory in (paths or {}).items()]
    listed = {*lake.query(f"SELECT broker_id, directory_id FROM {lake.at('directories')}")}
    rows.sort(key=lambda row: (row[0], row[2]) in listed)
    return {(broker, path): directory for broker, path, directory in rows}


def _listed(lake: Lake, directories: Iterable[str]) -> str:
    named = ((directory, lake.names.get(directory)) for directory in sorted(directories))
    return ", ".join(directory if name is None else name.behind(directory) for directory, name in named)


@dataclass(frozen=True)
class Already:
    """A broker or directory that is offline already."""

    place: Place
    state: str
    """fenced; or for a directory failed, deregistered, moved or unregistered; unknown if it never was registered."""
    from_offset: int | None
    from_time: datetime | None
    from_snapshot: bool
    """Whether it went at or before the offset: a snapshot has it so."""
    took: int
    """Replicas in it when it failed."""
    held: int
    """Replicas that are still in it."""


def already(lake: Lake, place: Place) -> Already | None:
    """Describes a place that is offline. Returns None for a place that is online."""
    if place.online:
        return None
    state, offset, time, in_snapshot = (
        ("fenced", *_fenced_since(lake, place.broker_id)) if place.listed else _gone(lake, place)
    )
    took = held = 0
    ((held,),) = lake.query(f"SELECT count(*) FROM {lake.at('assignments')} WHERE {_inside(place)}")
    if offset is not None:
        ((took,),) = lake.query(
            f"SELECT count(*) FROM {lake.until('assignments')} WHERE {_inside(place)} "
            f"AND from_offset <= {offset} AND (to_offset IS NULL OR to_offset > {offset})"
        )
    return Already(place, ended_as(state, place.broker), offset, time_if_any(time), in_snapshot, took, held)


def _inside(place: Place) -> str:
    within = "" if place.directory_id is None else f" AND directory_id = '{place.directory_id}'"
    return f"broker_id = {place.broker_id}{within}"


def _gone(lake: Lake, place: Place) -> tuple[str, int | None, int | None, bool]:
    rows = lake.query(
        f"""
        SELECT ended_by, to_offset, epoch_us(to_time), ended_by = 'resync' FROM {lake.until("directories")}
        WHERE {_inside(place)} ORDER BY from_offset DESC LIMIT 1
        """
    )
    return rows[0] if rows else ("unknown", None, None, False)


def _fenced_since(lake: Lake, broker: int) -> tuple[int, int, bool]:
    """Offset and time since when it is fenced, of the last change to fenced, or of its first registration; whether it
    is so in a snapshot."""
    rows = lake.query(
        f"""
        WITH h AS (SELECT * FROM {lake.until("brokers")} WHERE broker_id = $1)
        SELECT from_offset, epoch_us(from_time), from_snapshot FROM h
        WHERE fenced AND from_offset >= coalesce((SELECT max(to_offset) FROM h WHERE NOT fenced), 0)
        ORDER BY from_offset LIMIT 1
        """,
        [broker],
    )
    (row,) = rows
    return row


Played = TypeVar("Played")


def as_repaired(play: Callable[[Profile], Played], profile: Profile) -> tuple[Played, str]:
    """What ``play`` returns by the rules of a profile, and no defects of Kafka's controller.

    If it meets some: what a repaired controller does, and these defects.
    """
    try:
        return play(profile), ""
    except ControllerFault as problem:
        return play(replace(profile, controller=profile.controller.without())), problem.problem


_STATE = (
    *("replicas", "directories", "isr", "removing", "adding", "elr", "last_known_elr", "leader", "leader_recovery"),
    *("leader_epoch", "partition_epoch"),
)
_uuid = cache(Uuid.parse)


def touched(lake: Lake, brokers: Sequence[int], directories: Sequence[Place]) -> Image:
    """Every broker, and the partitions with a replica on one of ``brokers``, in one of ``directories``, or on a broker
    of these where no record has placed it."""
    return with_partition_0(image_of(lake, _condition(lake, brokers, directories)))


def with_partition_0(image: Image) -> Image:
    """The image, where a topic of which partition 0 is not written yet, as in a migration from ZooKeeper, has one that
    nobody can lead."""
    topics = {}
    for topic_id, topic in image.topics.items():
        replicas = len(next(iter(topic.partitions.values())).replicas)
        topics[topic_id] = replace(topic, partitions={0: stand_in(replicas, image.ids.lost), **topic.partitions})
    return replace(image, topics=topics)


def stand_in(replicas: int, lost: Uuid) -> Partition:
    """A partition that nobody can lead, on brokers that do not exist."""
    return Partition(
        replicas=tuple(range(-2, -2 - replicas, -1)),
        directories=(lost,) * replicas,
        isr=(),
        leader=-1,
        leader_epoch=0,
        partition_epoch=0,
    )


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


def _condition(lake: Lake, brokers: Sequence[int], directories: Sequence[Place]) -> str:
    # Not list_has_any: in DuckDB 2.0.0 it is wrong where a dictionary codes the texts of the lists, as those of a log.
    having = [f"list_contains({of}, {broker})" for of in ("replicas", "isr") for broker in brokers]
    having += [f"list_contains(directories, '{place.directory_id}')" for place in directories]
    if directories:
        losing = ", ".join(str(place.broker_id) for place in directories)
        having.append(
            f"(topic_id, partition) IN (SELECT (topic_id, partition) FROM {lake.at('assignments')} "
            f"WHERE broker_id IN ({losing}) AND kind IN ('unassigned', 'migrating'))"
        )
    return " OR ".join(having) or "false"


def _partitions(lake: Lake, condition: str) -> Iterable[tuple[str, str, int, Partition]]:
    rows = lake.query(
        f"""
        WITH p AS (SELECT * FROM {lake.at("partitions")})
        SELECT topic, topic_id, partition, {", ".join(_STATE)}
        FROM p
        WHERE {condition} OR (partition = 0 AND topic_id IN (SELECT topic_id FROM p WHERE {condition}))
        ORDER BY topic, partition
        """
    )
    for topic, topic_id, number, *state in rows:
        yield topic, topic_id, number, partition_of(dict(zip(_STATE, state, strict=True)))


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
    for name, values in ((MIN_ISR, setting(lake, MIN_ISR)), (UNCLEAN_ELECTION, unclean_elections(lake))):
        for topic, value in values.topics.items():
            configs.setdefault((TOPIC_RESOURCE, topic), {})[name] = value
        if values.cluster is not None:
            configs.setdefault((BROKER_RESOURCE, ""), {})[name] = values.cluster
    return configs
