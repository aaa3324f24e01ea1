"""Moves of replicas between the disks of a broker: when requested, when accepted, and whether they stayed.

The log shows when the controller accepted the new directory, and when this was reverted. It does not show that the
broker then replaced the old copy: a move that is not reverted soon counts as promoted. Only the request stream shows
when a move was requested and how often it was refused. Summaries count moves and requests, and name steps for the
queue. ``jbod_model.loss.copies`` has the same rules on what another directory of a broker means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from pipelines.ask.assignment_requests import NO_REQUESTS, requests_until, waits
from pipelines.ask.starting import select_brokers
from pipelines.lake.ledger import micros_of
from pipelines.lake.reader import Lake

MOVED, RECREATED, RETURNED, UNDECIDED = "moved", "recreated", "returned", "undecided"


def directory_changes(lake: Lake, of: str = "true") -> str:
    """SQL: topic, topic_id, partition, replica_index, broker_id, source, target, came_offset, came_time, at_offset,
    at_time, undecided (whether the report can be of a process that had not registered), decided_offset (of the
    registration that decided, or at_offset) and meaning.

    ``of``: a condition on topic and partition.

    - ``moved``: the broker listed the old directory (R-COPY-3).
    - ``recreated``: it did not (R-COPY-4). After an undecided report its next registration decides (R-COPY-12).
    - ``returned``: nobody led since the replica was recreated, and it is again in the directory that it left: the old
      disk is back, with the replica's log (R-COPY-13).
    - ``undecided``: a process reported it that has not registered yet; its registration decides (R-COPY-12).
    """
    select_brokers(lake)
    _select_moved(lake)
    replaced = ", ".join(map(str, [-1, *_replaced(lake)]))
    return f"""(
        WITH changed AS (
            SELECT n.topic, n.topic_id, n.partition, n.replica_index, n.broker_id, o.directory_id AS source,
                   n.directory_id AS target, o.from_offset AS came_offset, o.from_time AS came_time,
                   n.from_offset AS at_offset, n.from_time AS at_time
            FROM (SELECT * FROM moved_{lake.offset} WHERE {of}) o
            JOIN (SELECT * FROM {lake.until("assignments")} WHERE {of}) n
                 ON n.topic_id = o.topic_id AND n.partition = o.partition
                 AND n.broker_id = o.broker_id AND n.from_offset = o.to_offset
        ),
        known AS (
            SELECT c.*, b.incarnation_id, coalesce(b.undecided, false) AS undecided,
                   coalesce(len(b.log_dirs) = 0 OR list_contains(b.log_dirs, c.source), false) AS listed
            FROM changed c LEFT JOIN loss_brokers_{lake.offset} b
                 ON b.broker_id = c.broker_id AND b.from_offset <= c.at_offset
                 AND (b.to_offset IS NULL OR b.to_offset > c.at_offset)
        ),
        reported AS (
            SELECT k.topic_id, k.partition, k.broker_id, k.at_offset
            FROM known k JOIN starts_{lake.offset} s ON s.broker_id = k.broker_id AND s.start <= k.at_offset
                 AND s.incarnation_id = k.incarnation_id
        ),
        decided AS (
            SELECT k.topic_id, k.partition, k.broker_id, k.at_offset, min(n.from_offset) AS decided_offset,
                   arg_min(
                       n.incarnation_id <> k.incarnation_id AND len(n.log_dirs) > 0
                       AND NOT list_contains(n.log_dirs, k.source), n.from_offset
                   ) AS without
            FROM known k JOIN loss_brokers_{lake.offset} n ON n.broker_id = k.broker_id AND n.from_offset > k.at_offset
                 AND (NOT n.undecided OR n.incarnation_id <> k.incarnation_id)
            WHERE k.undecided GROUP BY ALL
        ),
        judged AS (
            SELECT k.*, NOT listed OR coalesce(without, false) AS recreated,
                   CASE WHEN listed AND undecided THEN decided_offset ELSE at_offset END AS since,
                   listed AND decided_offset IS NULL AND reported.at_offset IS NOT NULL AS waits
            FROM known k LEFT JOIN decided USING (topic_id, partition, broker_id, at_offset)
            LEFT JOIN reported USING (topic_id, partition, broker_id, at_offset)
        ),
        returned AS (
            SELECT DISTINCT n.topic_id, n.partition, n.broker_id, n.at_offset
            FROM judged o JOIN judged n ON n.topic_id = o.topic_id AND n.partition = o.partition
                 AND n.broker_id = o.broker_id AND n.target = o.source AND n.at_offset > o.at_offset
            WHERE o.recreated AND NOT EXISTS (
                SELECT 1
                FROM (SELECT topic_id, partition, leader, from_offset, to_offset FROM {lake.until("partitions")}
                      SEMI JOIN moved_twice_{lake.offset} USING (topic_id, partition)) p
                WHERE p.topic_id = n.topic_id AND p.partition = n.partition AND p.leader >= 0
                  AND p.from_offset NOT IN ({replaced})
                  AND p.from_offset < n.at_offset AND (p.to_offset IS NULL OR p.to_offset > o.since)
            )
        )
        SELECT topic, topic_id, partition, replica_index, broker_id, source, target, came_offset, came_time, at_offset,
               at_time, undecided, coalesce(since, at_offset) AS decided_offset,
               CASE WHEN back THEN '{RETURNED}' WHEN recreated THEN '{RECREATED}' WHEN waits THEN '{UNDECIDED}'
                    ELSE '{MOVED}' END AS meaning
        FROM judged LEFT JOIN (SELECT *, true AS back FROM returned) r
             USING (topic_id, partition, broker_id, at_offset)
    )"""


def _select_moved(lake: Lake) -> None:
    """Creates moved_OFFSET: the assignments that ended with another directory of the broker, from where they begin if
    the replica's position did not count. DuckDB knows that it is a small table, and reads nothing of the other
    assignments if it is empty. Also creates moved_twice_OFFSET: the partitions of replicas that moved more than once.
    Only these can be back."""

    def stays() -> str:
        return f"""
            WITH parts AS (
                SELECT *, from_offset IS DISTINCT FROM lag(to_offset) OVER stay AS begins
                FROM {lake.scan("assignments")}
                WHERE ended_by IN ('moved', 'reordered') AND to_offset <= {lake.offset}
                WINDOW stay AS (PARTITION BY topic_id, partition, broker_id, directory_id ORDER BY from_offset)
            )
            SELECT topic, topic_id, partition, broker_id, directory_id,
                   max(CASE WHEN begins THEN from_offset END) OVER stay AS from_offset,
                   max(CASE WHEN begins THEN from_time END) OVER stay AS from_time, to_offset
            FROM parts WINDOW stay AS (
                PARTITION BY topic_id, partition, broker_id, directory_id ORDER BY parts.from_offset
            ) QUALIFY ended_by = 'moved'
        """

    moved = lake.keep("moved", stays)
    twice = f"SELECT topic_id, partition FROM {moved} GROUP BY topic_id, partition, broker_id HAVING count(*) > 1"
    lake.keep("moved_twice", lambda: twice)


def _replaced(lake: Lake) -> list[int]:
    """The offsets of leaders that never led: a later record of the same append replaces them (R-LOSS-10)."""
    if not lake.query(f"FROM moved_twice_{lake.offset} LIMIT 1"):
        return []  # DuckDB would read all states first
    pairs = lake.query(
        f"""
        SELECT p.from_offset, p.to_offset FROM {lake.until("partitions")} p
        SEMI JOIN moved_twice_{lake.offset} USING (topic_id, partition)
        WHERE p.leader >= 0 AND p.to_time = p.from_time AND NOT p.from_snapshot
        """
    )
    return [offset for offset, _ in lake.of_one_append(pairs)]


SOON = timedelta(minutes=10)
"""A return within this time reverts a move. A later return is another move."""

AT_ONCE = timedelta(seconds=10)
"""A broker replaces the old copy within this time after the controller accepted."""

_EARLY = 1_000_000
"""Microseconds by which a request may seem later than its record: a batch has the time of its beginning."""


class Move(NamedTuple):
    """The move of a replica from a directory to another one of the same broker."""

    topic: str
    topic_id: str
    partition: int
    broker_id: int
    source: str
    target: str
    first_requested_time: datetime | None
    """When the broker first requested the target, None without a request log."""
    requests: int
    """How often it was requested."""
    refused: int
    """How often it was refused."""
    accepted_offset: int
    accepted_time: datetime
    outcome: str
    """``promoted``: it stayed. ``accepted``: too recent to decide. ``reverted``: it was reverted soon. ``recreated``:
    the source was offline or gone, so that nothing was moved and the replica began empty. ``returned``: the replica
    was recreated elsewhere before, and the disk of the target is back with its log. ``undecided``: a process of the
    broker reported it that has not registered yet: moved, or recreated."""
    reverted_offset: int | None
    reverted_time: datetime | None
    flips: int
    """How often it went back and came again at once, as when a broker corrects a recent move (R-MOVE-7)."""

    @property
    def duration(self) -> timedelta | None:
        """From the first request to the final acceptance or the revert. None if the request is not known."""
        if self.first_requested_time is None:
            return None
        return max((self.reverted_time or self.accepted_time) - self.first_requested_time, timedelta(0))


def moves(lake: Lake, newest: int | None = None) -> list[Move]:
    """The moves that were accepted up to the lake's offset, oldest first: all of them, or the ``newest``."""
    single = _select_single_moves(lake)
    limit = "" if newest is None else f"LIMIT {newest}"
    newest_first = "accepted_offset DESC, topic_id DESC, partition DESC, broker_id DESC"
    alone = lake.named_rows(Move, f"{single} WHERE alone ORDER BY {newest_first} {limit}")
    accepted = sorted([*alone, *_combined_moves(lake)], key=_order)
    return accepted if newest is None else accepted[-newest:]


