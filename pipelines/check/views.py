"""The views that checks read.

For every history table ``T`` of a lake: ``T``, the rows true at the offset asked about, and ``T_history``, those that
began by then, with ends that came later not known. ``records``: the records up to it. ``min_isr``: topic and
min_insync_replicas, where the log says it. ``params``: one row, of ``Params``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from datetime import datetime, timedelta

import duckdb

from pipelines.ask.lake import Lake
from pipelines.ask.settled import features, min_isr
from pipelines.settings import Settings

HISTORY_TABLES = ("brokers", "directories", "partitions", "assignments", "offline_replicas")


@dataclass(frozen=True)
class Params:
    """What checks compare with: settings, turned into offsets and times of the lake."""

    at_offset: int
    at_time: datetime
    metadata_version: int
    """Feature level, -1 where the log has none."""
    read_time: datetime
    """When the newest record was published; where an older offset is asked about, its own time."""
    stuck_offset: int
    """What began at or before this offset and time has lasted longer than the grace."""
    stuck_time: datetime
    stale_time: datetime
    """A newest record before this time was old when it was read."""
    window_time: datetime
    """What happened before this time is no news."""
    flap_time: datetime
    offline_time: datetime
    """A directory that left before this time has been away too long."""
    soon: int
    """Seconds between two events that probably belong together."""
    flaps: int
    min_insync_replicas: int
    blast_partitions: int
    skew_factor: float
    skew_replicas: int


def inputs(lake: Lake, settings: Settings) -> tuple[Params, Mapping[str, int]]:
    """The row of the view ``params``, and min.insync.replicas by topic: the rows of ``min_isr``."""
    check = settings.check
    newest = lake.offset == lake.published.end_offset - 1
    read_time = lake.published.published_time if newest else lake.time
    wanted = min_isr(lake, settings.ask.min_insync_replicas)
    row = Params(
        at_offset=lake.offset,
        at_time=lake.time,
        metadata_version=features(lake).get("metadata.version", -1),
        read_time=read_time,
        stuck_offset=lake.offset - check.grace_offsets,
        stuck_time=lake.time - timedelta(seconds=check.grace_seconds),
        stale_time=read_time - timedelta(seconds=check.stale_seconds),
        window_time=lake.time - timedelta(hours=check.window_hours),
        flap_time=lake.time - timedelta(seconds=check.flap_seconds),
        offline_time=lake.time - timedelta(hours=check.offline_hours),
        soon=check.soon_seconds,
        flaps=check.flaps,
        min_insync_replicas=wanted.default,
        blast_partitions=check.blast_partitions,
        skew_factor=check.skew_factor,
        skew_replicas=check.skew_replicas,
    )
    return row, {topic: number for topic, number in wanted.topics.items() if topic}


def with_views(lake: Lake, settings: Settings) -> duckdb.DuckDBPyConnection:
    """A connection of its own that has the views."""
    connection = lake.connection.cursor()
    for table in HISTORY_TABLES:
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM {lake.at(table)}")
        connection.execute(f"CREATE TEMP VIEW {table}_history AS SELECT * FROM {lake.until(table)}")
    connection.execute(f"CREATE TEMP VIEW records AS SELECT * FROM {lake.records()}")
    row, topics = inputs(lake, settings)
    connection.execute("CREATE TEMP TABLE min_isr (topic VARCHAR, min_insync_replicas INTEGER)")
    connection.execute("INSERT INTO min_isr SELECT unnest($1), unnest($2)", [list(topics), list(topics.values())])
    columns = ", ".join(f"{field.name} {_SQL_TYPES[str(field.type)]}" for field in fields(row))
    connection.execute(f"CREATE TEMP TABLE params ({columns})")
    values = list(astuple(row))
    connection.execute(f"INSERT INTO params VALUES ({', '.join('?' * len(values))})", values)
    return connection


_SQL_TYPES = {"int": "BIGINT", "float": "DOUBLE", "datetime": "TIMESTAMPTZ"}
