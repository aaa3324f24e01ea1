"""What a run on a cluster needs of this side: names and storage that executors elsewhere share."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from jbod_model.errors import UsageError
from pipelines.fold.rules import rules
from pipelines.lake import files
from pipelines.lake.tables import BY_NAME
from pipelines.lake.uris import for_spark
from pipelines.run.errors import fault_of_cluster
from pipelines.run.seed import lake_has_checkpoint
from pipelines.run.stage_options import Job
from pipelines.settings import load
from pipelines.source.log_options import RequestOptions
from pipelines.spark.session import is_local
from tests.support.local import replay
from tests.support.paths import metadata_dir

EMPTY = BY_NAME["brokers"].schema.empty_table()


@pytest.mark.parametrize(
    ("master", "expected"), [("local", True), ("local[2]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)]
)
def test_master_is_local_or_not(master: str, expected: bool) -> None:
    assert is_local(master) is expected


def test_lake_of_a_job_is_the_same_place_for_a_process_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(Job("lake", 2, rules("kafka", "kafka")))
    monkeypatch.chdir(os.sep)
    assert pickle.loads(sent).lake == str(tmp_path / "lake")
    assert Job("s3://bucket/lake", 2, rules("kafka", "kafka")).lake == "s3://bucket/lake"


def test_request_logs_are_the_same_files_for_a_process_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert RequestOptions.read({"path": "a.log*"}).paths == (str(tmp_path / "a.log*"),)
    assert RequestOptions.read({"paths": '["a.log", "/b.log"]'}).paths == (str(tmp_path / "a.log"), "/b.log")


def test_write_where_the_lake_is_not_there_names_the_machine(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"on \S+ there is no folder .*/brokers: the lake must be on storage"):
        files.write(str(tmp_path / "lake"), "brokers", EMPTY)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"half")])
def test_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path, harm: object) -> None:
    (tmp_path / "brokers").mkdir()
    written = files.write(str(tmp_path), "brokers", EMPTY)
    files.check_there(str(tmp_path), [written])
    assert callable(harm)
    harm(tmp_path / "brokers" / written.path)
    with pytest.raises(UsageError, match=r"brokers/\S+/closed-\w+.parquet was written and is not there: the lake"):
        files.check_there(str(tmp_path), [written])


def test_publication_of_files_that_are_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.write

    def elsewhere(lake: str, table: str, rows: object, **options: Any) -> files.DataFile:
        written = real(lake, table, rows, **options)
        if table == "records":
            (Path(lake) / table / written.path).unlink()
        return written

    monkeypatch.setattr(files, "write", elsewhere)
    with pytest.raises(UsageError, match=r"records/closed-\w+.parquet was written and is not there"):
        replay(metadata_dir("kafka-4.1.2"), tmp_path / "lake")
    assert not list((tmp_path / "lake" / "ledger").glob("*.parquet"))


def test_more_of_sparks_settings_come_from_a_file_or_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cluster.yaml"
    file.write_text("spark: {master: 'spark://a:7077', conf: {spark.executor.memory: 2g}}\n")
    assert load([file]).spark.conf == {"spark.executor.memory": "2g"}
    monkeypatch.setenv("JBOD_SPARK__CONF", '{"spark.executor.cores": "2"}')
    assert load([file]).spark.conf == {"spark.executor.memory": "2g", "spark.executor.cores": "2"}


REPORT = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in"


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            f"{REPORT} stage 1.0 (TID 5) (127.0.0.1 executor 6): ExecutorLostFailure (executor 6 exited caused by one "
            "of the running tasks) Reason: Command exited with code 137\nDriver stacktrace:",
            "Spark gave up a task that lost its executor 4 times (Command exited with code 137): see the executors'",
        ),
        (
            f"{REPORT}: \nError from python worker:\n  /usr/bin/python3: Error while finding module specification for "
            "'pipelines.start.daemon' (ModuleNotFoundError: No module named 'pipelines')\nPYTHONPATH was:\n",
            "Spark's workers cannot start: /usr/bin/python3: Error while finding module specification for 'pipelines.",
        ),
        (
            'java.io.IOException: Cannot run program "./env/bin/python": error=2, No such file or directory\n\tat x',
            'Spark\'s workers cannot start: Cannot run program "./env/bin/python": error=2, No such file or directory:',
        ),
    ],
)
def test_what_fails_on_a_cluster_alone_is_told_in_a_line(report: str, line: str) -> None:
    fault = fault_of_cluster(RuntimeError(report))
    assert str(fault).startswith(line)
    assert "\n" not in str(fault)


def test_other_failures_are_no_faults_of_a_cluster() -> None:
    assert fault_of_cluster(RuntimeError("Job aborted due to stage failure: Task 0 failed: ValueError")) is None


def test_checkpoint_lies_where_the_lake_does_whatever_sparks_own_file_system_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert for_spark("a b/lake") == f"file://{tmp_path}/a b/lake"
    assert for_spark("hdfs://name/lake") == "hdfs://name/lake"


def test_lake_that_is_named_by_a_uri_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    assert not lake_has_checkpoint(tmp_path.as_uri())
    (tmp_path / "_checkpoint" / "offsets").mkdir(parents=True)
    assert lake_has_checkpoint(tmp_path.as_uri())
    assert lake_has_checkpoint(str(tmp_path))
