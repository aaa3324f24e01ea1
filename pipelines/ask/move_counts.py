"""Summaries: moves between disks, brokers' requests to record assignments, and steps for the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pipelines.ask.assignment_requests import requests_until, waits
from pipelines.ask.moves import Move, moves
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake

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


@dataclass(frozen=True)
class Asking:
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


def count_moves(found: Sequence[Move]) -> MoveCounts:
    """Counts ``moves`` by outcome."""
    outcomes = Counter(move.outcome for move in found)
    timed = [(move.duration, move) for move in found if move.duration is not None]
    duration, longest = max(timed, key=lambda pair: pair[0], default=(None, None))
    return MoveCounts(len(found), dict(outcomes.most_common()), outcomes["reverted"], longest, duration)


def moving(lake: Lake) -> tuple[MoveCounts, Asking | None]:
    """Moves and requests up to the lake's offset. The second is None if the lake never read requests."""
    return count_moves(moves(lake)), asking(lake)


def asking(lake: Lake) -> Asking | None:
    """A summary of requests, None if the lake never read any."""
    rows = requests_until(lake)
    if rows is None:
        return None
    ((requests, entries, largest, retries, refused, first, last),) = lake.query(
        f"""
        SELECT count(*) FILTER (entry = 0), count(*),
               coalesce(max(entries), 0), count(*) FILTER (attempt > 1), count(*) FILTER (error <> 0),
               epoch_us(min(requested_time)), epoch_us(max(requested_time))
        FROM {rows}
        """
    )
    longest = lake.query(
        f"""
        WITH slots AS ({waits(lake)}), change AS (
            SELECT broker_id, from_offset AS o, from_micros AS micros, 1 AS n FROM slots
            UNION ALL SELECT broker_id, to_offset, to_micros, -1 FROM slots WHERE to_offset IS NOT NULL
        ), running AS (
            SELECT broker_id, o, micros,
                   sum(n) OVER (PARTITION BY broker_id ORDER BY o, n ROWS UNBOUNDED PRECEDING)::BIGINT AS waiting
            FROM change
        )
        SELECT waiting, broker_id, o, micros FROM running ORDER BY waiting DESC, o, broker_id LIMIT 1
        """
    )
    waiting, broker, offset, micros = longest[0] if longest else (0, None, None, None)
    return Asking(
        requests=requests,
        entries=entries,
        largest=largest,
        retries=retries,
        refused=refused,
        first_time=None if first is None else time_of(first),
        last_time=None if last is None else time_of(last),
        waiting=waiting,
        waiting_broker=broker,
        waiting_offset=offset,
        waiting_time=None if micros is None else time_of(micros),
    )


def step_for(span: timedelta, most: int = 200) -> timedelta:
    """Returns a round step, at least a second, so that ``span`` has at most ``most`` steps."""
    for step in _STEPS:
        if span <= step * most:
            return step
    return timedelta(days=-(-span // (_STEPS[-1] * most)))
