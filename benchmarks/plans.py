"""``jbod plan`` on clusters of two sizes: seconds and memory of whole commands, and how far from the bound they are.

    python -m benchmarks.plans DIR [--only NAME] [--seed N]

Makes logs and the output of kafka-log-dirs in DIR once: a broker of 12 disks with 4,000 replicas, and 100 brokers of 12
disks in 5 racks with 200,000 partitions of 3 replicas. Sizes are lognormal, and some disks are nearly empty, as after
replacements. Each disk is 4 TB.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks.scale import command
from jbod_model.formats.log import RECORDS_PER_BATCH, LogWriter
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.formats.records import (
    FeatureLevelRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.ids import Uuid

SHAPES = {"broker": (1, 1, 4_000, 1), "cluster": (100, 5, 200_000, 3)}
"""Brokers, racks, partitions, replicas of each."""
DISKS, DISK_BYTES, OF_TOPIC = 12, 4 * 10**12, 50
QUESTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "broker": (("balance", "1"), ("drain", "1:{first}"), ("balance", "1", "--by", "replicas")),
    "cluster": (("balance",), ("drain", "7:{first}"), ("drain", "7"), ("balance", "--by", "leaders"), ("repair",)),
}
VERSIONS = {RegisterBrokerRecord: 4, PartitionRecord: 1}
TIME = 1_800_000_000_000


def made(folder: Path, brokers: int, racks: int, partitions: int, replicas: int, seed: int) -> Path:
    """A log and ``sizes.txt``."""
    if (folder / "sizes.txt").exists():
        return folder
    (folder / "__cluster_metadata-0").mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    held: dict[tuple[int, int], list[tuple[str, int]]] = {
        (broker, disk): [] for broker in range(1, brokers + 1) for disk in range(DISKS)
    }
    share = {place: chance.choice((0.1, 0.6, 1.0, 1.0, 1.6)) for place in held}
    mean = 0.45 * DISK_BYTES * len(held) / (partitions * replicas)
    writer = LogWriter()
    records = _records(chance, held, share, brokers, racks, partitions, replicas, mean)
    while some := [*islice(records, RECORDS_PER_BATCH)]:
        writer.append(
            [VersionedRecord(record, VERSIONS.get(type(record), 0)) for record in some], epoch=1, timestamp=TIME
        )
    writer.write(folder / "__cluster_metadata-0")
    _write_sizes(folder, held)
    return folder


def _records(
    chance: random.Random,
    held: dict[tuple[int, int], list[tuple[str, int]]],
    share: dict[tuple[int, int], float],
    brokers: int,
    racks: int,
    partitions: int,
    replicas: int,
    mean: float,
) -> Iterator[Record]:
    yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVELS["4.3-IV0"])
    for broker in range(1, brokers + 1):
        yield RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=Uuid(broker, 9_000),
            broker_epoch=broker,
            fenced=False,
            rack=f"rack {broker % racks}",
            log_dirs=tuple(Uuid(broker, 5_000 + disk) for disk in range(DISKS)),
            cordoned_log_dirs=(),
        )
    for topic in range(-(-partitions // OF_TOPIC)):
        topic_id = Uuid(7, 1_000 + topic)
        yield TopicRecord(name=f"topic-{topic:05}", topic_id=topic_id)
        for number in range(min(OF_TOPIC, partitions - topic * OF_TOPIC)):
            first = chance.randrange(brokers)
            of = [(first + at) % brokers + 1 for at in range(replicas)]
            size = int(mean * chance.lognormvariate(-0.5, 1.0))
            on = []
            for broker in of:
                disks = [(broker, disk) for disk in range(DISKS)]
                place = chance.choices(disks, [share[candidate] for candidate in disks])[0]
                held[place].append((f"topic-{topic:05}-{number}", size))
                on.append(place)
            yield PartitionRecord(
                topic_id=topic_id,
                partition_id=number,
                replicas=tuple(of),
                isr=tuple(of),
                leader=of[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(Uuid(broker, 5_000 + disk) for broker, disk in on),
            )


def _write_sizes(folder: Path, held: dict[tuple[int, int], list[tuple[str, int]]]) -> None:
    log_dirs_of: dict[int, list[dict[str, object]]] = {}
    for (broker, disk), replicas in held.items():
        used = sum(size for _, size in replicas)
        log_dirs_of.setdefault(broker, []).append(
            {
                "logDir": f"/data/{disk}",
                "error": None,
                "partitions": [
                    {"partition": name, "size": size, "offsetLag": 0, "isFuture": False} for name, size in replicas
                ],
                "totalBytes": DISK_BYTES,
                "usableBytes": max(0, DISK_BYTES - used),
            }
        )
    brokers = [{"broker": broker, "logDirs": log_dirs} for broker, log_dirs in log_dirs_of.items()]
    (folder / "sizes.txt").write_text(json.dumps({"version": 1, "brokers": brokers}) + "\n")


def main() -> None:
    """Prints a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=SHAPES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"seed {given.seed}")
    for name, shape in SHAPES.items():
        if given.only not in (None, name):
            continue
        folder = made(given.folder / f"plans-{name}-{given.seed}", *shape, given.seed)
        for words in QUESTIONS[name]:
            first = str(Uuid(int(words[1].split(":")[0]), 5_000)) if ":" in words[-1] else ""
            call = ["plan", *(word.format(first=first) for word in words)]
            call += ["--log", str(folder), "--sizes", str(folder / "sizes.txt"), "--bytes", "20Ti", "--moves", "5000"]
            seconds, peak, output = command([*call, "--format", "json"])
            answer = json.loads(output)
            more = answer["bytes"] / answer["bound"] - 1 if answer["bound"] and answer["measure"] == "bytes" else 0
            print(
                f"{name:8} {' '.join(words):28} {seconds:6.1f} s {peak:6,} MB  {len(answer['steps'])} steps, "
                f"{answer['replicas']:,} replicas, {answer['bytes']:,} bytes ({more:+.1%} of the bound), "
                f"spread {answer['spread']:.3f} -> {answer['spread_after']:.3f}"
            )


if __name__ == "__main__":
    main()
