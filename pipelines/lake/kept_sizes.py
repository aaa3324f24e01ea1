"""Reads the table ``directory_sizes``, which ``pipelines.lake.directory_sizes`` writes."""

from __future__ import annotations

from typing import Any

from pipelines.lake.delta import data_files, read_parquet
from pipelines.lake.reader import Lake
from pipelines.lake.side_tables import side_table

DIRECTORY_SIZES = "directory_sizes"
"""The name of the table."""
MEND = "remove it; jbod sizes --keep creates it again"
"""What to do if the table cannot be opened."""


def kept_sizes(lake: Lake, query: str) -> list[tuple[Any, ...]]:
    """Asks ``kept``: the rows that were kept up to the lake's offset. No rows if none ever was.

    ``query``: what follows in SQL after ``WITH kept AS (...)``, which may be a comma and more of such tables.
    """
    table = side_table(lake.path, DIRECTORY_SIZES, MEND)
    if table is None:
        return []
    rows = read_parquet(lake.path, DIRECTORY_SIZES, table, [file["path"] for file in data_files(table)])
    return lake.query(f"WITH kept AS (SELECT * FROM {rows} WHERE log_offset <= {lake.offset}) {query}")
