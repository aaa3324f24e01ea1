"""A small cluster to ask a controller about: every answer is checked to leave the state as it was, then applied."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from jbod_model.controller import Context, Controller, ControllerMemory, Result
from jbod_model.formats.metadata_version import LEVELS
from jbod_model.formats.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    VersionedRecord,
)
from jbod_model.formats.requests import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerState,
    CreatableTopic,
    CreateTopicsRequest,
    ReplicaAssignment,
    Request,
)
from jbod_model.formats.responses import RequestRefused
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image, Partition

R = TypeVar("R", bound=Record)

UNASSIGNED, LOST, MIGRATING = KAFKA_IDS.unassigned, KAFKA_IDS.lost, KAFKA_IDS.migrating
LATEST = "4.1-IV1"
CLUSTER = "JBODtestCluster0123456"


def directory(broker_id: int, number: int = 0) -> Uuid:
    """The id of a broker's directory."""
    return Uuid(1 + broker_id, 1000 + number)


def topic_id(number: int) -> Uuid:
    return Uuid(7777, number)


def incarnation(number: int) -> Uuid:
    return Uuid(5555, number)


FEATURES = (
    BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=34),
    BrokerFeature(name="eligible.leader.replicas.version", min_supported_version=0, max_supported_version=1),
    BrokerFeature(name="transaction.version", min_supported_version=0, max_supported_version=2),
)


