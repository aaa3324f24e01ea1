"""The audit on real clusters and on Kafka's own controller, and on logs that were tampered with."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jbod_model.audit import Audit, Judged, OwnWork, Verdict
from jbod_model.audit.compare import newer_level
from jbod_model.formats.log import LogEntry, LogReader, LogWriter, MetadataLog
from jbod_model.formats.records import (
    ControllerFeature,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    VersionedRecord,
)
from jbod_model.formats.request_log import Line, NewerLine, RequestLine, parse_line
from jbod_model.formats.request_log_file import RequestLog
from jbod_model.formats.requests import AssignReplicasToDirsRequest, BrokerHeartbeatRequest
from jbod_model.ids import Uuid
from jbod_model.replay.transactions import committed
from lab.control.control import Control, default_features
from lab.control.hints import Hints
from lab.simulation.output import write_world
from lab.simulation.stories import play
from tests.support.paths import CLUSTERS, KAFKAS, TRACES, metadata_dir
from tests.support.volume import amount, rare, sampled
from tests.unit.model.audit.audit_world import Recorded

Change = Callable[[LogEntry], LogEntry | None]
ELSEWHERE = Uuid(77, 77)
NUMBER = re.compile(rb"\d+")


def _entries(kafka: str, change: Change = lambda entry: entry) -> Iterator[LogEntry]:
    """The log of a real cluster, with each record changed, or left out where ``change`` gives None."""
    return committed(changed for entry in _log(kafka) if (changed := change(entry)) is not None)


@cache
def _log(kafka: str) -> Sequence[LogEntry]:
    return tuple(LogReader(MetadataLog.open(metadata_dir(kafka))))


def _lines(kafka: str, node: int = 100) -> list[RequestLine]:
    return list(_request_log(kafka, node))


@cache
def _request_log(kafka: str, node: int) -> Sequence[RequestLine]:
    return tuple(RequestLog(CLUSTERS / kafka / f"requests-{node}.log.gz").requests())


@cache
def _true(kafka: str, node: int = 100) -> tuple[Sequence[Judged], Sequence[OwnWork]]:
    """The audit of a real cluster as it is."""
    return _audit(kafka, _lines(kafka, node))


def _audit(
    kafka: str, lines: Sequence[RequestLine | NewerLine] | None = None, change: Change = lambda entry: entry
) -> tuple[list[Judged], list[OwnWork]]:
    requests = _lines(kafka) if lines is None else lines
    findings = list(Audit(_entries(kafka, change), [iter(requests)]))
    return [finding for finding in findings if isinstance(finding, Judged)], [
        finding for finding in findings if isinstance(finding, OwnWork)
    ]


def _with_record(entry: LogEntry, **changes: Any) -> LogEntry:
    assert isinstance(entry.record, VersionedRecord)
    return replace(entry, record=replace(entry.record, record=replace(entry.record.record, **changes)))


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 2))
def test_every_request_of_a_real_cluster_is_decided_and_every_record_explained(kafka: str) -> None:
    judged, own = _true(kafka)
    assert len(judged) == len(_lines(kafka))
    assert {judgment.verdict for judgment in judged} <= {Verdict.SAME, Verdict.QUIRK}
    assert not [work for work in own if work.cause.startswith("unexplained")]
    written = sum(len(judgment.written) for judgment in judged) + sum(len(work.records) for work in own)
    assert written == sum(isinstance(entry.record, VersionedRecord) for entry in _entries(kafka))


@pytest.mark.parametrize(
    ("kafka", "quirks"),
    [
        ("kafka-3.7.2", {}),
        ("kafka-3.9.2-upgrade", {}),
        (
            "kafka-3.9.2-zk-migration",
            {("BROKER_REGISTRATION", "zk_migration"): 3, ("BROKER_HEARTBEAT", "zk_migration"): 2},
        ),
        ("kafka-4.1.2", {("ASSIGN_REPLICAS_TO_DIRS", "elr_wipe"): 3}),
    ],
)
def test_where_a_real_cluster_departs_from_the_specification_the_reason_is_named(
    kafka: str, quirks: dict[tuple[str, str], int]
) -> None:
    judged, _ = _true(kafka)
    assert (
        Counter((judgment.line.api, judgment.quirk) for judgment in judged if judgment.verdict is Verdict.QUIRK)
        == quirks
    )
    for judgment in judged:
        assert (judgment.verdict is Verdict.QUIRK) == (Counter(judgment.expected) != Counter(judgment.written))


@pytest.mark.parametrize("kafka", KAFKAS)
def test_a_found_record_lies_in_the_time_of_its_request_and_has_its_subject(kafka: str) -> None:
    times = {entry.offset: entry.timestamp for entry in _entries(kafka)}
    for judgment in _true(kafka)[0]:
        if judgment.from_offset is None:
            continue
        assert judgment.line.received_ms - 100 <= times[judgment.from_offset] <= judgment.line.completed_ms
        assert isinstance(judgment.line, RequestLine)
        request = judgment.line.request
        if isinstance(request, AssignReplicasToDirsRequest):
            places = {
                (topic.topic_id, partition.partition_index): directory.id
                for directory in request.directories
                for topic in directory.topics
                for partition in topic.partitions
            }
            for versioned in judgment.written:
                record = versioned.record
                assert isinstance(record, PartitionChangeRecord)
                assert record.directories is None or places[record.topic_id, record.partition_id] in record.directories


@pytest.mark.parametrize(("seed", "step_ms"), [(1, 1_000), rare(3, 1_000), rare(4, 1_000), rare(6, 5)])
def test_every_operation_on_kafkas_own_controller_is_decided(seed: int, step_ms: int) -> None:
    recorded = Recorded.of(
        TRACES / f"seed{seed}.jsonl.gz", step_ms=step_ms, limit=amount(200, 250 if seed == 6 else 450)
    )
    findings = list(Audit(recorded.entries(), [iter(recorded.requests)]))
    judged = [finding for finding in findings if isinstance(finding, Judged)]
    assert len(judged) == len(recorded.requests)
    assert {judgment.verdict for judgment in judged} <= {Verdict.SAME, Verdict.QUIRK}
    unexplained = {
        finding.cause
        for finding in findings
        if isinstance(finding, OwnWork) and finding.cause.startswith("unexplained")
    }
    assert unexplained == {"unexplained FeatureLevelRecord"}  # a trace begins with it, outside of a transaction


def test_a_broker_whose_heartbeats_made_the_controller_throw_is_followed() -> None:
    """R-QUIRK-2, R-QUIRK-3: by one flaw the controller has noted the new state when it throws, by the other not yet."""
    recorded = Recorded.of(TRACES / "seed1.jsonl.gz", limit=amount(900, 1_350))
    judged = [
        finding for finding in Audit(recorded.entries(), [iter(recorded.requests)]) if isinstance(finding, Judged)
    ]
    assert {judgment.verdict for judgment in judged} <= {Verdict.SAME, Verdict.QUIRK}
    thrown = [
        judgment for judgment in judged if isinstance(judgment.line, RequestLine) and judgment.line.error_code == -1
    ]
    assert thrown
    assert all(judgment.quirk is not None and "index_leak" in judgment.quirk for judgment in thrown)


def test_a_fenced_last_leader_is_explained_by_the_release_of_the_controller() -> None:
    """R-QUIRK-11, R-RELEASE-3, R-RELEASE-5: a trace of 4.0.2's controller. Its configuration record, the log's third,
    gives way to the controller's registration; the controller's own file has the value instead."""
    recorded = Recorded.of(TRACES / "seed51.jsonl.gz", limit=160)
    verdicts = {}
    for highest in (26, 27):
        levels = (ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=highest),)
        registration = VersionedRecord(RegisterControllerRecord(controller_id=1, features=levels), 0)
        entries = [replace(entry, record=registration) if entry.offset == 2 else entry for entry in recorded.entries()]
        audit = Audit(entries, [iter(recorded.requests)], static_configs={"min.insync.replicas": "2"})
        judged = [finding for finding in audit if isinstance(finding, Judged)]
        assert len(judged) == len(recorded.requests)
        verdicts[highest] = Counter(
            (judgment.verdict, judgment.quirk) for judgment in judged if judgment.verdict is not Verdict.SAME
        )
    assert {verdict for verdict, _ in verdicts[26]} == {Verdict.QUIRK}
    assert any("fenced_last_leader" in str(quirk) for _, quirk in verdicts[26])
    assert Verdict.DIFFERS in {verdict for verdict, _ in verdicts[27]}


def test_the_controllers_own_file_decides_if_the_log_has_no_value() -> None:
    """The trace's controller has no file; had it allowed unclean elections, it would have held them."""
    recorded = Recorded.of(TRACES / "seed2.jsonl.gz", limit=150)
    verdicts = {}
    for allowed in ("false", "true"):
        configs = {"unclean.leader.election.enable": allowed}
        audit = Audit(recorded.entries(), [iter(recorded.requests)], static_configs=configs)
        verdicts[allowed] = {finding.verdict for finding in audit if isinstance(finding, Judged)}
    assert verdicts["false"] <= {Verdict.SAME, Verdict.QUIRK}
    assert Verdict.DIFFERS in verdicts["true"]


