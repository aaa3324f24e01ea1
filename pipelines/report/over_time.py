"""The number of offline replicas and of partitions without a leader, after every record that changed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake

REASONS = ("directory offline", "directory lost", "broker fenced", "broker missing")
STRETCHES = 400
"""The number of stretches. A chart is about 1,000 pixels wide and can show two or three steps in each of them."""


@dataclass(frozen=True)
class OverTime:
    """Parallel columns: the values from each offset to the next one. The first and last offset are the lake's range."""

    offsets: Sequence[int]
    times: Sequence[datetime]
    offline: Mapping[str, Sequence[int]]
    """Offline replicas by reason."""
    leaderless: Sequence[int]
    """Partitions without a leader."""
    steps: int
    """Number of records that changed a count. If a chart cannot show all, peaks stay and small steps are left out."""


def over_time(lake: Lake, stretches: int = STRETCHES) -> OverTime:
    """The whole history of the lake up to its offset, in at most three steps for each of ``stretches``."""
    ((began,),) = lake.query(
        f"SELECT epoch_us(append_time) FROM {lake.records()} ORDER BY log_offset, snapshot_index LIMIT 1"
    ) or [(None,)]
    nothing = (0,) * (len(REASONS) + 1)
    first = (lake.first, lake.time if began is None else time_of(began), *nothing)
    rows = lake.query(_steps(lake, stretches))
    steps = [(offset, time_of(micros), *counts) for offset, micros, *counts, _ in rows]
    points = [*([] if steps and steps[0][0] == lake.first else [first]), *steps]
    if points[-1][0] != lake.offset:
        points.append((lake.offset, lake.time, *points[-1][2:]))
    offsets, times, *counts, leaderless = zip(*points, strict=True)
    return OverTime(offsets, times, dict(zip(REASONS, counts, strict=True)), leaderless, rows[0][-1] if rows else 0)


def _steps(lake: Lake, stretches: int) -> str:
    """SQL for the steps: in each stretch the last one, and those with the most offline replicas and leaderless ones."""
    names = [*REASONS, "leaderless"]
    sums = ", ".join(
        f"coalesce(sum(sum(n) FILTER (what = '{name}')) OVER (ORDER BY o), 0)::BIGINT AS c{i}"
        for i, name in enumerate(names)
    )
    total = " + ".join(f"c{i}" for i in range(len(REASONS)))
    columns = ", ".join(f"c{i}" for i in range(len(names)))
    return f"""
        WITH spell AS (
            SELECT from_offset, from_time, to_offset, to_time, reason AS what FROM {lake.until("offline_replicas")}
            UNION ALL
            SELECT from_offset, from_time, to_offset, to_time, 'leaderless' FROM {lake.until("partitions")}
            WHERE leader = -1
        ), change AS (
            SELECT from_offset AS o, from_time AS t, what, 1 AS n FROM spell
            UNION ALL
            SELECT to_offset, to_time, what, -1 FROM spell WHERE to_offset IS NOT NULL
        ), running AS (
            SELECT o, min(t) AS t, {sums} FROM change GROUP BY o
        ), placed AS (
            SELECT *, count(*) OVER () AS steps, ntile({stretches}) OVER (ORDER BY o) AS stretch FROM running
        )
        SELECT o, epoch_us(t), {columns}, steps FROM placed
        QUALIFY o IN (
            max(o) OVER (PARTITION BY stretch),
            arg_max(o, row({total}, -o)) OVER (PARTITION BY stretch),
            arg_max(o, row(c{len(REASONS)}, -o)) OVER (PARTITION BY stretch)
        )
        ORDER BY o
    """