class World:
    """A controller and the metadata it has written."""

    def __init__(
        self, metadata_version: str = LATEST, *, elr: bool = False, min_isr: int = 1, profile: Profile = KAFKA
    ) -> None:
        self.profile = profile
        self.image = Image(ids=KAFKA_IDS)
        self.memory = ControllerMemory()
        self.offset = 0
        self.topics = 0
        self.apply(FeatureLevelRecord(name="metadata.version", feature_level=LEVELS[metadata_version]))
        if elr:
            self.apply(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
        self.config("", "min.insync.replicas", str(min_isr))

    # THE STATE

    def apply(self, record: Record) -> None:
        """Make a record part of the metadata."""
        self.memory.before(record, self.image)
        self.image = self.image.apply(record, self.offset, profile=self.profile)
        self.offset += 1

    def config(self, resource: str, name: str, value: str | None, resource_type: int = 4) -> None:
        self.apply(ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value))

    def allow_unclean(self, topic: str) -> None:
        self.config(topic, "unclean.leader.election.enable", "true", resource_type=2)

    def set(self, topic: str, partition: int = 0, **fields: Any) -> None:
        """Overwrite parts of a partition's state."""
        before = self.partition(topic, partition)
        values = {name: getattr(before, name) for name in Partition.__dataclass_fields__} | fields
        self.apply(PartitionRecord(partition_id=partition, topic_id=self.id(topic), **values))

    def id(self, topic: str) -> Uuid:
        return self.image.topic_ids[topic]

    def partition(self, topic: str, partition: int = 0) -> Partition:
        return self.image.topics[self.id(topic)].partitions[partition]

    def epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].epoch

    # ASKING

    def look(self, request: Request, **context: Any) -> Result:
        """The answer to a request, without applying it; the state is as it was (R-CTL-6)."""
        before = copy.deepcopy(self.image)
        known: dict[str, Any] = {"next_offset": self.offset, "memory": self.memory, "cluster_id": CLUSTER}
        result = Controller(self.profile).handle(self.image, request, Context(**(known | context)))
        assert self.image == before
        return result

    def ask(self, request: Request, **context: Any) -> Result:
        """The answer to a request, whose records are applied."""
        result = self.look(request, **context)
        for versioned in result.records:
            self.apply(versioned.record)
        return result

    def refuse(self, error: type[RequestRefused], request: Request, **context: Any) -> RequestRefused:
        """The refusal of a request; nothing changes."""
        before = copy.deepcopy(self.image)
        with pytest.raises(error) as caught:
            self.look(request, **context)
        assert type(caught.value) is error
        assert self.image == before
        return caught.value

    # SHORTHANDS

    def registration(
        self, broker_id: int, *log_dirs: Uuid, process: int = 0, **fields: Any
    ) -> BrokerRegistrationRequest:
        listener = BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092 + broker_id)
        values = {"cluster_id": CLUSTER, "listeners": (listener,), "features": FEATURES} | fields
        return BrokerRegistrationRequest(
            broker_id=broker_id, incarnation_id=incarnation(100 * broker_id + process), log_dirs=log_dirs, **values
        )

    def brokers(self, *broker_ids: int, dirs: int = 2, unfenced: bool = True) -> World:
        """Register brokers with some directories each, and unfence them."""
        for broker_id in broker_ids:
            self.ask(self.registration(broker_id, *(directory(broker_id, number) for number in range(dirs))))
            if unfenced:
                self.ask(self.heartbeat(broker_id))
        return self

    def heartbeat(self, broker_id: int, *offline: Uuid, **fields: Any) -> BrokerHeartbeatRequest:
        values = {"broker_epoch": self.epoch(broker_id), "current_metadata_offset": self.offset} | fields
        return BrokerHeartbeatRequest(broker_id=broker_id, offline_log_dirs=offline, **values)

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.ask(self.heartbeat(broker_id, want_fence=True))

    def topic(self, name: str, *partitions: Sequence[int]) -> Uuid:
        """Create a topic with these replicas."""
        assignments = tuple(
            ReplicaAssignment(partition_index=index, broker_ids=tuple(replicas))
            for index, replicas in enumerate(partitions)
        )
        self.topics += 1
        request = CreateTopicsRequest(topics=(CreatableTopic(name=name, assignments=assignments),))
        self.ask(request, new_topic_ids=(topic_id(self.topics),))
        return self.id(name)

    def assignment(
        self, broker_id: int, *entries: tuple[Uuid, Uuid, int], **fields: Any
    ) -> AssignReplicasToDirsRequest:
        """An assignment of (directory, topic id, partition) entries, one directory each."""
        values = {"broker_epoch": self.epoch(broker_id)} | fields
        return AssignReplicasToDirsRequest(
            broker_id=broker_id,
            directories=tuple(
                AssignedDirectory(
                    id=where,
                    topics=(AssignedTopic(topic_id=topic, partitions=(AssignedPartition(partition_index=partition),)),),
                )
                for where, topic, partition in entries
            ),
            **values,
        )

    def assign(self, broker_id: int, where: Uuid, topic: str, partition: int = 0) -> Result:
        return self.ask(self.assignment(broker_id, (where, self.id(topic), partition)))

    def isr_request(self, topic: str, *members: int, partition: int = 0, **fields: Any) -> AlterPartitionRequest:
        """What the partition's leader sends to change the in-sync set."""
        state = self.partition(topic, partition)
        values = {"leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch} | fields
        change = AlterPartitionPartition(
            partition_index=partition,
            new_isr_with_epochs=tuple(
                BrokerState(broker_id=member, broker_epoch=self.epoch(member) if member in self.image.brokers else -1)
                for member in members
            ),
            **values,
        )
        return AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=self.epoch(state.leader),
            topics=(AlterPartitionTopic(topic_id=self.id(topic), partitions=(change,)),),
        )


def plain(result: Result) -> list[Record]:
    """The records without their versions."""
    return [versioned.record for versioned in result.records]


def of(result: Result, record_type: type[R]) -> list[R]:
    """The records of one type."""
    return [record for record in plain(result) if isinstance(record, record_type)]


def versions(records: Sequence[VersionedRecord]) -> list[int]:
    return [versioned.version for versioned in records]


def changes(result: Result) -> list[dict[str, Any]]:
    """What each PartitionChangeRecord changes: its fields that are not at their default."""
    default = PartitionChangeRecord()
    return [
        {
            name: getattr(record, name)
            for name in PartitionChangeRecord.__dataclass_fields__
            if name not in ("topic_id", "partition_id") and getattr(record, name) != getattr(default, name)
        }
        for record in of(result, PartitionChangeRecord)
    ]
