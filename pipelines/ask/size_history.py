"""The sizes that were kept in a lake: the newest of each broker, and how fast its directories grow.

Times are asked for first: Parquet has those of each part of a file, so only what is new enough is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.lake.directory_sizes import TABLE
from pipelines.lake.kept_sizes import kept_sizes
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake

DAYS = 7
"""Days before the newest row whose rows count."""


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


def newest_sizes(lake: Lake) -> Sequence[dict[str, Any]]:
    """The rows of directory_sizes of each broker's newest run, up to the lake's offset. Empty if none was kept."""
    names = [name for name in TABLE.schema.names if name != "time"]
    runs = kept_sizes(lake, "SELECT epoch_us(max(time)) FROM kept GROUP BY broker_id")
    if not runs:
        return []
    rows = kept_sizes(
        lake,
        f"SELECT epoch_us(time), {', '.join(names)} FROM kept WHERE time >= make_timestamptz({min(runs)[0]}) "
        "QUALIFY time = max(time) OVER (PARTITION BY broker_id) ORDER BY broker_id, path",
    )
    return [dict(zip(("time", *names), (time_of(row[0]), *row[1:]), strict=True)) for row in rows]
