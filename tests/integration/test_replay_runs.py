"""Runs of the main job: stopping, going on, dying, and who else can read the tables."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jbod_model.errors import UsageError
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import BY_NAME, HISTORY, TABLES
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from pipelines.run.seed import CHECKPOINT
from pipelines.upkeep.verify_reference import Row
from tests.support.logs import segments
from tests.support.paths import metadata_dir
from tests.support.tables import rows_of
from tests.support.volume import exhaustive, rare

pytestmark = pytest.mark.spark

KAFKA = "kafka-4.1.2"
Tables = dict[str, list[Row]]


def replay(spark: SparkSession, log_dir: Path, lake: Path, **options: Any) -> Runner:
    runner = Runner(Replay(str(log_dir), str(lake), **options))
    runner.run(spark)
    return runner


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the whole log of one cluster."""
    lake = tmp_path_factory.mktemp("whole") / "lake"
    replay(spark, metadata_dir(KAFKA), lake)
    return lake


def test_second_run_changes_nothing(spark: SparkSession, tmp_path: Path, whole: Path) -> None:
    lake = copytree(whole, tmp_path / "lake")
    versions = {table.name: DeltaTable(str(lake / table.name)).version() for table in TABLES}
    runner = replay(spark, metadata_dir(KAFKA), lake)
    assert (runner.outcome.batches, runner.outcome.rows) == (0, {})
    assert {table.name: DeltaTable(str(lake / table.name)).version() for table in TABLES} == versions


@pytest.mark.exhaustive
def test_replays_of_one_session_leave_no_threads(spark: SparkSession, tmp_path: Path) -> None:
    """Cause: Py4J keeps a connection and its thread for each thread of Java that called foreachBatch."""
    threads = []
    for name in ("first", "second", "third", "fourth"):
        replay(spark, metadata_dir(KAFKA), tmp_path / name)
        threads.append(threading.active_count())
    assert threads[-1] - threads[0] < 3


def test_replay_in_a_session_that_goes_on_leaves_no_table_open(spark: SparkSession, tmp_path: Path) -> None:
    """Cause: the JVM lets go of a function for foreachBatch when it collects garbage, and that function held tables."""
    replay(spark, metadata_dir(KAFKA), tmp_path / "lake")
    gc.collect()
    tables = [thing for thing in gc.get_objects() if isinstance(thing, DeltaTable)]
    assert [table.table_uri for table in tables if str(tmp_path) in table.table_uri] == []


def test_older_protobuf_than_spark_was_made_for_is_refused_with_what_to_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: protobuf 5 met the range of the dependency, and the query ended with a plan of Spark and no reason."""
    runner = Runner(Replay(str(metadata_dir(KAFKA)), str(tmp_path / "lake")))
    monkeypatch.delitem(sys.modules, "pyspark.sql.streaming.proto.StateMessage_pb2", raising=False)
    monkeypatch.setattr("google.protobuf.runtime_version.MAJOR", 5)
    with pytest.raises(UsageError, match=r"^protobuf [\d.]+: Spark [\d.]+ needs a newer one .*: pip install --upgrade"):
        runner.run(spark)


def cut(paths: Sequence[Path]) -> None:
    """Halve some files, and take away the checksums that Hadoop keeps of them."""
    assert paths
    for path in paths:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        path.with_name(f".{path.name}.crc").unlink()


def newest_offsets(checkpoint: Path) -> list[Path]:
    """The file that has the offsets of the newest batch."""
    return [max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))]


def state_files(checkpoint: Path) -> list[Path]:
    """All files of a shard's state: Spark merges its changes into a snapshot when it has time."""
    return [*(checkpoint / "state/0/1").glob("[0-9]*")]


DAMAGES: list[tuple[Callable[[Path], object], bool]] = [
    (lambda checkpoint: None, False),
    (lambda checkpoint: rmtree(checkpoint / "commits"), False),
    (lambda checkpoint: cut(newest_offsets(checkpoint)), False),
    (lambda checkpoint: rmtree(checkpoint / "state"), True),
    (lambda checkpoint: cut(state_files(checkpoint)), True),
    (rmtree, False),
]
"""What is lost of a checkpoint, and whether only Spark can notice that."""
SOME_DAMAGES = [DAMAGES[0], *DAMAGES[3:]]
"""Of those that jbod itself notices, a run has the last: tests/integration/test_unfinished_runs.py cuts every file."""