@pytest.mark.parametrize(
    ("scenario", "quirks"), [("everything", set()), ("disk-dies-while-hanging", {"two_in_one_heartbeat"})]
)
def test_a_simulated_cluster_is_decided_and_its_flaw_named(tmp_path: Path, scenario: str, quirks: set[str]) -> None:
    write_world(play(scenario, 0), tmp_path)
    requests = RequestLog(tmp_path / "requests-100.log")
    entries = committed(LogReader(MetadataLog.open(tmp_path / "controller-100")))
    judged = [finding for finding in Audit(entries, [requests.requests()]) if isinstance(finding, Judged)]
    assert len(judged) == requests.read > 50
    assert {judgment.verdict for judgment in judged} <= {Verdict.SAME, Verdict.QUIRK}
    assert {judgment.quirk for judgment in judged if judgment.quirk} == quirks


def _an_assignment(kafka: str, which: int = 0) -> Judged:
    """The first request, or another, that wrote directories."""
    return [
        judgment for judgment in _true(kafka)[0] if judgment.line.api == "ASSIGN_REPLICAS_TO_DIRS" and judgment.written
    ][which]


def test_a_replica_written_to_another_directory_than_asked_differs() -> None:
    first = _an_assignment("kafka-4.1.2")
    assert first.from_offset is not None
    assert isinstance(first.line, RequestLine)
    ours = first.line.request
    assert isinstance(ours, AssignReplicasToDirsRequest)

    def change(entry: LogEntry) -> LogEntry:
        if entry.offset != first.from_offset:
            return entry
        assert isinstance(entry.record, VersionedRecord)
        record = entry.record.record
        assert isinstance(record, PartitionChangeRecord)
        assert record.directories is not None
        targets = {directory.id for directory in ours.directories}
        moved = tuple(ELSEWHERE if directory in targets else directory for directory in record.directories)
        return _with_record(entry, directories=moved)

    judged, own = _audit("kafka-4.1.2", change=change)
    (wrong,) = [judgment for judgment in judged if judgment.line == first.line]
    assert wrong.verdict is Verdict.DIFFERS
    assert wrong.reason == "other records than expected"
    assert wrong.from_offset == first.from_offset
    assert wrong.expected[0] == first.written[0]
    assert wrong.written[0] != first.written[0]
    assert any(work.cause == "unexplained PartitionChangeRecord" for work in own)


