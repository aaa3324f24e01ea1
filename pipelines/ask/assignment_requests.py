"""Brokers' requests to record assignments (AssignReplicasToDirs): ``assignment_requests`` as of an offset.

Questions and checks share SQL about them. It works in DuckDB and, through sqlglot, in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jbod_model.errors import UsageError
from jbod_model.formats.responses import KafkaError
from pipelines.ask.json_values import DatedAnswer
from pipelines.lake.delta import read_parquet
from pipelines.lake.ledger import micros_of, time_of
from pipelines.lake.reader import Lake

_PAIRS = ", ".join(f"({error.value}, '{error.name}')" for error in KafkaError)

ERROR_NAMES = f"SELECT * FROM (VALUES {_PAIRS}) AS names (error, name)"
"""SQL: Kafka's name of each error code that a controller answers with."""

PROCESSES = """
    SELECT b.broker_id, min(h.from_offset) AS from_offset, min(h.from_time) AS from_time,
           max(CASE WHEN h.fenced THEN h.to_offset END) AS unfenced_offset,
           max(CASE WHEN h.fenced THEN h.to_time END) AS unfenced_time
    FROM brokers b
    JOIN brokers_history h ON h.broker_id = b.broker_id AND h.incarnation_id = b.incarnation_id
    GROUP BY b.broker_id
"""
"""SQL over brokers and brokers_history: for each registered broker, since when its process runs, and when it was last
unfenced (null: it was never fenced in this history)."""

REFUSAL = "CASE WHEN q.error <> 0 THEN coalesce(n.name, 'error ' || CAST(q.error AS VARCHAR)) END AS refusal"
"""SQL over requests q and error_names n: Kafka's name of the error, ``error 999`` for an unknown one, null for none."""

LAST_REQUESTS = f"""
    SELECT q.topic_id, q.topic, q.partition, q.broker_id, q.directory_id, q.requested_time, q.first_requested_time,
           q.outcome, q.attempt, q.realised_offset, q.latency_ms, {REFUSAL}
    FROM (
        SELECT *, row_number() OVER (
            PARTITION BY topic_id, partition, broker_id ORDER BY requested_time DESC, answered_time DESC, entry DESC
        ) AS age
        FROM assignment_requests
    ) q
    LEFT JOIN error_names n ON n.error = q.error
    WHERE q.age = 1
"""
"""SQL over assignment_requests and error_names: a broker's last request for each replica, and Kafka's name of the error
(null if it was accepted)."""

# A process that has ended does not repeat requests.
RETRY_LOOPS = """
    SELECT q.topic_id, q.topic, q.partition, q.broker_id, q.directory_id, q.refusal, q.attempt, q.first_requested_time,
           q.requested_time, r.from_offset, r.from_time
    FROM last_asked q
    JOIN processes r ON r.broker_id = q.broker_id AND r.from_time <= q.requested_time
    CROSS JOIN params
    WHERE q.refusal IS NOT NULL AND q.attempt >= params.refusals AND q.requested_time >= params.window_time
"""
"""SQL over last_asked, processes and params (refusals, window_time): assignments that are refused repeatedly."""


TABLE = "assignment_requests"
REJECTS = "request_rejects"


def request_rows(lake: Lake, name: str = TABLE) -> str | None:
    """SQL for all rows of a table of the request stream, None if the lake never read requests."""
    table = lake.tables.get(name)
    if table is None:
        return None
    return read_parquet(lake.path, name, table)


def requests_until(lake: Lake) -> str | None:
    """SQL for the requests that arrived by the lake's offset. A request whose record came later is pending."""
    rows = request_rows(lake)
    if rows is None or lake.offset == lake.published.end_offset - 1:
        return rows
    micros = micros_of(lake.time)
    later = f"realised_offset > {lake.offset}"
    hidden = ", ".join(
        f"CASE WHEN NOT coalesce({later}, false) THEN {name} END AS {name}"
        for name in ("realised_offset", "realised_time", "latency_ms")
    )
    return (
        f"(SELECT * REPLACE (CASE WHEN {later} THEN 'pending' ELSE outcome END AS outcome, {hidden}) "
        f"FROM {rows} WHERE requested_time <= make_timestamptz({micros}))"
    )


