"""Dynamic configuration and features as of an offset, from the records that set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jbod_model.formats.codec import decode
from jbod_model.formats.records import TYPE_NAMES, ConfigRecord, FeatureLevelRecord, Record
from pipelines.lake.reader import Lake

MIN_ISR = "min.insync.replicas"
TIERED = "remote.storage.enable"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
_TOPIC, _BROKER = 2, 4


@dataclass(frozen=True)
class Setting:
    """The values of a topic configuration in the log."""

    topics: Mapping[str, str]
    """The values of topics that set it."""
    cluster: str | None
    """The dynamic default of all brokers, None if there is none."""


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

    The log does not contain the brokers' static server.properties.
    """
    said = setting(lake, MIN_ISR)
    return MinIsr(
        {topic: int(value) for topic, value in said.topics.items()},
        default if said.cluster is None else int(said.cluster),
    )


def setting(lake: Lake, name: str) -> Setting:
    """The values of one topic configuration. Values set on a single broker are ignored."""
    events: list[tuple[int, str, str | None]] = []
    for offset, value in _values(lake, ConfigRecord, name):
        record = decode(value, file=lake.path, offset=offset).record
        if isinstance(record, ConfigRecord) and record.name == name:
            if record.resource_type == _TOPIC:
                events.append((offset, record.resource_name, record.value))
            elif record.resource_type == _BROKER and record.resource_name == "":
                events.append((offset, "", record.value))
    if any(topic for _, topic, _ in events):
        events += [(offset, topic, None) for offset, topic in _removals(lake)]
    found: dict[str, str] = {}
    for _, topic, given in sorted(events, key=lambda event: event[0]):
        if given is None:
            found.pop(topic, None)
        else:
            found[topic] = given
    cluster = found.pop("", None)
    return Setting(found, cluster)


def tiered_topics(lake: Lake) -> frozenset[str]:
    """Topics that keep the older part of their log in remote storage.

    A disk failure affects only the local part of their data, which was not copied to remote storage yet.
    """
    return frozenset(topic for topic, value in setting(lake, TIERED).topics.items() if value == "true")


@dataclass(frozen=True)
class Change:
    """A change of a topic configuration: it is set or removed, its topic is removed, or a snapshot replaces all."""

    offset: int
    topic: str | None
    """"" for the dynamic default of all brokers. None if a snapshot begins."""
    value: str | None


def changes(lake: Lake, name: str) -> list[Change]:
    """Every change of one topic configuration in log order, including snapshots."""
    rows = lake.query(
        f"""
        SELECT log_offset, snapshot_index, value FROM {lake.setting_records()}
        WHERE record_type = $1 AND contains(hex(value), $2)
        UNION ALL SELECT DISTINCT log_offset, -1, NULL FROM {lake.setting_records()} WHERE snapshot
        ORDER BY log_offset, snapshot_index
        """,
        [TYPE_NAMES[ConfigRecord], name.encode().hex().upper()],
    )
    found = []
    for offset, _, value in rows:
        if value is None:
            found.append(Change(offset, None, None))
            continue
        record = decode(bytes(value), file=lake.path, offset=offset).record
        if not isinstance(record, ConfigRecord) or record.name != name:
            continue
        if record.resource_type == _TOPIC or (record.resource_type == _BROKER and not record.resource_name):
            found.append(Change(offset, record.resource_name, record.value))
    if any(change.topic for change in found):
        found += [Change(offset, topic, None) for offset, topic in _removals(lake)]
    return sorted(found, key=lambda change: change.offset)


def features(lake: Lake) -> dict[str, int]:
    """Levels of the finalized features, including ``metadata.version``."""
    found: dict[str, int] = {}
    for offset, value in _values(lake, FeatureLevelRecord):
        record = decode(value, file=lake.path, offset=offset).record
        if isinstance(record, FeatureLevelRecord):
            found[record.name] = record.feature_level
    return {name: level for name, level in sorted(found.items()) if level}  # R-FEATURE-1


def _values(lake: Lake, record_type: type[Record], containing: str = "") -> list[tuple[int, bytes]]:
    """Offset and value of the valid records of a type: a snapshot replaces all records before it."""
    asked = (TYPE_NAMES[record_type], containing.encode().hex().upper())
    if asked not in lake.setting_values:
        lake.setting_values[asked] = _read_values(lake, asked)
    return lake.setting_values[asked]


def _read_values(lake: Lake, asked: tuple[str, str]) -> list[tuple[int, bytes]]:
    rows = lake.query(
        f"""
        WITH s AS (SELECT coalesce(max(log_offset), -1) AS last FROM {lake.setting_records()} WHERE snapshot)
        SELECT log_offset, value FROM {lake.setting_records()}, s
        WHERE record_type = $1 AND (log_offset > s.last OR (snapshot AND log_offset = s.last))
          AND contains(hex(value), $2)
        ORDER BY log_offset, snapshot_index
        """,
        asked,
    )
    return [(offset, bytes(value)) for offset, value in rows]


def _removals(lake: Lake) -> list[tuple[int, str]]:
    """Offset and name of every removed topic. Its configuration was removed with it."""
    return lake.query(
        f"""
        SELECT DISTINCT r.log_offset, p.topic
        FROM {lake.setting_records()} r JOIN {lake.until("partitions")} p USING (topic_id)
        WHERE r.record_type = 'REMOVE_TOPIC_RECORD'
        """
    )
