"""The data frames of Great Expectations hold the rows of the tables, in columns that pandas compares fast."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pipelines.check.expectations.batches import frame_of, texts_in_arrow

ROWS = pa.table(
    {
        "text": ["a", None, "a"],
        "int": pa.array([1, 2, 3], pa.int32()),
        "nulls": pa.array([(1 << 60) + 1, None, -1], pa.int64()),
        "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
        "flag": [True, False, None],
    }
)


def test_nulls_are_nulls_and_numbers_exact() -> None:
    frame = frame_of(ROWS)
    assert [*frame.columns] == ROWS.column_names
    assert frame.isnull().to_numpy().tolist() == [[False] * 5, [True, False, True, True, False], [False] * 4 + [True]]
    assert frame["int"].dtype == np.int64
    assert [int(number) for number in frame["nulls"].dropna()] == [(1 << 60) + 1, -1]
    assert frame["text"].dtype == "category"
    assert frame["text"].dropna().tolist() == ["a", "a"]
    assert frame["list"].dropna().tolist() == [2, 0]


@pytest.mark.parametrize("column", [*ROWS.column_names])
def test_no_column_is_one_of_python_objects(column: str) -> None:
    """pandas would compare them one by one."""
    assert frame_of(ROWS)[column].dtype != object


def test_table_without_rows_has_its_columns() -> None:
    assert [*frame_of(ROWS.slice(0, 0)).columns] == ROWS.column_names


def test_texts_are_compared_in_arrow_in_the_block_only() -> None:
    column = frame_of(ROWS)["text"].dropna()
    with texts_in_arrow():
        texts = column.astype(str)
        assert isinstance(texts.dtype, pd.StringDtype)
        assert texts.str.contains("^a$").tolist() == [True, True]
    assert not isinstance(column.astype(str).dtype, pd.StringDtype)
