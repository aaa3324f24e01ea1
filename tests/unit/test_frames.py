"""The way in from Python: the tables of a lake and of its log, as Arrow, pandas, polars and DuckDB have them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree

import duckdb
import pandas as pd
import polars as pl
import pytest

from jbod_model.errors import JbodError, UsageError
from pipelines import open_lake, read_log
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME, HISTORY
from tests.support.paths import ROOT, metadata_dir

KAFKA = "kafka-4.1.2"
HEAVY = ("pyarrow", "duckdb", "deltalake", "pandas", "pyspark", "numba")


def test_package_imports_nothing_heavy_until_a_function_is_used() -> None:
    code = f"import sys, pipelines; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


@pytest.mark.parametrize("at_offset", [None, 200])
def test_lake_and_log_have_the_same_rows_with_the_declared_types(
    cluster_lakes: Mapping[str, Path], at_offset: int | None
) -> None:
    lake = open_lake(cluster_lakes[KAFKA], at_offset)
    log = read_log(metadata_dir(KAFKA), at_offset)
    assert (lake.offset, lake.time) == (log.offset, log.time)
    assert log.names == sorted([*(table.name for table in HISTORY), "records"])
    for name in log.names:
        for rows, others in ((lake.table(name), log.table(name)), (lake.history(name), log.history(name))):
            mine, theirs = rows.to_arrow(), others.to_arrow()
            assert mine.schema.equals(BY_NAME[name].schema)
            key = [(column, "ascending") for column in BY_NAME[name].key]
            assert mine.sort_by(key) == theirs.sort_by(key), name


def test_table_has_the_rows_true_at_the_offset_and_history_all_until_then(cluster_lakes: Mapping[str, Path]) -> None:
    lake, plain = open_lake(cluster_lakes[KAFKA], at_offset=231), Lake.open(cluster_lakes[KAFKA], 231)
    counted = {
        "table": plain.query(f"SELECT count(*) FROM {plain.at('assignments')}"),
        "history": plain.query(f"SELECT count(*) FROM {plain.until('assignments')}"),
    }
    assert [(lake.table("assignments").to_arrow().num_rows,)] == counted["table"]
    assert [(lake.history("assignments").to_arrow().num_rows,)] == counted["history"]
    assert counted["table"] < counted["history"]


def test_tables_without_intervals_end_at_the_offset(cluster_lakes: Mapping[str, Path]) -> None:
    lake = open_lake(cluster_lakes[KAFKA], at_offset=200)
    for name, position in {"records": "log_offset", "changes": "log_offset", "ledger": "start_offset"}.items():
        rows = lake.table(name).to_arrow()
        assert rows.num_rows, name
        assert max(rows[position].to_pylist()) <= 200, name


def test_pandas_polars_and_duckdb_take_the_same_rows(cluster_lakes: Mapping[str, Path]) -> None:
    offline = open_lake(cluster_lakes[KAFKA], at_offset=341).table("offline_replicas")
    count = offline.to_arrow().num_rows
    assert count
    frame = offline.to_pandas()
    assert len(frame) == count
    assert isinstance(frame["to_offset"].dtype, pd.Int64Dtype)  # a float would lose digits
    assert pl.DataFrame(offline).height == count
    assert duckdb.execute("SELECT count(*) FROM offline").fetchall() == [(count,)]


def test_condition_chooses_rows_and_a_wrong_one_is_refused_in_one_line(cluster_lakes: Mapping[str, Path]) -> None:
    assignments = open_lake(cluster_lakes[KAFKA]).table("assignments")
    assert set(assignments.where("broker_id = 3 OR broker_id = 1").where("broker_id > 1").to_arrow()["broker_id"]) == {
        *assignments.where("broker_id = 3").to_arrow()["broker_id"]
    }
    for condition in ("nope = 3", "broker_id = 'x'", "broker_id ="):
        with pytest.raises(UsageError, match=r"^assignments: [^\n]+$"):
            assignments.where(condition).to_arrow()


def test_unknown_table_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(UsageError, match=r"no table changes: there are assignments, .*, records, voters"):
        read_log(metadata_dir(KAFKA)).table("changes")


def test_offset_and_time_together_are_refused(cluster_lakes: Mapping[str, Path]) -> None:
    """Cause: the offset was ignored without a word."""
    for read, path in ((open_lake, cluster_lakes[KAFKA]), (read_log, metadata_dir(KAFKA))):
        with pytest.raises(UsageError, match=r"^at_offset and at_time: give one of them$"):
            read(path, at_offset=231, at_time="-10m")


def test_damaged_log_is_read_only_at_an_offset_or_a_time_before_the_damage(tmp_path: Path) -> None:
    """Cause: at a time after the damage the rows before it were given, without an error."""
    log = tmp_path / "log"
    copytree(metadata_dir(KAFKA), log)
    segment = max(log.glob("*/*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(JbodError, match="offset"):
        read_log(log)
    with pytest.raises(JbodError, match="offset"):
        read_log(log, at_time="-10m")
    assert read_log(log, at_offset=100).table("records").to_arrow().num_rows == 101
    assert read_log(log, at_time="2026-11-21T02:22:00Z").table("records").to_arrow().num_rows == 176
