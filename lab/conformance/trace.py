"""A trace: one JSON object a line, plain or gzipped (R-TRACE-2).

A line is ``bootstrap`` (the first records), an operation (``op``, ``request``, ``context``, ``response`` or
``error``, ``exception`` where Kafka failed, ``records``) or ``image`` (the whole state at that point).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.formats.json_values import JsonMismatch, read
from jbod_model.formats.records import VersionedRecord
from jbod_model.formats.schema import SCHEMAS, TYPE_OF_NAME
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image
from jbod_model.replay.offline import offline_replicas
from jbod_model.replay.registrations import BrokerRegistration

LONGEST_LINE = 1 << 26
"""The most characters of one line. An image of a million partitions has about 400 MB; that of a trace some hundred
kB."""


def read_trace(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object) of each line; UsageError if the file does not exist, MalformedLog if it is not a
    trace."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file; give a trace (.jsonl or .jsonl.gz)")
    try:
        with _open(path) as lines:
            number = 0
            while line := lines.readline(LONGEST_LINE):
                number += 1
                if len(line) == LONGEST_LINE:
                    raise MalformedLog(str(path), -1, f"line {number} is longer than {LONGEST_LINE} characters")
                yield number, _parse(path, number, line)
            if number == 0:
                raise MalformedLog(str(path), -1, "the trace is empty")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
        raise MalformedLog(str(path), -1, f"the file cannot be read to the end: {problem}") from None


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise MalformedLog(str(path), -1, f"line {number} is not JSON: {problem}") from None
    if not isinstance(value, dict) or not isinstance(value.get("op"), str):
        raise MalformedLog(str(path), -1, f'line {number} is not an operation: it needs an "op"')
    return value


def recorded_records(line: dict[str, Any]) -> tuple[VersionedRecord, ...]:
    """The records that Kafka wrote for an operation; JsonMismatch for anything that is not a record."""
    records = []
    entries = line.get("records", [])
    if not isinstance(entries, list):
        raise JsonMismatch("records: a list is needed")
    for entry in entries:
        record_type = TYPE_OF_NAME.get(str(entry.get("type"))) if isinstance(entry, dict) else None
        if record_type is None:
            raise JsonMismatch(f"records: {entry!r:.80} names no record type")
        version = entry.get("version")
        if type(version) is not int or not 0 <= version <= SCHEMAS[record_type.__name__].max_version:
            raise JsonMismatch(f"records: {entry['type']} has no version {version!r}")
        records.append(VersionedRecord(read(record_type, entry.get("data")), version))
    return tuple(records)


def image_as_json(
    image: Image, offset: int, *, profile: Profile = KAFKA, cordons: bool | None = None
) -> dict[str, Any]:
    """The image at ``offset`` as a JSON object: topics by name, partitions and brokers ascending.

    A broker that listed its cordoned directories has ``cordonedLogDirs``. With ``cordons`` every broker has it, []
    if it listed none. With False no broker has it.
    """
    return {
        "op": "image",
        "offset": offset,
        "partitions": [
            {
                "topic": name,
                "topicId": str(topic_id),
                "partition": number,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "elr": list(partition.eligible_leader_replicas),
                "adding": list(partition.adding_replicas),
                "removing": list(partition.removing_replicas),
                "leader": partition.leader,
                "leaderEpoch": partition.leader_epoch,
                "partitionEpoch": partition.partition_epoch,
                "directories": [str(directory) for directory in partition.directories],
                "offlineReplicas": list(offline_replicas(image, partition, profile=profile)),
            }
            for name, topic_id in sorted(image.topic_ids.items())
            for number, partition in sorted(image.topics[topic_id].partitions.items())
        ],
        "brokers": [
            {
                "brokerId": broker.broker_id,
                "epoch": broker.epoch,
                "incarnationId": str(broker.incarnation_id),
                "fenced": broker.fenced,
                "inControlledShutdown": broker.in_controlled_shutdown,
                "logDirs": [str(directory) for directory in broker.directories],
                **_cordons(broker, cordons),
            }
            for _, broker in sorted(image.brokers.items())
        ],
    }


def _cordons(broker: BrokerRegistration, cordons: bool | None) -> dict[str, list[str]]:
    if cordons is False or (cordons is None and broker.cordoned_directories is None):
        return {}
    return {"cordonedLogDirs": [str(directory) for directory in broker.cordoned_directories or ()]}