@dataclass(frozen=True)
class LastRequest:
    """A request for one replica."""

    directory_id: str
    requested_time: datetime
    outcome: str
    """refused, recorded, already true, pending or not in the log."""
    error: str
    """Kafka's name of the error, empty for none."""
    attempt: int
    realised_offset: int | None
    latency_ms: int | None


@dataclass(frozen=True)
class Waiting:
    """A replica whose directory the controller does not know, and its broker's last request since then."""

    topic: str
    topic_id: str
    partition: int
    broker_id: int
    broker: str
    """online, fenced or missing."""
    from_offset: int
    from_time: datetime
    from_snapshot: bool
    last_request: LastRequest | None

    @property
    def state(self) -> str:
        """``not requested``, ``refused`` or ``requested, not yet recorded``."""
        if self.last_request is None:
            return "not requested"
        return "refused" if self.last_request.error else "requested, not yet recorded"


@dataclass(frozen=True)
class Refused:
    """A replica whose broker's last request was refused, so that the log has it in another directory."""

    topic: str
    topic_id: str
    partition: int
    broker_id: int
    directory_id: str
    """The directory in the log."""
    last_request: LastRequest


class RetryLoop(NamedTuple):
    """An assignment that is requested and refused repeatedly: check B-02."""

    topic: str | None
    """None if the log has no topic of this id: it was deleted before the lake begins, or belongs to another cluster."""
    topic_id: str
    partition: int
    broker_id: int
    directory_id: str
    error: str
    attempts: int
    first_time: datetime
    last_time: datetime


@dataclass(frozen=True)
class Assignments(DatedAnswer):
    """The answer."""

    seen: bool
    """Whether the lake ever read requests."""
    outcomes: Mapping[str, int]
    not_in_the_log: Mapping[str, int]
    """Number of assignments by what the log lacks."""
    median_ms: int | None
    """Latency of recorded assignments, from the first attempt on."""
    slowest_ms: int | None
    unreadable: int
    """Lines of request logs that could not be read."""
    migrating: int
    """Replicas from before directories were recorded (MIGRATING): their brokers report them when they start."""
    unassigned: Sequence[Waiting]
    refused: Sequence[Refused]
    retry_loops: Sequence[RetryLoop]


_REQUEST_COLUMNS = (
    "q.directory_id, epoch_us(q.requested_time), q.outcome, q.refusal, q.attempt, q.realised_offset, q.latency_ms"
)
NO_REQUESTS = (
    "(SELECT NULL::VARCHAR AS topic, NULL::VARCHAR AS topic_id, NULL::INTEGER AS partition, "
    "NULL::INTEGER AS broker_id, NULL::VARCHAR AS directory_id, NULL::TIMESTAMPTZ AS requested_time, "
    "NULL::TIMESTAMPTZ AS answered_time, NULL::TIMESTAMPTZ AS first_requested_time, NULL::VARCHAR AS outcome, "
    "NULL::VARCHAR AS why, 0 AS error, 0 AS attempt, NULL::BIGINT AS realised_offset, NULL::BIGINT AS latency_ms, "
    "0 AS entry WHERE false)"
)
"""SQL for the requests of a lake that never read any."""


def _last_asked(lake: Lake) -> str:
    """SQL: the table last_asked, and those that it is made of, to follow WITH."""
    return f"""
        assignment_requests AS (SELECT * FROM {requests_until(lake) or NO_REQUESTS}),
        error_names AS ({ERROR_NAMES}), last_asked AS ({LAST_REQUESTS})
    """


