"""The request stream of the main job: a second query, over request logs, that fills ``assignment_requests``.

Its state is the table itself. A row identifies itself (the connection, the request's number on it, the time of the
answer, the entry), so a batch that is published twice, after a crash or a lost checkpoint, adds nothing. One file
holds the rows that wait for the log, and every batch replaces it.

Requested assignments are joined with the log: which record carried out each of them. The record of an
accepted assignment put its replica into that directory while the request was served, within the skew of the clocks.
Otherwise the assignment existed before, or the log has not reached that time yet. If a record fits several requests,
the first one gets it: the others repeated an assignment that existed.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.ask.assignment_requests import request_rows
from pipelines.formats.requests import ASSIGNMENTS_SCHEMA, REJECTS_SCHEMA
from pipelines.lake import files
from pipelines.lake.delta import data_files, read_parquet
from pipelines.lake.files import DataFile
from pipelines.lake.ledger import micros_of
from pipelines.lake.publish import LakeWriter
from pipelines.lake.reader import Lake
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, REQUEST_REJECTS, TIME
from pipelines.lake.uris import LakeUri, for_spark
from pipelines.run.options import Requests
from pipelines.run.seed import OF_REQUESTS, discard_checkpoint, is_readable, planned
from pipelines.source.kafka_request_log import KafkaRequestLog
from pipelines.source.limits import position_options
from pipelines.source.log_options import PARTS
from pipelines.spark.session import cores_of
from pipelines.spark.versions import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MEMORY = "1GB"
OPEN_SHARD = 0
"""The shard whose file of open rows has the assignments that wait."""
ATTEMPTS = pa.schema([*ASSIGNMENTS_SCHEMA, ("attempt", pa.int32()), ("first_requested_time", TIME)])
"""The columns of an assignment before the join with the log."""
_REPLICA = "topic_id, partition, broker_id"
_WANTED = f"{_REPLICA}, directory_id"
_IDENTITY = "connection, correlation_id, answered_time, entry, broker_id"
_ORDER = "requested_time, answered_time, connection, correlation_id, entry"
_BEFORE = f"{_WANTED}, {_ORDER}, error"
_EMPTY = "SELECT *, '' AS outcome, 0 AS realised_offset FROM asked WHERE false"


def unseen(lake: Lake, requests: pa.Table) -> pa.Table:
    """The rows of ``requests`` that the table lacks, each once, with their attempt and the first attempt's time."""
    lake.connection.register("asked", requests)
    known = request_rows(lake) or f"({_EMPTY})"
    sql = f"""
        WITH bounds AS (SELECT min(answered_time) AS low, max(answered_time) AS high FROM asked),
        known AS (SELECT {_IDENTITY} FROM {known}, bounds WHERE answered_time BETWEEN low AND high),
        new AS (
            SELECT * FROM asked ANTI JOIN known USING ({_IDENTITY})
            QUALIFY row_number() OVER (PARTITION BY {_IDENTITY}) = 1
        ),
        seen AS (
            SELECT {_BEFORE}, true AS is_new FROM new
            UNION ALL SELECT {_BEFORE}, false FROM {known} SEMI JOIN new USING ({_WANTED})
        ),
        runs AS (
            SELECT *, coalesce(lag(error) OVER earlier = 0, true) AS begins
            FROM seen WINDOW earlier AS (PARTITION BY {_WANTED} ORDER BY {_ORDER})
        ),
        numbered AS (
            SELECT *, count(*) FILTER (begins) OVER (PARTITION BY {_WANTED} ORDER BY {_ORDER}) AS run FROM runs
        ),
        attempts AS (
            SELECT {_BEFORE}, is_new,
                   (row_number() OVER (PARTITION BY {_WANTED}, run ORDER BY {_ORDER}))::INTEGER AS attempt,
                   min(requested_time) OVER (PARTITION BY {_WANTED}, run) AS first_requested_time
            FROM numbered
        )
        SELECT new.*, attempt, first_requested_time
        FROM new JOIN (SELECT * FROM attempts WHERE is_new) USING ({_BEFORE})
    """
    return _table(lake, sql).select(ATTEMPTS.names).cast(ATTEMPTS)


def pending(lake: Lake) -> pa.Table | None:
    """The open rows of the table: assignments that wait for the log. None if there are none."""
    table = lake.tables.get(ASSIGNMENT_REQUESTS.name)
    table_files = [] if table is None else data_files(table)
    opened = [file["path"] for file in table_files if file["partition.open_shard"] == OPEN_SHARD]
    if table is None or not opened:
        return None
    known = read_parquet(lake.path, ASSIGNMENT_REQUESTS.name, table, opened)
    return _table(lake, f"SELECT {', '.join(ATTEMPTS.names)} FROM {known}").cast(ATTEMPTS)


