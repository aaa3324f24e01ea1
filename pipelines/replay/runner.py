"""The main job: replay a metadata log into a lake, once or following it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from jbod_model.errors import JbodError, LogChanged, MalformedLog, ReplayViolation, UsageError
from pipelines.lake.create import Identity
from pipelines.lake.folder import check_folder
from pipelines.lake.lock import only_run
from pipelines.lake.publish import Lake
from pipelines.lake.uris import for_spark
from pipelines.replay.cluster import PATIENCE, WAITS, waits_for_executors
from pipelines.replay.job import Job
from pipelines.replay.notices import Standing, end_of_log
from pipelines.replay.options import Outcome, Replay, shards_for
from pipelines.replay.refusals import explained, is_sparks, refused_at
from pipelines.replay.rollback import settle
from pipelines.replay.rules import Rules, rules
from pipelines.replay.seed import (
    CHECKPOINT,
    checkpoint_fits,
    discard_checkpoint,
    lake_has_checkpoint,
    mark_keys,
    seed_position,
)
from pipelines.replay.staged import clear_staged
from pipelines.source.copies import Copies, Settled
from pipelines.source.first_batch import plan_ahead
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import Options
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from pipelines.source.readers import planner_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipelines.replay.request_stream import RequestStream

ATTEMPTS = 3
"""How often a log that changes under the reader is looked at anew without a batch in between."""
STUCK = 10.0
"""Seconds without progress after which a run that follows says which copy is ahead."""


Progress = Callable[[str], None]
"""Takes a line that says how far a run is; the next one replaces it."""


class Runner:
    """One run of the main job on a Spark session."""

    def __init__(self, wanted: Replay, *, progress: Progress | None = None, notice: Progress | None = None) -> None:
        self.wanted = wanted
        if wanted.requests is not None:
            wanted.requests.check()
        self.rules: Rules = rules(wanted.profile, wanted.ids)
        every = (wanted.log_dir, *wanted.copies)
        self.copies = Copies(every, cut_tail=wanted.cut_tail, settle=wanted.settle) if wanted.copies else None
        self.log = self.copies.log if self.copies else LogDir(wanted.log_dir)
        Planner(self.log).begin(wanted.start)
        check_folder(wanted.lake)
        segments, _ = self.log.files()
        size = sum(segment.size for segment in segments)
        self.lake = Lake.create_or_open(
            wanted.lake,
            Identity(self.log.cluster_id(), wanted.profile, wanted.ids, wanted.shards or shards_for(size)),
        )
        self.outcome = Outcome(self.lake.end_offset, self.lake.end_offset)
        self._say = progress or (lambda _line: None)
        self._tell = notice or (lambda _line: None)
        self._problem: JbodError | None = None
        self._standing = Standing()
        self._limit: int | None = None
        self._refusal: JbodError | None = None
        """What the run is refused for once all before ``_limit`` is published."""
        self._has_begun = False
        self._inherits = False
        """Whether the run goes on from a checkpoint that it found."""
        self._ahead = ""
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self.requests: RequestStream | None = None
        if wanted.requests is not None:
            from pipelines.replay.request_stream import RequestStream

            self.requests = RequestStream(self.lake, wanted.requests, self._lock, self._count)

    def up_to_date(self) -> bool:
        """Whether a run that does not follow has nothing to do: told from the last segment, without Spark."""
        ledger = self.lake.ledger
        if ledger is None or self.wanted.follow_seconds is not None or not lake_has_checkpoint(self.wanted.lake):
            return False
        if self.requests is not None:
            return False
        here = Position(offset=self.lake.end_offset)
        planner: Planner | None = Planner(self.log, cut_tail=self.wanted.cut_tail, settle=self.wanted.settle)
        if self.copies is not None:
            settled = self.copies.settled(Position(here.offset, base=here.offset - 1))
            planner = settled.chosen
            self._tell_copies(settled)
        if planner is None:
            return False
        planner.limit = None if self.copies is None else settled.end
        if planner.advance(here) != here:
            return False
        last = planner.position(here.offset, -1)
        found = (last.epoch, last.crc) == (ledger["epoch"], ledger["fingerprint"])
        if found:
            self.tell_end()
        return found

    def plan_ahead(self) -> None:
        """Plan the first batch of a new lake while Spark starts; a log that changes meanwhile is left to the run.

        Raises what a log is refused for of which nothing can be read.
        """
        wanted = self.wanted
        if self.lake.ledger is None and self.copies is None and not lake_has_checkpoint(wanted.lake):
            planner = Planner(self.log, cut_tail=wanted.cut_tail, settle=wanted.settle)
            with suppress(LogChanged):
                self._ahead = plan_ahead(planner, wanted.start, wanted.max_records or None)

    @property
    def has_followed(self) -> bool:
        """Whether the run followed the log, with something in the lake."""
        return self._has_begun and self.wanted.follow_seconds is not None and self.lake.ledger is not None

    def stop(self) -> None:
        """End a run that follows, after the batch at hand."""
        self._stop.set()

    def run(self, spark: SparkSession) -> Outcome:
        """Replay to the end, or until stopped. Raises what the log or the lake is refused for.

        Where the log turns out to be another one than what was read of it, the lake is settled with it first.
        """
        with only_run(self.wanted.lake):
            clear_staged(self.wanted.lake)
            try:
                return self._replay(spark)
            except BaseException:
                self.lake.discard(CHECKPOINT)
                raise
            finally:
                if self._stop.is_set():
                    self.lake.discard(CHECKPOINT)

    def _job(self, *, seeded: bool = False) -> Job:
        return Job(self.wanted.lake, self.lake.identity.shards, self.rules, self.wanted.keep_unknown, seeded)

    def _replay(self, spark: SparkSession) -> Outcome:
        failures, published = 0, -1
        while True:
            began = self.outcome.batches
            try:
                self._say("planning")
                self._settle_history()
                if not self._stop.is_set():
                    self._run(spark)
                break
            except LogChanged:
                failures = failures + 1 if self.outcome.batches == published else 1
                published = self.outcome.batches
                if failures > ATTEMPTS or self._stop.is_set():
                    raise
                # What was planned and not carried out may never be there again.
                discard_checkpoint(self.wanted.lake)
            except (MalformedLog, ReplayViolation) as problem:
                self._narrow(problem)
            except Exception as problem:
                if self.outcome.batches > began or not self._inherits or not is_sparks(problem):
                    raise
                # Nothing could be done with the checkpoint, and all it holds is in the records, too.
                discard_checkpoint(self.wanted.lake)
                self._notice(f"{self.wanted.lake}/{CHECKPOINT}: Spark cannot go on from it: it is made anew")
            self._problem = None
        if self._refusal is not None and not self._stop.is_set():
            raise self._refusal
        if not self._stop.is_set():
            self.tell_end()
        return self.outcome

    def _narrow(self, problem: MalformedLog | ReplayViolation) -> None:
        """Take what is sound before a refusal for all there is (R-READ-1); raise it where that is published."""
        offset = refused_at(problem)
        if offset is None or (self._limit is not None and offset >= self._limit) or not self._is_more_before(offset):
            raise problem
        self._limit, self._refusal = offset, problem
        discard_checkpoint(self.wanted.lake)

    def _is_more_before(self, offset: int) -> bool:
        planner = planner_of(Options.read(self._options()))
        planner.limit = offset
        with suppress(JbodError):
            begun = planner.begin(self.wanted.start)
            here = begun if self.lake.ledger is None else Position(self.lake.end_offset)
            return planner.advance(here) != here
        return False

    def _notice(self, line: str) -> None:
        self.outcome.notices.append(line)
        self._tell(line)

    def tell_end(self) -> None:
        """Say of a log that was read to its end what of it waits."""
        if self.wanted.follow_seconds is None:
            self.outcome.tail, lines = end_of_log(self.log, self.lake.end_offset)
            for line in lines:
                self._notice(line)

    def _settle_history(self) -> None:
        job = self._job()
        fits = lake_has_checkpoint(self.wanted.lake) and checkpoint_fits(self.wanted.lake, self.lake.end_offset)
        replace = self.wanted.replace_history
        done = settle(self.lake, job, Planner(self._settled_log()), has_checkpoint=fits, replace=replace)
        self._inherits = fits and done is None
        if done is not None:
            self.outcome.rolled_back.append(done)
            self.outcome.start_offset = min(self.outcome.start_offset, done.offset)
            self.outcome.end_offset = done.offset
            self._notice(str(done))
        self.outcome.log_end = (self.lake.ledger or {}).get("log_end")
        if self.outcome.log_end is not None:
            self._notice(
                f"{self.wanted.log_dir}: ends before offset {self.outcome.log_end}, the lake has more: offsets up to "
                f"{self.lake.end_offset - 1}, which this copy has no more or not yet; they stay until it disproves them"
            )

    def _settled_log(self) -> LogDir:
        """The log to compare with: of several copies one that has what they settle, once there is such a thing."""
        if self.copies is None:
            return self.log
        end = self.lake.end_offset
        while True:
            settled = self.copies.settled(Position(end, base=end - 1))
            if settled.chosen is None:  # less than what the lake has
                settled = self.copies.afresh().settled(Position(0))
            self._tell_copies(settled)
            if settled.chosen is not None:
                return settled.chosen.log
            if self.wanted.follow_seconds is None or self._stop.wait(self.wanted.follow_seconds):
                raise UsageError(
                    f"{self.wanted.log_dir}: the copies share no batch, and no majority holds one: name the "
                    "directories of one quorum's controllers"
                )

    def _tell_copies(self, settled: Settled) -> None:
        if self.copies is not None:
            for line in self._standing.news(self.copies, settled, patience=STUCK if self._follows else 0.0):
                self._notice(line)

    @property
    def _follows(self) -> bool:
        """Whether the run goes on at the end of the log."""
        return self.wanted.follow_seconds is not None and self._refusal is None

    def _run(self, spark: SparkSession) -> None:
        try:
            query = self._start(spark)
        except Exception as problem:
            raise self._problem or explained(self.wanted.lake, problem) from None
        self._has_begun = True
        waited = 0
        try:
            while not query.awaitTermination(1):
                self._say_stage(spark)
                waited += 1
                if waited == PATIENCE and waits_for_executors(spark):
                    self._notice(WAITS)
                if self.copies is not None and self.wanted.follow_seconds is not None:
                    here = Position(self.lake.end_offset, base=self.lake.end_offset - 1)
                    self._tell_copies(self.copies.settled(here))
                if self.requests is not None and self.wanted.follow_seconds is not None:
                    self.requests.follow(spark, self.wanted.follow_seconds)
                if self._stop.is_set():
                    query.stop()
            if self.requests is not None and self.wanted.follow_seconds is None:
                self._say("reading requests")
                self.requests.run(spark, self._stop)
        except Exception as problem:
            query.stop()
            raise self._problem or explained(self.wanted.lake, problem) from None
        finally:
            # Also after Ctrl-C: the batch at hand is published or not, never half.
            query.stop()
            if self.requests is not None:
                self.requests.stop()
            clear_staged(self.wanted.lake)

    def _say_stage(self, spark: SparkSession) -> None:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = [f"{stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in stages if stage is not None]
        if done:
            self._say(f"reading batch {self.outcome.batches + 1}: {', '.join(done)}")
        elif self._follows and self.outcome.batches:
            self._say("")

    def _start(self, spark: SparkSession) -> StreamingQuery:
        from pipelines.replay.machine import state_machine
        from pipelines.source.kraft_metadata import register
        from pipelines.start.session import wake_workers

        register(spark)
        seed = seed_position(self.wanted.lake)
        job = self._job(seeded=seed is not None)
        source = (
            spark.readStream.format("kraft_metadata")
            .options(**self._options())
            .option("ahead", "" if self._limit is not None else self._ahead)
            .option("from", json.dumps(asdict(seed)) if seed else "")
            .option("partitions", 2 * spark.sparkContext.defaultParallelism)
        )
        self._ahead = ""  # holds for one try
        slices = source.load()
        wake_workers(spark)
        mark_keys(self.wanted.lake)
        writer = (
            state_machine(slices, job)
            .writeStream.foreachBatch(self._publish)
            .option("checkpointLocation", f"{for_spark(self.wanted.lake)}/{CHECKPOINT}")
            .outputMode("append")
        )
        if not self._follows:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.wanted.follow_seconds} seconds").start()

    def _options(self) -> dict[str, str]:
        """The source's options of this run."""
        return {
            "path": self.wanted.log_dir,
            "layout": "slices",
            "start": self.wanted.start,
            "maxRecords": str(self.wanted.max_records),
            "cutTail": self.wanted.cut_tail,
            "settle": str(self.wanted.settle),
            "copies": json.dumps(self.wanted.copies),
            "limit": str(-1 if self._limit is None else self._limit),
        }

    def _publish(self, frame: DataFrame, _batch_id: int) -> None:
        from pipelines.replay.collect import batch_of

        try:
            known = self.lake.ledger["metadata_version"] if self.lake.ledger else -1
            batch = batch_of(self.wanted.lake, frame.select("kind", "payload").collect(), known)
            if batch is None:
                return
            before = self.lake.end_offset
            with self._lock:
                rows = self.lake.publish(batch)
                if self.requests is not None:
                    self.requests.settle()
            clear_staged(self.wanted.lake)
        except JbodError as problem:
            self._problem = problem
            raise
        if batch.from_snapshot is not None:
            self.outcome.snapshots.append((before, batch.from_snapshot))
            if not self.outcome.batches:
                self.outcome.start_offset = batch.from_snapshot
        self.outcome.end_offset = self.lake.end_offset
        self.outcome.batches += 1
        self._count(rows)
        self._say(f"published up to offset {batch.end_offset - 1}, batch {self.outcome.batches}")

    def _count(self, rows: dict[str, int]) -> None:
        for name, count in rows.items():
            self.outcome.rows[name] = self.outcome.rows.get(name, 0) + count
