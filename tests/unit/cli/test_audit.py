"""``jbod audit``: exit codes, text, JSON, the table, and bad input."""

from __future__ import annotations

import gzip
import json
import re
import resource
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jbod_model.formats.control_records import ControlRecord
from jbod_model.formats.log import LogReader, LogWriter, MetadataLog
from jbod_model.formats.records import FeatureLevelRecord, RegisterBrokerRecord, UnknownRecord, VersionedRecord
from pipelines.cli import main
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import CLUSTERS, NEWER, metadata_dir
from tests.support.volume import amount, rare

KAFKA = "kafka-4.1.2"
LOG_DIR = str(metadata_dir(KAFKA))
REQUESTS = CLUSTERS / KAFKA / "requests-100.log.gz"
NEWER_DIR = NEWER / "kafka-4.4.0"
OLD = CLUSTERS / "kafka-3.7.2" / "requests-100.log.gz"


def unpacked() -> bytes:
    return gzip.decompress(REQUESTS.read_bytes())


def run(*words: Any) -> int:
    with pytest.raises(SystemExit) as left:
        main.main([str(word) for word in words])
    return int(left.value.code or 0)


def test_audit_of_a_sound_cluster_leaves_with_0_and_counts_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("audit", LOG_DIR, "--requests", REQUESTS) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == "611 requests judged by the log up to offset 629: none differs; 1,305 lines of other APIs skipped."
    )
    assert "ASSIGN_REPLICAS_TO_DIRS          34             3" in lines
    assert "Explained by elr_wipe: 3 requests." in lines
    assert "  session expired: 27 records, the first at offset 286" in lines


def test_audit_as_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("audit", LOG_DIR, "--requests", REQUESTS, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["requests"] == 611
    assert answer["verdicts"]["differs"] == 0
    assert answer["quirks"] == {"elr_wipe": 3}
    assert answer["other_records"]["NoOpRecord"] == {"records": 70, "first_offset": 9}
    assert answer["lines"] == {"read": 611, "other_apis": 1305, "unreadable": {}}
    assert "invariants" not in answer


def test_invariants_alone_need_no_requests_and_leave_with_1_where_one_is_broken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("audit", LOG_DIR, "--invariants") == 1
    assert "R-INV-17 is broken 3 times: assigning an online directory leaves the eligible leaders." in (
        capsys.readouterr().out
    )
    assert run("audit", metadata_dir("kafka-3.7.2"), "--invariants") == 0
    assert capsys.readouterr().out == "All 13 invariants hold at each of the offsets up to 618.\n"
    assert run("audit", LOG_DIR, "--invariants", "--json") == 1
    by_name = {invariant["invariant"]: invariant for invariant in json.loads(capsys.readouterr().out)["invariants"]}
    assert by_name["R-INV-17"]["first"][0]["offset"] == 224


def test_a_request_that_was_answered_wrongly_is_shown_and_leaves_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "requests.log"
    text = gzip.decompress(REQUESTS.read_bytes()).decode()
    at = text.index('"isFenced":false')
    changed.write_text(text[:at] + '"isFenced":true' + text[at + len('"isFenced":false') :])
    assert run("audit", LOG_DIR, "--requests", changed) == 1
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("differs: BROKER_HEARTBEAT")]
    # Only the exit code, and a column of the table, said whether the controller was right.
    assert "judged by the log up to offset 629: 1 differs; " in out.splitlines()[0]
    assert ": another answer" in line or ": nothing was written" in line or ": other records" in line


def test_another_answer_is_shown_field_by_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = tmp_path / "requests.log"
    lines = gzip.decompress(REQUESTS.read_bytes()).decode().splitlines()
    beats = [at for at, line in enumerate(lines) if '"BROKER_HEARTBEAT"' in line and '"isFenced":false' in line]
    lines[beats[60]] = lines[beats[60]].replace('"isFenced":false', '"isFenced":true')
    changed.write_text("\n".join(lines))
    assert run("audit", LOG_DIR, "--requests", changed, "--json") == 1
    (difference,) = json.loads(capsys.readouterr().out)["differences"]
    assert difference["reason"] == "another answer than expected"
    assert difference["fields"] == [{"field": "answer.isFenced", "expected": False, "found": True}]
    assert run("audit", LOG_DIR, "--requests", changed) == 1
    output = capsys.readouterr().out
    assert "another answer than expected\n  answer.isFenced: expected false, found true\n" in output


