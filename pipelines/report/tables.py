"""The table behind each chart, as text that is safe to show even if a name contains HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipelines.ask.incident_list import Incident
from pipelines.check.definition import Finding
from pipelines.report.content import MOST_ROWS, REASONS, Content
from pipelines.show.answers import since_offset
from pipelines.show.incidents import outcome
from pipelines.show.text import Column, Row, age, at_most, headings_and_cells, in_units, lasted, partition_name, plain

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
    columns: Sequence[Column[Row]],
    rows: Iterable[Row],
    kinds: Sequence[str] = (),
    in_all: int | None = None,
    rest: str = "",
) -> ChartTable:
    """Without ``in_all``, ``rows`` are all rows."""
    headings, every, numbers = headings_and_cells(columns, rows)
    shown, whole = every[:MOST_ROWS], len(every) if in_all is None else in_all
    rest *= whole > len(shown)
    return ChartTable(name, caption, headings, frozenset(numbers), shown, list(kinds[: len(shown)]), whole, rest)


def _directories(content: Content) -> ChartTable:
    trouble_first = sorted(content.cells, key=lambda cell: cell.state == "online")
    return _table(
        "directories",
        "Directories",
        (
            (">Broker", "directory.broker_id"),
            ("Broker is", "directory.broker"),
            ("Directory", "directory.directory_id"),
            ("Directory is", "directory.state"),
            (">Replicas", "directory.replicas"),
            (">Leaders", "directory.leaders"),
            (">Offline", "offline"),
            (">Since offset", "directory.from_offset"),
            ("Since", "directory.from_time"),
        ),
        trouble_first,
        kinds=[cell.state for cell in trouble_first],
        rest="Those with trouble come first; jbod directories lists all.",
    )


def _over_time(content: Content) -> ChartTable:
    series = content.over_time
    return _table(
        "over-time",
        "Offline replicas by reason, newest first",
        (
            (">From offset", series.offsets.__getitem__),
            ("Time", series.times.__getitem__),
            *((f">{reason.capitalize()}", series.offline[reason].__getitem__) for reason in REASONS),
            (">Partitions without leader", series.leaderless.__getitem__),
        ),
        reversed(range(len(series.offsets))),
        in_all=max(len(series.offsets), series.steps),
        rest="Peaks are kept; the table offline_replicas of the lake has every step.",
    )


def _offline(content: Content) -> ChartTable:
    return _table(
        "offline",
        "Offline replicas",
        (
            ("Partition", partition_name),
            (">Broker", "broker_id"),
            ("Directory", "directory_id"),
            ("Reason", "reason"),
            (">Since offset", since_offset),
            ("Since", "from_time"),
            ("For", lambda replica: age(replica.from_time, content.status.time)),
        ),
        content.offline,
        kinds=[replica.reason for replica in content.offline],
        in_all=content.status.offline_replicas,
        rest="jbod offline --all lists all.",
    )


def _incidents(content: Content) -> ChartTable:
    return _table(
        "incidents",
        "Incidents, newest first",
        (
            (">Number", "number"),
            ("What", "what"),
            ("Directory", "directory_id"),
            (">From offset", since_offset),
            ("From", "from_time"),
            (">To offset", "to_offset"),
            ("For", lambda incident: age(incident.from_time, incident.to_time or content.status.time)),
            ("Ending", "ending"),
            (">Replicas", "replicas_taken"),
            ("Longest offline", lambda incident: lasted(incident.longest_offline)),
            (">Leaders lost", "leaders"),
            (">Without leader", "without_leader"),
            (">Data lost", lambda incident: len(incident.data_lost)),
            (">May lack writes", lambda incident: len(incident.may_lack_writes)),
        ),
        content.incidents,
        kinds=[kind_of(incident) for incident in content.incidents],
        rest="jbod incidents lists all.",
    )


def _moves(content: Content) -> ChartTable:
    return _table(
        "moves",
        "Moves between disks, newest first",
        (
            ("Partition", partition_name),
            (">Broker", "broker_id"),
            ("From", "source"),
            ("To", "target"),
            ("Asked", "first_requested_time"),
            ("Accepted", "accepted_time"),
            (">At offset", "accepted_offset"),
            ("Outcome", outcome),
            ("Took", lambda move: None if move.duration is None else lasted(move.duration)),
        ),
        content.moves,
        in_all=content.moved.count,
        rest="jbod moves lists all.",
    )


def _queue(content: Content) -> ChartTable:
    now = content.status.time
    return _table(
        "queue",
        f"Assignment queue, in steps of {age(now - content.queue_step, now)}, newest first",
        (
            ("From", "start"),
            (">Broker", "broker_id"),
            (">Requests", "requests"),
            (">Assignments", "entries"),
            (">Largest request", "largest"),
            (">Retries", "retries"),
            (">Refused", "refused"),
            (">Waiting at the end", "waiting"),
        ),
        reversed(content.queue),
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
    rare = [(">Writes wait", "stalled")] if any(exposure.stalled for exposure in exposures) else []
    rare += [(">Perhaps unserved", "perhaps_unserved")] if any(it.perhaps_unserved for it in exposures) else []
    sizes = ((">Bytes", lambda it: in_units(it.bytes)), (">To copy again", lambda it: at_most(it.copy_seconds)))
    return _table(
        "risk",
        "What each failure would cost, worst first",
        (
            (">Broker", "broker_id"),
            ("Directory", lambda exposure: exposure.directory_id or "the whole broker"),
            (">Replicas", "replicas"),
            (">Leaders", "leaders"),
            (">No leader", "without_leader"),
            (">Last replica", "last_replicas"),
            (">Unclean election", "unclean"),
            (">Under min ISR", "under_min_isr"),
            (">Other leader", "moved"),
            *rare,
            *(sizes if content.risk.sizes_time is not None else ()),
        ),
        exposures,
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
        (
            ("Severity", "severity"),
            ("Check", "check.id"),
            ("Whom", "subject"),
            ("What", "finding"),
            ("What to do", "advice"),
            (">Offset", "from_offset"),
            ("Time", "from_time"),
        ),
        shown,
        kinds=[finding.severity for finding in shown],
        in_all=len(content.findings),
        rest=f"At most {_MOST_OF_A_CHECK} of a check are here; jbod check lists all.",
    )
