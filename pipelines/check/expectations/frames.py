"""Tables as data frames of pandas for Great Expectations, which copies all columns for each expectation of a column.

So columns are narrow. A text is a number of a distinct text. Integers without nulls are numpy's, which are compared as
columns and not value by value. Of a list only its length is there, because the suites only ask whether it is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """A data frame with the columns of a table. Nulls stay nulls: numpy's integers have none."""
    import pandas as pd

    narrow = pa.table([_narrow(column) for column in rows.columns], names=rows.column_names)
    found: pd.DataFrame = narrow.to_pandas(
        types_mapper=lambda kind: None if pa.types.is_dictionary(kind) else pd.ArrowDtype(kind)
    )
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if _is_plain_integer(column):
            found[name] = narrow[name].to_numpy()
    return found


@contextmanager
def texts_in_arrow() -> Iterator[None]:
    """Makes pandas compare texts in Arrow during the block. Otherwise it calls a function for each text."""
    import pandas as pd

    with pd.option_context("future.infer_string", True):
        yield


def _narrow(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_list(column.type):
        return pc.list_value_length(column)
    if pa.types.is_string(column.type):
        return column.dictionary_encode()
    # Great Expectations knows int64 only.
    return column.cast(pa.int64()) if _is_plain_integer(column) else column


def _is_plain_integer(column: pa.ChunkedArray) -> bool:
    return pa.types.is_integer(column.type) and not column.null_count
