"""Reads the table ``directory_sizes``, which ``pipelines.lake.directory_sizes`` writes."""

from __future__ import annotations

from pipelines.lake.delta import data_files, read_parquet
from pipelines.lake.reader import Lake, side_table

DIRECTORY_SIZES = "directory_sizes"
"""The name of the table."""
MEND = "remove it; jbod sizes --keep makes it anew"
"""What to do if the table cannot be opened."""


def kept_sizes(lake: Lake) -> str | None:
    """SQL for the rows that were kept up to the lake's offset. None if none ever was."""
    table = side_table(lake.path, DIRECTORY_SIZES, MEND)
    if table is None:
        return None
    rows = read_parquet(lake.path, DIRECTORY_SIZES, table, [file["path"] for file in data_files(table)])
    return f"(SELECT * FROM {rows} WHERE log_offset <= {lake.offset})"