def test_run_continues_where_it_stopped_whatever_its_checkpoint_lost(
    spark: SparkSession, tmp_path: Path, whole: Path
) -> None:
    """A segment at a time, then the rest; what is lost of the checkpoint is made again from the records."""
    lake = tmp_path / "lake"
    damages = DAMAGES if exhaustive() else SOME_DAMAGES
    for number, (damage, noticed) in enumerate(damages, 1):
        log_dir = segments(metadata_dir(KAFKA), tmp_path / "log", most=None if number == len(damages) else number)
        if number > 1:
            damage(lake / CHECKPOINT)
            # Under its old name Spark still has the state in memory.
            lake = lake.rename(tmp_path / f"lake-{number}")
        notices: list[str] = []
        Runner(Replay(str(log_dir), str(lake)), notice=notices.append).run(spark)
        assert ["Spark cannot resume from it" in line for line in notices] == [True] * noticed
    assert rows_of(lake) == rows_of(whole)
    ledger = DeltaTable(str(lake / "ledger")).to_pyarrow_table().sort_by("end_offset").to_pylist()
    assert len(ledger) == len(damages)
    assert [row["start_offset"] for row in ledger[1:]] == [row["end_offset"] for row in ledger[:-1]]


def test_spark_continues_a_lake_that_was_loaded_without_it(
    spark: SparkSession, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log_dir = tmp_path / "lake", segments(metadata_dir(KAFKA), tmp_path / "log", most=2)
    Runner(Replay(str(log_dir), str(lake), shards=4)).load()
    monkeypatch.setattr("pipelines.run.rollback.states_at", lambda *_, **__: pytest.fail("the seed was not used"))
    for most in (3, None):
        runner = replay(spark, segments(metadata_dir(KAFKA), log_dir, most=most), lake)
        assert (runner.outcome.batches, runner.outcome.rolled_back) == (1, [])
    assert rows_of(lake) == rows_of(whole)


@pytest.mark.parametrize("where", [rare("append_ledger"), "_commit"])
@pytest.mark.exhaustive
def test_run_that_died_while_it_published_is_made_good_by_the_next(
    spark: SparkSession, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Reliability test 12: between the commit of a table and the next, or the ledger's."""
    log_dir = segments(metadata_dir(KAFKA), tmp_path / "log", most=3)
    replay(spark, log_dir, tmp_path / "lake")
    before = rows_of(tmp_path / "lake")
    segments(metadata_dir(KAFKA), log_dir)
    good = getattr(LakeWriter, where)

    def dies(lake: LakeWriter, *arguments: Any) -> None:
        if where == "append_ledger" or arguments[0].name == HISTORY[3].name:
            raise OSError("the disk is gone")
        good(lake, *arguments)

    monkeypatch.setattr(LakeWriter, where, dies)
    with pytest.raises(Exception, match="the disk is gone"):
        replay(spark, log_dir, tmp_path / "lake")
    assert rows_of(tmp_path / "lake") == before
    monkeypatch.undo()
    replay(spark, log_dir, tmp_path / "lake")
    assert rows_of(tmp_path / "lake") == rows_of(whole)


def test_tables_are_declared_with_constraints_and_comments_and_without_deletion_vectors(whole: Path) -> None:
    for table in TABLES:
        delta = DeltaTable(str(whole / table.name))
        properties = delta.metadata().configuration
        assert properties["delta.enableDeletionVectors"] == "false"
        assert "deletionVectors" not in (delta.protocol().writer_features or [])
        declared = {
            name.removeprefix("delta.constraints."): expression
            for name, expression in properties.items()
            if "constraints" in name
        }
        assert set(declared) == set(table.checks)
        assert all(field.metadata.get("comment") for field in delta.schema().fields)
        assert {field.name for field in delta.schema().fields if not field.nullable} == {
            field.name for field in table.schema if not field.nullable
        }


@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_every_reader_sees_the_same_rows(whole: Path, name: str) -> None:
    """delta-rs, polars and DuckDB."""
    path = str(whole / name)
    expected = canonical(DeltaTable(path).to_pyarrow_table().to_pylist(), name)
    assert canonical(pl.read_delta(path).to_arrow().to_pylist(), name) == expected
    files = DeltaTable(path).file_uris()
    relation = duckdb.sql(f"select * from read_parquet({files})")
    assert relation is not None
    assert canonical(relation.to_arrow_table().to_pylist(), name) == expected
    assert expected


def canonical(rows: list[Row], name: str) -> list[str]:
    """Rows as text, whatever a reader makes of maps and times."""
    kept = [{column: _plain(value) for column, value in row.items()} for row in rows]
    return sorted(json.dumps({column: row[column] for column in BY_NAME[name].schema.names}) for row in kept)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return sorted(value.items())
    if isinstance(value, list):
        return [tuple(_plain(v) for v in item.values()) if isinstance(item, dict) else item for item in value]
    return value.timestamp() if hasattr(value, "timestamp") else value
