"""The tables through delta-spark, delta-rs, DuckDB and polars; a lake as DataFrames, as views and in a catalog."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pipelines.lake.delta import data_files, read_parquet
from pipelines.lake.foreign import last_own
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME, HISTORY, LEDGER
from tests.support.foreign import parts
from tests.support.logs import read_log
from tests.support.paths import EVERY_KAFKA, ROOT, metadata_dir
from tests.support.spark_engine import SparkEngine
from tests.support.tables import same_rows
from tests.support.volume import amount, exhaustive

PUBLICATIONS = amount(2, 6)
APPENDED = {"changes": "log_offset", "ledger": "start_offset"}
"""Tables whose rows never change, and the column that says since when a row is there."""


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The lake of a bundled cluster, published in parts. It is made when it is first asked for."""

    @cache
    def lake_of(kafka: str) -> Path:
        lake = tmp_path_factory.mktemp("delta") / "lake"
        end = read_log(metadata_dir(kafka), "log")[-1].offset + 1
        ends = tuple(end * part // PUBLICATIONS for part in range(1, PUBLICATIONS + 1))
        for number in range(PUBLICATIONS):
            parts(kafka, ends).publish(lake, number)
        return lake

    return lake_of


def published(lake: Path) -> list[dict[str, int]]:
    """The versions of all tables that each row of the ledger names, and the ledger's own that holds the row."""
    ledger = DeltaTable(str(lake / LEDGER.name))
    rows = sorted(ledger.to_pyarrow_table().to_pylist(), key=lambda row: row["end_offset"])
    own = last_own(str(lake), ledger)
    assert own is not None
    return [{**dict(row["versions"]), "ledger": own - len(rows) + 1 + at} for at, row in enumerate(rows)]


@pytest.mark.exhaustive  # of delta-rs and DuckDB: tests/unit/lake; of Spark: the tests below
@pytest.mark.parametrize("kafka", EVERY_KAFKA)
def test_every_engine_reads_the_same_rows_at_every_publication(
    engine: SparkEngine, lakes: Callable[[str], Path], tmp_path: Path, kafka: str
) -> None:
    lake = lakes(kafka)
    root, at = str(lake), published(lake)
    assert len(at) == PUBLICATIONS
    requests = {name: [(f"{root}/{name}", versions[name], str(versions[name])) for versions in at] for name in at[0]}
    engine.call("tests.support.delta_calls:write_versions", requests, str(tmp_path))
    compared = 0
    for name, wanted in requests.items():
        columns = ", ".join(BY_NAME[name].schema.names)
        for path, version, label in wanted:
            delta = DeltaTable(path, version=version)
            files = [file["path"] for file in data_files(delta)]
            rows = delta.to_pyarrow_table()
            other = same_rows(
                {
                    "delta-rs": f"(SELECT {columns} FROM rs)",
                    "DuckDB": f"(SELECT {columns} FROM {read_parquet(root, name, delta, files)})",
                    "polars": f"(SELECT {columns} FROM polars)",
                    "delta-spark": f"(SELECT {columns} FROM '{tmp_path / name}/*.parquet' WHERE label = '{label}')",
                },
                rs=rows,
                polars=pl.read_delta(path, version=version).to_arrow(),
            )
            assert other == {"DuckDB": 0, "polars": 0, "delta-spark": 0}, (name, label)
            compared += rows.num_rows
    assert compared > 1_000


def test_lake_opened_in_spark_answers_as_without_it(
    engine: SparkEngine, lakes: Callable[[str], Path], tmp_path: Path
) -> None:
    lake = lakes("kafka-4.1.2")
    newest = Lake.open(lake).offset
    offsets = [162, 264] if exhaustive() else [162]
    tables = [*published(lake)[0]] if exhaustive() else ["partitions", "voters", "records", "ledger"]
    answer = engine.call("tests.support.delta_calls:write_lake_at", str(lake), offsets, tables, str(tmp_path))
    assert answer["same settings"]
    assert f"this lake knows the offsets 0 to {newest}" in answer["unknown"]
    there = sorted(tmp_path.iterdir())
    histories = [name for name in tables if BY_NAME[name].history]
    assert len(there) == len(offsets) * (len(tables) + 3 * len(histories) + 1) + 2
    for folder in there:
        kind, name, offset = folder.name.split("-")
        assert_equal(folder, Lake.open(lake, int(offset)), kind, {"offline": "offline_replicas"}.get(name, name))


def assert_equal(folder: Path, lake: Lake, kind: str, name: str) -> None:
    columns = ", ".join(BY_NAME[name].schema.names)
    if kind == "until" and BY_NAME[name].history:
        expected = lake.until(name)
    elif kind == "until":
        expected = (
            lake.records() if name == "records" else f"(SELECT * FROM appended WHERE {APPENDED[name]} <= {lake.offset})"
        )
    else:
        expected = lake.at(name)
    ends = [column for column in ("to_offset", "to_time", "ended_by") if column in columns]
    # What is true now in a view has no end yet; Lake.at says how it ended later.
    hidden = f" EXCLUDE ({', '.join(ends)})" if kind in ("now", "called", "past", "timed") and ends else ""
    spark = f"(SELECT {columns} FROM '{folder}/*.parquet')"
    queries = {
        "DuckDB": f"(SELECT *{hidden} FROM (SELECT {columns} FROM {expected}))",
        "Spark": f"(SELECT *{hidden} FROM {spark})",
    }
    appended = {"appended": DeltaTable(f"{lake.path}/{name}").to_pyarrow_table()} if name in APPENDED else {}
    assert same_rows(queries, **appended) == {"Spark": 0}, folder.name


@pytest.mark.exhaustive
def test_lake_in_a_catalog_has_comments_views_and_a_readable_history(
    engine: SparkEngine, lakes: Callable[[str], Path], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    for number in range(3):
        parts().publish(lake, number)
    parts().publish(tmp_path / "other", 0)
    answer = engine.call("tests.support.delta_calls:write_catalog", str(lake), [162, 264], str(tmp_path / "out"))
    for table in HISTORY:
        assert {table.name, f"{table.name}_now", f"{table.name}_at", f"{table.name}_published"} <= {*answer["names"]}
    assert answer["comment"].startswith("A replica in a directory.")
    assert answer["columns"]["reason"].startswith("broker missing, broker fenced")
    assert answer["history"][-3:] == [
        ["WRITE", f"jbod: published offsets {first} to {last}"] for first, last in ((0, 209), (210, 275), (276, 419))
    ]
    assert "is a table of" in answer["other"]
    assert_equal(tmp_path / "out" / "now", Lake.open(lake), "now", "offline_replicas")
    for offset in (162, 264):
        folder = tmp_path / "out" / f"assignments-{offset}"
        assert pq.read_table(folder).num_rows > 50
        assert_equal(folder, Lake.open(lake, offset), "past", "assignments")
    # Registering wrote nothing to the lake.
    parts().publish(lake, 3)


OTHERS = """
import os, sys
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
theirs = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = dict(theirs.conf.getAll)
from pipelines.settings import Spark
from pipelines.spark.session import spark_session

ours = spark_session(Spark(conf={"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "Asia/Tokyo"}))
assert ours is not theirs and ours.sparkContext is theirs.sparkContext
assert ours.conf.get("spark.sql.shuffle.partitions") == "2"
assert ours.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
assert "RocksDB" in ours.conf.get("spark.sql.streaming.stateStore.providerClass")
assert dict(theirs.conf.getAll) == before and SparkSession.getActiveSession() is theirs
"""


def test_session_of_others_keeps_its_settings() -> None:
    subprocess.run([sys.executable, "-c", OTHERS], check=True, cwd=ROOT)