@pytest.mark.parametrize("which", sampled(range(3), 1))
def test_a_wrong_record_between_right_ones_differs(which: int) -> None:
    """Regression: the request counted as the cause of the right records that follow, and so as right."""
    first = [
        judgment
        for judgment in _true("kafka-4.1.2")[0]
        if len(judgment.written) > 2 and not judgment.quirk and judgment.line.api == "ASSIGN_REPLICAS_TO_DIRS"
    ][which]
    assert first.from_offset is not None
    wrong_offset = first.from_offset + 1

    def change(entry: LogEntry) -> LogEntry:
        return _with_record(entry, leader_recovery_state=1) if entry.offset == wrong_offset else entry

    judged, own = _audit("kafka-4.1.2", change=change)
    (wrong,) = [judgment for judgment in judged if judgment.line == first.line]
    assert (wrong.verdict, wrong.reason) == (Verdict.DIFFERS, "other records than expected")
    assert wrong.from_offset == first.from_offset
    assert wrong.expected == first.written
    assert [
        index for index, pair in enumerate(zip(wrong.written, first.written, strict=True)) if len(set(pair)) > 1
    ] == [1]
    unexplained = [work.from_offset + at for work in own if work.unexplained for at in range(len(work.records))]
    assert set(unexplained) >= {first.from_offset + at for at in range(len(first.written))}


