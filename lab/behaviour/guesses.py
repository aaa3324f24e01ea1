"""The actions that may have written the next records, read from the records themselves (R-BEHAVE-2).

A guess says who asked for what. What the controller then writes is computed, and compared with the log: a guess that is
wrong explains nothing. So guesses may be generous; only what no broker and no operator could ask for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product, takewhile
from typing import Any

from jbod_model.controller.context import NEVER, BrokerControlState
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from jbod_model.formats.requests import (
    CONFIG_DELETE,
    CONFIG_SET,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    AlterableConfig,
    AlterConfigsResource,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FeatureUpdate,
    IncrementalAlterConfigsRequest,
    ReplicaAssignment,
    SessionExpired,
    TopicConfig,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    UpdateFeaturesRequest,
)
from jbod_model.ids import Uuid
from jbod_model.replay.image import BrokerRegistration
from lab.behaviour.guess import Ahead, Guess
from lab.behaviour.partition_guesses import changes_of_partitions

_CAUGHT_UP = (1 << 63) - 1
"""A metadata offset past every registration: a broker may read as fast as it likes."""


def guesses(ahead: Ahead) -> Iterator[Guess]:
    """What may have written the first of the records ahead, the likeliest first; nothing for an empty sequence."""
    for record_type, generate in _BY_FIRST.items():
        if ahead.records and isinstance(ahead.records[0], record_type):
            yield from generate(ahead)


# BROKERS


def _after_partitions(ahead: Ahead) -> Iterator[Guess]:
    """Partitions that change because of the broker whose record follows them, else for a cause of their own."""
    for at, record in enumerate(ahead.records):
        if type(record) in _OF_BROKER:
            yield from _OF_BROKER[type(record)](ahead, at)
            break
    yield from changes_of_partitions(ahead)
    yield from _shutdowns_that_show_in_partitions_only(ahead)


def _is_change(record: Record) -> bool:
    return isinstance(record, PartitionChangeRecord)


def _registration_changes(ahead: Ahead, at: int = 0) -> Iterator[Guess]:
    """A session that expired, and every heartbeat whose parts the records have."""
    first = ahead.records[at]
    assert isinstance(first, BrokerRegistrationChangeRecord)
    registration = ahead.image.brokers.get(first.broker_id)
    if registration is None:
        return
    own = [
        record
        for record in takewhile(
            lambda next_record: _is_change(next_record) or _is_of(next_record, first.broker_id), ahead.records[at:]
        )
        if isinstance(record, BrokerRegistrationChangeRecord)
    ]
    expired = Guess(SessionExpired(broker_id=first.broker_id))
    if registration.fenced or not registration.in_controlled_shutdown:
        yield expired
    failed: list[tuple[Uuid, ...]] = [()]
    cordoned: list[tuple[Uuid, ...] | None] = [None]
    for change in own:
        if change.log_dirs or not (change.fenced or change.in_controlled_shutdown or change.cordoned_log_dirs):
            failed.append(
                tuple(directory for directory in registration.directories if directory not in change.log_dirs)
            )
        if change.cordoned_log_dirs is not None:
            cordoned.append(change.cordoned_log_dirs)
    for offline, cordons in product(reversed(failed[:2]), reversed(cordoned[:2])):
        yield from _heartbeats(registration, offline, cordons)
    yield expired


def _is_of(record: Record, broker_id: int) -> bool:
    return isinstance(record, BrokerRegistrationChangeRecord) and record.broker_id == broker_id


def _heartbeats(
    registration: BrokerRegistration, offline: tuple[Uuid, ...] = (), cordoned: tuple[Uuid, ...] | None = None
) -> Iterator[Guess]:
    """All that the broker may want. Whether it may stop already depends on what others have read (R-HB-2)."""
    for fence, shut_down in ((registration.fenced, False), (not registration.fenced, False), (False, True)):
        request = BrokerHeartbeatRequest(
            broker_id=registration.broker_id,
            broker_epoch=registration.epoch,
            current_metadata_offset=_CAUGHT_UP,
            want_fence=fence,
            want_shut_down=shut_down,
            offline_log_dirs=offline,
            cordoned_log_dirs=cordoned,
        )
        for stops in (True, False) if shut_down else (False,):
            yield Guess(request, {"controlled_shutdown_offset": 0 if stops else NEVER, "lowest_active_offset": 0})


def _shutdowns_that_show_in_partitions_only(ahead: Ahead) -> Iterator[Guess]:
    """A broker that was unfenced after it began to shut down is still registered as shutting down (R-LEADER-4)."""
    for registration in ahead.image.brokers.values():
        if registration.in_controlled_shutdown and not registration.fenced:
            for guess in _heartbeats(registration):
                yield Guess(guess.request, {**guess.circumstances, "state": BrokerControlState.UNFENCED})


def _registration(ahead: Ahead, at: int = 0) -> Iterator[Guess]:
    """The registration as it was asked for, after a clean shutdown or not."""
    record = ahead.records[at]
    assert isinstance(record, RegisterBrokerRecord)
    present = ahead.image.brokers.get(record.broker_id)
    for epoch in (-1,) if present is None else (-1, present.epoch):
        request = BrokerRegistrationRequest(
            broker_id=record.broker_id,
            incarnation_id=record.incarnation_id,
            listeners=record.end_points,
            features=record.features,
            rack=record.rack,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            log_dirs=record.log_dirs,
            previous_broker_epoch=epoch,
        )
        yield Guess(request)


def _unregistration(ahead: Ahead, at: int = 0) -> Iterator[Guess]:
    record = ahead.records[at]
    assert isinstance(record, UnregisterBrokerRecord)
    yield Guess(UnregisterBrokerRequest(broker_id=record.broker_id))


def _controller_gone(ahead: Ahead) -> Iterator[Guess]:
    record = ahead.records[0]
    assert isinstance(record, UnregisterControllerRecord)
    yield Guess(UnregisterControllerRequest(controller_id=record.controller_id))


# TOPICS


def _creation(ahead: Ahead) -> Iterator[Guess]:
    """All topics that follow each other, or the first alone. Where replicas were placed the log says."""
    topics: list[tuple[TopicRecord, list[TopicConfig], list[ReplicaAssignment]]] = []
    for record in ahead.records:
        if isinstance(record, TopicRecord):
            topics.append((record, [], []))
        elif isinstance(record, ConfigRecord) and record.resource_name == topics[-1][0].name and record.value:
            topics[-1][1].append(TopicConfig(name=record.name, value=record.value))
        elif isinstance(record, PartitionRecord) and record.topic_id == topics[-1][0].topic_id:
            assignment = ReplicaAssignment(partition_index=record.partition_id, broker_ids=record.replicas)
            topics[-1][2].append(assignment)
        elif not isinstance(record, ClearElrRecord):
            break
    for some in (topics, topics[:1]):
        creatable_topics = tuple(
            CreatableTopic(name=topic.name, configs=tuple(configs), assignments=tuple(placed))
            for topic, configs, placed in some
        )
        yield Guess(
            CreateTopicsRequest(topics=creatable_topics),
            {"new_topic_ids": tuple(topic_record.topic_id for topic_record, _, _ in some)},
        )


def _growth(ahead: Ahead) -> Iterator[Guess]:
    first = ahead.records[0]
    assert isinstance(first, PartitionRecord)
    topic = ahead.image.topics.get(first.topic_id)
    if topic is None:
        return
    placed = tuple(
        CreatePartitionsAssignment(broker_ids=record.replicas)
        for record in takewhile(
            lambda next_record: isinstance(next_record, PartitionRecord) and next_record.topic_id == first.topic_id,
            ahead.records,
        )
        if isinstance(record, PartitionRecord)
    )
    count = len(topic.partitions) + len(placed)
    yield Guess(
        CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=topic.name, count=count, assignments=placed),))
    )


def _deletion(ahead: Ahead) -> Iterator[Guess]:
    removed = _run(ahead.records, RemoveTopicRecord)
    for some in (removed, removed[:1]):
        yield Guess(DeleteTopicsRequest(topic_ids=tuple(removal.topic_id for removal in some)))


# CONFIGURATION


def _configuration(ahead: Ahead) -> Iterator[Guess]:
    """Values of topics and brokers, all that follow each other or the first alone; before levels, part of those."""
    values = _run(ahead.records, ConfigRecord)
    following = ahead.records[len(values)] if len(values) < len(ahead.records) else None
    if isinstance(following, FeatureLevelRecord):
        yield from _levels(_run(ahead.records[len(values) :], FeatureLevelRecord), ahead)
    for some in (values, values[:1]):
        resources = tuple(
            AlterConfigsResource(
                resource_type=value.resource_type, resource_name=value.resource_name, configs=(_alteration(value),)
            )
            for value in some
        )
        yield Guess(IncrementalAlterConfigsRequest(resources=resources))


def _alteration(record: ConfigRecord) -> AlterableConfig:
    operation = CONFIG_DELETE if record.value is None else CONFIG_SET
    return AlterableConfig(name=record.name, config_operation=operation, value=record.value)


def _feature_levels(ahead: Ahead) -> Iterator[Guess]:
    yield from _levels(_run(ahead.records, FeatureLevelRecord), ahead)


def _levels(levels: Sequence[FeatureLevelRecord], ahead: Ahead) -> Iterator[Guess]:
    for some in (levels, levels[:1]):
        updates = tuple(
            FeatureUpdate(
                feature=level.name,
                max_version_level=level.feature_level,
                upgrade_type=UPGRADE
                if level.feature_level >= ahead.image.features.get(level.name, 0)
                else UNSAFE_DOWNGRADE,
            )
            for level in some
        )
        yield Guess(UpdateFeaturesRequest(feature_updates=updates))


def _run(records: Sequence[Record], kind: type[Any]) -> list[Any]:
    return list(takewhile(lambda record: isinstance(record, kind), records))


_OF_BROKER: Mapping[type[Record], Callable[[Ahead, int], Iterator[Guess]]] = {
    BrokerRegistrationChangeRecord: _registration_changes,
    RegisterBrokerRecord: _registration,
    UnregisterBrokerRecord: _unregistration,
}
"""The record of a broker, at an index of the records ahead."""

_BY_FIRST: Mapping[type[Record], Callable[[Ahead], Iterator[Guess]]] = {
    PartitionChangeRecord: _after_partitions,
    BrokerRegistrationChangeRecord: _registration_changes,
    RegisterBrokerRecord: _registration,
    UnregisterBrokerRecord: _unregistration,
    UnregisterControllerRecord: _controller_gone,
    TopicRecord: _creation,
    PartitionRecord: _growth,
    RemoveTopicRecord: _deletion,
    ConfigRecord: _configuration,
    FeatureLevelRecord: _feature_levels,
}

MODELLED = tuple(_BY_FIRST)
"""Records that an action of the specification writes. What others say is free; what they do is not (R-BEHAVE-4)."""
