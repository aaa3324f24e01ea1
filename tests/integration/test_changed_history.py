"""Logs that are rewritten, cut off and deleted under the main job, with Spark and its checkpoint."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jbod_model.formats import records as r
from jbod_model.formats.batch import write_batch
from jbod_model.formats.codec import encode
from jbod_model.formats.records import VersionedRecord
from jbod_model.ids import Uuid
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from tests.support.logs import first_batches, read_log
from tests.support.paths import ROOT, metadata_dir
from tests.support.tables import differences, rows_of
from tests.support.volume import rare

pytestmark = pytest.mark.spark

LOG = "__cluster_metadata-0"
SOURCE = metadata_dir("kafka-3.7.2")
LAST = f"{535:020d}.log"
FORK = 565


def replay(spark: SparkSession, log_dir: Path, lake: Path, **options: Any) -> Runner:
    runner = Runner(Replay(str(log_dir), str(lake), **options))
    runner.run(spark)
    return runner


def whole(target: Path) -> Path:
    """A copy of a real log without its snapshots."""
    (target / LOG).mkdir(parents=True)
    copy(SOURCE / "meta.properties", target)
    for path in (SOURCE / LOG).glob("*.log"):
        copy(path, target / LOG)
    return target


def rewrite(log_dir: Path) -> None:
    """An election: what follows offset FORK is cut off, and a leader of the next epoch writes a topic."""
    path = log_dir / LOG / LAST
    kept = first_batches(path.read_bytes(), FORK)
    topic = VersionedRecord(r.TopicRecord(name="elected", topic_id=Uuid(77, 77)), 0)
    epoch = max(entry.epoch for entry in read_log(SOURCE)) + 1
    with path.open("r+b", buffering=0) as segment:
        segment.truncate(len(kept))
        segment.seek(len(kept))
        segment.write(write_batch([encode(topic)], base_offset=FORK, epoch=epoch, timestamp=1_900_000_000_000))


@pytest.fixture(scope="module")
def rewritten(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that only ever saw the log as it is after the election."""
    root = tmp_path_factory.mktemp("rewritten")
    rewrite(whole(root / "log"))
    replay(spark, root / "log", root / "lake")
    return root / "lake"


@pytest.mark.exhaustive
def test_log_rewritten_between_runs_is_followed_and_said(spark: SparkSession, tmp_path: Path, rewritten: Path) -> None:
    log_dir = whole(tmp_path / "log")
    replay(spark, log_dir, tmp_path / "lake", max_records=200)
    last = log_dir / LOG / LAST
    last.write_bytes(first_batches(last.read_bytes(), FORK))
    notices: list[str] = []
    shorter = Runner(Replay(str(log_dir), str(tmp_path / "lake")), notice=notices.append)
    assert (shorter.run(spark).log_end, shorter.outcome.batches) == (FORK, 0)
    assert [f"ends before offset {FORK}, but the lake has offsets up to 618" in line for line in notices] == [True]
    rewrite(log_dir)
    done = replay(spark, log_dir, tmp_path / "lake").outcome.rolled_back
    assert [(rollback.offset, rollback.before) for rollback in done] == [(FORK, 619)]
    assert differences(rows_of(tmp_path / "lake"), rows_of(rewritten)) == []
    assert Runner(Replay(str(log_dir), str(tmp_path / "lake"))).up_to_date()


@pytest.mark.parametrize("commits", [rare(2), 4])
@pytest.mark.exhaustive
def test_run_killed_while_it_takes_back_is_made_good_by_the_next(
    spark: SparkSession, tmp_path: Path, rewritten: Path, commits: int
) -> None:
    """kill -9 after some tables, and after the ledger; no Spark was needed so far."""
    log_dir = whole(tmp_path / "log")
    replay(spark, log_dir, tmp_path / "lake")
    before = rows_of(tmp_path / "lake")
    rewrite(log_dir)
    program = f"""
import os, signal
from pipelines.lake.publish import LakeWriter
from pipelines.run.runner import Runner
from pipelines.run.options import Replay
good, calls = LakeWriter.commit, []
def commit(*arguments):
    good(*arguments)
    calls.append(arguments[1].name)
    if len(calls) == {commits} or arguments[1].name == "ledger":
        os.kill(os.getpid(), signal.SIGKILL)
LakeWriter.commit = commit
Runner(Replay({str(log_dir)!r}, {str(tmp_path / "lake")!r}))._reconcile()
"""
    died = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert died.returncode == -signal.SIGKILL
    if commits == 2:
        assert differences(rows_of(tmp_path / "lake"), before) == []
    replay(spark, log_dir, tmp_path / "lake")
    assert differences(rows_of(tmp_path / "lake"), rows_of(rewritten)) == []