def test_a_wrong_record_of_a_request_that_the_log_ends_with_differs() -> None:
    """Regression: the request was not decidable, as if the log had ended before it."""
    last = [
        judgment
        for judgment in _true("kafka-4.1.2")[0]
        if len(judgment.written) > 1 and isinstance(judgment.written[-1].record, PartitionChangeRecord)
    ][-1]
    assert last.from_offset is not None
    end = last.from_offset + len(last.written)

    def change(entry: LogEntry) -> LogEntry | None:
        if entry.offset >= end:
            return None
        return _with_record(entry, leader_recovery_state=1) if entry.offset == end - 1 else entry

    (wrong,) = [judgment for judgment in _audit("kafka-4.1.2", change=change)[0] if judgment.line == last.line]
    assert (wrong.verdict, wrong.from_offset) == (Verdict.DIFFERS, last.from_offset)
    assert [ours != theirs for ours, theirs in zip(wrong.written, last.written, strict=True)][-1]


@pytest.mark.parametrize("cordoned", [rare(None), rare(()), (ELSEWHERE,)])
def test_a_cordon_written_other_than_the_heartbeat_said_differs(cordoned: tuple[Uuid, ...] | None) -> None:
    """R-CORDON-2: left out, lifted, and of another directory."""
    lines = _lines("kafka-4.4.0", 102)
    first = next(
        judgment
        for judgment in _true("kafka-4.4.0", 102)[0]
        if judgment.line.api == "BROKER_HEARTBEAT"
        and any(getattr(two.record, "cordoned_log_dirs", ()) for two in judgment.written)
    )

    def change(entry: LogEntry) -> LogEntry | None:
        if entry.offset != first.from_offset:
            return entry
        return None if cordoned is None else _with_record(entry, cordoned_log_dirs=cordoned)

    judged, _ = _audit("kafka-4.4.0", lines, change)
    (wrong,) = [judgment for judgment in judged if judgment.line == first.line]
    assert wrong.verdict is Verdict.DIFFERS


def test_a_request_whose_records_are_missing_differs() -> None:
    last = _an_assignment("kafka-3.7.2", -1)
    assert last.from_offset is not None
    gone = range(last.from_offset, last.from_offset + len(last.written))
    judged, _ = _audit("kafka-3.7.2", change=lambda entry: None if entry.offset in gone else entry)
    (wrong,) = [judgment for judgment in judged if judgment.line == last.line]
    assert (wrong.verdict, wrong.written) == (Verdict.DIFFERS, ())
    assert wrong.expected == last.expected