def test_the_table_has_a_row_for_each_request_that_matters_and_a_second_run_replaces_it(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_lake(lake, read_log(metadata_dir(KAFKA)), cluster_id="JBODtestCluster0123456")
    for _ in range(2):
        assert run("audit", LOG_DIR, "--requests", REQUESTS, "--lake", lake) == 0
    rows = DeltaTable(lake / "audit").to_pyarrow_table().to_pylist()
    assert len(rows) == 185
    assigned = [row for row in rows if row["api"] == "ASSIGN_REPLICAS_TO_DIRS"]
    assert len(assigned) == 37
    lost = [row for row in assigned if row["quirk"] == "elr_wipe"]
    assert [row["from_offset"] for row in lost] == [221, 277, 473]
    for row in lost:
        assert row["verdict"] == "explained by a known quirk"
        assert row["expected"] != row["found"]
        assert json.loads(row["found"])[0]["type"] == "PARTITION_CHANGE_RECORD"
        assert row["received_time"] < row["completed_time"]
    assert all(row["from_offset"] is not None or row["found"] == "[]" for row in rows)
    assert run("image", "--lake", lake) == 0  # the table is no part of what is published
    (tmp_path / "00000000000000000000.log").touch()
    (tmp_path / "requests.gz").write_bytes(REQUESTS.read_bytes()[:300])
    for log, requests in ((tmp_path, REQUESTS), (LOG_DIR, tmp_path / "requests.gz")):
        assert run("audit", log, "--requests", requests, "--lake", lake) == 2
        assert DeltaTable(lake / "audit").to_pyarrow_table().to_pylist() == rows, "what has no verdict replaces none"


def test_a_lake_whose_ledger_is_damaged_is_refused_as_by_every_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lake(tmp_path, read_log(metadata_dir(KAFKA)), cluster_id="JBODtestCluster0123456")
    for commit in (tmp_path / "ledger" / "_delta_log").glob("*.json"):
        commit.write_text("no JSON")
    assert run("status", "--lake", tmp_path) == 2
    problem = capsys.readouterr().err
    assert "is gone or cannot be read" in problem
    assert run("audit", LOG_DIR, "--requests", REQUESTS, "--lake", tmp_path) == 2
    assert capsys.readouterr().err == problem


def test_a_clock_that_is_not_utc_is_said_and_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local = tmp_path / "requests.log"
    local.write_text(gzip.decompress(REQUESTS.read_bytes()).decode().replace("[2026-11-21 02:", "[2026-11-21 04:"))
    assert run("audit", LOG_DIR, "--requests", local) == 2
    output = capsys.readouterr()
    assert output.out.startswith("0 of 611 requests judged by the log up to offset 629; 611 not decidable; ")
    assert "set --time-zone" in output.out
    assert output.err.endswith("jbod: not decidable: none of the 611 requests: mostly, it is newer than the log\n")
    for zone in ("Africa/Cairo", "+02:00")[: amount(1, 2)]:
        assert run("audit", LOG_DIR, "--requests", local, "--time-zone", zone, "--json") == 0
        assert json.loads(capsys.readouterr().out)["verdicts"]["same"] == 608


def test_a_clock_that_is_off_within_the_logs_time_accuses_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: a log longer than the difference of the clocks had hundreds of requests that "wrote nothing"."""
    local = tmp_path / "requests.log"
    late = re.sub(rb"\[2026-11-21 02:(\d\d)", lambda time: b"[2026-11-21 02:%02d" % (int(time[1]) + 1), unpacked())
    local.write_bytes(late)
    assert run("audit", LOG_DIR, "--requests", local) == 2
    assert capsys.readouterr().err.endswith(
        "requests wrote nothing at their time where they should have, 0 caused a record: if the controller's clock is "
        "not UTC, set --time-zone\n"
    )


def test_a_cluster_of_a_newer_kafka_is_not_decidable_and_nothing_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invented Kafka: a level and a version of heartbeats that no known one has, registrations in an old version."""

    def invented(versioned: VersionedRecord) -> VersionedRecord:
        record = versioned.record
        if isinstance(record, FeatureLevelRecord) and record.name == "metadata.version":
            return VersionedRecord(replace(record, feature_level=35), 0)
        return VersionedRecord(record, 3) if isinstance(record, RegisterBrokerRecord) else versioned

    log = LogWriter()
    for entry in LogReader(MetadataLog.open(NEWER_DIR / "metadata" / "controller-101")):
        original = entry.record
        records: list[VersionedRecord] | list[ControlRecord]
        records = [invented(original)] if isinstance(original, VersionedRecord) else [original]
        log.append(records, epoch=entry.epoch, timestamp=entry.timestamp)
    log_dir, requests = tmp_path / "log", tmp_path / "requests.log"
    log_dir.mkdir()
    log.write(log_dir)
    lines = gzip.decompress((NEWER_DIR / "requests-102.log.gz").read_bytes())
    beat = b'"requestApiKey":63,"requestApiVersion":'
    requests.write_bytes(lines.replace(beat + b"2,", beat + b"3,"))
    words = ("audit", log_dir, "--requests", requests)
    assert run(*words) == 2
    output = capsys.readouterr()
    assert output.out.splitlines()[0] == (
        "14 of 94 requests judged by the log up to offset 113: none differs; 80 not decidable, all of them newer than "
        "this audit, which knows Kafka up to 4.4; 0 lines of other APIs skipped."
    )
    assert "Not decidable, BROKER_HEARTBEAT version 3 is not known to this audit: 76 requests." in output.out
    assert "Not decidable, metadata.version level 35 is not known to this audit: 4 requests." in output.out
    assert "  not decidable RegisterBrokerRecord: 4 records, the first at offset 18" in output.out
    assert "differs:" not in output.out
    assert "unexplained" not in output.out
    assert output.err == (
        "jbod: not decidable: 80 requests and 13 records: newer than this audit, which knows Kafka up to 4.4\n"
    )
    assert run(*words, "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["newer_than_known"] == {"requests": 80, "records": 13}
    assert (answer["clean"], answer["decidable"], answer["differences"]) == (False, False, [])
    assert answer["lines"]["unreadable"] == {}
    lake = tmp_path / "lake"
    write_lake(lake, read_log(metadata_dir(KAFKA)), cluster_id="JBODtestCluster0123456")
    assert run(*words, "--lake", lake) == 2
    rows = DeltaTable(lake / "audit").to_pyarrow_table().to_pylist()
    unread = [row for row in rows if row["api"] == "BROKER_HEARTBEAT"]
    assert len(unread) == 76
    assert {(row["request"], row["response"], row["error_code"]) for row in unread} == {(None, None, None)}
    assert {row["broker_id"] for row in unread} == {1, 2, 3, 4}


def test_a_cluster_of_kafka_4_4_is_explained_to_the_last_request(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = CLUSTERS / "kafka-4.4.0"
    logs = [word for node in (100, 101, 102) for word in ("--requests", cluster / f"requests-{node}.log.gz")]
    assert run("audit", cluster / "metadata" / "controller-101", *logs, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["requests"], answer["verdicts"]["same"], answer["clean"]) == (782, 782, True)
    assert answer["apis"]["UNREGISTER_CONTROLLER"] == {"same": 1}
    assert answer["lines"]["unreadable"] == {}
    assert not [cause for cause in answer["other_records"] if "unexplained" in cause or "decidable" in cause]


def test_a_record_of_an_unknown_type_is_named_and_what_follows_is_judged_as_far_as_it_can_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_dir = tmp_path / "log"
    shutil.copytree(metadata_dir(KAFKA), log_dir)
    segment = log_dir / "__cluster_metadata-0" / "00000000000000000540.log"
    unknown = LogWriter(base_offset=630)
    unknown.append([VersionedRecord(UnknownRecord(api_key=35, body=b"\0\0\0\x66\0"), 0)], epoch=1, timestamp=1)
    segment.write_bytes(segment.read_bytes() + unknown.bytes)
    assert run("audit", log_dir, "--requests", REQUESTS, "--invariants") == 1  # R-INV-17 is broken before it
    output = capsys.readouterr()
    assert "  record type 35 version 0 is not known to this audit: 1 record, the first at offset 630" in output.out
    assert "Record type 35 is not known to this audit: 1 record, the first at offset 630." in output.out
    assert output.err == ""
    assert run("audit", log_dir, "--requests", REQUESTS) == 2
    assert "1 records: newer than this audit" in capsys.readouterr().err


def test_a_difference_is_shown_field_by_field_with_the_records_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def old_form(versioned: VersionedRecord) -> VersionedRecord:
        if not isinstance(versioned.record, RegisterBrokerRecord) or versioned.record.broker_id != 2:
            return versioned
        return VersionedRecord(replace(versioned.record, log_dirs=(), fenced=False), 2)

    log = LogWriter()
    for entry in LogReader(MetadataLog.open(metadata_dir(KAFKA))):
        original = entry.record
        records: list[VersionedRecord] | list[ControlRecord]
        records = [old_form(original)] if isinstance(original, VersionedRecord) else [original]
        log.append(records, epoch=entry.epoch, timestamp=entry.timestamp)
    log.write(tmp_path)
    assert run("audit", tmp_path, "--requests", REQUESTS) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("differs: BROKER_REGISTRATION of 2"))
    assert lines[at + 1 : at + 4] == [
        "  REGISTER_BROKER_RECORD.version: expected 3, found 2",
        "  REGISTER_BROKER_RECORD.fenced: expected true, found false",
        '  REGISTER_BROKER_RECORD.logDirs: expected ["hPGPy7ImsVdvi04MgW5Y_A", "tVpKKovKXwQW6lj6leXrUQ", '
        '"UHW3S5bZoPMDqhk2nf82Zg"], found []',
    ]


def test_several_files_in_any_order_are_one_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = gzip.decompress(REQUESTS.read_bytes()).decode().splitlines(keepends=True)
    early, late, twice = tmp_path / "requests.log.1", tmp_path / "requests.log", tmp_path / "broker.log"
    early.write_text("".join(lines[:900]))
    late.write_text("".join(lines[900:]))
    forwarded = [line for line in lines if '"isForwarded":true' in line]
    twice.write_text("".join(line.replace('"isForwarded":true', '"isForwarded":false') for line in forwarded))
    assert run("audit", LOG_DIR, "--requests", late, "--requests", early, "--requests", twice, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdicts"] == {
        "same": 608,
        "differs in order": 0,
        "explained by a known quirk": 3,
        "differs": 0,
        "not decidable": 0,
    }


def test_lines_that_two_files_have_are_judged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: a log that was copied while it was rotated accused the controller of each line it had twice."""
    lines = unpacked().splitlines(keepends=True)
    early, late = tmp_path / "copied.log", tmp_path / "requests.log"
    early.write_bytes(b"".join(lines[:1000]))
    late.write_bytes(b"".join(lines[700:]))
    assert run("audit", LOG_DIR, "--requests", late, "--requests", early, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdicts"]["same"], answer["verdicts"]["explained by a known quirk"]) == (608, 3)
    assert answer["not_decidable"] == {"its line is there twice": answer["requests"] - 611}
    assert answer["requests"] > 611


def test_a_glob_of_request_logs_is_the_same_as_their_names_and_a_log_includes_its_rotations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = gzip.decompress(REQUESTS.read_bytes()).decode().splitlines(keepends=True)
    late, early = tmp_path / "requests.log", tmp_path / "requests.log.1"
    early.write_text("".join(lines[:900]))
    late.write_text("".join(lines[900:]))
    answers = []
    for names in (late, early), (tmp_path / "requests.*",), (late,):
        assert run("audit", LOG_DIR, *(word for name in names for word in ("--requests", name)), "--json") == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0]["requests"] == 611
    assert answers[1] == answers[2] == answers[0]
    assert run("audit", LOG_DIR, "--requests", tmp_path / "*.gz") == 2
    assert "*.gz: there is no such file" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_requests_of_another_cluster_are_counted_and_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("audit", LOG_DIR, "--requests", OLD, "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["clean"], answer["decidable"]) == (False, False)
    assert answer["verdicts"]["not decidable"] == answer["requests"] == 655


@pytest.mark.parametrize("text", ["", rare("no request\n")])
def test_request_log_without_a_request_is_not_decidable(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty file, as after a rotation, and another log than that of the requests must not look clean."""
    (tmp_path / "server.log").write_text(text)
    assert run("audit", LOG_DIR, "--requests", tmp_path / "server.log", "--json") == 2
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert (answer["clean"], answer["decidable"], answer["requests"]) == (False, False, 0)
    assert "not decidable: no request in the given logs: give what a controller's kafka.request.logger" in captured.err


def test_request_log_that_cannot_be_unpacked_is_named_as_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It only said to give what a controller writes: that is what was given."""
    (tmp_path / "requests.gz").write_bytes(REQUESTS.read_bytes()[:300])
    assert run("audit", LOG_DIR, "--requests", tmp_path / "requests.gz") == 2
    why = "(not readable: requests.gz cannot be read to the end: Compressed file ended before"
    assert why in capsys.readouterr().err


def test_log_without_a_record_is_refused_as_by_every_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that all invariants hold "at each of the offsets up to -1"."""
    (tmp_path / "00000000000000000000.log").touch()
    refused = ("", f"jbod: {tmp_path}: no record of this log may be read yet\n")
    assert run("audit", tmp_path, "--invariants") == 2
    assert capsys.readouterr() == refused
    assert run("status", tmp_path) == 2
    assert capsys.readouterr() == refused


def test_damaged_huge_and_hostile_lines_are_counted_and_take_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "requests.log"
    head = b"[2026-11-21 02:21:30,000] DEBUG Completed request:"
    with bad.open("wb") as out:
        out.write(head)
        for _ in range(100):
            out.write(b"x" * 1_000_000)
        out.write(b"\n" + head + b'{"a":' + b"[" * 500_000 + b"\n")
        out.write(b"\xff\xfe\x00\n" * 1_000)
        out.write(gzip.decompress(REQUESTS.read_bytes()))
        out.write(head + b'{"isForwarded":false,"requestHeader":{"requestApiKey":63,')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert run("audit", LOG_DIR, "--requests", bad, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdicts"]["same"] == 608
    assert answer["lines"]["unreadable"] == {
        "the line is longer than 16777216 bytes": 1,
        "nested too deeply": 1,
        "not UTF-8": 1_000,
        "not JSON, or cut off": 1,
    }
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB, of a line of 100 MB


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("audit", LOG_DIR), "nothing to audit"),
        (("audit", LOG_DIR, "--invariants", "--lake", "x"), "--lake is for the verdicts"),
        (("audit", LOG_DIR, "--requests", "absent.log"), "there is no such file"),
        (("audit", "absent", "--requests", str(REQUESTS)), "absent is not a directory"),
        (("audit", LOG_DIR, "--requests", str(REQUESTS), "--lake", "absent"), "no lake there"),
        (("audit", LOG_DIR, "--requests", str(REQUESTS), "--time-zone", "Mars/Base"), "no such time zone"),
        (("audit", LOG_DIR, "--requests", str(REQUESTS), "--config", "log.dirs=/x"), "--config log.dirs"),
    ],
)
def test_bad_usage_leaves_with_2_and_one_line(
    words: tuple[str, ...],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert problem in captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_damaged_metadata_log_stops_the_audit_at_its_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "log"
    shutil.copytree(LOG_DIR, copy)
    segment = next(copy.glob("__cluster_metadata-0/*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.chmod(0o644)
    segment.write_bytes(data)
    assert run("audit", copy, "--requests", REQUESTS) == 2
    assert "offset" in capsys.readouterr().err
