"""The main job: replay a metadata log into a lake, once or following it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from jbod_model.errors import JbodError, LogChanged, MalformedLog, ReplayViolation, UsageError
from pipelines.lake.alone import only_run
from pipelines.lake.create import Identity
from pipelines.lake.faults import fault_of_disk
from pipelines.lake.files import lake_filesystem
from pipelines.lake.place import for_spark
from pipelines.lake.publish import Lake
from pipelines.replay.cluster import PATIENCE, WAITS, fault_of_cluster, waits_for_executors
from pipelines.replay.job import Job
from pipelines.replay.pack import CorruptState
from pipelines.replay.rollback import RolledBack, settle
from pipelines.replay.rules import Rules, rules
from pipelines.replay.seed import CHECKPOINT, checkpoint_fits, discard_checkpoint, mark_keys, seed_position
from pipelines.replay.staged import clear_staged
from pipelines.source.ahead import plan_ahead
from pipelines.source.copies import Copies
from pipelines.source.log_dir import LogDir
from pipelines.source.pieces import Position
from pipelines.source.plan import Planner
from pipelines.source.settle import Settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipelines.replay.requests import Requests, RequestStream

# A shard for every so many bytes of log, a power of two: few files for a small lake, bounded memory for a large one.
BYTES_PER_SHARD = 48 << 20
MOST_SHARDS = 64
ATTEMPTS = 3
"""How often a log that changes under the reader is looked at anew without a batch in between."""
_ERROR = re.compile(r"jbod_model\.errors\.(\w+): ([^\n]*)")


@dataclass(frozen=True)
class Replay:
    """What to replay, into what, and how. Offsets and counts are of records."""

    log_dir: str
    lake: str
    profile: str = "kafka"
    ids: str = "kafka"
    start: str = "auto"
    cut_tail: str = "wait"
    keep_unknown: bool = False
    max_records: int = 10_000_000
    follow_seconds: float | None = None
    shards: int | None = None
    requests: Requests | None = None
    settle: Settle = field(default_factory=Settle)
    copies: tuple[str, ...] = ()
    """More directories of the same log: what a majority of them all holds counts."""


@dataclass
class Outcome:
    """What a run did: offsets ``[start, end)`` and rows written per table."""

    start_offset: int
    end_offset: int
    batches: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    rolled_back: list[RolledBack] = field(default_factory=list)
    log_end: int | None = None
    """Where the log ended when the run began, if that was before the lake's end."""


Progress = Callable[[str], None]
"""Takes a line that says how far a run is; the next one replaces it."""