def test_records_in_another_order_than_asked_differ_in_order() -> None:
    first = _an_assignment("kafka-3.7.2")
    assert first.from_offset is not None
    swap = dict(zip((first.from_offset, first.from_offset + 1), reversed(first.written[:2]), strict=True))
    judged, _ = _audit(
        "kafka-3.7.2",
        change=lambda entry: replace(entry, record=swap[entry.offset]) if entry.offset in swap else entry,
    )
    assert [judgment.verdict for judgment in judged if judgment.line == first.line] == [Verdict.ORDER]
    assert all(judgment.verdict in (Verdict.SAME, Verdict.ORDER) for judgment in judged)


def test_a_wrong_answer_differs_though_the_records_are_right() -> None:
    lines = _lines("kafka-4.1.2")
    index = [i for i, line in enumerate(lines) if line.api == "BROKER_HEARTBEAT"][100]
    lines[index] = replace(lines[index], error_code=77)
    judged, _ = _audit("kafka-4.1.2", lines)
    (wrong,) = [judgment for judgment in judged if judgment.verdict is Verdict.DIFFERS]
    assert wrong.line == lines[index]
    assert wrong.reason == "another answer than expected"
    assert wrong.answer[0] == ("answer.errorCode", 0, 77)


def test_records_whose_request_was_not_logged_are_unexplained_and_nothing_else_suffers() -> None:
    lines = _lines("kafka-3.7.2")
    kept = [line for line in lines if line.api not in ("ALTER_PARTITION", "CREATE_TOPICS")]
    judged, own = _audit("kafka-3.7.2", kept)
    assert {judgment.verdict for judgment in judged} == {Verdict.SAME}
    unexplained = Counter(work.cause for work in own if work.cause.startswith("unexplained"))
    everything = [
        judgment for judgment in _true("kafka-3.7.2")[0] if judgment.line.api in ("ALTER_PARTITION", "CREATE_TOPICS")
    ]
    assert unexplained["unexplained TopicRecord"] == 7
    assert sum(unexplained.values()) == sum(
        isinstance(record.record, PartitionChangeRecord)
        or type(record.record).__name__ in ("TopicRecord", "PartitionRecord")
        for judgment in everything
        for record in judgment.written
    )


def test_requests_of_another_cluster_are_never_judged() -> None:
    begun = {kafka: next(entry.timestamp for entry in _entries(kafka)) for kafka in KAFKAS}
    for ours, theirs in (("kafka-3.7.2", "kafka-4.1.2"), ("kafka-4.1.2", "kafka-3.7.2"))[: amount(1, 2)]:
        shift = begun[ours] - begun[theirs]
        lines = [replace(line, completed_ms=line.completed_ms + shift) for line in _lines(theirs)]
        judged, _ = _audit(ours, lines)
        assert len(judged) == len(lines)
        assert {judgment.verdict for judgment in judged} == {Verdict.UNDECIDED}


def test_a_line_outside_of_the_logs_time_or_out_of_order_is_not_decided() -> None:
    lines = _lines("kafka-4.1.2")
    older = replace(lines[0], completed_ms=lines[0].completed_ms - 10_000_000)
    newer = replace(lines[0], completed_ms=lines[0].completed_ms + 10_000_000)
    late = replace(lines[5], correlation_id=999)
    judged, _ = _audit("kafka-4.1.2", [older, *lines, late, newer])
    reasons = {judgment.line: judgment.reason for judgment in judged if judgment.verdict is Verdict.UNDECIDED}
    assert reasons == {
        older: "it is older than the log",
        newer: "it is newer than the log",
        late: "its line is out of order",
    }


def test_a_request_whose_record_is_in_the_snapshot_is_not_accused() -> None:
    """Regression: a record can bear a time before its request, and so can the snapshot that has the record."""
    change = next(judgment for judgment in _true("kafka-3.7.2")[0] if judgment.line.api == "ALTER_PARTITION")
    assert change.from_offset is not None
    end = change.from_offset + len(change.written)
    time = change.line.received_ms - 100
    entries = [
        replace(entry, in_snapshot=True, timestamp=int(time)) if entry.offset < end else entry
        for entry in _entries("kafka-3.7.2")
        if isinstance(entry.record, VersionedRecord)
    ]
    (judged,) = [result for result in Audit(entries, [iter([change.line])]) if isinstance(result, Judged)]
    assert (judged.verdict, judged.reason) == (Verdict.UNDECIDED, "it is older than the log")


