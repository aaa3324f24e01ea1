"""Drives the Spark queries of a run: the query of the log and, with or after it, that of the request logs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from pipelines.lake.uris import for_spark
from pipelines.replay.cluster import PATIENCE, WAITS, waits_for_executors
from pipelines.replay.job import Job
from pipelines.replay.publisher import Publications
from pipelines.replay.seed import CHECKPOINT, mark_keys, seed_position
from pipelines.spark.connect import cores_of, is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipelines.replay.request_stream import RequestQuery

Progress = Callable[[str], None]
"""A function that shows a line of progress. The next line replaces it."""


class Query:
    """One query from its start to its end. It makes no decision: it raises errors as Spark reports them."""

    def __init__(
        self,
        publications: Publications,
        requests: RequestQuery | None,
        stop: threading.Event,
        *,
        follow_seconds: float | None,
        say: Progress,
        notice: Progress,
    ) -> None:
        self._publications = publications
        self._requests = requests
        self._stop = stop
        self._say = say
        self._notice = notice
        self._follow_seconds = follow_seconds
        self._query: StreamingQuery | None = None
        self._goes_on = False

    def start(self, spark: SparkSession, job: Job, options: Mapping[str, str], *, follows: bool) -> None:
        """Starts the query of the log."""
        from pipelines.replay.machine import state_machine
        from pipelines.source.kraft_metadata import register
        from pipelines.start.session import wake_workers

        register(spark)
        home = self._publications.lake.home
        seed = seed_position(home)
        source = (
            spark.readStream.format("kraft_metadata")
            .options(**options)
            .option("from", json.dumps(asdict(seed)) if seed else "")
            .option("partitions", 2 * cores_of(spark))
        )
        slices = source.load()
        if not is_connect(spark):
            wake_workers(spark)
        mark_keys(home)
        writer = (
            state_machine(slices, job)
            .writeStream.foreachBatch(self._publications.function())
            .option("checkpointLocation", f"{for_spark(home)}/{CHECKPOINT}")
            .outputMode("append")
        )
        if follows:
            self._query = writer.trigger(processingTime=f"{self._follow_seconds} seconds").start()
        else:
            self._query = writer.trigger(availableNow=True).start()
        self._goes_on = follows

    def wait(self, spark: SparkSession) -> None:
        """Waits for the end of the query, or for ``stop``."""
        query, requests = self._query, self._requests
        assert query is not None
        waited = 0
        try:
            while not query.awaitTermination(1):
                self._publications.look()
                waited += 1
                if not is_connect(spark):
                    self._say_stage(spark)
                    if waited == PATIENCE and waits_for_executors(spark):
                        self._notice(WAITS)
                if requests is not None and self._follow_seconds is not None:
                    requests.follow(spark, self._follow_seconds)
                if self._stop.is_set():
                    query.stop()
            self._publications.look(last=True)
            if requests is not None and self._follow_seconds is None:
                self._say("reading requests")
                requests.run(spark, self._stop)
        finally:
            # Also after Ctrl-C: the current batch is published completely or not at all.
            query.stop()
            if requests is not None:
                requests.stop()
            self._publications.look(last=True)
            if requests is not None:
                requests.count()

    def _say_stage(self, spark: SparkSession) -> None:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = [f"{stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in stages if stage is not None]
        batches = self._publications.outcome.batches
        if done:
            self._say(f"reading batch {batches + 1}: {', '.join(done)}")
        elif self._goes_on and batches:
            self._say("")
