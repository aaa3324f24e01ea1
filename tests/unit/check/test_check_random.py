"""Checks over random operations on Kafka's own controller, beside what the model says of the same records."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from jbod_model.ids import KAFKA_IDS
from jbod_model.replay.image import Image
from jbod_model.replay.offline import offline_replicas
from jbod_model.replay.registrations import Partition
from pipelines.check.catalogue import run_checks
from pipelines.lake.reader import Lake
from tests.support.lakes import write_lake
from tests.support.logs import read_file
from tests.support.paths import TRACES

RECORDS = 1250


@pytest.mark.exhaustive
def test_checks_of_random_operations_agree_with_the_model(tmp_path: Path) -> None:
    segment = tmp_path / "segment.log"
    segment.write_bytes(gzip.decompress((TRACES / "seed2.log.gz").read_bytes()))
    entries = [entry for entry, _ in zip(read_file(segment), range(RECORDS), strict=False)]
    image = write_lake(tmp_path / "lake", entries).image
    findings = run_checks(Lake.open(tmp_path / "lake"))
    assert len({finding.key for finding in findings}) == len(findings)
    seen = {
        check: {finding.subject for finding in findings if finding.check.id == check}
        for check in ("B-03", "B-04", "B-06")
    }
    assert seen == expected(image)
    assert all(seen.values())
    hopeless = {
        finding.subject for finding in findings if finding.check.id == "B-17" and "min.insync" not in finding.finding
    }
    assert hopeless == without_use(image)


def expected(image: Image) -> dict[str, set[str]]:
    assert all(broker.directories and not broker.fenced for broker in image.brokers.values())
    by_check: dict[str, set[str]] = {"B-03": set(), "B-04": set(), "B-06": set()}
    for name, partition in partitions(image):
        reasons = offline_replicas(image, partition)
        for broker_id, directory in zip(partition.replicas, partition.directories, strict=True):
            subject = f"{name} on broker {broker_id}"
            if directory == KAFKA_IDS.lost:
                by_check["B-06"].add(subject)
            elif KAFKA_IDS.kind(directory) == "assigned" and reasons.get(broker_id) == "directory offline":
                by_check["B-03"].add(subject)
            in_sync = broker_id in partition.isr and len(partition.isr) > 1
            if str(reasons.get(broker_id)).startswith("directory") and (partition.leader == broker_id or in_sync):
                by_check["B-04"].add(subject)
    return by_check


def without_use(image: Image) -> set[str]:
    return {
        name
        for name, partition in partitions(image)
        if partition.leader == -1 or len(offline_replicas(image, partition)) == len(partition.replicas)
    }


def partitions(image: Image) -> Iterator[tuple[str, Partition]]:
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            yield f"{topic.name}-{number}", partition
