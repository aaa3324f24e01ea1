"""Rows for other programs: CSV, ND-JSON and Parquet, with the columns of ``pipelines.show.columns``."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.lake.names import Names
    from pipelines.show.rows import Chosen


class Format(StrEnum):
    """The form of an answer."""

    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"
    parquet = "parquet"


def write_rows(chosen: Chosen, form: Format, names: Names, *, heading: bool = True) -> None:
    """Writes the rows to standard output. ``heading``: whether CSV begins with the names of its columns."""
    values = chosen.table.values(chosen.rows, names)
    if form is Format.parquet:
        sys.stdout.flush()
        _parquet(chosen, values, sys.stdout.buffer)
    elif form is Format.csv:
        out = csv.writer(sys.stdout, lineterminator="\n")
        if heading:
            out.writerow(values)
        out.writerows(zip(*(map(_cell, column) for column in values.values()), strict=True))
    else:
        encode = json.JSONEncoder(default=_plain).encode
        for row in zip(*values.values(), strict=True):
            sys.stdout.write(encode(dict(zip(values, row, strict=True))) + "\n")


def _cell(value: Any) -> Any:
    """A value in a cell of CSV: null is empty, a list has commas, a time ends with Z."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return _time(value) if isinstance(value, datetime) else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, tuple | Sequence):
        return [*value]
    return str(value)


def _time(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def _parquet(chosen: Chosen, values: Mapping[str, list[Any]], out: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        "string": pa.string(),
        "int": pa.int64(),
        "bool": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "seconds": pa.float64(),
        "ints": pa.list_(pa.int64()),
        "strings": pa.list_(pa.string()),
    }
    fields = [
        pa.field(column.name, kinds[column.kind], metadata={"comment": column.about})
        for column in chosen.table.all_columns
    ]
    pq.write_table(pa.table([values[one.name] for one in fields], schema=pa.schema(fields)), out)
