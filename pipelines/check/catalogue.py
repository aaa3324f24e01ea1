"""The list of all checks, and how they run on a lake as of its offset, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jbod_model.errors import UsageError
from pipelines.check import assignments, cluster, directories, partitions
from pipelines.check.definition import SEVERITIES, Check, Elsewhere, Finding, finding
from pipelines.check.views import make_views
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake
from pipelines.settings import Settings, load

_MODULES = (assignments, cluster, directories, partitions)

CHECKS: tuple[Check, ...] = tuple(
    sorted((check for module in _MODULES for check in module.CHECKS), key=lambda check: check.id)
)
"""The checks that the tables can decide, by id."""

ELSEWHERE: tuple[Elsewhere, ...] = (
    Elsewhere(
        "B-19",
        "safe-to-remove",
        "Whether a disk holds nothing any more",
        "jbod safe-to-remove BROKER:DIR: a verdict about one disk, not something wrong",
    ),
    Elsewhere(
        "B-26",
        "path-uuid-mismatch",
        "meta.properties of a disk is missing, copied or of another node",
        "jbod disks, on the machine that has the disks",
    ),
    Elsewhere(
        "B-27",
        "log-integrity",
        "A checksum, offset, epoch or record of the log is wrong",
        "jbod replay: it stops at such a record, so the records in the tables have passed",
    ),
)
"""The checks that the tables cannot decide, and the command that can."""


def chosen(only: Sequence[str] = ()) -> tuple[Check, ...]:
    """The checks with these ids or names (case-insensitive), all if none is given. Raises UsageError for an unknown."""
    known = {word.lower(): check for check in CHECKS for word in (check.id, check.name)}
    other = {word.lower(): check for check in ELSEWHERE for word in (check.id, check.name)}
    for word in only:
        if word.lower() in other:
            raise UsageError(f"--only {word}: the tables cannot decide this one: {other[word.lower()].decided_by}")
        if word.lower() not in known:
            raise UsageError(f"--only {word}: no such check: jbod check --list names all of them")
    wanted = {known[word.lower()] for word in only}
    return tuple(check for check in CHECKS if not only or check in wanted)


def run_checks(lake: Lake, only: Sequence[str] = (), settings: Settings | None = None) -> list[Finding]:
    """The findings of the checks (all, or those with these ids or names): most severe first, by check and subject."""
    checks = chosen(only)
    make_views(lake, settings or load(), [check.sql for check in checks])
    return in_order(finding(check, row, lake.snapshots) for check in checks for row in _rows(lake, check))


def _rows(lake: Lake, check: Check) -> list[dict[str, Any]]:
    # Times are fetched as microseconds, because fetching times needs the machine's time zone database.
    sql = f"SELECT * REPLACE (epoch_us(from_time) AS from_time) FROM ({check.sql})"
    rows = lake.query(sql)
    names = [column[0] for column in lake.connection.description or ()]
    dicts = [dict(zip(names, row, strict=True)) for row in rows]
    for fields in dicts:
        fields["from_time"] = time_of(fields["from_time"])
    return dicts


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Most severe first, then by check, the worst of each first, then by subject."""
    return sorted(findings, key=_order)


def _order(finding: Finding) -> tuple[Any, ...]:
    return (
        SEVERITIES.index(finding.severity),
        finding.check.id,
        finding.grade,
        -1 if finding.broker_id is None else finding.broker_id,
        finding.directory_id or "",
        finding.topic or "",
        -1 if finding.partition is None else finding.partition,
        finding.topic_id or "",
    )
