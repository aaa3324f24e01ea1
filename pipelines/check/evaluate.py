"""Runs checks on a lake as of its offset, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb

from pipelines.check.catalogue import chosen
from pipelines.check.definition import SEVERITIES, Check, Finding, finding
from pipelines.check.views import with_views
from pipelines.lake.delta import run_query
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake
from pipelines.settings import Settings, load


def run_checks(lake: Lake, only: Sequence[str] = (), settings: Settings | None = None) -> list[Finding]:
    """The findings of the checks (all, or those with these ids or names): most severe first, by check and subject."""
    checks = chosen(only)
    connection = with_views(lake, settings or load(), [check.sql for check in checks])
    try:
        found = [finding(check, row) for check in checks for row in _rows(lake, connection, check)]
    finally:
        connection.close()
    return in_order(found)


def _rows(lake: Lake, connection: duckdb.DuckDBPyConnection, check: Check) -> list[dict[str, Any]]:
    # Times are fetched as microseconds, because fetching times needs the machine's time zone database.
    sql = f"SELECT * REPLACE (epoch_us(since_time) AS since_time) FROM ({check.sql})"
    rows = run_query(lake.path, connection, sql)
    names = [column[0] for column in connection.description or ()]
    dicts = [dict(zip(names, row, strict=True)) for row in rows]
    return [one | {"since_time": time_of(one["since_time"])} for one in dicts]


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """Most severe first, then by check and subject."""
    return sorted(found, key=_order)


def _order(one: Finding) -> tuple[Any, ...]:
    return (
        SEVERITIES.index(one.severity),
        one.check.id,
        -1 if one.broker_id is None else one.broker_id,
        one.directory_id or "",
        one.topic or "",
        -1 if one.partition is None else one.partition,
        one.topic_id or "",
    )
