"""Reads the table ``labels``, which :mod:`pipelines.lake.labels` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from jbod_model.errors import UsageError, first_line_of
from pipelines.lake.delta import data_files, delta_at, read_parquet, run_query, uri_of
from pipelines.lake.ledger import time_of
from pipelines.lake.names import LABELS, Statement

if TYPE_CHECKING:
    from deltalake import DeltaTable


def read_statements(root: str, connection: duckdb.DuckDBPyConnection) -> list[Statement]:
    """The statements of a lake. Empty if jbod label never ran. Raises UsageError if the table cannot be read."""
    table = labels_table(root)
    if table is None:
        return []
    files = [file["path"] for file in data_files(table)]
    columns = ", ".join(name if name != "read_time" else "epoch_us(read_time)" for name in Statement._fields)
    rows = run_query(root, connection, f"SELECT {columns} FROM {read_parquet(root, LABELS, table, files)}")
    return [Statement._make([*row[:-1], time_of(row[-1])]) for row in rows]


def labels_table(root: str) -> DeltaTable | None:
    """The table of a lake, None if there is none. Raises UsageError if it cannot be opened."""
    location = f"{root}/{LABELS}"
    if "://" not in root and not Path(location).is_dir():
        return None
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return delta_at(uri_of(location))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as problem:
        what = first_line_of(problem)
        raise UsageError(f"{location}: cannot be opened ({what}): remove it, and run jbod label again") from None
