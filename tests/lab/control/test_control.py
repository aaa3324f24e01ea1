"""A stream of requests in place of a controller: what it writes is a log that Kafka reads."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jbod_model.audit.knowledge import LONGEST_MS, Arrivals
from jbod_model.formats.json_values import dump_lines
from jbod_model.formats.log import LogReader, LogWriter, MetadataLog
from jbod_model.formats.metadata_version import LEVELS
from jbod_model.formats.records import NoOpRecord, RegisterBrokerRecord, VersionedRecord
from jbod_model.formats.request_log import RequestLine
from jbod_model.formats.request_log_file import RequestLog
from jbod_model.formats.requests import BrokerRegistrationRequest, CreateTopicsRequest
from jbod_model.replay.image import Image
from lab.conformance.trace import image_as_json
from lab.control.control import Control, default_features
from lab.control.hints import Hints
from tests.support import kafka_dump
from tests.support.paths import CLUSTERS, GOLDEN

KAFKA = "kafka-4.1.2"


def _lines(kafka: str = KAFKA) -> list[RequestLine]:
    return list(RequestLog(CLUSTERS / kafka / "requests-100.log.gz").requests())


def _control(lines: Iterable[RequestLine], directory: Path, level: int | None = None) -> Control:
    """The controller after ``lines``, and its log in ``directory``."""
    requests = list(lines)
    hints = Hints.of(requests)
    controller = Control(hints, default_features(level or hints.metadata_version, hints.supports))
    writer = LogWriter()
    for line in Arrivals([iter(requests)]).in_order():
        controller.handle(line)
        controller.drain(writer)
    writer.write(directory)
    return controller


def _records(directory: Path) -> list[tuple[int, Any]]:
    log = LogReader(MetadataLog.open(directory))
    return [(entry.offset, entry.record.record) for entry in log if isinstance(entry.record, VersionedRecord)]


def test_the_log_it_writes_is_dumped_by_kafkas_tool_as_it_was_meant(tmp_path: Path) -> None:
    _control(_lines(), tmp_path)
    (segment,) = MetadataLog.open(tmp_path).segments
    theirs = gzip.decompress((GOLDEN / "control_dump_4.1.2.txt.gz").read_bytes()).decode()
    assert list(dump_lines(segment.path)) == list(kafka_dump.lines(theirs))


def test_kafkas_image_of_the_log_is_the_state_of_the_controller(tmp_path: Path) -> None:
    controller = _control(_lines(), tmp_path)
    theirs = json.loads(gzip.decompress((GOLDEN / "control_image_4.1.2.json.gz").read_bytes()))
    assert image_as_json(controller.image, controller.next_offset - 1) == theirs
    replayed = Image()
    for offset, record in _records(tmp_path):
        replayed = replayed.apply(record, offset)
    assert replayed == controller.image


@pytest.mark.parametrize(
    ("kafka", "level", "most_others"),
    [("kafka-4.1.2", None, 24), ("kafka-3.7.2", None, 22), ("kafka-3.9.2-upgrade", LEVELS["3.6-IV2"], 3)],
)
def test_a_real_stream_is_answered_as_its_controller_did_but_for_guessed_replicas(
    tmp_path: Path, kafka: str, level: int | None, most_others: int
) -> None:
    lines = _lines(kafka)
    outcome = _control(lines, tmp_path, level).outcome
    assert outcome.applied.total() + outcome.refused.total() == len(lines)
    assert outcome.same.total() + outcome.other.total() == len(lines)
    assert outcome.other.total() <= most_others
    assert set(outcome.other) <= {"ALTER_PARTITION", "BROKER_HEARTBEAT"}
    assert outcome.placements["known"] > 10 * outcome.placements["guessed"]


def test_ids_and_epochs_are_those_of_the_original_cluster(tmp_path: Path) -> None:
    lines = _lines()
    controller = _control(lines, tmp_path)
    registered = {
        (line.request.broker_id, getattr(line.response, "broker_epoch", None)): line.request
        for line in lines
        if isinstance(line.request, BrokerRegistrationRequest) and line.error_code == 0
    }
    registrations = {
        (record.broker_id, record.broker_epoch): (offset, record)
        for offset, record in _records(tmp_path)
        if isinstance(record, RegisterBrokerRecord)
    }
    assert registrations.keys() == registered.keys()
    for place, (_, record) in registrations.items():
        assert record.incarnation_id == registered[place].incarnation_id
        assert record.log_dirs == registered[place].log_dirs
    assert controller.outcome.strange_epochs == 0
    created = {
        topic.name: topic.topic_id
        for line in lines
        if isinstance(line.request, CreateTopicsRequest)
        for topic in line.response.topics  # type: ignore[attr-defined]
    }
    present = {topic.name: topic.topic_id for topic in controller.image.topics.values()}
    assert present.items() <= created.items()
    assert len(present) == len(created) - 1  # one was deleted


def test_a_silent_broker_is_fenced_and_a_gap_in_the_stream_fences_none(tmp_path: Path) -> None:
    lines = _lines()
    begin = lines[0].completed_ms
    early = [line for line in lines if line.completed_ms < begin + 15_000]
    assert not any(broker.fenced for broker in _control(early, _new(tmp_path, "a")).image.brokers.values())

    later = next(
        line for line in lines if line.api == "BROKER_HEARTBEAT" and line.client_id == "2" and line in early[-40:]
    )
    beats = [replace(later, completed_ms=later.completed_ms + step) for step in range(2_000, 22_000, 2_000)]
    silent = _control([*early, *beats], _new(tmp_path, "b")).image.brokers
    assert {broker_id for broker_id, broker in silent.items() if broker.fenced} == {1, 3, 4}

    gap = replace(later, completed_ms=later.completed_ms + 3_600_000)
    assert not any(broker.fenced for broker in _control([*early, gap], _new(tmp_path, "c")).image.brokers.values())


def test_a_topic_that_the_original_refused_gets_an_id_of_its_own(tmp_path: Path) -> None:
    lines = _lines()
    index, line = next((i, line) for i, line in enumerate(lines) if isinstance(line.request, CreateTopicsRequest))
    request = line.request
    assert isinstance(request, CreateTopicsRequest)
    (topic,) = request.topics
    placed = replace(topic, name="refused-there", num_partitions=1, replication_factor=1)
    lines[index] = replace(line, request=replace(request, topics=(placed, topic)))
    image = _control(lines[: index + 1], tmp_path).image
    ids = {topic_image.name: topic_image.topic_id for topic_image in image.topics.values()}
    assert ids[topic.name] == line.response.topics[0].topic_id  # type: ignore[attr-defined]
    assert ids["refused-there"] not in (None, ids[topic.name])


def test_a_broker_epoch_out_of_reach_is_counted_and_does_not_fill_the_disk(tmp_path: Path) -> None:
    lines = _lines()
    index = next(i for i, line in enumerate(lines) if isinstance(line.request, BrokerRegistrationRequest))
    lines[index] = replace(lines[index], response=replace(lines[index].response, broker_epoch=1 << 60))  # type: ignore[call-arg]
    controller = _control(lines[: index + 1], tmp_path)
    assert controller.outcome.strange_epochs == 1
    assert controller.next_offset < 100


def test_requests_that_reach_the_controller_late_in_the_log_are_answered_by_arrival() -> None:
    first, second = _lines()[:2]
    slow = replace(first, completed_ms=first.completed_ms + LONGEST_MS // 2, total_ms=LONGEST_MS / 2 + 100)
    assert list(Arrivals([iter([second, slow])]).in_order()) == [slow, second]


def test_offsets_that_no_request_wrote_hold_nothing(tmp_path: Path) -> None:
    _control(_lines(), tmp_path)
    registrations = [offset for offset, record in _records(tmp_path) if isinstance(record, RegisterBrokerRecord)]
    empty = [offset for offset, record in _records(tmp_path) if isinstance(record, NoOpRecord)]
    assert empty
    assert max(empty) < max(registrations)


def _new(parent: Path, name: str) -> Path:
    path = parent / name
    path.mkdir()
    return path
