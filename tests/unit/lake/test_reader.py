"""A lake at an offset, as its rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake.reader import Lake
from pipelines.lake.tables import HISTORY
from tests.support.paths import KAFKAS

ENDS = ("to_offset", "to_time", "ended_by")


def rows_of(lake: Lake, sql: str) -> list[dict[str, Any]]:
    cursor = lake.connection.execute(f"FROM {sql}")
    names = [column[0] for column in cursor.description or ()]
    return sorted((dict(zip(names, row, strict=True)) for row in cursor.fetchall()), key=repr)


@pytest.mark.parametrize("kafka", KAFKAS)
def test_row_that_ends_after_the_offset_is_shown_as_open(kafka: str, cluster_lakes: Mapping[str, Path]) -> None:
    newest = Lake.open(cluster_lakes[kafka])
    offset = newest.offset // 2
    earlier = Lake.open(cluster_lakes[kafka], at_offset=offset)
    hidden = 0
    for table in HISTORY:
        rows = [row for row in rows_of(newest, newest.scan(table.name)) if row["from_offset"] <= offset]
        for row in rows:
            if row["to_offset"] is not None and row["to_offset"] > offset:
                row.update({name: None for name in ENDS if name in row})
                hidden += 1
        for sql in (earlier.until(table.name), earlier.scan(table.name)):
            assert rows_of(earlier, sql) == sorted(rows, key=repr), table.name
    assert hidden


@pytest.mark.parametrize(
    ("statistics", "replaced"),
    [
        ({"null_count.to_offset": 0, "max.to_offset": 7}, False),
        ({"null_count.to_offset": 0, "max.to_offset": 8}, True),
        ({"null_count.to_offset": 2, "max.to_offset": 8}, True),
        ({"null_count.to_offset": 3, "max.to_offset": None}, False),
        ({"null_count.to_offset": 2, "max.to_offset": None}, True),
        ({"null_count.to_offset": None, "max.to_offset": None}, True),
        ({"null_count.to_offset": None, "max.to_offset": None, "num_records": None}, True),
    ],
    ids=["ended", "ends later", "open, ends later", "open", "ends unknown", "open rows unknown", "nothing known"],
)
def test_ends_are_read_as_they_are_only_if_the_statistics_show_that_none_is_later(
    statistics: dict[str, int | None],
    replaced: bool,
    cluster_lakes: Mapping[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a file with three rows; another engine may write no statistics."""
    lake = Lake.open(cluster_lakes["kafka-4.1.2"], at_offset=7)
    file = {"path": "closed-1.parquet", "min.from_offset": 1, "num_records": 3, **statistics}
    monkeypatch.setattr("pipelines.lake.reader.data_files", lambda _: [file])
    assert ("REPLACE" in lake.scan("assignments")) == replaced
