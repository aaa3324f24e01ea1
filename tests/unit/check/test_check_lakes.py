"""Checks of what no log says: lakes that were damaged by hand, or read late; and runs over bad lakes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jbod_model.formats.records import UnknownRecord
from pipelines.check.catalogue import run_checks
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME
from pipelines.settings import load
from tests.support.lakes import write_lake
from tests.unit.check.story import Story, disk


def rewrite(lake: Path, table: str, **columns: Any) -> None:
    """Set columns of every row of a table, or change them, and publish that."""
    uri = (lake / table).as_uri()
    rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
    for row in rows:
        row |= {name: value(row) if callable(value) else value for name, value in columns.items()}
    write_deltalake(uri, pa.Table.from_pylist(rows, schema=BY_NAME[table].schema), mode="overwrite")
    if table != "ledger":
        version = DeltaTable(uri).version()
        rewrite(lake, "ledger", versions=lambda row: [*(dict(row["versions"]) | {table: version}).items()])


def test_partition_with_fewer_directories_than_replicas_is_found(tmp_path: Path) -> None:
    Story().broker(1, "a").broker(2, "b").topic("t", {1: "a", 2: "b"}).lake(tmp_path)
    rewrite(tmp_path, "partitions", directories=[str(disk("a"))])
    (finding,) = run_checks(Lake.open(tmp_path), ["B-11"])
    assert (finding.subject, finding.severity, finding.finding) == ("t-0", "critical", "1 directories for 2 replicas")


def test_partition_with_a_directory_per_replica_is_well(tmp_path: Path) -> None:
    lake = Story().broker(1, "a").broker(2, "b").topic("t", {1: "a", 2: "b"}).lake(tmp_path)
    assert run_checks(lake, ["B-11"]) == []


def test_directory_of_two_brokers_is_found_at_both(tmp_path: Path) -> None:
    Story().broker(1, "a").broker(2, "b").lake(tmp_path)
    rewrite(tmp_path, "directories", directory_id=str(disk("a")))
    findings = run_checks(Lake.open(tmp_path), ["B-10"])
    assert [(finding.broker_id, finding.directory_id) for finding in findings] == [
        (1, str(disk("a"))),
        (2, str(disk("a"))),
    ]
    assert [finding.finding[-29:] for finding in findings] == [
        "is registered by broker 2 too",
        "is registered by broker 1 too",
    ]


@pytest.mark.parametrize(("hours", "age"), [(1.5, "90 minutes"), (13, "13 hours"), (61, "2 days")])
def test_log_that_was_old_when_it_was_read_is_found_at_its_end_only(tmp_path: Path, hours: float, age: str) -> None:
    """Its age was told as 219,696 seconds."""
    story = Story().broker(1, "a").broker(2, "b")
    assert run_checks(story.lake(tmp_path), ["B-28"]) == []
    rewrite(tmp_path, "ledger", published_time=lambda row: row["end_time"] + timedelta(hours=hours))
    (finding,) = run_checks(Lake.open(tmp_path), ["B-28"])
    assert (finding.subject, finding.severity, finding.from_offset) == ("the cluster", "warning", 2)
    assert finding.finding == f"the newest record was {age} old when it was read"
    assert run_checks(Lake.open(tmp_path, at_offset=1), ["B-28"]) == []


def test_lake_that_was_taken_back_is_told_from_then_on_until_it_is_old(tmp_path: Path) -> None:
    story = Story().broker(1, "a").broker(2, "b")
    assert run_checks(story.lake(tmp_path), ["B-30"]) == []
    write_lake(tmp_path / "grown", story.entries, Story().broker(1, "a").broker(2, "b").wait(60).entries[3:])
    rewrite(tmp_path / "grown", "ledger", rolled_back_from=lambda row: 5 if row["end_offset"] == 3 else None)
    (finding,) = run_checks(Lake.open(tmp_path / "grown"), ["B-30"])
    assert (finding.subject, finding.severity, finding.from_offset) == ("the cluster", "warning", 3)
    assert finding.finding == "the published offsets 3 to 4 were rolled back"
    assert run_checks(Lake.open(tmp_path / "grown", at_offset=1), ["B-30"]) == []
    quick = load(check={"window_hours": 0.001})
    assert run_checks(Lake.open(tmp_path / "grown"), ["B-30"], quick) == []


def test_record_that_is_not_known_is_found_from_its_offset_on(tmp_path: Path) -> None:
    lake = Story().broker(1, "a").append(UnknownRecord(api_key=35, body=b""), 0).broker(2, "b").lake(tmp_path)
    (finding,) = run_checks(lake, ["B-36"])
    assert (finding.subject, finding.severity, finding.from_offset) == ("the cluster", "critical", 2)
    assert finding.finding == "not known: record type 35"
    assert run_checks(Lake.open(tmp_path, at_offset=1), ["B-36"]) == []


def test_records_that_are_all_known_are_well(tmp_path: Path) -> None:
    assert run_checks(Story().broker(1, "a").lake(tmp_path), ["B-36"]) == []
