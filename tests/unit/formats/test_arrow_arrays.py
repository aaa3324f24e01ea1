"""Arrays from buffers equal those of Arrow's own constructor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipelines.formats import arrow_arrays as arrow

TEXT = pa.field("element", pa.string(), nullable=False)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int16": (pa.int16(), [1, None, -3]),
    "int64": (pa.int64(), [1 << 62, None, -1]),
    "bool": (pa.bool_(), [True, None, False, True, False, False, True, True, True]),
    "text": (pa.string(), ["a", None, "", "größer"]),
    "bytes": (pa.binary(), [b"\x00\xff", None, b""]),
    "texts": (pa.list_(TEXT), [["a", "b"], None, [], ["c"]]),
    "numbers": (pa.list_(pa.int32()), [[1, 2], None, [], [3]]),
    "map": (pa.map_(pa.string(), pa.int64()), [{"a": 1, "b": 2}, None, {}]),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("part", ["all", "without null", "none", "one null"])
def test_values_of_every_kind_equal_those_of_arrows_own_constructor(name: str, part: str) -> None:
    kind, values = KINDS[name]
    chosen = {
        "all": values,
        "without null": [value for value in values if value is not None],
        "none": [],
        "one null": [None],
    }[part]
    made = arrow.array(chosen, kind)
    made.validate(full=True)
    assert made.type == kind
    assert made.equals(pa.array([list(value.items()) if isinstance(value, dict) else value for value in chosen], kind))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int32, np.int64])
def test_columns_equal_those_of_arrows_own_constructor(dtype: Any) -> None:
    every = np.array([1, 0, 1, 1, 0, 0, 0, 1, 1, 1], dtype)
    for numbers in (every, every[::3], every[:0]):
        assert arrow.column(numbers).equals(pa.array(numbers))
        there = numbers != 0
        assert arrow.column(numbers, there).equals(pa.array(numbers, mask=~there))
