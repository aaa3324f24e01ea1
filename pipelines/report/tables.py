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
    shown = [["" if cell is None else str(cell) for cell in row] for row in rows][:MOST_ROWS]
    whole = len(shown) if in_all is None else in_all
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
        in_all=len(content.cells),
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
                f"{one.topic}-{one.partition}",
                one.broker_id,
                one.directory_id,
                one.reason,
                f"≤ {one.from_offset}" if one.from_snapshot else one.from_offset,
                when(one.from_time),
                age(one.from_time, content.status.time),
            )
            for one in content.offline
        ),
        numbers=(1, 4),
        kinds=[one.reason for one in content.offline],
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
                one.number,
                one.what,
                one.directory_id,
                f"≤ {one.from_offset}" if one.from_snapshot else one.from_offset,
                when(one.from_time),
                one.to_offset,
                age(one.from_time, one.to_time or content.status.time),
                one.ending,
                one.replicas_taken,
                lasted(one.longest_offline),
                one.leaders,
                one.without_leader,
                len(one.data_lost),
                len(one.may_lack_writes),
            )
            for one in content.incidents
        ),
        numbers=(0, 3, 5, 8, 10, 11, 12, 13),
        kinds=[kind_of(one) for one in content.incidents],
        in_all=len(content.incidents),
        rest="jbod incidents lists all.",
    )


def _moves(content: Content) -> ChartTable:
    return _table(
        "moves",
        "Moves between disks, newest first",
        ("Partition", "Broker", "From", "To", "Asked", "Accepted", "At offset", "Outcome", "Took"),
        (
            (
                f"{one.topic}-{one.partition}",
                one.broker_id,
                one.source,
                one.target,
                one.first_requested_time and when(one.first_requested_time),
                when(one.accepted_time),
                one.accepted_offset,
                outcome(one),
                None if one.duration is None else lasted(one.duration),
            )
            for one in content.moves
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
                when(one.start),
                one.broker_id,
                one.requests,
                one.entries,
                one.largest,
                one.retries,
                one.refused,
                one.waiting,
            )
            for one in reversed(content.queue)
        ),
        numbers=range(1, 8),
        in_all=len(content.queue),
        rest="jbod assignments --queue SECONDS lists all.",
    )


def kind_of(incident: Incident) -> str:
    """The colour of an incident: failed, gone, fenced, missing or waiting."""
    if incident.directory_id is not None:
        return "failed" if incident.kind == "directory failed" else "gone"
    return {"broker unregistered": "missing", "broker re-registered": "waiting"}.get(incident.kind, "fenced")


def _risk(content: Content) -> ChartTable:
    exposures = sorted([*content.risk.directories, *content.risk.brokers], key=lambda one: one.badness, reverse=True)
    sized = content.risk.sizes_time is not None
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
            *(("Bytes", "To copy again") if sized else ()),
        ),
        (
            (
                one.broker_id,
                one.directory_id or "the whole broker",
                one.replicas,
                one.leaders,
                one.without_leader,
                one.last_replicas,
                one.unclean,
                one.under_min_isr,
                one.moved,
                *((in_units(one.bytes), at_most(one.copy_seconds)) if sized else ()),
            )
            for one in exposures
        ),
        numbers=(0, *range(2, 11 if sized else 9)),
        kinds=["broker" if one.directory_id is None else "directory" for one in exposures],
        in_all=len(exposures),
        rest="jbod risk lists all.",
    )


def _findings(content: Content) -> ChartTable:
    """The first findings of each check, so that every check has some."""
    shown: list[Finding] = []
    taken: Counter[str] = Counter()
    for one in content.findings:
        taken[one.check.id] += 1
        if taken[one.check.id] <= _MOST_OF_A_CHECK:
            shown.append(one)
    return _table(
        "findings",
        "Findings",
        ("Severity", "Check", "Whom", "What", "What to do", "Offset", "Time"),
        (
            (one.severity, one.check.id, one.subject, one.finding, one.advice, one.from_offset, when(one.from_time))
            for one in shown
        ),
        numbers=(5,),
        kinds=[one.severity for one in shown],
        in_all=len(content.findings),
        rest=f"At most {_MOST_OF_A_CHECK} of a check are here; jbod check lists all.",
    )