def count_moves(lake: Lake) -> MoveCounts:
    """Counts the moves that were accepted up to the lake's offset, by outcome."""
    single, combined = _select_single_moves(lake), _combined_moves(lake)
    outcomes = Counter(dict(lake.query(f"SELECT outcome, count(*) FROM {single} WHERE alone GROUP BY outcome")))
    outcomes.update(move.outcome for move in combined)
    slowest = lake.named_rows(
        Move,
        f"""
        {single} WHERE alone AND first_requested_time IS NOT NULL
        ORDER BY greatest(epoch_us(accepted_time) - epoch_us(first_requested_time), 0) DESC, accepted_offset,
                 topic_id, partition, broker_id LIMIT 1
        """,
    )
    candidates = sorted([*slowest, *combined], key=_order)
    timed = [(move.duration, move) for move in candidates if move.duration is not None]
    duration, longest = max(timed, key=lambda pair: pair[0], default=(None, None))
    return MoveCounts(outcomes.total(), dict(outcomes.most_common()), outcomes["reverted"], longest, duration)


def _select_single_moves(lake: Lake) -> str:
    """Creates a table of the moves, if it is not there, and returns its name.

    ``alone``: the replica did not move within SOON before or after, so that the move is neither reverted nor a revert.
    """
    soon, recent = SOON // timedelta(microseconds=1), micros_of(lake.time - SOON)

    def single_moves() -> str:
        return f"""
            WITH moved AS (SELECT *, epoch_us(at_time) AS accepted FROM {directory_changes(lake)})
            SELECT topic, topic_id, partition, broker_id, source, target, asked AS first_requested_time,
                   coalesce(requests, 0) AS requests, coalesce(refused, 0) AS refused,
                   at_offset AS accepted_offset, at_time AS accepted_time,
                   CASE WHEN meaning <> '{MOVED}' THEN meaning WHEN accepted > {recent} THEN 'accepted'
                        ELSE 'promoted' END AS outcome,
                   NULL::BIGINT AS reverted_offset, NULL::TIMESTAMPTZ AS reverted_time, 0 AS flips,
                   coalesce(accepted - lag(accepted) OVER replica > {soon}, true)
                   AND coalesce(lead(accepted) OVER replica - accepted > {soon}, true) AS alone
            FROM moved LEFT JOIN {_requests(lake)} USING (topic_id, partition, broker_id, at_offset)
            WINDOW replica AS (PARTITION BY topic_id, partition, broker_id ORDER BY at_offset)
        """

    return lake.keep("single_moves", single_moves)


