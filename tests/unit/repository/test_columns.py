"""The rows of every question."""

from __future__ import annotations

from tests.docs.columns import TABLES


def test_a_name_is_used_once_in_a_table() -> None:
    for table in TABLES:
        names = [column.name for column in table.all_columns]
        assert len(names) == len(set(names)), table.name