def shards_for(size: int) -> int:
    """How many shards a new lake gets for a log of ``size`` bytes."""
    shards = 2
    while shards < MOST_SHARDS and shards * BYTES_PER_SHARD < size:
        shards *= 2
    return shards


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
        segments, _ = self.log.files()
        size = sum(segment.size for segment in segments)
        self.lake = Lake.create_or_open(
            wanted.lake,
            Identity(self.log.cluster_id(), wanted.profile, wanted.ids, wanted.shards or shards_for(size)),
        )
        self.outcome = Outcome(self.lake.end_offset, self.lake.end_offset)
        self._say = progress or (lambda _line: None)
        self._notice = notice or (lambda _line: None)
        self._problem: JbodError | None = None
        self._told: set[str] = set()
        self._inherits = False
        """Whether the run goes on from a checkpoint that it found."""
        self._ahead = ""
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self.requests: RequestStream | None = None
        if wanted.requests is not None:
            from pipelines.replay.requests import RequestStream

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
            planner, _ = self.copies.settled(Position(here.offset, base=here.offset - 1))
        if planner is None:
            return False
        if planner.advance(here) != here:
            return False
        last = planner.position(here.offset, -1)
        return (last.epoch, last.crc) == (ledger["epoch"], ledger["fingerprint"])

    def plan_ahead(self) -> None:
        """Plan the first batch of a new lake while Spark starts; what cannot be planned is left to the run."""
        wanted = self.wanted
        if self.lake.ledger is None and self.copies is None and not lake_has_checkpoint(wanted.lake):
            planner = Planner(self.log, cut_tail=wanted.cut_tail, settle=wanted.settle)
            with suppress(JbodError):
                self._ahead = plan_ahead(planner, wanted.start, wanted.max_records or None)

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
            except Exception:
                self.lake.discard(CHECKPOINT)
                raise

    def _job(self, *, seeded: bool = False) -> Job:
        return Job(self.wanted.lake, self.lake.identity.shards, self.rules, self.wanted.keep_unknown, seeded)

    def _replay(self, spark: SparkSession) -> Outcome:
        failures, published = 0, -1
        while True:
            began = self.outcome.batches
            try:
                self._say("planning")
                self._settle_history()
                self._run(spark)
                return self.outcome
            except LogChanged:
                failures = failures + 1 if self.outcome.batches == published else 1
                published = self.outcome.batches
                if failures > ATTEMPTS or self._stop.is_set():
                    raise
                # What was planned and not carried out may never be there again.
                discard_checkpoint(self.wanted.lake)
            except Exception as problem:
                if self.outcome.batches > began or not self._inherits or not _is_sparks(problem):
                    raise
                # Nothing could be done with the checkpoint, and all it holds is in the records, too.
                discard_checkpoint(self.wanted.lake)
                self._notice(f"{self.wanted.lake}/{CHECKPOINT}: Spark cannot go on from it: it is made anew")
            self._problem = None

    def _settle_history(self) -> None:
        job = self._job()
        fits = lake_has_checkpoint(self.wanted.lake) and checkpoint_fits(self.wanted.lake, self.lake.end_offset)
        done = settle(self.lake, job, Planner(self._settled_log()), has_checkpoint=fits)
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
        """The log to compare with: of several copies one that has what a majority holds, once there is such a thing."""
        if self.copies is None:
            return self.log
        end = self.lake.end_offset
        while True:
            chosen, _ = self.copies.settled(Position(end, base=end - 1))
            self._tell_copies()
            if chosen is not None:
                return chosen.log
            if self.wanted.follow_seconds is None or self._stop.wait(self.wanted.follow_seconds):
                raise UsageError(
                    f"{self.wanted.log_dir}: no majority of the copies holds the newest epoch yet, so nothing is "
                    "settled: run again, or with --follow"
                )

    def _tell_copies(self) -> None:
        if self.copies is None:
            return
        silent = [f"{location}: has no vote now: {problem}" for location, problem in self.copies.silent.items()]
        told = {*map(str, self.copies.forks()), *silent}
        for line in sorted(told - self._told):
            self._notice(line)
        self._told = told

    def _run(self, spark: SparkSession) -> None:
        try:
            query = self._start(spark)
        except Exception as problem:
            raise self._explain(problem) from None
        waited = 0
        try:
            while not query.awaitTermination(1):
                self._say_stage(spark)
                waited += 1
                if waited == PATIENCE and waits_for_executors(spark):
                    self._notice(WAITS)
                if self.copies is not None and self.wanted.follow_seconds is not None:
                    self.copies.settled(Position(self.lake.end_offset, base=self.lake.end_offset - 1))
                    self._tell_copies()
                if self.requests is not None and self.wanted.follow_seconds is not None:
                    self.requests.follow(spark, self.wanted.follow_seconds)
                if self._stop.is_set():
                    query.stop()
            if self.requests is not None and self.wanted.follow_seconds is None:
                self._say("reading requests")
                self.requests.run(spark, self._stop)
        except Exception as problem:
            query.stop()
            raise self._explain(problem) from None
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

    def _start(self, spark: SparkSession) -> StreamingQuery:
        from pipelines.replay.machine import state_machine
        from pipelines.session import wake_workers
        from pipelines.source.kraft_metadata import register

        register(spark)
        seed = seed_position(self.wanted.lake)
        job = self._job(seeded=seed is not None)
        source = (
            spark.readStream.format("kraft_metadata")
            .option("path", self.wanted.log_dir)
            .option("layout", "slices")
            .option("start", self.wanted.start)
            .option("maxRecords", self.wanted.max_records)
            .option("cutTail", self.wanted.cut_tail)
            .option("settle", str(self.wanted.settle))
            .option("copies", json.dumps(self.wanted.copies))
            .option("ahead", self._ahead)
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
        if self.wanted.follow_seconds is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.wanted.follow_seconds} seconds").start()

    def _publish(self, frame: DataFrame, _batch_id: int) -> None:
        from pipelines.replay.collect import batch_of

        try:
            known = self.lake.ledger["metadata_version"] if self.lake.ledger else -1
            batch = batch_of(self.wanted.lake, frame.select("kind", "payload").collect(), known)
            if batch is None:
                return
            with self._lock:
                rows = self.lake.publish(batch)
                if self.requests is not None:
                    self.requests.settle()
            clear_staged(self.wanted.lake)
        except JbodError as problem:
            self._problem = problem
            raise
        self.outcome.end_offset = self.lake.end_offset
        self.outcome.batches += 1
        self._count(rows)
        self._say(f"published up to offset {batch.end_offset - 1}, batch {self.outcome.batches}")

    def _count(self, rows: dict[str, int]) -> None:
        for name, count in rows.items():
            self.outcome.rows[name] = self.outcome.rows.get(name, 0) + count

    def _explain(self, problem: Exception) -> Exception:
        """The refusal behind Spark's report of a failed query."""
        if self._problem is not None:
            return self._problem
        found = _ERROR.search(str(problem))
        if found is None:
            return fault_of_disk(self.wanted.lake, problem) or fault_of_cluster(problem) or problem
        kinds: dict[str, Any] = {
            "UsageError": UsageError,
            "MalformedLog": _Reported,
            "LogChanged": _Changed,
            "ReplayViolation": _Refused,
        }
        return kinds.get(found[1], JbodError)(found[2])  # type: ignore[no-any-return]


class _Reported(MalformedLog):
    """A malformed log as another process told it: only the text is left."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


class _Changed(LogChanged):
    """A log that changed as another process told it: only the text is left."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


class _Refused(ReplayViolation):
    """An illegal history as another process told it: only the text is left."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


def _is_sparks(problem: Exception) -> bool:
    """Whether Spark refused what it found, or what it gave back is no state."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    return isinstance(problem, (PySparkException, Py4JJavaError, CorruptState))


def lake_has_checkpoint(lake: str) -> bool:
    """Whether a run can go on from its checkpoint."""
    fs, root = lake_filesystem(lake)
    parts = fs.get_file_info([f"{root}/{CHECKPOINT}/{part}" for part in ("offsets", "seed")])
    return any(part.type == pafs.FileType.Directory for part in parts)