def _combined_moves(lake: Lake) -> list[Move]:
    """The moves of replicas that moved again soon, without those that were reverts or repeats."""
    order = "topic_id, partition, broker_id, accepted_offset"
    several = lake.named_rows(Move, f"{_select_single_moves(lake)} WHERE NOT alone ORDER BY {order}")
    replicas = groupby(several, key=lambda move: (move.topic_id, move.partition, move.broker_id))
    combined = [move for _, chain in replicas for move in _combine(chain)]
    recent = lake.time - SOON
    return [
        move._replace(outcome="accepted") if move.outcome == "promoted" and move.accepted_time > recent else move
        for move in combined
    ]


def _order(move: Move) -> tuple[int, str, int, int]:
    return move.accepted_offset, move.topic_id, move.partition, move.broker_id


def _requests(lake: Lake) -> str:
    """SQL: for each move, when the broker first requested its target, how often, and how often it was refused."""
    return f"""(
        SELECT m.topic_id, m.partition, m.broker_id, m.at_offset, min(r.requested_time) AS asked,
               count(*) AS requests, count(*) FILTER (r.outcome = 'refused') AS refused
        FROM moved m JOIN {requests_until(lake) or NO_REQUESTS} r
             ON r.topic_id = m.topic_id AND r.partition = m.partition AND r.broker_id = m.broker_id
             AND r.directory_id = m.target
             AND r.requested_time > m.came_time
             AND epoch_us(r.requested_time) <= epoch_us(m.at_time) + {_EARLY}
        GROUP BY ALL
    )"""


