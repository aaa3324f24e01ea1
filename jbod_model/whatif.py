"""What becomes of a cluster when some of its directories and brokers fail at once (R-FAIL-1, R-LEADER-2).

The controller hears of failures one by one: of a directory in the next heartbeat of its broker, of a broker when its
session has expired. So directories come first, then brokers, each kind in the order given. A broker whose last online
directory fails stops, and counts as a broker that failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jbod_model.controller import Context, Controller
from jbod_model.formats.records import PartitionChangeRecord, Record
from jbod_model.formats.requests import BrokerHeartbeatRequest, SessionExpired
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image, Partition

BEFORE_EVERY_SHUTDOWN = -2
"""A lowest active offset with which no shutdown is over: a heartbeat that only reports does not end one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What fails, in the order in which the controller hears of it."""

    directories: Mapping[int, tuple[Uuid, ...]] = field(default_factory=dict)
    """By broker."""
    brokers: tuple[int, ...] = ()

    def noticed(self, image: Image) -> Failures:
        """The same with every broker that is left without a directory as a failed broker, and nothing twice."""
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
    """The image once the controller has answered every failure; KeyError for a broker that is not registered.

    ControllerFault where Kafka's controller itself would fail.
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
        image = applied(image, _records(controller, image, report, context), profile)
    for broker_id in noticed.brokers:
        image = applied(image, _records(controller, image, SessionExpired(broker_id=broker_id), context), profile)
    return image


def _records(
    controller: Controller, image: Image, request: BrokerHeartbeatRequest | SessionExpired, context: Context
) -> list[Record]:
    return [each.record for each in controller.handle(image, request, context).records]


def applied(image: Image, records: Sequence[Record], profile: Profile = KAFKA) -> Image:
    """The image after records of one answer, as `Image.apply` one by one, but without a copy for every record."""
    changed: dict[Uuid, dict[int, Partition]] = {}
    for record in records:
        if isinstance(record, PartitionChangeRecord):
            partitions = changed.setdefault(record.topic_id, dict(image.topics[record.topic_id].partitions))
            partitions[record.partition_id] = partitions[record.partition_id].merge(record, image.ids, profile)
    topics = {
        topic_id: replace(image.topics[topic_id], partitions=partitions) for topic_id, partitions in changed.items()
    }
    image = replace(image, topics={**image.topics, **topics})
    for record in records:
        if not isinstance(record, PartitionChangeRecord):
            image = image.apply(record, 0, profile=profile)
    return image
