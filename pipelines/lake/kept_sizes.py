"""Reads the table ``directory_sizes``, which ``pipelines.lake.directory_sizes`` writes, and how fast directories grow.

Times are asked for first: Parquet has those of each part of a file, so only what is new enough is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.lake.delta import read_parquet
from pipelines.lake.reader import Lake
from pipelines.lake.side_tables import side_table

DIRECTORY_SIZES = "directory_sizes"
"""The name of the table."""
MEND = "remove it; jbod sizes --keep creates it again"
"""What to do if the table cannot be opened."""
DAYS = 7
"""Days before the newest row whose rows count."""


def kept_sizes(lake: Lake, query: str) -> list[tuple[Any, ...]]:
    """Asks ``kept``: the rows that were kept up to the lake's offset. No rows if none ever was.

    ``query``: what follows in SQL after ``WITH kept AS (...)``, which may be a comma and more of such tables.
    """
    table = side_table(lake.path, DIRECTORY_SIZES, MEND)
    if table is None:
        return []
    rows = read_parquet(lake.path, DIRECTORY_SIZES, table)
    return lake.query(f"WITH kept AS (SELECT * FROM {rows} WHERE log_offset <= {lake.offset}) {query}")


def growth(lake: Lake) -> Mapping[tuple[int, str], int]:
    """(broker, path) -> bytes a day that its replicas grow by: the straight line through the last DAYS.

    Only rows since the number of its replicas changed last count: a replica that came or went is no growth. A path
    whose rows span less than an hour is left out.
    """
    ((newest,),) = kept_sizes(lake, "SELECT epoch_us(max(time)) FROM kept") or [(None,)]
    if newest is None:
        return {}
    rows = kept_sizes(
        lake,
        f"""
        , recent AS (
            SELECT *, arg_max(replicas, time) OVER place AS replicas_now FROM kept
            WHERE bytes IS NOT NULL AND time >= make_timestamptz({newest}) - INTERVAL {DAYS} DAY
            WINDOW place AS (PARTITION BY broker_id, path)
        ),
        alike AS (
            SELECT *, max(time) FILTER (replicas <> replicas_now) OVER (PARTITION BY broker_id, path) AS changed
            FROM recent
        )
        SELECT broker_id, path, round(regr_slope(bytes, epoch(time)) * 86400)::BIGINT FROM alike
        WHERE changed IS NULL OR time > changed
        GROUP BY ALL HAVING max(time) - min(time) >= INTERVAL 1 HOUR
        """,
    )
    return {(broker, path): slope for broker, path, slope in rows}