def test_a_controller_that_was_not_active_is_not_judged() -> None:
    lines = [replace(line, error_code=41) for line in _lines("kafka-4.1.2")]
    assert not _audit("kafka-4.1.2", lines)[0]


def test_every_failed_directory_of_the_real_clusters_is_decided() -> None:
    for kafka in KAFKAS:
        reports = [
            judgment
            for judgment in _true(kafka)[0]
            if isinstance(judgment.line, RequestLine)
            and isinstance(judgment.line.request, BrokerHeartbeatRequest)
            and judgment.line.request.offline_log_dirs
        ]
        assert reports or kafka == "kafka-3.9.2-zk-migration"
        assert all(judgment.verdict is Verdict.SAME for judgment in reports)


def test_a_trace_audited_from_its_file_reads_the_same(tmp_path: Path) -> None:
    recorded = Recorded.of(TRACES / "seed2.jsonl.gz", limit=60)
    recorded.log.write(tmp_path)
    audit = Audit(committed(LogReader(MetadataLog.open(tmp_path))), [iter(recorded.requests)])
    assert {finding.verdict for finding in audit if isinstance(finding, Judged)} <= {Verdict.SAME, Verdict.QUIRK}


@pytest.mark.parametrize("seed", sampled(range(4), 2))
def test_requests_with_wrong_numbers_missing_twice_or_shuffled_are_judged_without_an_exception(seed: int) -> None:
    rng = random.Random(seed)
    texts = gzip.decompress((CLUSTERS / "kafka-3.9.2-upgrade" / "requests-100.log.gz").read_bytes()).splitlines()
    lines: list[RequestLine] = []
    for text in texts:
        numbers = list(NUMBER.finditer(text))
        if rng.random() < 0.15 and numbers:
            chosen = rng.choice(numbers)
            wrong = rng.choice([b"0", b"-1", b"2", b"77", b"2147483647", b"%d" % rng.randrange(300)])
            text = text[: chosen.start()] + wrong + text[chosen.end() :]
        parsed = parse_line(text)
        if isinstance(parsed, RequestLine):
            lines += [parsed] * rng.choice([0, *[1] * 20, 2])
    if seed % 2:
        rng.shuffle(lines)
    handled = [line for line in lines if line.error_code != 41]
    judged, own = _audit("kafka-3.9.2-upgrade", lines)
    assert len(judged) == len(handled)
    written = sum(len(judgment.written) for judgment in judged if judgment.verdict is not Verdict.DIFFERS)
    assert written + sum(len(work.records) for work in own) == 268  # every record is explained once

    controller = Control(Hints.of(lines), default_features(14, set()))
    for line in sorted(lines, key=lambda line: line.received_ms):
        controller.handle(line)
    controller.drain(LogWriter())
    assert controller.outcome.same.total() + controller.outcome.other.total() == len(handled)


NEWER_KAFKA = "not known to this audit"


def test_a_record_version_that_no_known_kafka_writes_makes_its_request_not_decidable_and_nothing_else() -> None:
    def newer(entry: LogEntry) -> LogEntry:
        if not isinstance(entry.record, VersionedRecord) or not isinstance(entry.record.record, RegisterBrokerRecord):
            return entry
        return replace(entry, record=VersionedRecord(entry.record.record, 5))

    judged, own = _audit("kafka-4.1.2", change=newer)
    undecided = [judgment for judgment in judged if judgment.verdict is Verdict.UNDECIDED]
    wrote = [
        judgment
        for judgment in _true("kafka-4.1.2")[0]
        if judgment.line.api == "BROKER_REGISTRATION" and judgment.written
    ]
    assert {judgment.line for judgment in undecided} == {judgment.line for judgment in wrote}
    assert {judgment.reason for judgment in undecided} == {f"RegisterBrokerRecord version 5 is {NEWER_KAFKA}"}
    assert all(judgment.newer for judgment in undecided)
    assert Verdict.DIFFERS not in {judgment.verdict for judgment in judged}
    assert "not decidable RegisterBrokerRecord" in {work.cause for work in own}