def _combine(chain: Iterable[Move]) -> Iterator[Move]:
    """Combines one replica's moves: a return within SOON reverts the move before, a second one reverts the return.

    A broker also goes back if one of the two disks fails before it has replaced the old copy (KAFKA-16297). Afterwards
    it would recreate the replica at its next start.
    """
    current: Move | None = None
    for move in chain:
        if current is None:
            current = move
            continue
        returns = move.outcome != RETURNED and (move.source, move.target) == (current.target, current.source)
        repeats = (move.source, move.target) == (current.source, current.target)
        last = current.reverted_time or current.accepted_time
        near = move.accepted_time - last <= (AT_ONCE if RECREATED in (move.outcome, current.outcome) else SOON)
        twice = move.outcome == current.outcome == RECREATED
        if returns and near and not twice and current.outcome != "reverted":
            current = current._replace(
                outcome="reverted", reverted_offset=move.accepted_offset, reverted_time=move.accepted_time
            )
        elif repeats and near and current.outcome == "reverted":
            current = current._replace(
                outcome="promoted",
                reverted_offset=None,
                reverted_time=None,
                accepted_offset=move.accepted_offset,
                accepted_time=move.accepted_time,
                requests=current.requests + move.requests,
                refused=current.refused + move.refused,
                flips=current.flips + 1,
            )
        else:
            yield current
            current = move
    if current is not None:
        yield current


_STEPS = [
    *(timedelta(seconds=seconds) for seconds in (1, 2, 5, 10, 15, 30)),
    *(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=hours) for hours in (1, 2, 3, 6, 12, 24)),
]


@dataclass(frozen=True)
class MoveCounts:
    """A summary of ``moves``."""

    count: int
    outcomes: Mapping[str, int]
    """The most frequent first."""
    reverted: int
    longest: Move | None
    """Among the moves whose request is in a request log."""
    longest_duration: timedelta | None


class Asking(NamedTuple):
    """All requests of all brokers, and the longest queue."""

    requests: int
    entries: int
    largest: int
    """Entries of the largest request."""
    retries: int
    """Entries that were refused before."""
    refused: int
    first_time: datetime | None
    """Time of the first request, None if there is none."""
    last_time: datetime | None
    waiting: int
    """The largest number of replicas of one broker that waited for a directory at the same time."""
    waiting_broker: int | None
    """The broker of this maximum, None if no replica ever waited."""
    waiting_offset: int | None
    waiting_time: datetime | None


def asking(lake: Lake) -> Asking | None:
    """A summary of requests, None if the lake never read any."""
    rows = requests_until(lake)
    if rows is None:
        return None
    (answer,) = lake.named_rows(
        Asking,
        f"""(
            WITH slots AS ({waits(lake)}), change AS (
                SELECT broker_id, from_offset AS o, from_micros AS micros, 1 AS n FROM slots
                UNION ALL SELECT broker_id, to_offset, to_micros, -1 FROM slots WHERE to_offset IS NOT NULL
            ), running AS (
                SELECT broker_id, o, micros,
                       sum(n) OVER (PARTITION BY broker_id ORDER BY o, n ROWS UNBOUNDED PRECEDING)::BIGINT AS most
                FROM change
            ), longest AS (SELECT * FROM running ORDER BY most DESC, o, broker_id LIMIT 1)
            SELECT asked.*, coalesce(most, 0) AS waiting, broker_id AS waiting_broker, o AS waiting_offset,
                   make_timestamptz(micros) AS waiting_time
            FROM (
                SELECT count(*) FILTER (r.entry = 0) AS requests, count(*) AS entries,
                       coalesce(max(r.entries), 0) AS largest, count(*) FILTER (r.attempt > 1) AS retries,
                       count(*) FILTER (r.error <> 0) AS refused, min(r.requested_time) AS first_time,
                       max(r.requested_time) AS last_time
                FROM {rows} r
            ) asked LEFT JOIN longest ON true
        )""",
    )
    return answer


def step_for(span: timedelta, most: int = 200) -> timedelta:
    """Returns a round step, at least a second, so that ``span`` has at most ``most`` steps."""
    for step in _STEPS:
        if span <= step * most:
            return step
    return timedelta(days=-(-span // (_STEPS[-1] * most)))
