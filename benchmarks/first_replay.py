"""``jbod replay`` from nothing to all tables, and Kafka's own reader of the same log, whole commands in turn.

    python -m benchmarks.first_replay DIR [--only partitions|topics|snapshot] [--rounds 3]

Three logs, made once in DIR: 2,000,000 partitions with their history; 400,000 topics of one partition and five replicas
on 300 brokers; and a log that begins with a snapshot of the first. Prints the median times and their ratio: above 1,
jbod is faster. It needs Maven and a JDK, and some minutes to make the snapshot.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from benchmarks.scale import HERE, SHAPE, command
from jbod_model.formats.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from jbod_model.formats.log import RECORDS_PER_BATCH, LogWriter
from jbod_model.formats.metadata_version import METADATA_VERSION
from jbod_model.formats.records import (
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.ids import Uuid
from pipelines.ask.configs import features
from pipelines.lake.reader import Lake

PARTITIONS = 2_000_000
TOPICS = (400_000, 300, 12, 5, 1, 256 << 20, 20)
"""Partitions, brokers, disks of each, replicas, partitions of a topic, bytes of a segment, disk failures."""
TIME = 1_800_000_000_000
EPOCH = 1
OF_BROKERS, OF_PARTITIONS = 3, 2
"""Versions of the records."""


def java() -> list[str]:
    """The command for the programs of benchmarks/baseline."""
    build = subprocess.run([HERE / "baseline" / "build.sh"], stdout=subprocess.PIPE, text=True, check=True)
    return ["java", "-cp", build.stdout.strip()]


def made(folder: Path, *shape: int) -> Path:
    """A log of ``jbod.MakeLog``."""
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([*java(), "jbod.MakeLog", str(folder), *map(str, shape)], stdout=sys.stderr, check=True)
        (folder / ".complete").touch()
    return folder


def with_snapshot(folder: Path, log: Path) -> Path:
    """A log of a snapshot of ``log`` and one more record."""
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            command(["replay", str(log), "--lake", scratch])
            lake = Lake.open(scratch)
            end = lake.offset + 1
            writer = LogWriter()
            header, footer = [SnapshotHeaderRecord(last_contained_log_timestamp=TIME)], [SnapshotFooterRecord()]
            writer.append(header, epoch=EPOCH, timestamp=TIME)
            records = state_of(lake)
            while batch := list(islice(records, RECORDS_PER_BATCH)):
                writer.append(batch, epoch=EPOCH, timestamp=TIME)
            writer.append(footer, epoch=EPOCH, timestamp=TIME)
        (folder / f"{end:020d}-{EPOCH:010d}.checkpoint").write_bytes(writer.bytes)
        tail = LogWriter(base_offset=end)
        tail.append([VersionedRecord(NoOpRecord(), 0)], epoch=EPOCH, timestamp=TIME)
        tail.write(folder)
        (folder / ".complete").touch()
    return folder


def state_of(lake: Lake) -> Iterator[VersionedRecord]:
    """The records of a snapshot of the lake's last offset, a topic's partitions after the topic."""
    level = features(lake)[METADATA_VERSION]
    yield VersionedRecord(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level), 0)
    for broker, epoch, incarnation, fenced, directories in lake.query(
        f"SELECT broker_id, broker_epoch, incarnation_id, fenced, log_dirs FROM {lake.at('brokers')} ORDER BY 1"
    ):
        yield VersionedRecord(
            RegisterBrokerRecord(
                broker_id=broker,
                broker_epoch=epoch,
                incarnation_id=Uuid.parse(incarnation),
                fenced=fenced,
                log_dirs=tuple(map(Uuid.parse, directories)),
            ),
            OF_BROKERS,
        )
    known: dict[str, Uuid] = {}
    rows = lake.stream(
        "SELECT topic_id, topic, partition, replicas, isr, leader, leader_epoch, partition_epoch, directories "
        f"FROM {lake.at('partitions')} ORDER BY topic_id, partition"
    )
    before = ""
    for topic_id, topic, number, replicas, isr, leader, leader_epoch, epoch, directories in (
        row for batch in rows for row in batch
    ):
        if topic_id != before:
            before = topic_id
            yield VersionedRecord(TopicRecord(name=topic, topic_id=Uuid.parse(topic_id)), 0)
        for text in directories:
            if text not in known:
                known[text] = Uuid.parse(text)
        yield VersionedRecord(
            PartitionRecord(
                partition_id=number,
                topic_id=Uuid.parse(topic_id),
                replicas=tuple(replicas),
                isr=tuple(isr),
                leader=leader,
                leader_epoch=leader_epoch,
                partition_epoch=epoch,
                directories=tuple(known[text] for text in directories),
            ),
            OF_PARTITIONS,
        )


def main() -> None:
    """Measure each log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=("partitions", "topics", "snapshot"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)

    def partitions() -> Path:
        return made(folder / f"log-{PARTITIONS}", PARTITIONS, *SHAPE)

    logs: dict[str, Callable[[], Path]] = {
        "partitions": partitions,
        "topics": lambda: made(folder / "log-topics", *TOPICS),
        "snapshot": lambda: with_snapshot(folder / "log-snapshot", partitions()),
    }
    lake = folder / "first-replay"
    print("| log | jbod | Kafka's reader | ratio | with each pair |\n| --- | --- | --- | --- | --- |")
    for name in [options.only] if options.only else logs:
        log = logs[name]()
        pairs = []
        for _ in range(options.rounds):
            began = time.perf_counter()
            subprocess.run([*java(), "jbod.ReadLog", str(log)], stdout=subprocess.DEVNULL, check=True)
            theirs = time.perf_counter() - began
            shutil.rmtree(lake, ignore_errors=True)
            os.sync()
            pairs.append((command(["replay", str(log), "--lake", str(lake)], sampled=False)[0], theirs))
        ours, theirs = (statistics.median(pair[at] for pair in pairs) for at in range(2))
        each = ", ".join(f"{kafka / jbod:.2f}" for jbod, kafka in pairs)
        print(f"| {name} | {ours:.2f} s | {theirs:.2f} s | {theirs / ours:.2f} | {each} |", flush=True)
    shutil.rmtree(lake, ignore_errors=True)


if __name__ == "__main__":
    main()