def test_what_a_request_of_an_unknown_version_caused_is_not_decidable() -> None:
    lines = [
        NewerLine(
            broker_id=line.request.broker_id,
            **{field.name: getattr(line, field.name) for field in fields(Line)} | {"version": 3},
        )
        if isinstance(line.request, BrokerHeartbeatRequest)
        else line
        for line in _lines("kafka-4.1.2")
    ]
    judged, own = _audit("kafka-4.1.2", lines)
    assert {judgment.reason for judgment in judged if judgment.newer} == {
        f"BROKER_HEARTBEAT version 3 is {NEWER_KAFKA}"
    }
    assert {judgment.line.api for judgment in judged if judgment.newer} == {"BROKER_HEARTBEAT"}
    assert {judgment.verdict for judgment in judged if not judgment.newer} <= {Verdict.SAME, Verdict.QUIRK}
    assert not [work for work in own if work.cause.startswith("unexplained")]
    caused = [
        judgment for judgment in _true("kafka-4.1.2")[0] if judgment.line.api == "BROKER_HEARTBEAT" and judgment.written
    ]
    offsets = {
        judgment.from_offset + index
        for judgment in caused
        if judgment.from_offset is not None
        for index in range(len(judgment.written))
    }
    assert {work.from_offset for work in own if work.newer} <= offsets


def test_at_a_metadata_version_that_is_not_known_a_difference_is_not_decidable() -> None:
    first = _an_assignment("kafka-4.1.2")
    level = FeatureLevelRecord(name="metadata.version", feature_level=34)

    def change(entry: LogEntry) -> LogEntry:
        if isinstance(entry.record, VersionedRecord) and isinstance(entry.record.record, FeatureLevelRecord):
            return replace(entry, record=VersionedRecord(level, 0)) if entry.record.record.name == level.name else entry
        return _with_record(entry, directories=None) if entry.offset == first.from_offset else entry

    judged, own = _audit("kafka-4.1.2", change=change)
    (judgment,) = [judgment for judgment in judged if judgment.line == first.line]
    assert judgment.verdict is Verdict.UNDECIDED
    assert judgment.reason == f"Kafka 4.5 is {NEWER_KAFKA} (metadata.version 4.5-IV0)"
    assert (judgment.expected, bool(judgment.written)) == (first.expected, True)
    assert not [work for work in own if work.cause.startswith("unexplained")]
    assert newer_level(33) is None
    assert newer_level(99) == f"metadata.version level 99 is {NEWER_KAFKA}"


@pytest.mark.exhaustive
def test_a_request_that_differs_is_shown_what_was_expected_at_the_offset_where_it_wrote() -> None:
    """Between its arrival and its records others may have been appended: the epoch is the offset, not an older one."""

    def change(entry: LogEntry) -> LogEntry:
        registered = isinstance(entry.record, VersionedRecord) and isinstance(entry.record.record, RegisterBrokerRecord)
        return _with_record(entry, in_controlled_shutdown=True) if registered else entry

    judged, _ = _audit("kafka-4.1.2", change=change)
    wrong = [
        judgment
        for judgment in judged
        if judgment.line.api == "BROKER_REGISTRATION" and judgment.verdict is Verdict.DIFFERS
    ]
    assert wrong
    for judgment in wrong:
        (expected,) = (kept.record for kept in judgment.expected if isinstance(kept.record, RegisterBrokerRecord))
        registration = next(kept.record for kept in judgment.written if isinstance(kept.record, RegisterBrokerRecord))
        assert replace(expected, in_controlled_shutdown=True) == registration
