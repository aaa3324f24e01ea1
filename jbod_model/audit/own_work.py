"""The work of a controller that no request asks for."""

from __future__ import annotations

from collections.abc import Iterator

from jbod_model.controller.election import NO_LEADER
from jbod_model.controller.leader_updates import FENCE
from jbod_model.formats.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, Record
from jbod_model.formats.requests import BalanceLeaders, ElectUncleanLeaders, Request, SessionExpired
from jbod_model.replay.image import Image

SESSION_EXPIRED = "session expired"


def own_work(image: Image, record: Record) -> Iterator[tuple[str, Request]]:
    """What may write ``record``: its name, and the operation of the controller."""
    if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCE:
        yield SESSION_EXPIRED, SessionExpired(broker_id=record.broker_id)
    if not isinstance(record, PartitionChangeRecord) or record.topic_id not in image.topics:
        return
    partition = image.topics[record.topic_id].partitions.get(record.partition_id)
    if partition is None:
        return
    for broker_id in partition.isr:
        yield SESSION_EXPIRED, SessionExpired(broker_id=broker_id)
    if record.leader == partition.replicas[0]:
        yield "leaders balanced", BalanceLeaders()
    if partition.leader == NO_LEADER:
        yield "unclean leaders elected", ElectUncleanLeaders()