def unread(lake: Lake, rejects: pa.Table) -> pa.Table:
    """The rows of ``rejects`` whose lines are not counted yet. A log that is read twice gives the same lines."""
    table = lake.tables.get(REQUEST_REJECTS.name)
    if table is None or not rejects.num_rows:
        return rejects
    lake.connection.register("rejects", rejects)
    known = read_parquet(lake.path, REQUEST_REJECTS.name, table)
    sql = f"""
        SELECT r.* FROM rejects r ANTI JOIN {known} k
        ON r.file_id = k.file_id AND r.reason = k.reason AND r.api IS NOT DISTINCT FROM k.api
           AND r.position BETWEEN k.position AND k.last_position
    """
    return _table(lake, sql)


def joined(lake: Lake, requests: pa.Table, skew: timedelta) -> pa.Table:
    """``requests`` with the outcome according to the log of ``lake``, as rows of the table."""
    lake.connection.register("asked", requests)
    micros = f"to_microseconds({skew // timedelta(microseconds=1)})"
    log_time = f"make_timestamptz({micros_of(lake.published.end_time)})"
    sql = f"""
        WITH a AS (SELECT row_number() OVER () AS id, * FROM asked),
        {_stays(lake)},
        {_best_stay(micros, log_time)},
        {_makers(request_rows(lake) or f"({_EMPTY})")},
        {_answered(lake, micros, log_time)}
        SELECT *, CASE WHEN outcome = 'not in the log' OR (outcome = 'pending' AND topic IS NULL) THEN lacks END AS why,
               CASE WHEN outcome = 'recorded'
                    THEN greatest(date_diff('millisecond', first_requested_time, realised_time), 0) END AS latency_ms
        FROM answered
    """
    return _table(lake, sql).select(ASSIGNMENT_REQUESTS.schema.names).cast(ASSIGNMENT_REQUESTS.schema)


def _stays(lake: Lake) -> str:
    """``slots``: the rows of ``assignments`` of the requested replicas. ``stays``: each stay in a directory."""
    return f"""
        slots AS (
            SELECT {_WANTED}, from_offset, from_time, to_offset, to_time, from_snapshot,
                   lag(directory_id) OVER replica IS DISTINCT FROM directory_id
                   OR lag(to_offset) OVER replica IS DISTINCT FROM from_offset AS begins
            FROM {lake.until("assignments")} SEMI JOIN (SELECT * FROM a WHERE error = 0) USING ({_REPLICA})
            WINDOW replica AS (PARTITION BY {_REPLICA} ORDER BY from_offset)
        ),
        numbered AS (
            SELECT *, count(*) FILTER (begins) OVER (PARTITION BY {_REPLICA} ORDER BY from_offset) AS stay FROM slots
        ),
        stays AS (
            SELECT {_WANTED}, min(from_offset) AS from_offset, min(from_time) AS from_time,
                   arg_min(from_snapshot, from_offset) AS from_snapshot,
                   CASE WHEN count(*) = count(to_time) THEN max(to_time) END AS to_time
            FROM numbered GROUP BY {_WANTED}, stay
        )"""


def _best_stay(micros: str, log_time: str) -> str:
    """``found``: the stay that best fits an accepted assignment. ``micros``: the skew of the clocks."""
    return f"""
        found AS (
            SELECT id, s.from_offset, s.from_time,
                   NOT s.from_snapshot AND s.from_time >= requested_time - {micros} AS made,
                   greatest(s.from_time - answered_time, requested_time - s.from_time, to_microseconds(0)) AS distance,
                   s.from_time < requested_time AND (s.to_time IS NULL OR s.to_time >= answered_time) AS covers
            FROM a JOIN stays s USING ({_WANTED})
            WHERE error = 0 AND s.from_time <= answered_time + {micros}
              -- If the log ends before the answer, a stay that is open at its end may have ended since.
              AND (answered_time <= {log_time} OR s.from_time BETWEEN requested_time AND answered_time)
              AND (s.to_time IS NULL OR s.to_time >= requested_time - {micros})
            QUALIFY row_number() OVER (
                PARTITION BY id ORDER BY distance > to_microseconds(0), NOT covers, distance, s.from_offset
            ) = 1
        )"""


