"""The request stream of the main job: a second query, over request logs, that fills ``assignment_requests``.

Its state is the table itself. A row identifies itself (the connection, the request's number on it, the time of the
answer, the entry), so a batch that is published twice, after a crash or a lost checkpoint, adds nothing. One file
holds the rows that wait for the log, and every batch replaces it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.ask.assignment_requests import request_rows
from pipelines.formats.request_rows import ASSIGNMENTS_SCHEMA, REJECTS_SCHEMA
from pipelines.lake import files
from pipelines.lake.files import DataFile
from pipelines.lake.publish import LakeWriter
from pipelines.lake.reader import Lake
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, REQUEST_REJECTS
from pipelines.lake.uris import for_spark
from pipelines.run.options import Requests
from pipelines.run.requests_join import OPEN_SHARD, joined, pending, unread, unseen
from pipelines.run.seed import OF_REQUESTS, discard_checkpoint, is_readable
from pipelines.source.kafka_request_log import KafkaRequestLog
from pipelines.source.request_options import PARTS
from pipelines.spark.connect import cores_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MOST_PENDING = 1_000_000
"""The number of requests that may wait for the log. If there are more, the oldest are given up."""
GIVEN_UP = "too many waited for the log"
Lock = AbstractContextManager[Any]
"""A reentrant lock: of the threads of a process, or of processes."""


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
            after, self.strange = count_outcomes(self._lake.location)
            self.outcomes = Counter(after)
            self.outcomes.subtract(self._before)

    def _start(self, spark: SparkSession, follow_seconds: float | None) -> StreamingQuery:
        if self._before is None:
            self._before, _ = count_outcomes(self._lake.location)
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
        )
        writer = (
            source.load()
            .writeStream.foreachBatch(self._function())
            .option("checkpointLocation", f"{for_spark(home)}/{OF_REQUESTS}")
        )
        if follow_seconds is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{follow_seconds} seconds").start()


def count_outcomes(location: str) -> tuple[Counter[str], int]:
    """The requests of a lake by outcome, and how many wait whose topic is not in the log."""
    found: Counter[str] = Counter()
    strange = 0
    with _published(location) as lake:
        rows = request_rows(lake)
        counted = lake.query(f"SELECT outcome, why, count(*) FROM {rows} GROUP BY ALL") if rows else []
    for outcome, why, count in counted:
        if outcome == "pending":
            strange += count if why else 0
        found[outcome if outcome == "pending" else ": ".join(filter(None, (outcome, why)))] += count
    return found, strange


@contextmanager
def _published(location: str) -> Iterator[Lake]:
    """The lake's current state, as its readers see it."""
    lake = Lake.open(location)
    with lake.connection:
        yield lake


@dataclass
class RequestBatches:
    """Publishes requests and their outcomes. It holds ``lock`` while it writes to the lake."""

    lake: LakeWriter
    wanted: Requests
    lock: Lock

    def publish(self, frame: DataFrame) -> None:
        """Publishes a micro-batch of the layout ``parts``."""
        parts: dict[str, list[pa.Table]] = {"assignments": [], "rejects": []}
        for kind, payload in frame.select("kind", "payload").collect():
            parts[kind].append(pa.ipc.open_stream(payload).read_all())
        requests = pa.concat_tables([ASSIGNMENTS_SCHEMA.empty_table(), *parts["assignments"]])
        self.add(requests, pa.concat_tables([REJECTS_SCHEMA.empty_table(), *parts["rejects"]]))

    def add(self, requests: pa.Table, rejects: pa.Table) -> None:
        """Publishes requested assignments, with their outcome so far, and unreadable lines."""
        with self.lock, _published(self.lake.location) as published:
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
        with self.lock, _published(self.lake.location) as published:
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
            yield files.write(self.lake.location, table, rows, shard=shard)


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
    for name, said in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pc.if_else(late, pa.scalar(said), rows[name]))
    return rows
