"""Dynamic configuration and features as of an offset, from the records that set them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from jbod_model.formats.codec import decode
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION, directories_supported, level_text
from jbod_model.formats.records import (
    ConfigRecord,
    FeatureLevelRecord,
    Record,
    RegisterBrokerRecord,
    ZkMigrationStateRecord,
)
from jbod_model.formats.schema import TYPE_NAMES
from jbod_model.profiles import PROFILES, Profile, as_released, release_of
from jbod_model.replay.image import min_isr_of
from pipelines.ask.advice import few
from pipelines.lake.reader import Lake

MIN_ISR = "min.insync.replicas"
TIERED = "remote.storage.enable"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
_SETTINGS = (MIN_ISR, TIERED, UNCLEAN_ELECTION)
TOPIC, _BROKER = 2, 4
ALL_BROKERS = _BROKER, ""
"""The resource with the dynamic default of all brokers."""
_PRE_MIGRATION = 2
"""The state of a migration from ZooKeeper that waits for its brokers (``ZkMigrationState``)."""
_Record = TypeVar("_Record", bound=Record)


@dataclass(frozen=True)
class ConfigValues:
    """The values of a topic configuration in the log."""

    topics: Mapping[str, str]
    """The values of topics that set it."""
    cluster: str | None
    """The dynamic default of all brokers, None if there is none."""
    brokers: Mapping[int, str] = field(default_factory=dict)
    """The values of single brokers. They count for the partitions that the broker leads."""


@dataclass(frozen=True)
class MinIsr:
    """The values of ``min.insync.replicas`` in the log."""

    topics: Mapping[str, int]
    default: int

    def of(self, topic: str, replicas: int) -> int:
        """The effective value for a partition: at most its number of replicas (Kafka's ``effectiveMinIsr``)."""
        return min(self.topics.get(topic, self.default), replicas)


def min_isr(lake: Lake, default: int = 1) -> MinIsr:
    """The values for topics and for the whole cluster. ``default`` applies if neither is set.

    A value of one broker counts for what it leads, and any broker may lead: the largest of the brokers' counts. The log
    does not contain the brokers' static server.properties.
    """
    values = setting(lake, MIN_ISR)
    of_all = default if values.cluster is None else int(values.cluster)
    brokers = lake.query(f"SELECT broker_id FROM {lake.at('brokers')}") if values.brokers else []
    of_each = [int(values.brokers.get(broker, of_all)) for (broker,) in brokers]
    return MinIsr({topic: int(value) for topic, value in values.topics.items()}, max(of_each, default=of_all))


def unclean_elections(lake: Lake) -> ConfigValues:
    """unclean.leader.election.enable. A value of the active controller itself comes before that of all (R-CFG-1)."""
    values = setting(lake, UNCLEAN_ELECTION)
    own = of_active_controller(lake, values)
    return values if own is None else replace(values, cluster=own)


def of_active_controller(lake: Lake, values: ConfigValues) -> str | None:
    """The value of the active controller itself, if one is set."""
    active = lake.query(f"SELECT node_id FROM {lake.at('voters')} WHERE role = 'leader'") if values.brokers else []
    return next((values.brokers[node] for (node,) in active if node in values.brokers), None)


def forgotten(lake: Lake, topic: str) -> str:
    """What comes before a change of a topic's min.insync.replicas, which clears its eligible leaders (R-CFG-4)."""
    sql = f"SELECT partition FROM {lake.at('partitions')} WHERE topic = $1 AND len(elr) > 0 ORDER BY ALL"
    names = [f"{topic}-{number}" for (number,) in lake.once(("eligible", topic), lambda: lake.query(sql, [topic]))]
    return f", once the eligible leaders of {few(names)} are back in sync: it forgets them" if names else ""


def setting(lake: Lake, name: str) -> ConfigValues:
    """The values of one topic configuration of ``_SETTINGS``."""
    values: dict[tuple[int, str], str] = {}
    for _, scope, value in changes(lake, name):
        if scope is None:
            values.clear()
        elif value is None:
            values.pop(scope, None)
        else:
            values[scope] = value
    return ConfigValues(
        {topic: value for (kind, topic), value in values.items() if kind == TOPIC},
        values.get(ALL_BROKERS),
        {int(broker): value for (kind, broker), value in values.items() if kind == _BROKER and broker.isdecimal()},
    )


def _counting(record: ConfigRecord) -> str | None:
    """The value that the record sets; None if it removes the configuration, or brokers ignore the value (R-CFG-7)."""
    ignored = record.name == MIN_ISR and min_isr_of(record.value) is None
    return None if ignored else record.value


def is_true(value: str | None) -> bool:
    """Whether a boolean setting is true, in any case (``Boolean.parseBoolean``)."""
    return value is not None and value.lower() == "true"


def tiered_topics(lake: Lake) -> frozenset[str]:
    """Topics that keep the older part of their log in remote storage.

    A disk failure affects only the local part of their data, which was not copied to remote storage yet.
    """
    return frozenset(topic for topic, value in setting(lake, TIERED).topics.items() if is_true(value))


class ConfigChange(NamedTuple):
    """A change of a topic configuration: it is set or removed, its topic is removed, or a snapshot replaces all."""

    offset: int
    scope: tuple[int, str] | None
    """Type and name of the resource: a topic, a broker or ALL_BROKERS. None if a snapshot begins."""
    value: str | None


def changes(lake: Lake, name: str) -> list[ConfigChange]:
    """Every change of one topic configuration of ``_SETTINGS`` in log order, including snapshots."""
    listed = [ConfigChange(offset, None, None) for offset in lake.snapshots]
    for offset, _, value in _records(lake, ConfigRecord):
        if name.encode() in value:
            record = decode(value, file=lake.path, offset=offset).record
            if isinstance(record, ConfigRecord) and record.name == name and record.resource_type in (TOPIC, _BROKER):
                scope = record.resource_type, record.resource_name
                listed.append(ConfigChange(offset, scope, _counting(record)))
    if any(scope is not None and scope[0] == TOPIC for _, scope, _ in listed):
        listed += [ConfigChange(offset, (TOPIC, topic), None) for offset, topic in _removals(lake)]
    return sorted(listed, key=lambda change: change.offset)


def features(lake: Lake) -> dict[str, int]:
    """Levels of the finalized features, including ``metadata.version``."""
    levels: dict[str, int] = {}
    for record in _decoded(lake, FeatureLevelRecord):
        levels[record.name] = record.feature_level
    return {name: level for name, level in sorted(levels.items()) if level}  # R-FEATURE-1


def oldest_rules(lake: Lake) -> Profile:
    """The rules of the oldest release among the controllers: any of them may lead when the plan runs (R-RELEASE-4)."""
    ((level,),) = lake.query(
        f"SELECT min(highest_levels[list_position(features, $1)]) FROM {lake.at('controllers')}", [METADATA_VERSION]
    )
    finalized = features(lake).get(METADATA_VERSION, 0)
    return as_released(PROFILES[lake.published.profile], release_of(finalized if level is None else level))


def zookeeper_brokers(lake: Lake) -> frozenset[int]:
    """Brokers in ZooKeeper mode: they report no directories before they start under KRaft (R-ZK-3)."""
    modes: dict[int, bool] = {}
    if features(lake).get(METADATA_VERSION, -1) <= LEVELS["3.9-IV0"]:  # the last release with ZooKeeper
        for record in _decoded(lake, RegisterBrokerRecord):
            modes[record.broker_id] = record.is_migrating_zk_broker
    return frozenset(broker_id for broker_id, under_zookeeper in modes.items() if under_zookeeper)


def migrates(lake: Lake) -> bool:
    """Whether a migration from ZooKeeper is in progress, or is waited for (``ZkMigrationState.inProgress``)."""
    return _migration(lake) in (1, _PRE_MIGRATION)


def in_zookeeper(lake: Lake) -> Sequence[str]:
    """Why the log lacks the topics, if a migration has not copied them from ZooKeeper yet (R-ZK-4); else nothing."""
    if _migration(lake) != _PRE_MIGRATION:
        return ()
    return (
        "the topics are not in the log yet: the migration from ZooKeeper copies them when all brokers have registered",
    )


def _migration(lake: Lake) -> int:
    """The state of the migration from ZooKeeper; 0 if there is none."""
    state = 0
    for record in _decoded(lake, ZkMigrationStateRecord):
        state = record.zk_migration_state
    return state


def unseen_disks(lake: Lake) -> str:
    """Why no record says that a disk failed; empty if the metadata.version has directories (R-HB-4)."""
    level = features(lake).get(METADATA_VERSION)
    if level is None or directories_supported(level):
        return ""
    return (
        f"metadata.version {level_text(level)} records no directories: a disk that failed is not in the log, and its "
        "replicas count as online; kafka-log-dirs.sh --bootstrap-server HOST:PORT --describe shows it"
    )


def _decoded(lake: Lake, record_type: type[_Record]) -> Iterator[_Record]:
    """The valid records of a type, in log order."""
    for offset, value in _values(lake, record_type):
        record = decode(value, file=lake.path, offset=offset).record
        if isinstance(record, record_type):
            yield record


def _values(lake: Lake, record_type: type[Record]) -> list[tuple[int, bytes]]:
    """Offset and value of the valid records of a type: a snapshot replaces all records before it."""
    last = lake.snapshots[-1] if lake.snapshots else -1
    return [
        (offset, value)
        for offset, in_snapshot, value in _records(lake, record_type)
        if offset > last or (in_snapshot and offset == last)
    ]


def _records(lake: Lake, record_type: type[Record]) -> list[tuple[int, bool, bytes]]:
    """Offset, whether a snapshot holds it, and value of every record of a type, in log order. Of configurations, at
    least those that a question reads: they are read together, as most of the time goes into finding them."""

    def read() -> list[tuple[int, bool, bytes]]:
        # A condition on the value alone would be evaluated for the records of all types.
        condition = " OR ".join(f"contains(hex(value), '{text.encode().hex().upper()}')" for text in _SETTINGS)
        those = f"CASE WHEN record_type = $1 THEN {condition} END" if record_type is ConfigRecord else "true"
        rows = lake.query(
            f"""
            SELECT log_offset, snapshot, value FROM {lake.setting_records()}
            WHERE record_type = $1 AND {those}
            ORDER BY log_offset, snapshot_index
            """,
            [TYPE_NAMES[record_type]],
        )
        return [(offset, in_snapshot, bytes(value)) for offset, in_snapshot, value in rows]

    return lake.once(("records", record_type), read)


def _removals(lake: Lake) -> list[tuple[int, str]]:
    """Offset and name of every removed topic. Its configuration was removed with it."""
    return lake.query(
        f"""
        SELECT DISTINCT r.log_offset, p.topic
        FROM {lake.setting_records()} r JOIN {lake.until("partitions")} p USING (topic_id)
        WHERE r.record_type = 'REMOVE_TOPIC_RECORD'
        """
    )
