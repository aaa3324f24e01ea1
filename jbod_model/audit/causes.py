"""What may have caused a record: a request, by its type and subject, or work that no request asks for.

An audit cannot decide about what is newer than the reference controller (Kafka 4.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jbod_model.controller.leader_updates import CORDONED_VERSION, FENCE
from jbod_model.controller.partition_change import NO_LEADER
from jbod_model.formats import requests
from jbod_model.formats.metadata_version import (
    LEVEL_NAMES,
    LEVELS,
    METADATA_VERSION,
    partition_record_version,
    register_broker_record_version,
)
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnknownRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    VersionedRecord,
)
from jbod_model.formats.request_log import NewerLine, RequestLine
from jbod_model.formats.requests import Request
from jbod_model.replay.image import Image

CAUSED = (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    TopicRecord,
    RemoveTopicRecord,
    PartitionRecord,
    PartitionChangeRecord,
    FeatureLevelRecord,
)
"""Types of the first record that an audited request can write."""

_OF_BROKERS = (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)


def may_begin_with(request: Request, record: Record, image: Image) -> bool:
    """Whether ``record`` can be the first that ``request`` caused in the state ``image``."""
    if isinstance(
        request, (requests.BrokerHeartbeatRequest, requests.BrokerRegistrationRequest, requests.UnregisterBrokerRequest)
    ):
        if isinstance(record, _OF_BROKERS):
            return record.broker_id == request.broker_id
        return isinstance(record, PartitionChangeRecord)
    if isinstance(request, requests.UnregisterControllerRequest):
        return isinstance(record, UnregisterControllerRecord) and record.controller_id == request.controller_id
    if isinstance(request, requests.AssignReplicasToDirsRequest):
        return isinstance(record, PartitionChangeRecord) and any(
            asked.partition_index == record.partition_id
            for directory in request.directories
            for topic in directory.topics
            if topic.topic_id == record.topic_id
            for asked in topic.partitions
        )
    if isinstance(request, requests.AlterPartitionRequest):
        return isinstance(record, PartitionChangeRecord) and any(
            asked.partition_index == record.partition_id
            for topic in request.topics
            if topic.topic_id == record.topic_id
            for asked in topic.partitions
        )
    if isinstance(request, requests.AlterPartitionReassignmentsRequest):
        return isinstance(record, PartitionChangeRecord) and _named(image, record, {one.name for one in request.topics})
    if isinstance(request, requests.ElectLeadersRequest):
        return isinstance(record, PartitionChangeRecord)
    if isinstance(request, requests.CreateTopicsRequest):
        return isinstance(record, TopicRecord) and any(record.name == topic.name for topic in request.topics)
    if isinstance(request, requests.CreatePartitionsRequest):
        return isinstance(record, PartitionRecord) and _named(image, record, {one.name for one in request.topics})
    if isinstance(request, requests.DeleteTopicsRequest):
        return isinstance(record, RemoveTopicRecord) and record.topic_id in request.topic_ids
    return isinstance(request, requests.UpdateFeaturesRequest) and isinstance(
        record, (FeatureLevelRecord, ConfigRecord, ClearElrRecord)
    )


def _named(image: Image, record: PartitionRecord | PartitionChangeRecord, names: set[str]) -> bool:
    topic = image.topics.get(record.topic_id)
    return topic is not None and topic.name in names


SESSION_EXPIRED = "session expired"


def own_work(image: Image, record: Record) -> Iterator[tuple[str, Request]]:
    """What may write ``record``: its name, and the operation of the controller."""
    if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCE:
        yield SESSION_EXPIRED, requests.SessionExpired(broker_id=record.broker_id)
    if not isinstance(record, PartitionChangeRecord) or record.topic_id not in image.topics:
        return
    partition = image.topics[record.topic_id].partitions.get(record.partition_id)
    if partition is None:
        return
    for broker_id in partition.isr:
        yield SESSION_EXPIRED, requests.SessionExpired(broker_id=broker_id)
    if record.leader == partition.replicas[0]:
        yield "leaders balanced", requests.BalanceLeaders()
    if partition.leader == NO_LEADER:
        yield "unclean leaders elected", requests.ElectUncleanLeaders()


NEWEST_LEVEL = LEVELS["4.4-IV2"]
"""The highest metadata.version whose records the reference controller knows."""

_WRITTEN: Mapping[type[Record], int] = {
    RegisterBrokerRecord: register_broker_record_version(NEWEST_LEVEL),
    BrokerRegistrationChangeRecord: CORDONED_VERSION,
    PartitionRecord: partition_record_version(NEWEST_LEVEL),
    PartitionChangeRecord: partition_record_version(NEWEST_LEVEL),
}
"""The highest version that the reference controller writes."""

_APIS_OF_BROKERS = frozenset({"BROKER_HEARTBEAT", "BROKER_REGISTRATION", "UNREGISTER_BROKER"})


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
    if isinstance(line.request, requests.UpdateFeaturesRequest):
        for update in line.request.feature_updates:
            if update.feature == METADATA_VERSION:
                return newer_level(update.max_version_level)
    return None


def may_have_caused(line: NewerLine, record: Record) -> bool:
    """Whether a request of which only the API and the broker are known may have caused ``record``."""
    broker_id = getattr(record, "broker_id", None)
    if line.api not in _APIS_OF_BROKERS:
        return broker_id is None
    return isinstance(record, PartitionChangeRecord) or (broker_id is not None and line.broker_id == broker_id)