def _makers(known: str) -> str:
    """``makers``: the assignment that each record carried out. ``known``: the rows of the table before this join."""
    return f"""
        taken AS (
            SELECT {_REPLICA}, realised_offset AS from_offset FROM {known} SEMI JOIN a USING ({_REPLICA})
            WHERE outcome = 'recorded'
        ),
        makers AS (
            SELECT id FROM (SELECT * FROM found WHERE made) JOIN a USING (id)
            ANTI JOIN taken USING ({_REPLICA}, from_offset)
            QUALIFY row_number() OVER (
                PARTITION BY {_REPLICA}, from_offset ORDER BY distance > to_microseconds(0), {_ORDER}
            ) = 1
        )"""


def _answered(lake: Lake, micros: str, log_time: str) -> str:
    """``answered``: each assignment with its outcome, its record, and what the log lacks of it."""
    return f"""
        names AS (
            SELECT topic_id, max(topic) AS name FROM {lake.until("partitions")} SEMI JOIN a USING (topic_id)
            GROUP BY topic_id
        ),
        replicas AS (SELECT DISTINCT {_REPLICA}, true AS is_known FROM slots),
        start AS (SELECT min(append_time) AS time FROM {lake.records()}),
        answered AS (
            SELECT a.*, names.name AS topic, f.from_offset AS realised_offset, f.from_time AS realised_time,
                   CASE WHEN error <> 0 THEN 'refused' WHEN m.id IS NOT NULL THEN 'recorded'
                        WHEN f.id IS NOT NULL THEN 'already true'
                        WHEN answered_time + {micros} < {log_time} THEN 'not in the log' ELSE 'pending' END AS outcome,
                   CASE WHEN name IS NULL THEN 'the log has no topic of this id'
                        WHEN answered_time + {micros} < start.time THEN 'the log begins later'
                        WHEN is_known IS NULL THEN 'the log has no such replica'
                        ELSE 'no record says so' END AS lacks
            FROM start, a LEFT JOIN found f USING (id) LEFT JOIN makers m USING (id) LEFT JOIN names USING (topic_id)
            LEFT JOIN replicas USING ({_REPLICA})
        )"""


def _table(lake: Lake, sql: str) -> pa.Table:
    lake.connection.execute(
        f"SET memory_limit = '{MEMORY}'; SET temp_directory = '{tempfile.gettempdir()}'; SET TimeZone = 'UTC'"
    )
    return lake.connection.sql(sql).to_arrow_table()


MOST_PENDING = 1_000_000
"""The number of requests that may wait for the log. If there are more, the oldest are given up."""
GIVEN_UP = "too many waited for the log"


class RequestQuery:
    """The query of the request logs, beside that of the log. Outcomes are counted in the table, before and after."""

    def __init__(self, lake: LakeWriter, wanted: Requests, function: Callable[[], Callable[[DataFrame, int], None]]):
        """``function``: returns what foreachBatch calls, for a query that starts now."""
        self.outcomes: Counter[str] = Counter()
        """The number of requests of this run by outcome, with the reason for those that are not in the log."""
        self.strange = 0
        """The number of waiting requests whose topic is not in the log."""
        self._lake = lake
        self._wanted = wanted
        self._function = function
        self._query: StreamingQuery | None = None
        self._before: Counter[str] | None = None

    def run(self, spark: SparkSession, stopped: Event) -> None:
        """Reads the request logs to their end. Call it after the log's query has published: the join needs its rows."""
        if self._lake.ledger is None:
            return
        self._query = self._start(spark, None)
        while not self._query.awaitTermination(1) and not stopped.is_set():
            pass

    def follow(self, spark: SparkSession, seconds: float) -> None:
        """Keeps the query running beside the log's query, once that has published. Call it regularly."""
        if self._query is not None:
            problem = self._query.exception()
            if problem is not None:
                raise problem
        elif self._lake.ledger is not None:
            self._query = self._start(spark, seconds)

    def stop(self) -> None:
        """Ends the query after the current batch."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def count(self) -> None:
        """Counts the outcomes of this run. Call it after ``stop``, once nothing is being published."""
        if self._before is not None:
            after, self.strange = count_outcomes(self._lake.path)
            self.outcomes = Counter(after)
            self.outcomes.subtract(self._before)

    def _start(self, spark: SparkSession, follow_seconds: float | None) -> StreamingQuery:
        if self._before is None:
            self._before, _ = count_outcomes(self._lake.path)
        home = self._lake.home
        spark.dataSource.register(KafkaRequestLog)
        if not is_readable(home, OF_REQUESTS):
            discard_checkpoint(home, OF_REQUESTS)
        source = (
            spark.readStream.format("kafka_request_log")
            .option("paths", json.dumps(self._wanted.paths))
            .option("layout", PARTS)
            .option("timeZone", self._wanted.time_zone)
            .option("maxBytes", self._wanted.max_bytes)
            .option("partitions", 2 * cores_of(spark))
            .options(**position_options(planned(home, OF_REQUESTS), ends=follow_seconds is None))
        )
        writer = (
            source.load()
            .writeStream.foreachBatch(self._function())
            .option("checkpointLocation", f"{for_spark(home)}/{OF_REQUESTS}")
        )
        return start(spark, writer, follow_seconds)


def count_outcomes(path: LakeUri) -> tuple[Counter[str], int]:
    """The requests of a lake by outcome, and how many wait whose topic is not in the log."""
    outcomes: Counter[str] = Counter()
    strange = 0
    with _published(path) as lake:
        rows = request_rows(lake)
        counted = lake.query(f"SELECT outcome, why, count(*) FROM {rows} GROUP BY ALL") if rows else []
    for outcome, why, count in counted:
        if outcome == "pending":
            strange += count if why else 0
        outcomes[outcome if outcome == "pending" else ": ".join(filter(None, (outcome, why)))] += count
    return outcomes, strange


@contextmanager
def _published(path: LakeUri) -> Iterator[Lake]:
    """The lake's current state, as its readers see it."""
    lake = Lake.open(path)
    with lake.connection:
        yield lake


