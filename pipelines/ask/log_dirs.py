"""The log directories that a source describes: the output of kafka-log-dirs, brokers, or disks that are mounted."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from jbod_model.errors import UsageError
from jbod_model.storage.properties import FILE_NAME, read_meta_properties
from pipelines.quorum import KAFKA
from pipelines.quorum.brokers import describe_log_dirs, error_name
from pipelines.quorum.client import addresses_of
from pipelines.quorum.security import security_of

_FOLDER = re.compile(r"(?P<partition>.+-\d{1,10})(?:\.[0-9A-Za-z_-]{22,32}-(?P<kind>future|delete|stray))?")


class ReplicaSize(NamedTuple):
    """A replica in a directory."""

    partition: str
    """``topic-0``"""
    bytes: int
    """The size of its log segments. Indexes are not counted."""
    future: bool
    """Whether it is the copy that a move between disks makes."""


@dataclass(frozen=True)
class BrokerLogDir:
    """A log directory of a broker."""

    source: str
    broker_id: int | None
    """None for a mounted disk that says no node id."""
    path: str
    error: str
    """Why its broker cannot read it; empty if it can."""
    replicas: Sequence[ReplicaSize]
    time: datetime
    """When the source said it: of a file, when it was written."""
    directory_id: str | None = None
    """The id in meta.properties; None if the source names paths only."""
    cluster_id: str | None = None
    total_bytes: int | None = None
    """The size of its file system, if the source says it."""
    free_bytes: int | None = None
    cordoned: bool | None = None
    """Whether its broker places no new replica in it; None if the source does not say it."""


def read_log_dirs(path: Path, text: str) -> Iterator[BrokerLogDir]:
    """The directories in the output of ``kafka-log-dirs --describe``. Other lines of the tool are passed over.

    Raises UsageError if it is no such output.
    """
    time = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    for line in text.splitlines():
        if not line.lstrip().startswith("{"):
            continue
        try:
            for broker in json.loads(line)["brokers"]:
                for log_dir in broker["logDirs"]:
                    yield BrokerLogDir(
                        source=str(path),
                        broker_id=int(broker["broker"]),
                        path=str(log_dir["logDir"]),
                        error=str(log_dir.get("error") or ""),
                        replicas=[
                            ReplicaSize(str(one["partition"]), int(one.get("size", 0)), bool(one.get("isFuture")))
                            for one in log_dir["partitions"]
                        ],
                        time=time,
                        total_bytes=_bytes(log_dir.get("totalBytes")),
                        free_bytes=_bytes(log_dir.get("usableBytes")),
                    )
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise UsageError(f"{path}: not the output of kafka-log-dirs --describe ({problem!r})") from None


def is_log_dirs(text: str) -> bool:
    """Whether a text can be the output of ``kafka-log-dirs --describe``."""
    return '"logDirs"' in text and re.search(r"^\s*\{", text, re.MULTILINE) is not None


def read_brokers(url: str, command_config: str) -> tuple[str, list[BrokerLogDir], list[str]]:
    """What the brokers of a cluster answer (``kafka://HOST:PORT[,HOST:PORT...]``): the cluster id, the directories, and
    why a broker did not answer, a line each.

    Raises UsageError for another URL, and Fault if none can be asked.
    """
    now = datetime.now(UTC)
    said = describe_log_dirs(addresses_of(url), security_of(command_config))
    found = [
        BrokerLogDir(
            source=f"{KAFKA}{broker.address}",
            broker_id=broker.broker_id,
            path=one["log_dir"],
            error=error_name(one["error_code"]),
            replicas=[
                ReplicaSize(f"{topic['name']}-{each['index']}", max(0, each["size"]), each["is_future"])
                for topic in one["topics"]
                for each in topic["partitions"]
            ],
            time=now,
            total_bytes=_bytes(one["total_bytes"]),
            free_bytes=_bytes(one["usable_bytes"]),
            cordoned=one.get("is_cordoned"),
        )
        for broker in said.brokers
        for one in broker.directories
    ]
    return said.cluster_id, found, [f"broker {broker} is left out: {fault}" for broker, fault in said.faults]


def read_mounted(directory: Path) -> BrokerLogDir:
    """A mounted disk with its meta.properties. Raises StorageProblem or OSError if it cannot be read."""
    meta = read_meta_properties(str(directory))
    usage = shutil.disk_usage(directory)
    return BrokerLogDir(
        source=str(directory / FILE_NAME),
        broker_id=meta.node_id,
        path=str(directory.absolute()),
        error="",
        replicas=[*_folders(directory)],
        time=datetime.now(UTC),
        directory_id=None if meta.directory_id is None else str(meta.directory_id),
        cluster_id=meta.cluster_id,
        total_bytes=usage.total,
        free_bytes=usage.free,
    )


def _folders(directory: Path) -> Iterator[ReplicaSize]:
    """The replicas in a directory. A folder that Kafka is about to delete counts until it is gone."""
    for folder in sorted(directory.iterdir()):
        found = _FOLDER.fullmatch(folder.name)
        if found is not None and folder.is_dir():
            segments = (one.stat().st_size for one in folder.iterdir() if one.suffix == ".log")
            name = found["partition"] if found["kind"] in (None, "future") else folder.name
            yield ReplicaSize(name, sum(segments), found["kind"] == "future")


def _bytes(value: object) -> int | None:
    """A number of bytes. Kafka says -1 if it does not know."""
    return value if isinstance(value, int) and value >= 0 else None
