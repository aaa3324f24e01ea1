"""Reads from the log where the controller placed replicas at random, so that everything else can be computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jbod_model.audit.knowledge import drawn_ids
from jbod_model.formats.records import PartitionRecord, VersionedRecord
from jbod_model.formats.requests import (
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    ReplicaAssignment,
    Request,
)
from jbod_model.formats.responses import CreateTopicsResponse, Response
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image

PLACED = "placement taken from the log"


def as_placed(
    request: Request, response: Response, upcoming: Sequence[VersionedRecord], image: Image
) -> tuple[Request, bool]:
    """``request`` with the replicas in ``upcoming`` for what it leaves to the placer, and whether any were taken.

    Only placements with the requested number of partitions and replicas are taken.
    """
    if isinstance(request, CreateTopicsRequest) and isinstance(response, CreateTopicsResponse):
        ids = drawn_ids(response)
        sizes = {one.name: (one.num_partitions, one.replication_factor) for one in response.topics}
        topics = tuple(_topic(topic, ids.get(topic.name), sizes.get(topic.name), upcoming) for topic in request.topics)
        return replace(request, topics=topics), topics != request.topics
    if isinstance(request, CreatePartitionsRequest):
        grown = tuple(_growth(topic, image, upcoming) for topic in request.topics)
        return replace(request, topics=grown), grown != request.topics
    return request, False


def _topic(
    topic: CreatableTopic, topic_id: Uuid | None, size: tuple[int, int] | None, upcoming: Sequence[VersionedRecord]
) -> CreatableTopic:
    if topic_id is None or topic.assignments:
        return topic
    default_partitions, default_replicas = size or (-1, -1)
    partitions = default_partitions if topic.num_partitions == -1 else topic.num_partitions
    replicas = default_replicas if topic.replication_factor == -1 else topic.replication_factor
    placed = _replicas(topic_id, upcoming, 0, partitions)
    if len(placed) != partitions or any(len(each) != replicas for _, each in placed):
        return topic
    assignments = tuple(ReplicaAssignment(partition_index=index, broker_ids=each) for index, each in placed)
    return replace(topic, num_partitions=-1, replication_factor=-1, assignments=assignments)


def _growth(topic: CreatePartitionsTopic, image: Image, upcoming: Sequence[VersionedRecord]) -> CreatePartitionsTopic:
    present = image.topic(topic.name)
    if present is None or topic.assignments is not None:
        return topic
    first = len(present.partitions)
    placed = _replicas(present.topic_id, upcoming, first, topic.count)
    if first + len(placed) != topic.count:
        return topic
    return replace(topic, assignments=tuple(CreatePartitionsAssignment(broker_ids=each) for _, each in placed))


def _replicas(
    topic_id: Uuid, upcoming: Sequence[VersionedRecord], first: int, end: int
) -> list[tuple[int, tuple[int, ...]]]:
    """(partition, replicas) of the topic's partitions ``first`` to ``end`` - 1, as their records have them."""
    return [
        (each.record.partition_id, each.record.replicas)
        for each in upcoming
        if isinstance(each.record, PartitionRecord)
        and each.record.topic_id == topic_id
        and first <= each.record.partition_id < end
    ]
