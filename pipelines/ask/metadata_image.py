"""The whole state at an offset, in the shape of a Kafka metadata image."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pipelines.lake.reader import Lake

_PARTITION = """json_object(
    'topic', p.topic, 'topicId', p.topic_id, 'partition', p.partition, 'replicas', p.replicas, 'isr', p.isr,
    'elr', p.elr, 'adding', p.adding, 'removing', p.removing, 'leader', p.leader, 'leaderEpoch', p.leader_epoch,
    'partitionEpoch', p.partition_epoch, 'directories', p.directories,
    'offlineReplicas', coalesce(o.brokers, []::INTEGER[]))"""
_BROKER = """json_merge_patch(json_object(
    'brokerId', broker_id, 'epoch', broker_epoch, 'incarnationId', incarnation_id, 'fenced', fenced,
    'inControlledShutdown', in_controlled_shutdown, 'logDirs', log_dirs),
    json_object('cordonedLogDirs', cordoned_log_dirs))"""
"""A merge leaves out null values: those of brokers that never listed cordoned directories."""


def image(lake: Lake) -> dict[str, Any]:
    """``{"op", "offset", "partitions", "brokers"}``: topics by name, partitions and brokers ascending.

    It has ``incompleteSince`` if there are unknown records (R-REC-4).
    """
    found: dict[str, Any] = json.loads("".join(image_text(lake)))
    return found


def image_text(lake: Lake) -> Iterator[str]:
    """The same as JSON text in pieces, one per topic: DuckDB writes it, so that large images take seconds."""
    yield f'{{"op":"image","offset":{lake.offset},"partitions":['
    yield from _joined(text for _, text in sorted(_topics(lake), key=lambda topic: java_order(topic[0])))
    yield '],"brokers":['
    yield from _joined(text for (text,) in lake.query(f"SELECT {_BROKER} FROM {lake.at('brokers')} ORDER BY broker_id"))
    missing = lake.incomplete_since
    yield "]}" if missing is None else f'],"incompleteSince":{json.dumps(missing.as_json())}}}'


def java_order(name: str) -> bytes:
    """Sort key that orders as Java's ``String.compareTo`` does: by UTF-16 units."""
    return name.encode("utf-16-be", "surrogatepass")


def _topics(lake: Lake) -> list[tuple[Any, ...]]:
    return lake.query(
        f"""
        WITH o AS (
            SELECT topic_id, partition, list(broker_id ORDER BY replica_index) AS brokers
            FROM {lake.at("offline_replicas")} GROUP BY ALL
        )
        SELECT p.topic, string_agg({_PARTITION}, ',' ORDER BY p.partition)
        FROM {lake.at("partitions")} p LEFT JOIN o USING (topic_id, partition)
        GROUP BY p.topic, p.topic_id
        """
    )


def _joined(texts: Iterator[str]) -> Iterator[str]:
    for index, text in enumerate(texts):
        if index:
            yield ","
        yield text
