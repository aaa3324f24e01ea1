"""Finds what is newer in a log than the reference controller (Kafka 4.4): an audit cannot decide about it."""

from __future__ import annotations

from collections.abc import Mapping

from jbod_model.controller.leader_updates import CORDONED_VERSION
from jbod_model.formats.metadata_version import (
    LEVEL_NAMES,
    LEVELS,
    METADATA_VERSION,
    partition_record_version,
    register_broker_record_version,
)
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    UnknownRecord,
    VersionedRecord,
)
from jbod_model.formats.request_log import NewerLine, RequestLine
from jbod_model.formats.requests import UpdateFeaturesRequest

NEWEST_LEVEL = LEVELS["4.4-IV2"]
"""The highest metadata.version whose records the reference controller knows."""

_WRITTEN: Mapping[type[Record], int] = {
    RegisterBrokerRecord: register_broker_record_version(NEWEST_LEVEL),
    BrokerRegistrationChangeRecord: CORDONED_VERSION,
    PartitionRecord: partition_record_version(NEWEST_LEVEL),
    PartitionChangeRecord: partition_record_version(NEWEST_LEVEL),
}
"""The highest version that the reference controller writes."""

_OF_BROKERS = frozenset({"BROKER_HEARTBEAT", "BROKER_REGISTRATION", "UNREGISTER_BROKER"})


def newer_level(level: int) -> str | None:
    """Why an audit cannot decide anything at this metadata.version; None if it can."""
    if level <= NEWEST_LEVEL:
        return None
    name = LEVEL_NAMES.get(level)
    if name is None:
        return f"metadata.version level {level} is not known to this audit"
    return f"Kafka {name.partition('-')[0]} is not known to this audit (metadata.version {name})"


def newer_record(versioned: VersionedRecord) -> str | None:
    """Why an audit cannot decide who wrote this record; None if it can."""
    record = versioned.record
    if isinstance(record, UnknownRecord):
        return f"record type {record.api_key} version {versioned.version} is not known to this audit"
    if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
        return newer_level(record.feature_level)
    highest = _WRITTEN.get(type(record))
    if highest is None or versioned.version <= highest:
        return None
    return f"{type(record).__name__} version {versioned.version} is not known to this audit"


def newer_line(line: RequestLine | NewerLine) -> str | None:
    """Why an audit cannot judge this request; None if it can."""
    if isinstance(line, NewerLine):
        return f"{line.api} version {line.version} is not known to this audit"
    if isinstance(line.request, UpdateFeaturesRequest):
        for update in line.request.feature_updates:
            if update.feature == METADATA_VERSION:
                return newer_level(update.max_version_level)
    return None


def may_have_caused(line: NewerLine, record: Record) -> bool:
    """Whether a request of which only the API and the broker are known may have caused ``record``."""
    broker_id = getattr(record, "broker_id", None)
    if line.api not in _OF_BROKERS:
        return broker_id is None
    return isinstance(record, PartitionChangeRecord) or (broker_id is not None and line.broker_id == broker_id)
