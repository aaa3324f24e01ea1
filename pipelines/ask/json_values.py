"""Answers as JSON: names in snake_case, times as ISO text, durations in seconds; and the whole state at an offset.

The state has the shape of a Kafka metadata image.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pipelines.lake.reader import Lake

_PLAIN = (str, int, bool, float, type(None))


def jsonable(answer: Any) -> Any:
    """Converts dataclasses and named tuples to objects, recursively. Keys of mappings do not change.

    A dataclass may leave out fields (``not_in_json``). Properties that it names in ``also_in_json`` come after them.
    """
    if type(answer) in _PLAIN:
        return answer
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        left_out = getattr(answer, "not_in_json", ())
        fields = [field.name for field in dataclasses.fields(answer) if field.name not in left_out]
        return members(answer, *fields, *getattr(answer, "also_in_json", ()))
    if isinstance(answer, tuple) and hasattr(answer, "_asdict"):
        return {name: jsonable(value) for name, value in answer._asdict().items()}
    if isinstance(answer, dict):
        return {name: jsonable(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [jsonable(value) for value in answer]
    if isinstance(answer, timedelta):
        return answer.total_seconds()
    return answer.isoformat() if isinstance(answer, datetime) else answer


def members(answer: Any, *names: str) -> dict[str, Any]:
    """The fields and properties of these names as JSON."""
    return {name: jsonable(getattr(answer, name)) for name in names}


@dataclasses.dataclass(frozen=True)
class DatedAnswer:
    """How an answer begins: the offset of the last record that it includes, and when that was appended."""

    offset: int
    time: datetime


@dataclasses.dataclass(frozen=True)
class NamedPartition:
    """How a row about a partition begins."""

    topic: str
    partition: int

    @property
    def name(self) -> str:
        """``topic-0``"""
        return f"{self.topic}-{self.partition}"


class RecordedEvent(NamedTuple):
    """What a record did, in words."""

    offset: int
    time: datetime
    what: str


_PARTITION = """json_object(
    'topic', p.topic, 'topicId', p.topic_id, 'partition', p.partition, 'replicas', p.replicas, 'isr', p.isr,
    'elr', p.elr, 'adding', p.adding, 'removing', p.removing, 'leader', p.leader, 'leaderEpoch', p.leader_epoch,
    'partitionEpoch', p.partition_epoch, 'directories', p.directories,
    'offlineReplicas', coalesce(o.down, []::INTEGER[]))"""
_BROKER = """json_merge_patch(json_object(
    'brokerId', broker_id, 'epoch', broker_epoch, 'incarnationId', incarnation_id, 'fenced', fenced,
    'inControlledShutdown', in_controlled_shutdown, 'logDirs', log_dirs),
    json_object('cordonedLogDirs', cordoned_log_dirs))"""
"""A merge leaves out null values: those of brokers that never listed cordoned directories."""


def image(lake: Lake) -> dict[str, Any]:
    """``{"op", "offset", "partitions", "brokers"}``: topics by name, partitions and brokers ascending.

    Their keys are Kafka's. The object has ``incomplete_since`` if there are unknown records (R-REC-4).
    """
    cluster_image: dict[str, Any] = json.loads("".join(image_text(lake)))
    return cluster_image


def image_text(lake: Lake) -> Iterator[str]:
    """The same as JSON text in pieces, of some thousand partitions each: DuckDB writes it while it is read."""
    yield f'{{"op":"image","offset":{lake.offset},"partitions":['
    yield from _joined(_partitions(lake))
    yield '],"brokers":['
    yield from _joined(lake.stream(f"SELECT {_BROKER} FROM {lake.at('brokers')} ORDER BY broker_id"))
    missing = lake.incomplete_since
    yield "]}" if missing is None else f'],"incomplete_since":{json.dumps(missing.as_json())}}}'


def java_order(name: str) -> bytes:
    """Sort key that orders as Java's ``String.compareTo`` does: by UTF-16 units."""
    return name.encode("utf-16-be", "surrogatepass")


def _partitions(lake: Lake) -> Iterator[list[tuple[Any, ...]]]:
    topics = lake.query(f"SELECT DISTINCT topic FROM {lake.at('partitions')}")
    return lake.stream(
        f"""
        WITH t AS (SELECT unnest($1::VARCHAR[]) AS topic, unnest(range(len($1::VARCHAR[]))) AS place)
        SELECT {_PARTITION}
        FROM {lake.at("partitions")} p JOIN t ON p.topic = t.topic
        LEFT JOIN {lake.offline_brokers()} o USING (topic_id, partition)
        ORDER BY t.place, p.partition
        """,
        [sorted((topic for (topic,) in topics), key=java_order)],
    )


def _joined(batches: Iterator[list[tuple[Any, ...]]]) -> Iterator[str]:
    for number, rows in enumerate(batches):
        if number:
            yield ","
        yield ",".join(text for (text,) in rows)