def assignments(lake: Lake, refusals: int = 3, window: timedelta = timedelta(days=7)) -> Assignments:
    """The assignments: requested, waiting, and why they wait. ``refusals`` and ``window``: see ``retry_loops``."""
    known = requests_until(lake)
    rows = known or NO_REQUESTS
    outcomes = dict(lake.query(f"SELECT outcome, count(*) FROM {rows} GROUP BY outcome ORDER BY count(*) DESC"))
    lacks = lake.query(f"SELECT why, count(*) FROM {rows} WHERE why IS NOT NULL GROUP BY why ORDER BY count(*) DESC")
    ((median, slowest),) = lake.query(
        f"SELECT quantile_disc(latency_ms, 0.5), max(latency_ms) FROM {rows} WHERE outcome = 'recorded'"
    )
    rejects = request_rows(lake, REJECTS)
    unreadable = lake.query(f"SELECT coalesce(sum(lines), 0)::BIGINT FROM {rejects}")[0][0] if rejects else 0
    return Assignments(
        offset=lake.offset,
        time=lake.time,
        seen=known is not None,
        outcomes=outcomes,
        not_in_the_log=dict(lacks),
        median_ms=median,
        slowest_ms=slowest,
        unreadable=unreadable,
        migrating=lake.query(f"SELECT count(*) FROM {lake.at('assignments')} WHERE kind = 'migrating'")[0][0],
        unassigned=_unassigned(lake),
        refused=_refused(lake),
        retry_loops=retry_loops(lake, refusals, window),
    )


def retry_loops(lake: Lake, refusals: int = 3, window: timedelta = timedelta(days=7)) -> list[RetryLoop]:
    """The assignments of check B-02: refused at least ``refusals`` times in a row, the last time within ``window``.
    They are the newest request for their replica, by a process that still runs. The most frequent come first."""
    since = micros_of(lake.time - window)
    return lake.named_rows(
        RetryLoop,
        f"""(
            WITH {_last_asked(lake)}, brokers AS (SELECT * FROM {lake.at("brokers")}),
            brokers_history AS (SELECT * FROM {lake.until("brokers")}), processes AS ({PROCESSES}),
            params AS (SELECT {refusals} AS refusals, make_timestamptz({since}) AS window_time)
            SELECT *, refusal AS error, attempt AS attempts, first_requested_time AS first_time,
                   requested_time AS last_time
            FROM ({RETRY_LOOPS})
        ) ORDER BY attempts DESC, topic_id, partition, broker_id""",
    )


def _unassigned(lake: Lake) -> list[Waiting]:
    replicas = lake.query(
        f"""
        WITH {_last_asked(lake)}
        SELECT a.topic, a.topic_id, a.partition, a.broker_id, b.fenced, a.from_offset, epoch_us(a.from_time),
               a.from_snapshot, {_REQUEST_COLUMNS}
        FROM {lake.since("assignments", "directory_id", of="kind = 'unassigned'")} a
        LEFT JOIN {lake.at("brokers")} b USING (broker_id)
        LEFT JOIN last_asked q ON q.topic_id = a.topic_id AND q.partition = a.partition AND q.broker_id = a.broker_id
             AND epoch_us(q.requested_time) >= epoch_us(a.from_time) - 1_000_000
        ORDER BY a.from_offset, a.topic, a.partition, a.broker_id
        """
    )
    return [
        Waiting(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            broker_id=broker,
            broker="missing" if fenced is None else "fenced" if fenced else "online",
            from_offset=since,
            from_time=time_of(micros),
            from_snapshot=snapshot,
            last_request=None if last[0] is None else _last_request(*last),
        )
        for topic, topic_id, partition, broker, fenced, since, micros, snapshot, *last in replicas
    ]


def _refused(lake: Lake) -> list[Refused]:
    replicas = lake.query(
        f"""
        WITH {_last_asked(lake)}
        SELECT a.topic, a.topic_id, a.partition, a.broker_id, a.directory_id, {_REQUEST_COLUMNS}
        FROM {lake.at("assignments")} a JOIN last_asked q USING (topic_id, partition, broker_id)
        WHERE a.kind <> 'unassigned' AND q.refusal IS NOT NULL AND q.directory_id <> a.directory_id
        ORDER BY a.topic, a.partition, a.broker_id
        """
    )
    return [
        Refused(topic, topic_id, partition, broker, directory, _last_request(*last))
        for topic, topic_id, partition, broker, directory, *last in replicas
    ]


def _last_request(directory: str, micros: int, outcome: str, error: str | None, *more: Any) -> LastRequest:
    """One of ``_REQUEST_COLUMNS``."""
    return LastRequest(directory, time_of(micros), outcome, error or "", *more)


@dataclass(frozen=True)
class Request:
    """A request about one partition."""

    broker_id: int
    last_request: LastRequest


