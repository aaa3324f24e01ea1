"""The definition of a check and of its findings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Most severe first."""


def at_least(severity: Severity) -> tuple[Severity, ...]:
    """The severity and all worse ones."""
    return SEVERITIES[: SEVERITIES.index(severity) + 1]


@dataclass(frozen=True)
class Check:
    """One rule over the tables. Each row of ``sql`` is a finding.

    ``sql`` is in DuckDB's dialect, and sqlglot can translate it to Spark's. It reads the views of
    ``pipelines.check.views``. Its columns are from_offset and from_time (the record that caused the finding), any of
    broker_id, directory_id, topic_id, topic, partition, replica_index (the subject, one row each), severity if it
    differs from the check's, grade if some findings are worse than others, and others, which ``finding`` and
    ``advice`` name in braces.
    """

    id: str
    name: str
    severity: Severity
    title: str
    """What is wrong, in one line."""
    why: str
    """Why it matters."""
    sql: str
    finding: str
    """The cause of one finding, without its subject."""
    source: str
    advice: str = "{advice}"


@dataclass(frozen=True)
class Elsewhere:
    """A check that the tables cannot decide, and the command that decides it."""

    id: str
    name: str
    title: str
    decided_by: str


class Finding(NamedTuple):
    """A finding of a check, as of one offset of a lake."""

    check: Check
    severity: Severity
    broker_id: int | None
    directory_id: str | None
    topic: str | None
    topic_id: str | None
    partition: int | None
    replica_index: int | None
    from_offset: int
    """Offset of the record that caused it."""
    from_time: datetime
    finding: str
    advice: str
    from_snapshot: bool = False
    """Known from a snapshot: it began at or before that offset."""
    grade: int = 0
    """0 for the worst findings of a check; larger ones come after them."""

    @property
    def key(self) -> str:
        """Check and subject. The key stays the same while the same replica, directory or broker has this problem."""
        subject = (self.broker_id, self.directory_id, self.topic_id, self.partition)
        return "/".join([self.check.id, *["" if part is None else str(part) for part in subject]])

    @property
    def subject(self) -> str:
        """The subject in words."""
        return subject(self.broker_id, self.directory_id, self.topic_id, self.topic, self.partition)


def subject(
    broker_id: int | None, directory_id: str | None, topic_id: str | None, topic: str | None, partition: int | None
) -> str:
    """Names a subject: ``orders-3 on broker 2``, ``directory X of broker 2``, ``the cluster``."""
    place = "" if broker_id is None else f"broker {broker_id}"
    if topic_id is not None:
        # A request may name a topic that the log does not know.
        known = topic or topic_id
        name = known if partition is None else f"{known}-{partition}"
        return f"{name} on {place}" if place else name
    if directory_id is not None:
        return f"directory {directory_id} of {place}" if place else f"directory {directory_id}"
    return place or "the cluster"


def finding(check: Check, row: Mapping[str, Any], snapshots: Collection[int]) -> Finding:
    """Builds the finding from a row of the check's SQL. ``snapshots``: the offsets of those that the lake has."""
    return Finding(
        check=check,
        severity=row.get("severity") or check.severity,
        broker_id=row.get("broker_id"),
        directory_id=row.get("directory_id"),
        topic=row.get("topic"),
        topic_id=row.get("topic_id"),
        partition=row.get("partition"),
        replica_index=row.get("replica_index"),
        from_offset=row["from_offset"],
        from_time=row["from_time"],
        finding=check.finding.format_map(row),
        advice=check.advice.format_map(row),
        from_snapshot=row["from_offset"] in snapshots,
        grade=row.get("grade") or 0,
    )
