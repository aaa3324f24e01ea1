"""What the table of requests answers: who waits, what was asked, and how long the queues were."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from jbod_model.errors import UsageError
from pipelines.ask.assignment_requests import ERROR_NAMES, REFUSAL, assignments, queue, requests_of
from pipelines.cli.main import main
from pipelines.lake.reader import Lake
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.support.paths import metadata_dir
from tests.support.request_lakes import JoinedLake, request_lines
from tests.support.volume import amount, sampled

KAFKA = "kafka-3.7.2"


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> JoinedLake:
    lake = JoinedLake(tmp_path_factory.mktemp("joined") / "lake", KAFKA)
    lake.replay()
    lake.add(request_lines(KAFKA))
    return lake


def test_every_request_is_counted_by_what_became_of_it(joined: JoinedLake) -> None:
    answer = assignments(Lake.open(joined.path))
    assert dict(answer.outcomes) == {"recorded": 114, "refused": 2, "already true": 1}
    assert (answer.seen, answer.unassigned, answer.refused, answer.unreadable) == (True, [], [], 0)
    assert answer.slowest_ms is not None
    assert 0 <= (answer.median_ms or 0) <= answer.slowest_ms < 1_000


@pytest.mark.parametrize("offset", sampled(range(64, 110, 5), 4))
def test_at_any_offset_those_who_wait_are_the_unassigned_and_nothing_later_is_known(
    joined: JoinedLake, offset: int
) -> None:
    lake = Lake.open(joined.path, at_offset=offset)
    answer = assignments(lake)
    expected = lake.query(f"SELECT count(*) FROM {lake.at('assignments')} WHERE kind = 'unassigned'")[0][0]
    assert len(answer.unassigned) == expected
    kinds = Counter(
        "pending" if row["realised_offset"] and row["realised_offset"] > offset else row["outcome"]
        for row in joined.rows
        if row["requested_time"] <= lake.time
    )
    assert Counter(dict(answer.outcomes)) == kinds
    for replica in answer.unassigned:
        assert replica.from_offset <= offset
        requests = [
            row
            for row in joined.rows
            if (row["topic_id"], row["partition"], row["broker_id"])
            == (replica.topic_id, replica.partition, replica.broker_id)
            and replica.from_time - timedelta(seconds=1) <= row["requested_time"] <= lake.time
        ]
        assert replica.state == ("requested, not yet recorded" if requests else "not requested")


def test_a_refusal_is_told_where_the_log_has_the_replica_elsewhere(joined: JoinedLake, tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay(min(row["realised_offset"] for row in joined.rows if row["realised_offset"]))
    lines = [line for line in request_lines(KAFKA) if b"ASSIGN_REPLICAS" in line][:3]
    lake.add([line.replace(b'"errorCode":0}]', b'"errorCode":6}]') for line in lines])
    answer = assignments(Lake.open(lake.path))
    refused = [replica.last_request for replica in answer.unassigned if replica.state == "refused"]
    assert {request.error for request in refused if request} == {"NOT_LEADER_OR_FOLLOWER"}
    assert answer.outcomes["refused"] > 0
    assert not answer.refused, "listed once, as waiting"
    lake.replay()
    answer = assignments(Lake.open(lake.path))
    assert not answer.unassigned
    assert {replica.last_request.error for replica in answer.refused} == {"NOT_LEADER_OR_FOLLOWER"}
    assert all(replica.directory_id != replica.last_request.directory_id for replica in answer.refused)


def test_replicas_from_before_directories_were_recorded_are_counted_besides() -> None:
    """During an upgrade the answer was "0 replicas" while every one of them was MIGRATING."""
    log = LogOptions(path=str(metadata_dir("kafka-3.9.2-zk-migration")))
    answer = assignments(LogLake.of(log, 103))
    assert (answer.migrating, len(answer.unassigned)) == (15, 3)


def test_an_assignment_refused_three_times_in_a_row_is_a_loop_until_it_is_accepted(tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay(70)
    line = next(line for line in request_lines(KAFKA) if b"ASSIGN_REPLICAS" in line)
    refused = line.replace(b'"errorCode":0}', b'"errorCode":100}')
    again = [refused.replace(b'"correlationId":0', b'"correlationId":%d' % number) for number in range(3)]
    lake.add([text.replace(b"02:23:", b"02:2%d:" % number) for number, text in enumerate(again[:2], 4)])
    assert assignments(Lake.open(lake.path)).retry_loops == []
    lake.add([again[2].replace(b"02:23:", b"02:26:")])
    loops = assignments(Lake.open(lake.path)).retry_loops
    assert {(loop.attempts, loop.error, loop.broker_id, loop.topic) for loop in loops} == {
        (3, "UNKNOWN_TOPIC_ID", 1, "orders")
    }
    assert len(loops) == 9
    lake.add([line.replace(b"02:23:", b"02:27:")])
    assert assignments(Lake.open(lake.path)).retry_loops == []


def test_the_queue_holds_what_was_asked_in_each_step_and_who_waited_at_its_end(joined: JoinedLake) -> None:
    lake = Lake.open(joined.path)
    for seconds in (1, 10, 3600):
        steps = queue(lake, timedelta(seconds=seconds))
        assert sum(step.entries for step in steps) == len(joined.rows)
        assert sum(step.refused for step in steps) == 2
        assert len({(step.broker_id, step.start) for step in steps}) == len(steps)
        assert all(step.largest <= step.entries for step in steps)
    begun = [step for step in queue(lake, timedelta(seconds=10)) if step.waiting]
    assert {(step.broker_id, step.waiting) for step in begun} == {(1, 9), (2, 9), (4, 9)}


def test_the_queue_ends_with_those_who_wait_at_any_offset(joined: JoinedLake) -> None:
    """Replicas that were placed at the time of the newest record counted as waiting."""
    end = Lake.open(joined.path).offset
    for offset in range(30, end, amount(56, 7)):
        lake = Lake.open(joined.path, offset)
        newest = {step.broker_id: step.waiting for step in queue(lake, timedelta(seconds=10))}
        waiting = Counter(row.broker_id for row in assignments(lake).unassigned)
        assert newest == {broker: waiting[broker] for broker in newest}, offset


def test_the_requests_of_a_partition_are_told_in_order_and_a_lake_without_requests_says_so(
    joined: JoinedLake, tmp_path: Path
) -> None:
    requests = requests_of(Lake.open(joined.path), "clicks", 6)
    assert [
        (request.broker_id, request.last_request.outcome, request.last_request.realised_offset) for request in requests
    ] == [
        (4, "recorded", 123),
        (1, "recorded", 127),
        (1, "already true", 127),
        (4, "recorded", 468),
    ]
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay(70)
    with pytest.raises(UsageError, match="no requests in this lake"):
        requests_of(Lake.open(lake.path), "clicks", 6)
    answer = assignments(Lake.open(lake.path))
    assert (answer.seen, dict(answer.outcomes)) == (False, {})
    assert {replica.state for replica in answer.unassigned} == {"not requested"}


def test_a_refusal_has_kafkas_name() -> None:
    codes = "(VALUES (1, 0), (2, 100), (3, -1), (4, 999)) q (place, error)"
    names = f"FROM {codes} LEFT JOIN ({ERROR_NAMES}) n ON n.error = q.error ORDER BY place"
    assert duckdb.connect().execute(f"SELECT {REFUSAL} {names}").fetchall() == [
        (None,),
        ("UNKNOWN_TOPIC_ID",),
        ("UNKNOWN_SERVER_ERROR",),
        ("error 999",),
    ]


@pytest.mark.parametrize("more", [[], ["--at-offset", "70"], ["--queue", "10"], ["clicks-6"]])
def test_the_command_answers_as_text_and_as_json(
    joined: JoinedLake, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    for form in ([], ["--json"]):
        with pytest.raises(SystemExit) as done:
            main(["assignments", "--lake", str(joined.path), *more, *form])
        assert done.value.code == 0
        out = capsys.readouterr().out
        assert len(json.loads(out)) > 2 if form else len(out.splitlines()) > 2


def test_queue_without_requests_is_said_in_a_sentence_and_not_shown_as_a_bare_heading(
    joined: JoinedLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: a heading without rows looked like queues that were always empty."""
    lake = JoinedLake(tmp_path / "lake", KAFKA)
    lake.replay(70)

    def shown(*words: str | Path) -> str:
        with pytest.raises(SystemExit):
            main(["assignments", "--queue", "10", *map(str, words)])
        return capsys.readouterr().out

    for place in (("--lake", lake.path), ("--log", metadata_dir(KAFKA))):
        assert shown(*place) == (
            "No requests are known, so nobody can say how long the brokers' queues were: only a controller's request "
            "log has them, and jbod replay LOG_DIR --requests FILE adds it to a lake.\n"
        )
    assert shown("--lake", joined.path, "--at-offset", "2") == (
        "Up to offset 2, no broker requested an assignment, and no replica waited for one.\n"
    )
    selection, heading, *rows = shown("--lake", joined.path, "--broker", "1", "--limit", "2").splitlines()
    assert selection.startswith("2 of ") and selection.endswith(" in all: broker 1.")
    assert (heading.split()[:2], len(rows)) == (["TIME", "BROKER"], 2)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--queue", "0"], "--queue 0"),
        (["clicks-6", "--queue", "1"], "give one"),
        (["x"], "x: no"),
        (["clicks"], "clicks has the partitions clicks-0 to clicks-8"),
        (["clicks-99"], "clicks-99: clicks has"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(
    joined: JoinedLake, capsys: pytest.CaptureFixture[str], more: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as done:
        main(["assignments", "--lake", str(joined.path), *more])
    assert done.value.code == 2
    assert problem in capsys.readouterr().err
