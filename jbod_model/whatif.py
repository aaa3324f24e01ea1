"""The state of a cluster after some of its directories and brokers fail at once (R-FAIL-1, R-LEADER-2).

The controller learns of failures one by one: of a directory from the next heartbeat of its broker, of a broker when its
session expires. So directories fail first, then brokers, each kind in the given order. A broker whose last online
directory fails stops, and counts as a failed broker.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jbod_model.controller import Context, Controller
from jbod_model.formats.records import PartitionChangeRecord, VersionedRecord
from jbod_model.formats.requests import (
    BrokerHeartbeatRequest,
    ElectUncleanLeaders,
    IncrementalAlterConfigsRequest,
    SessionExpired,
    UpdateFeaturesRequest,
)
from jbod_model.formats.responses import ControllerFault, IncrementalAlterConfigsResponse, InvalidConfig
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image, Partition
from jbod_model.replay.registrations import IllegalRecord

BEFORE_EVERY_SHUTDOWN = -2
"""A lowest active offset at which no shutdown is complete: a heartbeat that only reports does not end one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The failures, in the order in which the controller learns of them."""

    directories: Mapping[int, tuple[Uuid, ...]] = field(default_factory=dict)
    """By broker."""
    brokers: tuple[int, ...] = ()

    def noticed(self, image: Image) -> Failures:
        """The same failures, with every broker that has no directory left as a failed broker, and without
        duplicates."""
        directories: dict[int, tuple[Uuid, ...]] = {}
        stopped: list[int] = []
        for broker_id, failing in self.directories.items():
            listed = image.brokers[broker_id].directories
            if listed and set(listed) <= set(failing):
                stopped.append(broker_id)
            elif broker_id not in self.brokers:
                directories[broker_id] = failing
        return Failures(directories=directories, brokers=tuple(dict.fromkeys((*stopped, *self.brokers))))


def after(
    image: Image,
    failures: Failures,
    *,
    profile: Profile = KAFKA,
    static_configs: Mapping[str, str] | None = None,
) -> Image:
    """The image after the controller handled every failure; KeyError for a broker that is not registered.

    ControllerFault if Kafka's controller itself would fail.
    """
    noticed = failures.noticed(image)
    controller = Controller(profile)
    context = Context(static_configs=static_configs or {}, lowest_active_offset=BEFORE_EVERY_SHUTDOWN)
    for broker_id, failing in noticed.directories.items():
        registration = image.brokers[broker_id]
        report = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=registration.epoch,
            want_fence=registration.fenced,
            offline_log_dirs=tuple(directory for directory in registration.directories if directory in failing),
        )
        image = applied(image, controller.handle(image, report, context).records, profile)
    for broker_id in noticed.brokers:
        expired = SessionExpired(broker_id=broker_id)
        image = applied(image, controller.handle(image, expired, context).records, profile)
    return image


def configured(
    image: Image,
    request: IncrementalAlterConfigsRequest | UpdateFeaturesRequest,
    *,
    profile: Profile = KAFKA,
    static_configs: Mapping[str, str] | None = None,
) -> Image:
    """The image after a change of configurations or feature levels, and after the unclean elections that the controller
    then holds by itself (R-CFG-4, R-FEAT-4, R-ELECT-11).

    Raises the `RequestRefused` of the broken rule, InvalidConfig for the first resource that is refused, and
    ControllerFault if Kafka's controller itself would fail.
    """
    controller, context = Controller(profile), Context(static_configs=static_configs or {})
    answer = controller.handle(image, request, context)
    if isinstance(answer.response, IncrementalAlterConfigsResponse):
        for response in answer.response.responses:
            if response.error_code:
                raise InvalidConfig(response.error_message or "")
    image = applied(image, answer.records, profile)
    again = ElectUncleanLeaders(max_elections=sys.maxsize)
    return applied(image, controller.handle(image, again, context).records, profile)


def applied(image: Image, written: Sequence[VersionedRecord], profile: Profile = KAFKA) -> Image:
    """The image after the records of one answer: the same as `Image.apply` for each record, without a copy for each.

    ControllerFault for one that cannot be applied: below 3.7-IV2 it names no directories for new replicas, and the
    partition has some.
    """
    changed: dict[Uuid, dict[int, Partition]] = {}
    records = [versioned.record for versioned in written]
    for record in records:
        if isinstance(record, PartitionChangeRecord):
            partitions = changed.setdefault(record.topic_id, dict(image.topics[record.topic_id].partitions))
            try:
                partitions[record.partition_id] = partitions[record.partition_id].merge(record, image.ids, profile)
            except IllegalRecord as problem:
                name = image.topics[record.topic_id].name
                raise ControllerFault(f"{name}-{record.partition_id}: {problem}") from None
    topics = {
        topic_id: replace(image.topics[topic_id], partitions=partitions) for topic_id, partitions in changed.items()
    }
    image = replace(image, topics={**image.topics, **topics})
    for record in records:
        if not isinstance(record, PartitionChangeRecord):
            image = image.apply(record, 0, profile=profile)
    return image
