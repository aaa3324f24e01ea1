"""Groups of records whose order Kafka defines, although the order within a group is that of a hash table
(R-TRACE-8)."""

from __future__ import annotations

from collections.abc import Callable

from jbod_model.controller import ControllerMemory
from jbod_model.formats.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, VersionedRecord
from jbod_model.formats.requests import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Request,
    UnregisterBrokerRequest,
)
from jbod_model.ids import Uuid
from jbod_model.replay.image import BrokerRegistration, Image

NOWHERE = -1
"""The group of a partition that is in none of the broker's directories: its record has another cause."""

Phase = Callable[[PartitionChangeRecord], int]


def phases(
    request: Request, image: Image, memory: ControllerMemory, records: tuple[VersionedRecord, ...]
) -> list[int] | None:
    """The group of each partition's record, in order; None if the request has no groups.

    After a failure of directories Kafka writes one directory after the other. After a registration or unregistration it
    writes the in-sync partitions before the eligible ones. Heartbeats that also change the broker's state, and stale
    indexes, are left out, because one partition can be in two groups there.
    """
    phase = _phase(request, image, memory, records)
    if phase is None:
        return None
    groups = [phase(versioned.record) for versioned in records if isinstance(versioned.record, PartitionChangeRecord)]
    return None if NOWHERE in groups else groups


def _phase(
    request: Request, image: Image, memory: ControllerMemory, records: tuple[VersionedRecord, ...]
) -> Phase | None:
    if isinstance(request, BrokerHeartbeatRequest):
        broker = image.brokers.get(request.broker_id)
        if broker is None or any(_changes_state(versioned) for versioned in records):
            return None
        if request.want_shut_down and broker.in_controlled_shutdown:  # a broker may begin to shut down without a record
            return None
        return lambda record: _directory_index(image, record, broker)
    if isinstance(request, (BrokerRegistrationRequest, UnregisterBrokerRequest)):
        broker_id = request.broker_id
        if any(_stale(image, broker_id, *entry) for entry in memory.eligible(broker_id)):
            return None
        return lambda record: _out_of_sync(image, record, broker_id)
    return None


def _changes_state(versioned: VersionedRecord) -> bool:
    record = versioned.record
    return isinstance(record, BrokerRegistrationChangeRecord) and (
        record.fenced != 0 or record.in_controlled_shutdown != 0
    )


def _directory_index(image: Image, record: PartitionChangeRecord, broker: BrokerRegistration) -> int:
    """The broker's directory that the partition is in; `NOWHERE` if there are several, as a directory may change
    brokers."""
    partition = image.partition(record.topic_id, record.partition_id)
    if partition is None or broker.broker_id not in partition.replicas:
        return NOWHERE
    if len(set(partition.directories) & set(broker.directories)) > 1:
        return NOWHERE
    directory = partition.directory(broker.broker_id)
    return broker.directories.index(directory) if directory in broker.directories else NOWHERE


def _out_of_sync(image: Image, record: PartitionChangeRecord, broker_id: int) -> int:
    partition = image.partition(record.topic_id, record.partition_id)
    return int(partition is None or broker_id not in partition.isr)


def _stale(image: Image, broker_id: int, topic_id: Uuid, partition_id: int) -> bool:
    partition = image.partition(topic_id, partition_id)
    return partition is None or broker_id not in partition.eligible_leader_replicas
