"""Request logs through Spark: the data source in batch, and the main job with both streams."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jbod_model.errors import UsageError
from jbod_model.formats.request_log_file import RequestLog
from pipelines.lake.publish import LakeWriter
from pipelines.run.options import Replay, Requests
from pipelines.run.request_stream import count_outcomes
from pipelines.run.runner import Runner
from pipelines.run.seed import OF_REQUESTS
from pipelines.source.kafka_request_log import register
from pipelines.upkeep.verify_reference import Row
from tests.support.paths import KAFKAS, metadata_dir
from tests.support.request_lakes import JoinedLake, request_lines, request_log, rows_of

pytestmark = pytest.mark.spark

KAFKA = "kafka-4.1.2"


def run(spark: SparkSession, kafka: str, lake: Path, *logs: Path, **options: Any) -> Runner:
    wanted = replace(Requests(tuple(map(str, logs))), **options)
    runner = Runner(Replay(str(metadata_dir(kafka)), str(lake), requests=wanted))
    runner.run(spark)
    return runner


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The table as it is made without Spark, of all there is at once."""
    lake = JoinedLake(tmp_path_factory.mktemp("joined") / "lake", KAFKA)
    lake.replay()
    lake.add(request_lines(KAFKA))
    return lake.rows


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of a cluster's log and requests."""
    lake = tmp_path_factory.mktemp("whole") / "lake"
    run(spark, KAFKA, lake, request_log(KAFKA))
    return lake


def test_batch_has_a_row_for_every_request_of_every_controller(spark: SparkSession) -> None:
    register(spark)
    paths = [str(request_log(kafka)) for kafka in KAFKAS]
    frame = spark.read.format("kafka_request_log").option("paths", str(paths).replace("'", '"')).load()
    counts = Counter((Path(row.file).parent.name, row.api) for row in frame.select("file", "api").collect())
    plain = Counter((kafka, line.api) for kafka in KAFKAS for line in RequestLog(request_log(kafka)).requests())
    assert counts == plain


def test_both_streams_fill_the_table_and_a_second_run_changes_nothing(
    spark: SparkSession, tmp_path: Path, whole: Path, expected: list[Row]
) -> None:
    assert rows_of(whole) == expected
    assert rows_of(whole, "request_rejects") == []
    lake = copytree(whole, tmp_path / "lake")
    for damage in ("none", "a log cut off", "no log", "all"):
        if damage == "a log cut off":
            newest = max((lake / OF_REQUESTS / "offsets").glob("[0-9]*"))
            newest.write_bytes(newest.read_bytes()[:40])
        elif damage != "none":
            rmtree(lake / OF_REQUESTS / ("offsets" if damage == "no log" else "."))
        runner = run(spark, KAFKA, lake, request_log(KAFKA), max_bytes=700_000)
        assert (runner.outcome.rows, +runner.requests.outcomes if runner.requests else None) == ({}, Counter())
        assert rows_of(lake) == expected


@pytest.mark.exhaustive  # of records, by the same publisher: test_replay_runs.py
@pytest.mark.parametrize("where", ["append_ledger", "commit"])
def test_a_run_that_died_while_it_published_requests_is_made_good_by_the_next(
    spark: SparkSession, tmp_path: Path, expected: list[Row], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """In the second batch of requests: before the ledger's row, or between the two tables."""
    lake, log = tmp_path / "lake", tmp_path / "requests.log"
    log.write_bytes(b"no request\n".join([b"", *request_lines(KAFKA)]))
    good, count = getattr(LakeWriter, where), 0

    def dies(self: LakeWriter, *arguments: Any) -> None:
        nonlocal count
        requests = where == "commit" or {"request_rejects"} <= set(arguments[2])
        if requests and (where != "commit" or arguments[0].name == "request_rejects"):
            count += 1
            if count == 2:
                raise OSError("the disk is gone")
        good(self, *arguments)

    with monkeypatch.context() as broken:
        broken.setattr(LakeWriter, where, dies)
        with pytest.raises(Exception, match="the disk is gone"):
            run(spark, KAFKA, lake, log, max_bytes=900_000)
    assert 0 < len(rows_of(lake)) < len(expected)
    run(spark, KAFKA, lake, log, max_bytes=900_000)
    assert rows_of(lake) == expected
    assert sum(row["lines"] for row in rows_of(lake, "request_rejects")) == len(request_lines(KAFKA))


def test_following_both_streams_joins_requests_that_come_before_and_after_their_records(
    spark: SparkSession, tmp_path: Path, expected: list[Row]
) -> None:
    source, log_dir, log = metadata_dir(KAFKA), tmp_path / "log", tmp_path / "requests.log"
    inner = "__cluster_metadata-0"
    (log_dir / inner).mkdir(parents=True)
    segments = sorted((source / inner).glob("*.log"))
    lines = request_lines(KAFKA)
    log.write_bytes(b"".join(lines[:600]))
    (log_dir / inner / segments[0].name).write_bytes(segments[0].read_bytes())
    wanted = Requests((str(log),), clock_skew=timedelta(milliseconds=500))
    runner = Runner(Replay(str(log_dir), str(tmp_path / "lake"), follow_seconds=0.2, requests=wanted))
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            runner.run(spark)
        except BaseException as problem:
            failures.append(problem)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        _wait(lambda: bool(_kinds(runner)), failures)
        with log.open("ab") as file:
            file.writelines(lines[600:1500])
        _wait(lambda: _kinds(runner)["pending"] > 0, failures)
        log.rename(tmp_path / "requests.log.1")
        log.write_bytes(b"".join(lines[1500:]))
        for segment in segments[1:]:
            (log_dir / inner / segment.name).write_bytes(segment.read_bytes())
        _wait(lambda: sum(_kinds(runner).values()) == len(expected) and not _kinds(runner)["pending"], failures)
    finally:
        runner.stop()
        thread.join(60)
    assert not failures
    assert rows_of(tmp_path / "lake") == expected


def _kinds(runner: Runner) -> Counter[str]:
    """The requests of the lake by outcome."""
    try:
        return count_outcomes(runner.lake.path)[0]
    except UsageError:  # nothing is published yet
        return Counter()


def _wait(done: Callable[[], bool], failures: list[BaseException]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert not failures, failures
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_request_log_that_is_not_there_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.log: no such file"):
        Runner(
            Replay(str(metadata_dir(KAFKA)), str(tmp_path / "lake"), requests=Requests((str(tmp_path / "absent.log"),)))
        )
    assert not (tmp_path / "lake").exists()