@dataclass
class RequestBatches:
    """Publishes requests and their outcomes, each time within ``writing``."""

    lake: LakeWriter
    wanted: Requests
    writing: Callable[[], AbstractContextManager[None]]

    def publish(self, frame: DataFrame) -> None:
        """Publishes a micro-batch of the layout ``parts``."""
        parts: dict[str, list[pa.Table]] = {"assignments": [], "rejects": []}
        for kind, payload in frame.select("kind", "payload").collect():
            parts[kind].append(pa.ipc.open_stream(payload).read_all())
        requests = pa.concat_tables([ASSIGNMENTS_SCHEMA.empty_table(), *parts["assignments"]])
        self.add(requests, pa.concat_tables([REJECTS_SCHEMA.empty_table(), *parts["rejects"]]))

    def add(self, requests: pa.Table, rejects: pa.Table) -> None:
        """Publishes requested assignments, with their outcome so far, and unreadable lines."""
        with self.writing(), _published(self.lake.path) as published:
            self.lake.open_requests()
            new = unseen(published, requests)
            waiting = pending(published)
            if waiting is not None:
                new = pa.concat_tables([waiting, new])
            rejects = unread(published, rejects)
            if new.num_rows or rejects.num_rows:
                self._publish(joined(published, new, self.wanted.clock_skew), waiting, rejects)

    def join_waiting(self) -> None:
        """Looks again for the records of the waiting requests. Call it when new records of the log are published."""
        with self.writing(), _published(self.lake.path) as published:
            waiting = pending(published)
            if waiting is None:
                return
            self.lake.open_requests()
            rows = joined(published, waiting, self.wanted.clock_skew)
            if pc.any(pc.not_equal(rows["outcome"], "pending")).as_py():
                self._publish(rows, waiting, REJECTS_SCHEMA.empty_table())

    def _publish(self, rows: pa.Table, waiting: pa.Table | None, rejects: pa.Table) -> None:
        rows = _bounded(rows)
        is_open = pc.equal(rows["outcome"], "pending")
        written = [
            *self._write(ASSIGNMENT_REQUESTS.name, rows.filter(pc.invert(is_open))),
            *self._write(ASSIGNMENT_REQUESTS.name, rows.filter(is_open), OPEN_SHARD),
            *self._write(REQUEST_REJECTS.name, rejects.cast(REQUEST_REJECTS.schema)),
        ]
        replaced = frozenset() if waiting is None else frozenset({(ASSIGNMENT_REQUESTS.name, OPEN_SHARD)})
        self.lake.publish_requests(written, replaced)

    def _write(self, table: str, rows: pa.Table, shard: int = -1) -> Iterable[DataFile]:
        if rows.num_rows:
            yield files.write(self.lake.path, table, rows, shard=shard)


def _bounded(rows: pa.Table) -> pa.Table:
    """Keeps at most `MOST_PENDING` rows open."""
    waiting = pc.equal(rows["outcome"], "pending")
    excess = pc.sum(waiting).as_py() or 0
    excess -= MOST_PENDING
    if excess <= 0:
        return rows
    rows = rows.take(pc.sort_indices(rows, [("answered_time", "ascending")]))
    waiting = pc.equal(rows["outcome"], "pending")
    number = pc.cumulative_sum(waiting.cast(pa.int64()))
    late = pc.and_(waiting, pc.less_equal(number, excess))
    columns: dict[str, Any] = {"outcome": "not in the log", "why": GIVEN_UP}
    for name, value in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pc.if_else(late, pa.scalar(value), rows[name]))
    return rows
