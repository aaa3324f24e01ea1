"""Clusters for plans: a log, and what kafka-log-dirs would print of the same brokers, with the size of each disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from jbod_model.formats import records as r
from jbod_model.formats.codec import encode
from jbod_model.formats.log import RECORDS_PER_BATCH, LogWriter
from jbod_model.formats.metadata_version import LEVELS
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import KAFKA_IDS, Uuid
from pipelines.lake.reader import Lake
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.support.lakes import in_memory, write_lake
from tests.support.logs import Entry

Partition = tuple[str, int]
TIME = 1_700_000_000_000_000
VERSIONS = {r.RegisterBrokerRecord: 4, r.PartitionRecord: 1}


def disk_id(broker: int, disk: int) -> Uuid:
    return Uuid(broker, 5_000 + disk)


def path_of(disk: int) -> str:
    return f"/data/{disk}"


@dataclass
class Broker:
    disks: int
    rack: str | None = None
    fenced: bool = False
    cordoned: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    """Disks that it does not list."""
    total: int = 1_000
    """The size of each disk."""


@dataclass
class Cluster:
    """Brokers, and partitions as broker -> disk with the size of each replica."""

    brokers: dict[int, Broker]
    placed: dict[Partition, dict[int, int]] = field(default_factory=dict)
    bytes: dict[Partition, int] = field(default_factory=dict)
    adding: dict[Partition, tuple[int, ...]] = field(default_factory=dict)
    out_of_sync: dict[Partition, tuple[int, ...]] = field(default_factory=dict)
    leaders: dict[Partition, int] = field(default_factory=dict)
    """The leaders that are not the first in sync."""
    future: dict[tuple[Partition, int], tuple[int, int]] = field(default_factory=dict)
    """(partition, broker) -> the disk that a move copies it to, and how many bytes are there."""
    unassigned: set[tuple[Partition, int]] = field(default_factory=set)
    """Replicas whose broker has not reported their directory."""
    min_isr: int = 1
    unclean: bool = False
    """Whether its topics elect replicas that were not in sync."""
    level: int = LEVELS["4.3-IV0"]

    def put(self, name: str, placed: Mapping[int, int], size: int = 10) -> Cluster:
        """Adds ``topic-0`` on broker -> disk."""
        topic, _, number = name.rpartition("-")
        self.placed[topic, int(number)] = dict(placed)
        self.bytes[topic, int(number)] = size
        return self

    @property
    def entries(self) -> list[Entry]:
        """Its log."""
        records: list[Record] = [r.FeatureLevelRecord(name="metadata.version", feature_level=self.level)]
        for number, node in self.brokers.items():
            records.append(
                r.RegisterBrokerRecord(
                    broker_id=number,
                    incarnation_id=Uuid(number, 9_000),
                    broker_epoch=len(records),
                    fenced=node.fenced,
                    rack=node.rack,
                    log_dirs=tuple(disk_id(number, disk) for disk in range(node.disks) if disk not in node.failed),
                    cordoned_log_dirs=tuple(disk_id(number, disk) for disk in node.cordoned),
                )
            )
        topics = {topic: Uuid(7, 100 + at) for at, topic in enumerate(dict.fromkeys(topic for topic, _ in self.placed))}
        for topic, topic_id in topics.items():
            records.append(r.TopicRecord(name=topic, topic_id=topic_id))
            set_to = {
                "min.insync.replicas": str(self.min_isr),
                "unclean.leader.election.enable": str(self.unclean).lower(),
            }
            for name, value in set_to.items():
                records.append(r.ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value))
        for (topic, number), placed in self.placed.items():
            dead = {
                broker for broker, disk in placed.items() if self.is_down(broker) or disk in self.brokers[broker].failed
            }
            late = dead | {*self.out_of_sync.get((topic, number), ())}
            in_sync = tuple(broker for broker in placed if broker not in late)
            records.append(
                r.PartitionRecord(
                    topic_id=topics[topic],
                    partition_id=number,
                    replicas=tuple(placed),
                    isr=in_sync,
                    leader=self.leaders.get((topic, number), in_sync[0] if in_sync else -1),
                    adding_replicas=self.adding.get((topic, number), ()),
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=tuple(
                        KAFKA_IDS.unassigned if ((topic, number), broker) in self.unassigned else disk_id(broker, disk)
                        for broker, disk in placed.items()
                    ),
                )
            )
        return [_entry(at, record) for at, record in enumerate(records)]

    def is_down(self, broker: int) -> bool:
        return broker not in self.brokers or self.brokers[broker].fenced

    def lake(self, path: Path | None = None) -> Lake:
        """In memory, or in a folder."""
        if path is None:
            return in_memory(self.entries)
        write_lake(path, self.entries)
        return Lake.open(path)

    def replayed(self, folder: Path) -> Lake:
        """Of a log that is written to a folder: for large clusters."""
        (folder / "__cluster_metadata-0").mkdir(parents=True)
        writer, records = LogWriter(), [entry.versioned for entry in self.entries]
        for at in range(0, len(records), RECORDS_PER_BATCH):
            writer.append(
                [record for record in records[at : at + RECORDS_PER_BATCH] if record], epoch=1, timestamp=TIME // 1_000
            )
        writer.write(folder / "__cluster_metadata-0")
        return LogLake.of(LogOptions(path=str(folder)), None, None, profile="kafka")

    def sizes(self, path: Path, *, capacity: bool = True) -> str:
        """A file that kafka-log-dirs --describe would print."""
        held: dict[tuple[int, int], list[Partition]] = {}
        for key, placed in self.placed.items():
            for place in placed.items():
                held.setdefault(place, []).append(key)
        brokers = [
            {"broker": number, "logDirs": [self._log_dir(number, disk, capacity, held) for disk in range(node.disks)]}
            for number, node in self.brokers.items()
            if not node.fenced
        ]
        path.write_text(json.dumps({"version": 1, "brokers": brokers}) + "\n")
        return str(path)

    def _log_dir(
        self, broker: int, disk: int, capacity: bool, of: Mapping[tuple[int, int], Sequence[Partition]]
    ) -> dict[str, Any]:
        failed = disk in self.brokers[broker].failed
        held: list[dict[str, Any]] = [
            {"partition": f"{topic}-{number}", "size": self.bytes[topic, number], "offsetLag": 0, "isFuture": False}
            for topic, number in (() if failed else of.get((broker, disk), ()))
        ]
        held += [
            {"partition": f"{topic}-{number}", "size": size, "offsetLag": 0, "isFuture": True}
            for ((topic, number), of), (to, size) in self.future.items()
            if (of, to) == (broker, disk)
        ]
        error = "org.apache.kafka.common.errors.KafkaStorageException" if failed else None
        description: dict[str, Any] = {"partitions": held, "error": error, "logDir": path_of(disk)}
        if capacity and not failed:
            total = self.brokers[broker].total
            used = sum(replica["size"] for replica in held)
            description |= {"totalBytes": total, "usableBytes": total - used}
        return description


def _entry(offset: int, record: Record) -> Entry:
    versioned = VersionedRecord(record, VERSIONS.get(type(record), 0))
    return Entry(offset, 1, TIME + offset * 1_000_000, offset, encode(versioned), versioned=versioned)


def replicas_of(document: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """``topic-0`` -> broker -> path, of a file that kafka-reassign-partitions takes."""
    return {
        f"{partition['topic']}-{partition['partition']}": dict(
            zip(partition["replicas"], partition["log_dirs"], strict=True)
        )
        for partition in document["partitions"]
    }


def three_disks(*sizes: int, total: int = 1_000) -> Cluster:
    """Broker 1 with three disks, the first of which has t-0, t-1, ... of these sizes; anchors on the others."""
    made = Cluster({1: Broker(3, total=total)})
    for number, size in enumerate(sizes):
        made.put(f"t-{number}", {1: 0}, size)
    return made.put("u-1", {1: 1}, 10).put("u-2", {1: 2}, 20)


def some_brokers(
    random: Random, number: int, racks: Sequence[str | None] = (None,), **fields: Any
) -> dict[int, Broker]:
    return {
        broker: Broker(random.choice((1, 2, 3)), rack=racks[broker % len(racks)], **fields)
        for broker in range(1, number + 1)
    }
