"""Requested assignments joined to the records that made them true: all of them, none wrongly, once."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jbod_model.formats.log import LogReader, MetadataLog
from jbod_model.formats.records import PartitionChangeRecord, PartitionRecord
from jbod_model.formats.request_log import Reject
from jbod_model.ids import Uuid
from jbod_model.replay.transactions import images
from pipelines.formats.requests import REJECTS_SCHEMA, Rejects
from pipelines.lake.publish import LakeWriter
from pipelines.lake.restore import Cut, take_back
from pipelines.lake.written_lake import live_files
from pipelines.run.request_stream import count_outcomes
from pipelines.upkeep.verify_reference import Row, time_of
from tests.support.logs import read_log
from tests.support.paths import KAFKAS, metadata_dir
from tests.support.request_lakes import SKEW, JoinedLake, request_lines, requested_assignments, rows_of
from tests.support.volume import amount, rare, sampled

KAFKA = "kafka-4.1.2"


def assert_true(kafka: str, rows: list[Row]) -> None:
    """Every claim of the rows, by the records of the log and the images that the model makes of them."""
    records = {entry.offset: entry for entry in read_log(metadata_dir(kafka))}
    directory_before: dict[int, dict[tuple[str, int, int], str]] = {}
    wanted = {row["realised_offset"] for row in rows if row["realised_offset"] is not None}
    previous: dict[tuple[str, int, int], str] = {}
    after: dict[int, dict[tuple[str, int, int], str]] = {}
    for offset, image in images(LogReader(MetadataLog.open(metadata_dir(kafka)), start="earliest")):
        now = {
            (str(topic_id), number, broker): str(directory)
            for topic_id, topic in image.topics.items()
            for number, partition in topic.partitions.items()
            for broker, directory in zip(partition.replicas, partition.directories, strict=True)
        }
        if offset in wanted:
            directory_before[offset], after[offset] = previous, now
        previous = now
    for row in rows:
        if row["outcome"] == "refused":
            assert row["error"] != 0
            continue
        entry = records[row["realised_offset"]]
        assert isinstance(entry.record, (PartitionRecord, PartitionChangeRecord))
        assert (entry.record.topic_id, entry.record.partition_id) == (Uuid.parse(row["topic_id"]), row["partition"])
        replica = (row["topic_id"], row["partition"], row["broker_id"])
        assert after[row["realised_offset"]][replica] == row["directory_id"]
        assert directory_before[row["realised_offset"]].get(replica) != row["directory_id"]
        assert row["realised_time"] == time_of(entry.time)
        early = row["realised_time"] - (row["requested_time"] - SKEW)
        late = row["realised_time"] - (row["answered_time"] + SKEW)
        if row["outcome"] == "recorded":
            assert early >= timedelta(0) >= late
        else:
            assert row["outcome"] == "already true"
            assert late < timedelta(0)


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 1))
def test_every_accepted_assignment_of_a_real_cluster_has_its_record_or_was_true_and_no_join_is_false(
    tmp_path: Path, kafka: str
) -> None:
    lake = JoinedLake(tmp_path / "lake", kafka)
    lake.replay()
    lake.add(request_lines(kafka))
    rows = lake.rows
    assert len(rows) == requested_assignments(request_lines(kafka)).num_rows
    assert {row["outcome"] for row in rows if row["error"] == 0} <= {"recorded", "already true"}
    assert_true(kafka, rows)
    recorded = [row for row in rows if row["outcome"] == "recorded"]
    claims = Counter((row["topic_id"], row["partition"], row["broker_id"], row["realised_offset"]) for row in recorded)
    assert set(claims.values()) == {1}
    assert all(row["topic"] for row in rows if row["outcome"] != "refused")


def test_requests_and_records_may_come_in_any_order_and_in_any_batches(tmp_path: Path) -> None:
    whole = JoinedLake(tmp_path / "whole", KAFKA)
    whole.replay()
    whole.add(request_lines(KAFKA))
    for seed in range(amount(1, 3)):
        rng = random.Random(seed)
        lake = JoinedLake(tmp_path / f"lake{seed}", KAFKA)
        lake.replay(5)
        lines, records = request_lines(KAFKA), len(lake.entries) - 5
        while lines or records:
            if lines and (not records or rng.random() < 0.5):
                take = rng.randrange(1, 700)
                lake.add(lines[:take])
                lines = lines[take:]
            else:
                take = min(rng.randrange(1, 250), records)
                lake.replay(take)
                records -= take
                lake.stream.join_waiting()
        assert lake.rows == whole.rows
        assert sum(lake.outcomes.values()) == len(whole.rows)
        assert lake.outcomes["pending"] == 0


def test_a_request_before_its_record_is_pending_and_its_open_rows_are_one_file(tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay(5)
    lake.add(request_lines(KAFKA))
    assert {row["outcome"] for row in lake.rows} == {"pending"}
    lake.replay(100)
    lake.stream.join_waiting()
    kinds = Counter(row["outcome"] for row in lake.rows)
    assert kinds["pending"] > 0 < kinds["recorded"]
    opened = live_files(lake.lake.tables["assignment_requests"], [0])
    assert len(opened) == 1
    version = lake.lake.tables["assignment_requests"].version()
    lake.stream.join_waiting()
    assert lake.lake.tables["assignment_requests"].version() == version


@pytest.mark.exhaustive
def test_the_same_lines_again_change_nothing_also_in_other_batches(tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay()
    lines = request_lines(KAFKA)
    lake.add(lines + lines[:900])
    before, version = lake.rows, lake.lake.tables["assignment_requests"].version()
    for part in (lines, lines[100:], lines[:50]):
        lake.add(part)
    assert lake.rows == before
    assert lake.lake.tables["assignment_requests"].version() == version


def test_a_run_that_died_between_its_tables_and_the_ledger_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay()
    lines = request_lines(KAFKA)
    lake.add(lines[:700])
    before = lake.rows

    def dies(*_arguments: Any) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(LakeWriter, "append_ledger", dies)
        with pytest.raises(OSError, match="the disk is gone"):
            lake.add(lines[700:])
    assert lake.rows == before
    lake.lake = LakeWriter.create_or_open(str(lake.path), lake.lake.identity)
    lake.stream = lake.restarted()
    lake.add(lines[700:])
    assert len(lake.rows) == requested_assignments(lines).num_rows
    assert_true(KAFKA, lake.rows)


@pytest.mark.exhaustive
def test_requests_of_another_cluster_are_never_joined_and_said(tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay()
    other = request_lines("kafka-3.7.2")
    lake.add(other)
    assert {row["outcome"] for row in lake.rows} <= {"pending", "refused", "not in the log"}
    assert all(row["topic"] is None for row in lake.rows)
    waiting = [row["why"] for row in lake.rows if row["outcome"] == "pending"]
    assert waiting == ["the log has no topic of this id"] * count_outcomes(str(lake.path))[1]
    assert waiting
    # The other cluster ran later than the end of this log; an hour earlier it could be judged.
    earlier = [line.replace(b"2026-11-21 02:", b"2026-11-21 01:", 1) for line in other]
    within = [line.replace(b"2026-11-21 02:2", b"2026-11-21 02:1", 1) for line in other]
    lake.add(earlier)
    lake.add(within)
    assert not [row for row in lake.rows if row["realised_offset"] is not None]
    assert lake.outcomes["not in the log: the log has no topic of this id"] > 0


@pytest.mark.parametrize(
    ("ahead", "recorded"), [rare(0, True), (300, True), rare(-300, True), rare(5_000, False), (-5_000, False)]
)
def test_a_clock_that_is_off_by_more_than_the_skew_finds_no_record_of_its_own(
    tmp_path: Path, ahead: int, recorded: bool
) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay()
    table = requested_assignments(request_lines(KAFKA))
    for name in ("requested_time", "answered_time"):
        at = table.schema.get_field_index(name)
        moved = [time + timedelta(milliseconds=ahead) for time in table[name].to_pylist()]
        table = table.set_column(at, table.schema.field(at), [moved])
    lake.stream.add(table, REJECTS_SCHEMA.empty_table())
    kinds = Counter(row["outcome"] for row in lake.rows)
    assert (kinds["recorded"] > 60) == recorded
    if not recorded:
        assert kinds["recorded"] < 10
    for row in lake.rows:
        if row["realised_offset"] is not None:
            assert row["realised_time"] <= row["answered_time"] + SKEW


def test_refusals_in_a_row_are_attempts_and_the_latency_is_from_the_first(tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay()
    (line,) = [line for line in request_lines(KAFKA) if b"ASSIGN_REPLICAS_TO_DIRS" in line][:1]
    seconds = int(line[18:20])
    refused = [
        line.replace(b":%02d," % seconds, b":%02d," % (seconds - 3 + i), 1)
        .replace(b'"errorCode":0', b'"errorCode":77', 1)
        .replace(b'"correlationId":', b'"correlationId":9%d' % i, 1)
        for i in range(2)
    ]
    lake.add(refused[:1])
    lake.add([refused[1], line])
    by_attempt = {row["attempt"]: row for row in lake.rows if row["entry"] == 0}
    assert {attempt: row["outcome"] for attempt, row in by_attempt.items()} == {
        1: "refused",
        2: "refused",
        3: "recorded",
    }
    assert by_attempt[3]["first_requested_time"] == by_attempt[1]["requested_time"]
    assert 3_000 <= by_attempt[3]["latency_ms"] < 3_200
    assert by_attempt[1]["error"] == 77


def test_a_lake_that_begins_with_a_snapshot_does_not_claim_what_happened_before(tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA, start="snapshot")
    lake.replay()
    lake.add(request_lines(KAFKA))
    first = min(entry.offset for entry in lake.entries)
    assert first > 0
    kinds = Counter((row["outcome"], row["why"]) for row in lake.rows)
    assert kinds["not in the log", "the log begins later"] > 0
    assert all(row["realised_offset"] > first for row in lake.rows if row["outcome"] == "recorded")


def test_unreadable_lines_are_counted_once_also_from_a_log_that_is_read_again_under_another_name(
    tmp_path: Path,
) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay(50)
    rejects = Rejects("a.log", "id")
    for position in (0, 7, 3 << 20):
        rejects.add(position, Reject("no completed request", 7))
    rejects.add(14, Reject("no time", 5, "BROKER_HEARTBEAT", 1_000))
    lake.add([], rejects.table())
    again = Rejects("a.log.1", "id")
    again.add(7, Reject("no completed request", 7))
    again.add((3 << 20) + 7, Reject("no completed request", 7))
    lake.add([], again.table())
    rows = rows_of(tmp_path / "lake", "request_rejects")
    counted = sorted((row["position"], row["lines"], row["bytes"], row["file"]) for row in rows)
    assert counted == [
        (0, 2, 14, "a.log"),
        (14, 1, 5, "a.log"),
        (3 << 20, 1, 7, "a.log"),
        ((3 << 20) + 7, 1, 7, "a.log.1"),
    ]
    assert [row["first_time"] for row in rows if row["api"]] == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]


def test_a_history_that_is_rewritten_makes_its_requests_wait_again(tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay()
    lake.add(request_lines(KAFKA))
    before = lake.rows
    offsets = sorted(row["realised_offset"] for row in before)
    cut = offsets[len(offsets) // 2]
    take_back(lake.lake, Cut(cut, 1, 0, -1), lambda topics, _shards: np.zeros(len(topics), np.int32))
    beyond = [row for row in before if row["realised_offset"] >= cut]
    waiting = [row for row in lake.rows if row["outcome"] == "pending"]
    assert len(waiting) == len(beyond) > 0
    assert [row for row in lake.rows if row["outcome"] != "pending"] == [row for row in before if row not in beyond]
    lake.rewind(cut)
    lake.replay(30)
    lake.stream.join_waiting()
    assert 0 < sum(row["outcome"] == "pending" for row in lake.rows) < len(waiting)
    lake.replay()
    lake.stream.join_waiting()
    assert lake.rows == before
