"""The model against Kafka's own images: real clusters at every offset, random traces after every 50 operations."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jbod_model.formats import json_values
from jbod_model.formats.log import LogReader, LogWriter, MetadataLog, Start, write_snapshot
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.formats.schema import TYPE_OF_NAME
from jbod_model.ids import ZERO
from jbod_model.replay.image import Image, snapshot_records
from jbod_model.replay.transactions import images
from lab.conformance.trace import image_as_json
from tests.support.kafka_images import kafka_images
from tests.support.paths import EVERY_KAFKA, TRACES, metadata_dir, nodes
from tests.support.traces import IMAGES, NAMES, lines
from tests.support.volume import sampled

IN_A_TRANSACTION = {"kafka-3.9.2-zk-migration": {39}}
"""Offsets where the program that asked Kafka for its image did not mind an open transaction."""

NODES = [(kafka, node) for kafka in EVERY_KAFKA for node in nodes(kafka)]


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as source:
        yield from map(json.loads, source)


def expected(kafka: str) -> dict[int, dict[str, Any]]:
    return {image["offset"]: image for image in kafka_images(kafka)}


@pytest.mark.parametrize("start", ["earliest", "snapshot"])
@pytest.mark.parametrize(("kafka", "node"), sampled(NODES, 12))
def test_image_of_a_real_cluster_equals_kafkas_at_every_offset(kafka: str, node: str, start: Start) -> None:
    """docs/spec/replay.md: each node's copy, the log alone and from its snapshot."""
    reader = LogReader(MetadataLog.open(metadata_dir(kafka, node)), start=start)
    ours = dict(images(reader))
    first = reader.snapshot.end_offset - 1 if reader.snapshot else 0
    known = expected(kafka)
    offsets = {offset for offset in known if first <= offset < reader.next_offset}
    compared = offsets - IN_A_TRANSACTION.get(kafka, set())
    assert compared
    for offset in compared:
        assert image_as_json(ours[offset], offset, cordons=False) == known[offset]


def test_image_in_an_open_transaction_is_the_one_before_it() -> None:
    """R-TXN-4: Kafka's image of offset 39 has ten partitions that its brokers did not see before offset 41."""
    kafka, offset = "kafka-3.9.2-zk-migration", 39
    entries = list(LogReader(MetadataLog.open(metadata_dir(kafka))))
    ours = dict(images(entries))
    assert max(at for at in ours if at <= offset) == 23
    unsettled = Image()
    for entry in entries[: offset + 1]:
        if isinstance(entry.record, VersionedRecord):
            unsettled = unsettled.apply(entry.record.record, entry.offset)
    assert image_as_json(unsettled, offset) == expected(kafka)[offset]
    assert ours[41] == unsettled


@pytest.mark.parametrize("kafka", EVERY_KAFKA)
def test_written_snapshot_and_tail_equal_the_log_at_every_offset(kafka: str, tmp_path: Path) -> None:
    """R-SNAP-1, invariants 23 and 24, from metadata.version 3.7-IV2 on."""
    log = MetadataLog.open(metadata_dir(kafka))
    whole = [(o, i) for o, i in images(LogReader(log)) if i.features.get("metadata.version", 0) >= 17]
    for offset, image in whole[:: len(whole) // 12]:
        path = write_snapshot(tmp_path, snapshot_records(image), end_offset=offset + 1, epoch=1, timestamp=1)
        (again,) = dict(images(LogReader(MetadataLog.open(tmp_path)))).items()
        assert again == (offset, image)
        path.unlink()


def test_written_snapshot_before_directories_has_none(tmp_path: Path) -> None:
    """R-SNAP-2: what Kafka itself writes at metadata.version 3.6-IV2, and then reads as MIGRATING."""
    reader = LogReader(MetadataLog.open(metadata_dir("kafka-3.9.2-upgrade")))
    image = next(i for _, i in images(reader) if i.topics and i.features["metadata.version"] < 17)
    old = replace(image, brokers={n: replace(b, directories=(ZERO,)) for n, b in image.brokers.items()})
    path = write_snapshot(tmp_path, snapshot_records(old), end_offset=1, epoch=1, timestamp=1)
    assert path.exists()
    ((_, again),) = images(LogReader(MetadataLog.open(tmp_path)))
    assert {broker.directories for broker in again.brokers.values()} == {()}
    assert again.topics == image.topics


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_rewritten_log_of_any_batch_size_gives_the_same_image(size: int, tmp_path: Path) -> None:
    """Invariant 27: through our encoder and decoder."""
    entries = list(LogReader(MetadataLog.open(metadata_dir("kafka-4.1.2"))))
    writer = LogWriter()
    versioned = [entry.record for entry in entries if isinstance(entry.record, VersionedRecord)]
    for at in range(0, len(versioned), size):
        writer.append(versioned[at : at + size], epoch=1, timestamp=1)
    writer.write(tmp_path)
    *_, (_, again) = images(LogReader(MetadataLog.open(tmp_path)))
    *_, (_, image) = images(entries)
    assert again == image


# TRACES


def record_of(line: dict[str, Any]) -> Record:
    """The record that a line of a trace has as JSON."""
    return json_values.read(TYPE_OF_NAME[line["type"]], line["data"])


def replay_trace(name: str) -> int:
    """Replay a trace; how many of its images were equal."""
    image, equal = Image(), 0
    for line in lines(name):
        if line["op"] == "image":
            cordons = any("cordonedLogDirs" in broker for broker in line["brokers"])
            assert image_as_json(image, line["offset"], cordons=cordons) == line
            equal += 1
        for index, record in enumerate(line.get("records", ())):
            image = image.apply(record_of(record), line["baseOffset"] + index)
    return equal


@pytest.mark.parametrize("name", sampled(NAMES, 3))
def test_image_of_a_trace_equals_kafkas_after_every_50_operations(name: str) -> None:
    """docs/spec/replay.md: metadata versions before, with and after directories, with and without eligible leaders."""
    assert replay_trace(name) > IMAGES


def test_image_of_a_trace_as_a_log_equals_kafkas(tmp_path: Path) -> None:
    """docs/spec/formats.md: trace 2 as Kafka's own segment."""
    segment = gzip.decompress((TRACES / "seed2.log.gz").read_bytes())
    (tmp_path / f"{0:020d}.log").write_bytes(segment)
    wanted = {line["offset"]: line for line in json_lines(TRACES / "seed2.jsonl.gz") if line["op"] == "image"}
    last = max(wanted)
    last_image = None
    for offset, image in images(LogReader(MetadataLog.open(tmp_path))):
        last_image = image if offset == last else last_image
    assert last_image is not None
    assert image_as_json(last_image, last) == wanted[last]
