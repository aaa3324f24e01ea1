"""kill -9 at every step of a run. What is readable is always whole, and the next run goes on as if nothing had been.

The steps that need no Spark are those of a process of their own; those of Spark's checkpoint are of ``jbod replay``.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path
from shutil import rmtree

import pytest
from pyspark.sql import SparkSession

from pipelines import ask
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from tests.crash.check import History, complete, readable, uninterrupted
from tests.crash.loop import LOG, deleted, retained, rewrite, until
from tests.crash.points import COMMITS, LOADING, TAKING_BACK
from tests.crash.runs import forked, spark_run
from tests.support.logs import segments
from tests.support.paths import metadata_dir
from tests.support.volume import exhaustive, rare

Log = tuple[Path, History]
SPARK = ("file offsets", "file state", "after publish")
SOME_COMMITS = ("after records", "before ledger", "after ledger")
SOME_OF_TAKING_BACK = (
    "after discard_checkpoint",
    "before take-back:ledger",
    "after take-back:ledger",
    "before write_seed",
)
"""Of each kind of step, one; with --exhaustive every step."""


def log_of(root: Path, *, rewritten: bool = False) -> Log:
    log = segments(metadata_dir("kafka-3.7.2"), root / "log")
    if rewritten:
        rewrite(log, random.Random(7))
    return log, uninterrupted(log, root / "lake")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A real log, and all rows of it."""
    return log_of(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """The same log after an election that cut off its end."""
    return log_of(tmp_path_factory.mktemp("new"), rewritten=True)


def test_kill_around_every_commit_keeps_the_published_part_and_the_next_run_continues(tmp_path: Path, old: Log) -> None:
    """One lake: each run publishes a batch and dies at a step of the second."""
    log, history = old
    ends = [0]
    for point in COMMITS if exhaustive() else SOME_COMMITS:
        run = forked(log, tmp_path / "lake", 30, point)
        run.join(120)
        assert run.exitcode == -signal.SIGKILL, point
        ends.append(readable(tmp_path / "lake", [history]))
        assert ends[-1] > ends[-2], point
    run = forked(log, tmp_path / "lake", None)
    run.join(120)
    complete(tmp_path / "lake", history)


def test_kill_at_every_step_of_taking_back_leaves_one_history_whole_and_ends_with_the_new_one(
    tmp_path: Path, old: Log, new: Log
) -> None:
    log, history = new
    run = forked(old[0], tmp_path / "lake", None)
    run.join(120)
    ends = []
    points = TAKING_BACK if exhaustive() else SOME_OF_TAKING_BACK
    for point in points:
        run = forked(log, tmp_path / "lake", 30, point)
        run.join(120)
        assert run.exitcode == -signal.SIGKILL, point
        ends.append(readable(tmp_path / "lake", [old[1], history]))
    before = points.index("after take-back:ledger")
    assert ends == [old[1].end] * before + [history.end - 1] * (len(ends) - before)
    run = forked(log, tmp_path / "lake", None)
    run.join(120)
    complete(tmp_path / "lake", history)


@pytest.mark.parametrize("point", [point if "seed" in point else rare(point) for point in LOADING])
def test_kill_at_every_step_of_a_load_keeps_the_published_part_and_the_next_run_continues(
    tmp_path: Path, old: Log, point: str
) -> None:
    log, history = old
    run = forked(log, tmp_path / "lake", 200, point, loads=True)
    run.join(120)
    assert run.exitcode == -signal.SIGKILL
    end = readable(tmp_path / "lake", [history])
    assert (end > 0) == ("take_seed" in point)
    for again, code in (("after load:take_seed", -signal.SIGKILL), (None, 0)):
        run = forked(log, tmp_path / "lake", 100, again, loads=True)
        run.join(120)
        assert run.exitcode == code
    complete(tmp_path / "lake", history)


@pytest.mark.spark
def test_kill_around_sparks_logs_and_state_and_a_lost_checkpoint_lose_nothing(
    spark: SparkSession, tmp_path: Path, old: Log
) -> None:
    log, history = old
    end = 0
    for point in SPARK if exhaustive() else SPARK[:1]:
        with spark_run(log, tmp_path / "lake", 30, point) as run:
            assert run.ended(300) == -signal.SIGKILL, (point, run.errors)
        before, end = end, readable(tmp_path / "lake", [history])
        assert end > before, point
    rmtree(tmp_path / "lake" / "_checkpoint")
    Runner(Replay(str(log), str(tmp_path / "lake"))).run(spark)
    complete(tmp_path / "lake", history)


@pytest.mark.exhaustive  # a planned batch that is carried out: the test above
@pytest.mark.spark
def test_plan_of_a_killed_run_that_retention_has_overtaken_is_not_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark would carry out what it planned, which is in the log no more: every later run once stopped there."""
    source, lake = metadata_dir("kafka-4.1.2"), tmp_path / "lake"
    early = deleted(source, tmp_path / "early")
    with spark_run(early, lake, 100, "before publish") as run:
        assert run.ended(300) == -signal.SIGKILL, run.errors
    end = ask.Lake.open(lake).offset + 1
    uninterrupted(until(early, end, tmp_path / "until"), tmp_path / "whole")
    log = retained(source, tmp_path / "log")
    history = uninterrupted(log, tmp_path / "whole")
    Runner(Replay(str(log), str(lake))).run(spark)
    complete(lake, history)


@pytest.mark.spark
@pytest.mark.exhaustive  # without Spark: test_unfinished_runs.py
def test_replay_stops_at_a_lake_it_may_not_write_and_a_segment_it_may_not_read_and_continues_later(
    tmp_path: Path, old: Log
) -> None:
    source, history = old
    lake, log = tmp_path / "lake", segments(source, tmp_path / "log")
    early = forked(until(source, 200, tmp_path / "early"), lake, None)
    early.join(120)
    end = readable(lake, [history])
    there = [(path, path.stat().st_mode) for path in (lake, *lake.rglob("*"))]
    for path, mode in there:
        path.chmod(mode & 0o555)
    with spark_run(log, lake, 1000, bound=True) as run:
        assert run.ended(300) == 2, run.errors
        assert f"jbod: {lake}: Permission denied: give this user the right to write there" in run.errors
    for path, mode in there:
        path.chmod(mode)
    last = max((log / LOG).glob("*.log"))
    last.chmod(0)
    with spark_run(log, lake, 1000, bound=True) as run:
        assert run.ended(300) == 2, run.errors
        assert f"jbod: {last}: cannot be read" in run.errors
    assert 0 < readable(lake, [history]) == end
    last.chmod(0o644)
    with spark_run(log, lake, 1000, bound=True) as run:
        assert run.ended(300) == 0, run.errors
    complete(lake, history)


@pytest.mark.spark
@pytest.mark.exhaustive  # without Spark: test_unfinished_runs.py
def test_of_two_replays_at_once_the_second_is_refused_and_the_first_is_right(tmp_path: Path, old: Log) -> None:
    log, history = old
    lake = tmp_path / "lake"
    with spark_run(log, lake, 100) as first, spark_run(log, lake, 100) as second:
        codes = first.ended(300), second.ended(300)
        output = first.errors + second.errors
    assert set(codes) == {0, 2}, output
    assert f"jbod: {lake}: another jbod replay runs on this lake" in output
    complete(lake, history)
