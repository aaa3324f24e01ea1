"""The contents of the page. ``jbod report --json`` prints them.

Among them are the numbers of offline replicas and of partitions without a leader, after every record that changed them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pipelines.ask.assignment_requests import Queue, queue
from pipelines.ask.incident_list import Incident, incidents
from pipelines.ask.json_values import jsonable
from pipelines.ask.lake_status import Directory, Leaderless, Status, Troubled, directories, status
from pipelines.ask.lost_data import Losses
from pipelines.ask.moves import Asking, Move, MoveCounts, asking, count_moves, moves, step_for
from pipelines.ask.offline_replicas import Cause, OfflineReplica, PerhapsOffline, offline
from pipelines.ask.risk import Risk, risk
from pipelines.ask.weights import weights
from pipelines.check.catalogue import run_checks
from pipelines.check.definition import Finding
from pipelines.lake.ledger import time_of
from pipelines.lake.names import Names
from pipelines.lake.reader import Lake
from pipelines.settings import Settings
from pipelines.show.answers import by_effect, doubt_in_words
from pipelines.show.columns import CHECK, INCIDENTS, MOVES, OFFLINE
from pipelines.show.text import many

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


MOST_ROWS = 500
"""The most rows of a table on the page. Below a longer table, the page names the command that lists all rows."""


@dataclass(frozen=True)
class Cell:
    """A directory on the map."""

    directory: Directory
    state: str
    """online, failed, gone, fenced, missing, or waiting for a directory: the colour."""
    offline: int
    """Replicas in it that are offline."""


@dataclass(frozen=True)
class Content:
    """The numbers of one page. The same lake and offset always give the same numbers."""

    verdict: str
    """well, degraded or critical"""
    headline: str
    status: Status
    causes: Sequence[Cause]
    leaderless: Sequence[Leaderless]
    """Partitions that no replica leads although every replica is online, by what to do."""
    perhaps: Sequence[PerhapsOffline]
    """Replicas that count as online, and may be in a directory which is not."""
    unseen_disks: str
    """Why no record says that a disk failed; empty if records do."""
    data: Losses
    hurt: Sequence[tuple[str, Sequence[Troubled]]]
    """The effects on clients, each with its partitions."""
    cells: Sequence[Cell]
    over_time: OverTime
    offline: Sequence[OfflineReplica]
    """The first MOST_ROWS of the rows that the status counts."""
    incidents: Sequence[Incident]
    """Newest first."""
    moves: Sequence[Move]
    """The newest MOST_ROWS of the moves that ``moved`` counts, newest first."""
    moved: MoveCounts
    asking: Asking | None
    """None if no request log was read. Then the queue is empty."""
    queue: Sequence[Queue]
    queue_step: timedelta
    risk: Risk
    findings: Sequence[Finding]
    """Most severe first."""
    names: Names
    """Of the directories."""

    def as_json(self) -> dict[str, Any]:
        """One JSON object. Rows have the keys that ``--format csv`` of their question has as columns."""
        numbers: dict[str, Any] = jsonable(replace(self, offline=[], incidents=[], moves=[], findings=[]))
        del numbers["names"]
        numbers["data"] = self.data.as_json()
        numbers["offline"] = jsonable(OFFLINE.objects(self.offline, self.names))
        numbers["moves"] = jsonable(MOVES.objects(self.moves, self.names))
        numbers["incidents"] = jsonable(INCIDENTS.objects(self.incidents, self.names))
        numbers["findings"] = jsonable(CHECK.objects(self.findings, self.names))
        return numbers


def gather(lake: Lake, settings: Settings, sources: Sequence[str] = ()) -> Content:
    """Ask everything. ``sources``: of sizes; without any, those that the lake keeps."""
    bytes_known = weights(lake, sources)
    default_min_isr = settings.ask.min_insync_replicas
    accepted = settings.check.losses_accepted_until
    counts = status(lake, default_min_isr, accepted)
    answer = offline(lake, default_min_isr, accepted, bytes_known)
    dark = Counter((replica.broker_id, replica.directory_id) for replica in answer.replicas)
    cells = [
        Cell(directory, _state(directory), dark[directory.broker_id, directory.directory_id])
        for directory in directories(lake)
    ]
    cells.sort(key=lambda cell: (cell.directory.broker_id, cell.state == "waiting"))
    findings = run_checks(lake, settings=settings)
    series, assignments = over_time(lake), asking(lake)
    step = _step(series, assignments)
    critical = sum(finding.severity == "critical" for finding in findings)
    verdict, headline = judge(counts, critical, answer.replicas_in_doubt)
    return Content(
        verdict=verdict,
        headline=headline,
        status=counts,
        causes=answer.causes,
        leaderless=answer.leaderless,
        perhaps=answer.perhaps,
        unseen_disks=answer.unseen_disks,
        data=answer.data,
        hurt=by_effect(answer.partitions),
        cells=cells,
        over_time=series,
        offline=answer.replicas[:MOST_ROWS],
        incidents=incidents(lake, default_min_isr)[::-1],
        moves=moves(lake, MOST_ROWS)[::-1],
        moved=count_moves(lake),
        asking=assignments,
        queue=queue(lake, step),
        queue_step=step,
        risk=risk(lake, default_min_isr, bytes_known),
        findings=findings,
        names=lake.names,
    )


def _step(series: OverTime, assignments: Asking | None) -> timedelta:
    """The time range of the queue: requests may be earlier or later than the log, or from a wrong clock."""
    times = [series.times[0], series.times[-1]]
    if assignments is not None:
        times += [time for time in (assignments.first_time, assignments.last_time) if time is not None]
    return step_for(max(times) - min(times))


def judge(counts: Status, critical: int = 0, perhaps: int = 0) -> tuple[str, str]:
    """Whether the cluster is well, as a word and a sentence. ``critical``: number of critical findings; ``perhaps``: of
    replicas that may be offline."""
    replicas, partitions = sum(counts.replicas.values()), counts.partitions
    dark = _are(counts.offline_replicas, replicas, "replica", "offline")
    if counts.partitions_data_lost:
        lost = _have(counts.partitions_data_lost, partitions, "partition", "lost data")
        return "critical", f"{lost}; {dark if counts.offline_replicas else 'every replica is online'}."
    if counts.partitions_data_unreachable:
        away = _have(counts.partitions_data_unreachable, partitions, "partition", "unreachable data")
        return "critical", f"{away}: the last complete copy is on a broker that is not registered; {dark}."
    stopped = [
        _have(count, partitions, "partition", what)
        for count, what in (
            (counts.partitions_without_leader, "no leader"),
            (counts.partitions_led_from_offline, "a leader that is offline"),
            (counts.partitions_under_min_isr, "too few in-sync replicas"),
        )
        if count
    ]
    if stopped:
        return "critical", f"{' and '.join(stopped[:2])}; {dark}."
    if counts.offline_replicas:
        return "degraded", f"{dark}. Every partition still has a leader and enough in-sync replicas."
    if perhaps:
        return "degraded", f"Every replica counts as online, but {doubt_in_words(perhaps)}."
    if counts.partitions_may_lack_writes:
        lacking = many(counts.partitions_may_lack_writes, "partition")
        return "degraded", f"Every replica is online, but {lacking} may lack acknowledged writes."
    if counts.partitions_under_replicated:
        behind = _have(counts.partitions_under_replicated, partitions, "partition", "replicas that are not in sync")
        return "degraded", f"Every replica is online, but {behind}."
    if counts.brokers_fenced:
        fenced = _are(counts.brokers_fenced, counts.brokers, "broker", "fenced")
        return "degraded", f"Every replica is online, but {fenced}."
    if critical:
        return "degraded", f"Every replica is online, but the checks found {many(critical, 'critical thing')}."
    if not replicas:
        return "well", "Nothing is wrong: there is no topic yet."
    return "well", f"All {many(replicas, 'replica')} are online and in sync, and every partition has a leader."


def _have(count: int, of: int, what: str, having: str) -> str:
    return f"{count:,} of {many(of, what)} {'has' if count == 1 else 'have'} {having}"


def _are(count: int, of: int, what: str, state: str) -> str:
    return f"{count:,} of {many(of, what)} {'is' if count == 1 else 'are'} {state}"


def _state(directory: Directory) -> str:
    if directory.broker == "missing":
        return "missing"
    if directory.state in ("unassigned", "migrating"):
        return "waiting"
    if directory.state in ("failed", "lost"):
        return "failed"
    if directory.state != "online":
        return "gone"
    return "fenced" if directory.broker == "fenced" else "online"