def requests_of(lake: Lake, topic: str, partition: int) -> list[Request]:
    """The requests about a partition. Raises UsageError if the lake has no requests."""
    rows = requests_until(lake)
    if rows is None:
        raise UsageError(f"{lake.path}: no requests in this lake: jbod replay LOG_DIR --requests FILE")
    requests = lake.query(
        f"""
        WITH q AS (SELECT q.*, {REFUSAL} FROM {rows} q LEFT JOIN ({ERROR_NAMES}) n ON n.error = q.error)
        SELECT q.broker_id, {_REQUEST_COLUMNS} FROM q WHERE topic = $1 AND partition = $2
        ORDER BY requested_time, broker_id, entry
        """,
        [topic, partition],
    )
    return [Request(broker, _last_request(*last)) for broker, *last in requests]


@dataclass(frozen=True)
class Queue:
    """The requests of a broker within a period, and the number of its replicas that waited at the end of it."""

    broker_id: int
    start: datetime
    requests: int
    entries: int
    largest: int
    """Entries of the largest request: Kafka puts at most 2,250 into one."""
    retries: int
    """Entries that were refused before."""
    refused: int
    answer_ms: int
    """Slowest answer."""
    latency_ms: int | None
    """The longest time from the first attempt to the record."""
    waiting: int
    """Replicas without a directory at the end, on a broker that has several: the length of its queue."""


def waits(lake: Lake) -> str:
    """SQL: the intervals in which each replica had no directory, on a broker that has several."""
    return f"""
        SELECT a.broker_id, a.from_offset, epoch_us(a.from_time) AS from_micros, a.to_offset,
               epoch_us(a.to_time) AS to_micros
        FROM {lake.until("assignments")} a JOIN (
            SELECT DISTINCT broker_id FROM {lake.until("brokers")} WHERE len(log_dirs) > 1
        ) USING (broker_id)
        WHERE a.kind = 'unassigned'
    """


def queue(lake: Lake, every: timedelta = timedelta(minutes=1)) -> list[Queue]:
    """The assignment queue of every broker over time. Steps of ``every`` in which nothing is requested, and no
    wait begins or ends, are left out: as many wait as in the step before.

    A replica waits from the record that left it without a directory to the record that assigned one.
    """
    rows = requests_until(lake)
    if rows is None:
        return []
    step = max(every // timedelta(microseconds=1), 1)
    end = micros_of(lake.time)
    steps = lake.query(
        f"""
        WITH asked AS (
            SELECT broker_id, epoch_us(requested_time) // {step} AS step,
                   count(DISTINCT (connection, correlation_id, answered_time)) AS requests, count(*) AS entries,
                   max(entries) AS largest, count(*) FILTER (attempt > 1) AS retries,
                   count(*) FILTER (error <> 0) AS refused,
                   max(date_diff('millisecond', requested_time, answered_time)) AS answer_ms,
                   max(latency_ms) AS latency_ms
            FROM {rows} GROUP BY ALL
        ), slots AS (
            SELECT broker_id, from_micros, to_micros FROM ({waits(lake)})
        ), steps AS (
            SELECT broker_id, step FROM asked
            UNION SELECT broker_id, from_micros // {step} FROM slots
            UNION SELECT broker_id, coalesce(to_micros, {end}) // {step} FROM slots
        )
        SELECT s.broker_id, s.step, coalesce(any_value(requests), 0), coalesce(any_value(entries), 0),
               coalesce(any_value(largest), 0), coalesce(any_value(retries), 0), coalesce(any_value(refused), 0),
               coalesce(any_value(answer_ms), 0), any_value(latency_ms), count(w.broker_id)
        FROM steps s LEFT JOIN asked USING (broker_id, step)
        LEFT JOIN slots w ON w.broker_id = s.broker_id AND w.from_micros < (s.step + 1) * {step}
             AND (w.to_micros IS NULL OR w.to_micros >= (s.step + 1) * {step})
        GROUP BY s.broker_id, s.step ORDER BY s.step, s.broker_id
        """
    )
    return [Queue(broker, time_of(at * step), *rest) for broker, at, *rest in steps]
