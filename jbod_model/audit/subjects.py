"""Which records a request could have caused at all, by their type and their subject."""

from __future__ import annotations

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
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from jbod_model.formats.requests import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    Request,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    UpdateFeaturesRequest,
)
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
    if isinstance(request, (BrokerHeartbeatRequest, BrokerRegistrationRequest, UnregisterBrokerRequest)):
        if isinstance(record, _OF_BROKERS):
            return record.broker_id == request.broker_id
        return isinstance(record, PartitionChangeRecord)
    if isinstance(request, UnregisterControllerRequest):
        return isinstance(record, UnregisterControllerRecord) and record.controller_id == request.controller_id
    if isinstance(request, AssignReplicasToDirsRequest):
        return isinstance(record, PartitionChangeRecord) and any(
            asked.partition_index == record.partition_id
            for directory in request.directories
            for topic in directory.topics
            if topic.topic_id == record.topic_id
            for asked in topic.partitions
        )
    if isinstance(request, AlterPartitionRequest):
        return isinstance(record, PartitionChangeRecord) and any(
            asked.partition_index == record.partition_id
            for topic in request.topics
            if topic.topic_id == record.topic_id
            for asked in topic.partitions
        )
    if isinstance(request, AlterPartitionReassignmentsRequest):
        return isinstance(record, PartitionChangeRecord) and _named(image, record, {one.name for one in request.topics})
    if isinstance(request, ElectLeadersRequest):
        return isinstance(record, PartitionChangeRecord)
    if isinstance(request, CreateTopicsRequest):
        return isinstance(record, TopicRecord) and any(record.name == topic.name for topic in request.topics)
    if isinstance(request, CreatePartitionsRequest):
        return isinstance(record, PartitionRecord) and _named(image, record, {one.name for one in request.topics})
    if isinstance(request, DeleteTopicsRequest):
        return isinstance(record, RemoveTopicRecord) and record.topic_id in request.topic_ids
    return isinstance(request, UpdateFeaturesRequest) and isinstance(
        record, (FeatureLevelRecord, ConfigRecord, ClearElrRecord)
    )


def _named(image: Image, record: PartitionRecord | PartitionChangeRecord, names: set[str]) -> bool:
    topic = image.topics.get(record.topic_id)
    return topic is not None and topic.name in names
