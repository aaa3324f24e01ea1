"""What checks say where the request stream is known: who asked, was refused, or never asked."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from jbod_model.formats import records as r
from pipelines.ask.assignment_requests import retry_loops
from pipelines.check.catalogue import run_checks
from pipelines.lake.reader import Lake
from pipelines.settings import load
from tests.support.request_lakes import JoinedLake, request_lines
from tests.unit.check.story import Story, asking, waiting


def test_stuck_assignment_is_told_by_what_its_broker_asked(tmp_path: Path) -> None:
    findings = run_checks(asking().lake(tmp_path), ["B-01"])
    assert {finding.subject: finding.finding for finding in findings} == {
        "t-0 on broker 1": "broker 1 requested it 77 s ago, and it is not yet recorded",
        "t-1 on broker 1": "broker 1 was refused the directory: NOT_LEADER_OR_FOLLOWER, attempt 2",
        "t-2 on broker 1": "broker 1 never asked for a directory in the request logs that were read",
        "t-3 on broker 1": "broker 1 joined a partition that existed and never asked: "
        "Kafka does not report the directory then",
    }
    assert all("jbod assignments" in finding.advice for finding in findings)
    assert {finding.severity for finding in findings} == {"critical", "warning"}


def test_stuck_assignment_of_a_lake_without_requests_says_nothing_about_them(tmp_path: Path) -> None:
    findings = run_checks(waiting().wait(60).lake(tmp_path), ["B-01"])
    assert {finding.finding for finding in findings} == {
        "broker 1 has not reported the directory",
        "broker 1 joined a partition that existed, and Kafka does not report the directory then",
    }


def test_request_of_the_time_before_the_replica_lost_its_directory_is_not_about_it(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").topic("t", {1: "a"}).request("t", 0, 1, "a", error=6).request("t", 0, 1, "a")
    (finding,) = run_checks(story.wait(15).assign("t", 0, 1, "unassigned").wait(60).lake(tmp_path), ["B-01"])
    assert finding.finding == "broker 1 never asked for a directory in the request logs that were read"


def test_request_that_was_recorded_later_is_not_yet_so_at_an_offset_before(tmp_path: Path) -> None:
    story = waiting().request("t", 0, 1, "a", realised=24).wait(60).assign("t", 0, 1, "a")
    assert story.entries[-1].offset == 24
    story.lake(tmp_path)
    before = {finding.subject: finding.finding for finding in run_checks(Lake.open(tmp_path, 23), ["B-01"])}
    assert before["t-0 on broker 1"] == "broker 1 requested it 75 s ago, and it is not yet recorded"
    assert "t-0 on broker 1" not in {finding.subject for finding in run_checks(Lake.open(tmp_path), ["B-01"])}


def test_retry_loop_is_known_once_it_is_one_and_has_the_cause_in_the_log(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").topic("t", {1: "a"}).remove("t")
    removed = story.entries[-1].offset
    for _ in range(3):
        story.request("t", 0, 1, "b", error=100).append(story.entries[0].record, 0)  # type: ignore[arg-type]
    story.lake(tmp_path)
    (finding,) = run_checks(Lake.open(tmp_path), ["B-02"])
    assert (finding.subject, finding.from_offset) == ("t-0 on broker 1", removed)
    assert finding.finding.endswith("the last answer was UNKNOWN_TOPIC_ID")
    assert finding.advice == "the topic or partition is gone: the loop ends with a restart of broker 1"
    assert run_checks(Lake.open(tmp_path, removed + 2), ["B-02"]) == []
    assert len(run_checks(Lake.open(tmp_path, removed + 2), ["B-02"], load(check={"refusals": 2}))) == 1


def test_assignments_and_the_check_know_the_same_loops_whatever_the_settings_say(tmp_path: Path) -> None:
    """Broker 1 asks for another directory at last, broker 2 is refused twice, broker 3 starts anew."""
    story = Story().broker(1, "ab").broker(2, "cd").broker(3, "ef").topic("t", {1: "a", 2: "c", 3: "e"})
    for broker, directory, times in ((1, "b", 3), (1, "a", 2), (2, "d", 2), (3, "f", 3)):
        for _ in range(times):
            story.request("t", 0, broker, directory, error=100).append(r.NoOpRecord(), 0)
    story.broker(3, "ef", process=2)
    lake = story.lake(tmp_path)
    for refusals, brokers in ((2, {1, 2}), (3, set())):
        findings = run_checks(lake, ["B-02"], load(check={"refusals": refusals}))
        loops = retry_loops(lake, refusals)
        assert {(finding.broker_id, finding.directory_id) for finding in findings} == {
            (loop.broker_id, loop.directory_id) for loop in loops
        }
        assert {loop.broker_id for loop in loops} == brokers
    assert retry_loops(lake, 2, timedelta(seconds=2)) == []


def test_retry_loop_for_a_replica_that_the_log_has_is_not_said_to_be_elsewhere(tmp_path: Path) -> None:
    (finding,) = run_checks(asking().request("t", 1, 1, "a", error=6).lake(tmp_path), ["B-02"])
    assert finding.advice == "see what is asked and answered (jbod assignments), and the log of broker 1"


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> JoinedLake:
    """The first request of a real cluster, as if it had been refused three times."""
    lake = JoinedLake(tmp_path_factory.mktemp("refused") / "lake", "kafka-3.7.2")
    lake.replay(70)
    line = next(line for line in request_lines("kafka-3.7.2") if b"ASSIGN_REPLICAS" in line)
    answer = line.replace(b'"errorCode":0}', b'"errorCode":100}')
    for number in range(3):
        lake.add(
            [
                answer.replace(b'"correlationId":0', b'"correlationId":%d' % number).replace(
                    b"02:23:", b"02:%d:" % (24 + number)
                )
            ]
        )
    return lake


def test_retry_loops_of_a_real_request_are_those_that_assignments_names(refused: JoinedLake) -> None:
    lake = Lake.open(refused.path)
    findings = run_checks(lake, ["B-02"])
    assert len(findings) == 9
    assert {(finding.broker_id, finding.topic_id, finding.partition, finding.directory_id) for finding in findings} == {
        (loop.broker_id, loop.topic_id, loop.partition, loop.directory_id) for loop in retry_loops(lake)
    }


def test_real_requests_say_that_a_broker_which_joined_never_asked_and_nothing_is_a_loop(tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", "kafka-4.1.2")
    lake.replay()
    lake.add(request_lines("kafka-4.1.2"))
    (finding,) = run_checks(Lake.open(lake.path, 252), ["B-01", "B-02"])
    assert finding.subject == "clicks-0 on broker 2"
    assert finding.finding.startswith("broker 2 joined a partition that existed and never asked")
    assert run_checks(Lake.open(lake.path), ["B-01", "B-02"]) == []
