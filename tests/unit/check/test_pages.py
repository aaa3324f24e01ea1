"""What the Data Docs show: failures first, and nothing that is not a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

Readable = Callable[[Sequence[Any]], list[Any]]

FAILED = {"icon": {"classes": ["fas", "fa-times", "text-danger"]}}
SOUND = {"icon": {"classes": ["fas", "fa-check-circle", "text-success"]}}


@pytest.fixture(scope="module")
def readable() -> Readable:
    """Great Expectations is imported where it is used: that takes seconds, and each worker imports all tests."""
    from pipelines.check.expectations import validate

    return validate.readable


def test_sections_with_failures_follow_the_overview(readable: Readable) -> None:
    """Cause: the order was that of the names of columns."""
    overview: dict[str, Any] = {"name": "Overview", **FAILED}
    sections = [overview, {"name": "a", **SOUND}, {"name": "b", **FAILED}, {"name": "c", **SOUND}]
    assert [section["name"] for section in readable(sections)] == ["Overview", "b", "a", "c"]


def test_results_that_failed_come_first_in_the_index(readable: Readable) -> None:
    rows = [{"name": "a", "validation_success": SOUND}, {"name": "b", "validation_success": FAILED}]
    assert [row["name"] for row in readable([{"table_data": rows}])[0]["table_data"]] == ["b", "a"]


def test_column_without_rows_has_no_percentage(readable: Readable) -> None:
    assert readable([{"table": [["NaN% null", "100% null"]]}]) == [{"table": [["no rows", "100% null"]]}]


def test_data_of_a_suite_has_the_name_of_the_suite(readable: Readable) -> None:
    for name in ("None", None):
        params = {"data_asset_name": name, "expectation_suite_name": "checks"}
        assert readable([params])[0]["data_asset_name"] == "checks"
