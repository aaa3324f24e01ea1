"""The main job: replay a metadata log into a lake, once or following it.

``Runner`` decides what to do next and what to retry. Each part has one task: ``RunLog`` says where and how far the log
is read, ``rollback.reconcile`` makes the lake agree with the log, ``spark_query`` is what Spark runs, ``Publications``
has what writes to the lake, ``errors`` finds the error behind Spark's report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from jbod_model.errors import JbodError, LogChanged, MalformedLog, ReplayViolation
from pipelines.fold.rules import EngineRules, rules
from pipelines.lake.changes import next_generation
from pipelines.lake.lock import only_run
from pipelines.lake.publish import LakeWriter
from pipelines.lake.uris import home_of
from pipelines.lake.written_lake import Identity, check_folder
from pipelines.run.errors import (
    PATIENCE,
    WAITS,
    Attempts,
    explained,
    is_sparks,
    waits_for_executors,
    without_checkpoint,
)
from pipelines.run.micro_batches import micro_batches
from pipelines.run.options import Progress, Replay, RunOutcome, shards_for
from pipelines.run.publisher import Publications
from pipelines.run.rollback import reconcile
from pipelines.run.seed import (
    CHECKPOINT,
    NEXT,
    OF_REQUESTS,
    checkpoint_fits,
    discard_checkpoint,
    is_seed,
    is_stamped,
    lake_has_checkpoint,
    seed_position,
    seed_state,
    stamp,
    take_seed,
    write_seed,
)
from pipelines.run.stage_options import Job
from pipelines.run.stages import clear_staged, decode_slice, fold_shard
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import LogOptions
from pipelines.source.plan import Planner, lines_of_end
from pipelines.source.positions import Position, Tail
from pipelines.spark.versions import check_protobuf, check_version
from pipelines.storage.objects import SCHEME, is_object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipelines.run.request_stream import RequestQuery


class Runner:
    """One run of the main job on a Spark session."""

    def __init__(
        self,
        wanted: Replay,
        *,
        progress: Progress | None = None,
        notice: Progress | None = None,
        first: Planner | None = None,
    ) -> None:
        """``first``: the planner by which ``nothing_new`` read the log."""
        self.wanted = wanted
        if wanted.requests is not None:
            wanted.requests.check()
        self.rules: EngineRules = rules(wanted.profile, wanted.ids)
        self._say = progress or (lambda _line: None)
        self._tell = notice or (lambda _line: None)
        self._log = RunLog(wanted, first)
        log, planner = self._log.log, self._log.first()
        begin = planner.begin(wanted.start)
        check_folder(wanted.lake)
        size = sum(segment.size for segment in planner.segments)
        if begin.offset < 0:  # with the newest snapshot
            size += planner.snapshots[-1].size
        self.lake = LakeWriter.create_or_open(
            wanted.lake,
            Identity(log.cluster_id(), wanted.profile, wanted.ids, wanted.shards or shards_for(size)),
            home_of(wanted.lake, wanted.checkpoints),
            keeps_changes=wanted.changes,
        )
        self._publications = Publications(self.lake, wanted.requests, self._say, self._notice)
        self.requests: RequestQuery | None = None
        """The query over request logs, if the run has one."""
        if wanted.requests is not None:
            from pipelines.run.request_stream import RequestQuery

            function = partial(self._publications.function, of_requests=True)
            self.requests = RequestQuery(self.lake, wanted.requests, function)
        self._attempts = Attempts(self._has_more)
        self._has_begun = False
        self._inherits = False
        """Whether the run resumes from a checkpoint that it found."""
        self._stop = threading.Event()

    @property
    def outcome(self) -> RunOutcome:
        """The outcome of the run so far."""
        return self._publications.outcome

    @property
    def has_followed(self) -> bool:
        """Whether the run followed the log and the lake has a publication."""
        return self._has_begun and self.wanted.follow_seconds is not None and self.lake.ledger is not None

    # -- before Spark is there --------------------------------------------------------------------------------------

    def up_to_date(self) -> bool:
        """Whether a run that does not follow has nothing to do. Reads the last segment, without Spark."""
        ledger = self.lake.ledger
        if ledger is None or self.wanted.follow_seconds is not None or not lake_has_checkpoint(self.lake.home):
            return False
        if self.requests is not None:
            return False
        is_current = self._log.first().ends_with(self.lake.end_offset, ledger["epoch"], ledger["fingerprint"])
        if is_current:
            self.tell_end()
        return is_current

    # -- the run ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends a run that follows, after the current batch."""
        self._stop.set()

    def run(self, spark: SparkSession) -> RunOutcome:
        """Replays to the end, or until stopped. Raises the error of the log or the lake.

        If the log was rewritten, the run first rolls the lake back (``rollback.reconcile``).
        """
        check_version(spark.version)
        check_protobuf()
        with only_run(self.wanted.lake) as run:
            self._publications.begin(run)
            with self.lake.writing(anew=False):
                pass  # takes what an upkeep changed while Spark started
            return self._attempt(lambda: self._run(spark))

    def load(self, threads: int | None = None) -> RunOutcome:
        """As ``run``, without Spark: for a large log and a lake that was only loaded so far.

        ``run`` may continue. If it did, the states are rebuilt from the records: a load cannot read those of Spark.
        """
        with only_run(self.wanted.lake) as run:
            self._publications.begin(run)
            if not is_seed(self.lake.home):
                discard_checkpoint(self.lake.home)
            return self._attempt(lambda: self._load(threads))

    def _attempt(self, replay: Callable[[], None]) -> RunOutcome:
        ended_well = False
        try:
            outcome = self._replay(replay)
            ended_well = not self._stop.is_set()
            return outcome
        finally:
            clear_staged(self.wanted.lake)
            if not ended_well:
                self.lake.discard(CHECKPOINT, NEXT)

    def tell_end(self) -> None:
        """Reports what waits at the end of a log that was read to its end."""
        if self.wanted.follow_seconds is None:
            self.outcome.tail, lines = self._log.tail(self.lake.end_offset)
            for line in lines:
                self._notice(line)

    def _replay(self, replay: Callable[[], None]) -> RunOutcome:
        while True:
            clear_staged(self.wanted.lake)
            began = self.outcome.batches
            try:
                self._say("planning")
                self._reconcile()
                if not self._stop.is_set():
                    replay()
                break
            except (MalformedLog, ReplayViolation) as problem:
                if isinstance(problem, LogChanged) and self._stop.is_set():
                    raise
                self._attempts.failed(problem, self.outcome.batches)
                # A batch that was planned and not executed may be gone from the log, or beyond the limit.
                discard_checkpoint(self.lake.home)
            except Exception as problem:
                if self.outcome.batches > began or not self._inherits or not is_sparks(problem):
                    raise without_checkpoint(f"{self.lake.home}/{CHECKPOINT}", problem) from None
                # The checkpoint is unusable. The records hold everything that it held.
                discard_checkpoint(self.lake.home)
                self._notice(
                    f"{self.lake.home}/{CHECKPOINT}: Spark cannot resume from it: it is rebuilt from the records"
                )
            with self.lake.writing():
                pass  # undoes what the attempt left in the tables and not in the ledger
        if self._attempts.refusal is not None and not self._stop.is_set():
            raise self._attempts.refusal
        if not self._stop.is_set():
            self.tell_end()
        return self.outcome

    def _reconcile(self) -> None:
        lake = self.lake
        known = is_stamped(lake)
        if not known:
            # Another machine may have published requests that this one has not read.
            discard_checkpoint(lake.home, OF_REQUESTS)
        fits = known and lake_has_checkpoint(lake.home) and checkpoint_fits(lake.home, lake.end_offset)
        planner = Planner(self._log.log)
        replace = self.wanted.replace_history
        done = reconcile(self.lake, self._job(), planner, has_checkpoint=fits, replace=replace)
        self._inherits = fits and done is None
        stamp(lake)
        lake.appended = lambda: stamp(lake)
        outcome = self.outcome
        if done is not None:
            outcome.rolled_back.append(done)
            outcome.start_offset = min(outcome.start_offset, done.offset)
            outcome.end_offset = done.offset
            self._notice(str(done))
        outcome.log_end = (self.lake.ledger or {}).get("log_end")
        if outcome.log_end is not None:
            self._notice(
                f"{self.wanted.log_dir}: ends before offset {outcome.log_end}, but the lake has offsets up to "
                f"{self.lake.end_offset - 1}, which this log lacks; the lake keeps them until the log contradicts them"
            )

    def _has_more(self, limit: int) -> bool:
        """Whether any record below ``limit`` is not published."""
        return self._log.has_more(None if self.lake.ledger is None else self.lake.end_offset, limit)

    def _run(self, spark: SparkSession) -> None:
        from pipelines.run.spark_query import start_query  # PySpark takes a while, and a load needs none of it

        try:
            job = self._job(seeded=seed_position(self.lake.home) is not None)
            # A run that ends with an error does not follow the log.
            seconds = self.wanted.follow_seconds if self._attempts.refusal is None else None
            options = self._log.options(self._attempts.limit)
            query = start_query(spark, job, options, self._publications.function(), seconds)
            self._has_begun = True
            self._wait(spark, query, goes_on=seconds is not None)
        except Exception as problem:
            raise explained(self.wanted.lake, problem) from None
        finally:
            self._publications.end()

    def _wait(self, spark: SparkSession, query: StreamingQuery, *, goes_on: bool) -> None:
        """Waits for the end of the query, or for ``stop``. Raises errors as Spark reports them."""
        from pipelines.spark.session import is_connect

        requests, follow_seconds = self.requests, self.wanted.follow_seconds
        waited = 0
        try:
            while not query.awaitTermination(1):
                self._publications.look()
                waited += 1
                if not is_connect(spark):
                    self._say_stage(spark, goes_on=goes_on)
                    if waited == PATIENCE and waits_for_executors(spark):
                        self._notice(WAITS)
                if requests is not None and follow_seconds is not None:
                    requests.follow(spark, follow_seconds)
                if self._stop.is_set():
                    query.stop()
            self._publications.look(last=True)
            if requests is not None and follow_seconds is None:
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

    def _say_stage(self, spark: SparkSession, *, goes_on: bool) -> None:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = [f"{stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in stages if stage is not None]
        batches = self.outcome.batches
        if done:
            self._say(f"reading batch {batches + 1}: {', '.join(done)}")
        elif goes_on and batches:
            self._say("")

    def _load(self, threads: int | None) -> None:
        """Publishes one micro-batch after the other, from the log's beginning or the seed of the lake's checkpoint to
        the log's present end, or until ``stop``.

        If the process dies between publication and seed, the next run rebuilds the states from the records.
        """
        job = self._job()  # before the function takes the open tables
        publish = self._publications.function().publish_reports
        decode, fold = partial(decode_slice, job), partial(fold_shard, job)
        try:
            options = LogOptions.read(self._log.options(self._attempts.limit))
            planner = Planner.of(options)
            planner.freeze()
            begin = seed_position(job.home) or planner.begin(options.start)
            plan = planner.micro_batches(begin, options.max_records or None)
            seeds = ((shard, seed_state(job.home, shard)) for shard in range(job.shards + 1))
            states = {shard: state for shard, state in seeds if state is not None}
            going_on = takewhile(lambda _: not self._stop.is_set(), plan)
            for batch in micro_batches(going_on, decode, fold, states, threads=threads, say=self._say):
                rows = [*batch.reports, *(row for _, reports in batch.shards for row in reports)]
                write_seed(job.home, states, batch.end)
                try:
                    publish([payload for *_, payload in rows])
                finally:
                    self._publications.look(last=True)
                take_seed(job.home)
        except Exception as problem:
            raise explained(self.wanted.lake, problem) from None

    def _job(self, *, seeded: bool = False) -> Job:
        rules, home = self.rules, self.lake.home
        return Job(self.wanted.lake, self.lake.identity.shards, rules, seeded, next_generation(self.lake), home)

    def _notice(self, line: str) -> None:
        self.outcome.notices.append(line)
        self._tell(line)


class RunLog:
    """Says where and how far the log is read. It publishes nothing."""

    def __init__(self, wanted: Replay, first: Planner | None = None) -> None:
        """``first``: a planner that has read the log just now, for the first question. Each one lists the log."""
        self._wanted = wanted
        self._first = first
        self.log = LogDir(wanted.log_dir) if first is None else first.log

    def planner(self) -> Planner:
        """Returns a new planner of the log."""
        return Planner(self.log, tail=self._wanted.tail, settle=self._wanted.settle)

    def first(self) -> Planner:
        """Returns the planner that has read the log just now, or a new one."""
        return self._first or self.planner()

    def options(self, limit: int | None) -> dict[str, str]:
        """Returns the options of the data source. It reads nothing from ``limit`` on."""
        # On S3, a listing would find the folder of the log again.
        path = f"{SCHEME}{self.log.root}" if is_object(self._wanted.log_dir) else self._wanted.log_dir
        return {
            "path": path,
            "layout": "slices",
            "start": self._wanted.start,
            "maxRecords": str(self._wanted.max_records),
            "tail": self._wanted.tail,
            "settle": str(self._wanted.settle),
            "waitSeconds": str(self._wanted.wait_seconds),
            "limit": str(-1 if limit is None else limit),
        }

    def has_more(self, end: int | None, limit: int) -> bool:
        """Whether any record between ``end`` (None: nothing is read yet) and ``limit`` may be read."""
        planner = Planner.of(LogOptions.read(self.options(limit)))
        with suppress(JbodError):
            begin = planner.begin(self._wanted.start)
            here = begin if end is None else Position(end)
            return planner.advance(here) != here
        return False

    def tail(self, end: int) -> tuple[Tail | None, list[str]]:
        """The incomplete batch at the end of a log that was read up to ``end``, and a line for what waits there."""
        planner = Planner(self.log)
        planner.refresh(Position(end, base=end - 1))
        return lines_of_end(planner)
