"""The table behind each chart, as text that is safe to show even if a name contains HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipelines.ask.incident_list import Incident
from pipelines.check.definition import Finding
from pipelines.report.content import MOST_ROWS, REASONS, Content
from pipelines.show.incidents import outcome
from pipelines.show.text import age, at_most, in_units, lasted, plain, when

_MOST_OF_A_CHECK = 100


@dataclass(frozen=True)
class ChartTable:
    """Rows under headings."""

    name: str
    caption: str
    columns: Sequence[str]
    numbers: frozenset[int]
    """Indexes of columns that hold numbers."""
    rows: Sequence[Sequence[str]]
    kinds: Sequence[str]
    """For each row, the key for the filters beside the chart. May be empty."""
    in_all: int
    """Number of all rows, including those left out here."""
    rest: str = ""
    """How to list the rows that are left out."""


def tables(content: Content) -> dict[str, ChartTable]:
    """Every table of the page, by name."""
    made = (
        _directories(content),
        _over_time(content),
        _offline(content),
        _incidents(content),
        _moves(content),
        _queue(content),
        _risk(content),
        _findings(content),
    )
    names = content.names
    return {
        table.name: replace(table, rows=[[plain(cell, names) for cell in row] for row in table.rows]) for table in made
    }


def _table(
    name: str,
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Iterable[int] = (),
    kinds: Sequence[str] = (),
    in_all: int | None = None,
    rest: str = "",
) -> ChartTable:
    """Without ``in_all``, ``rows`` are all rows."""
    every = [["" if cell is None else str(cell) for cell in row] for row in rows]
    shown, whole = every[:MOST_ROWS], len(every) if in_all is None else in_all
    return ChartTable(
        name, caption, columns, frozenset(numbers), shown, list(kinds[: len(shown)]), whole, rest * (whole > len(shown))
    )


def _directories(content: Content) -> ChartTable:
    trouble_first = sorted(content.cells, key=lambda cell: cell.state == "online")
    return _table(
        "directories",
        "Directories",
        ("Broker", "Broker is", "Directory", "Directory is", "Replicas", "Leaders", "Offline", "Since offset", "Since"),
        (
            (
                cell.directory.broker_id,
                cell.directory.broker,
                cell.directory.directory_id,
                cell.directory.state,
                cell.directory.replicas,
                cell.directory.leaders,
                cell.offline,
                cell.directory.from_offset,
                cell.directory.from_time and when(cell.directory.from_time),
            )
            for cell in trouble_first
        ),
        numbers=(0, 4, 5, 6, 7),
        kinds=[cell.state for cell in trouble_first],
        rest="Those with trouble come first; jbod directories lists all.",
    )


def _over_time(content: Content) -> ChartTable:
    series = content.over_time
    rows = list(
        zip(
            series.offsets,
            map(when, series.times),
            *(series.offline[reason] for reason in REASONS),
            series.leaderless,
            strict=True,
        )
    )
    return _table(
        "over-time",
        "Offline replicas by reason, newest first",
        ("From offset", "Time", *(reason.capitalize() for reason in REASONS), "Partitions without leader"),
        reversed(rows),
        numbers=(0, 2, 3, 4, 5, 6),
        in_all=max(len(rows), series.steps),
        rest="Peaks are kept; the table offline_replicas of the lake has every step.",
    )


def _offline(content: Content) -> ChartTable:
    return _table(
        "offline",
        "Offline replicas",
        ("Partition", "Broker", "Directory", "Reason", "Since offset", "Since", "For"),
        (
            (
                f"{replica.topic}-{replica.partition}",
                replica.broker_id,
                replica.directory_id,
                replica.reason,
                f"≤ {replica.from_offset}" if replica.from_snapshot else replica.from_offset,
                when(replica.from_time),
                age(replica.from_time, content.status.time),
            )
            for replica in content.offline
        ),
        numbers=(1, 4),
        kinds=[replica.reason for replica in content.offline],
        in_all=content.status.offline_replicas,
        rest="jbod offline --all lists all.",
    )


def _incidents(content: Content) -> ChartTable:
    return _table(
        "incidents",
        "Incidents, newest first",
        (
            "Number",
            "What",
            "Directory",
            "From offset",
            "From",
            "To offset",
            "For",
            "Ending",
            "Replicas",
            "Longest offline",
            "Leaders lost",
            "Without leader",
            "Data lost",
            "May lack writes",
        ),
        (
            (
                incident.number,
                incident.what,
                incident.directory_id,
                f"≤ {incident.from_offset}" if incident.from_snapshot else incident.from_offset,
                when(incident.from_time),
                incident.to_offset,
                age(incident.from_time, incident.to_time or content.status.time),
                incident.ending,
                incident.replicas_taken,
                lasted(incident.longest_offline),
                incident.leaders,
                incident.without_leader,
                len(incident.data_lost),
                len(incident.may_lack_writes),
            )
            for incident in content.incidents
        ),
        numbers=(0, 3, 5, 8, 10, 11, 12, 13),
        kinds=[kind_of(incident) for incident in content.incidents],
        rest="jbod incidents lists all.",
    )


def _moves(content: Content) -> ChartTable:
    return _table(
        "moves",
        "Moves between disks, newest first",
        ("Partition", "Broker", "From", "To", "Asked", "Accepted", "At offset", "Outcome", "Took"),
        (
            (
                f"{move.topic}-{move.partition}",
                move.broker_id,
                move.source,
                move.target,
                move.first_requested_time and when(move.first_requested_time),
                when(move.accepted_time),
                move.accepted_offset,
                outcome(move),
                None if move.duration is None else lasted(move.duration),
            )
            for move in content.moves
        ),
        numbers=(1, 6),
        in_all=content.moved.count,
        rest="jbod moves lists all.",
    )


def _queue(content: Content) -> ChartTable:
    now = content.status.time
    return _table(
        "queue",
        f"Assignment queue, in steps of {age(now - content.queue_step, now)}, newest first",
        ("From", "Broker", "Requests", "Assignments", "Largest request", "Retries", "Refused", "Waiting at the end"),
        (
            (
                when(queue.start),
                queue.broker_id,
                queue.requests,
                queue.entries,
                queue.largest,
                queue.retries,
                queue.refused,
                queue.waiting,
            )
            for queue in reversed(content.queue)
        ),
        numbers=range(1, 8),
        rest="jbod assignments --queue SECONDS lists all.",
    )


def kind_of(incident: Incident) -> str:
    """The colour of an incident: failed, gone, fenced, missing or waiting."""
    if incident.directory_id is not None:
        return "failed" if incident.kind == "directory failed" else "gone"
    return {"broker unregistered": "missing", "broker re-registered": "waiting"}.get(incident.kind, "fenced")


def _risk(content: Content) -> ChartTable:
    exposures = sorted(
        [*content.risk.directories, *content.risk.brokers], key=lambda exposure: exposure.badness, reverse=True
    )
    sized = content.risk.sizes_time is not None
    rare = {"stalled": "Writes wait", "perhaps_unserved": "Perhaps unserved"}
    rare = {name: title for name, title in rare.items() if any(getattr(exposure, name) for exposure in exposures)}
    return _table(
        "risk",
        "What each failure would cost, worst first",
        (
            "Broker",
            "Directory",
            "Replicas",
            "Leaders",
            "No leader",
            "Last replica",
            "Unclean election",
            "Under min ISR",
            "Other leader",
            *rare.values(),
            *(("Bytes", "To copy again") if sized else ()),
        ),
        (
            (
                exposure.broker_id,
                exposure.directory_id or "the whole broker",
                exposure.replicas,
                exposure.leaders,
                exposure.without_leader,
                exposure.last_replicas,
                exposure.unclean,
                exposure.under_min_isr,
                exposure.moved,
                *(getattr(exposure, name) for name in rare),
                *((in_units(exposure.bytes), at_most(exposure.copy_seconds)) if sized else ()),
            )
            for exposure in exposures
        ),
        numbers=(0, *range(2, 9 + len(rare) + (2 if sized else 0))),
        kinds=["broker" if exposure.directory_id is None else "directory" for exposure in exposures],
        rest="jbod risk lists all.",
    )


def _findings(content: Content) -> ChartTable:
    """The first findings of each check, so that every check has some."""
    shown: list[Finding] = []
    taken: Counter[str] = Counter()
    for finding in content.findings:
        taken[finding.check.id] += 1
        if taken[finding.check.id] <= _MOST_OF_A_CHECK:
            shown.append(finding)
    return _table(
        "findings",
        "Findings",
        ("Severity", "Check", "Whom", "What", "What to do", "Offset", "Time"),
        (
            (
                finding.severity,
                finding.check.id,
                finding.subject,
                finding.finding,
                finding.advice,
                finding.from_offset,
                when(finding.from_time),
            )
            for finding in shown
        ),
        numbers=(5,),
        kinds=[finding.severity for finding in shown],
        in_all=len(content.findings),
        rest=f"At most {_MOST_OF_A_CHECK} of a check are here; jbod check lists all.",
    )
