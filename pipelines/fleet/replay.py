"""Replays the clusters of a fleet in one process. Each is decided, replayed and told by itself.

A round looks at every log. A cluster with nothing new costs a look at its log and at the newest row of its ledger, and
no Spark. The others are replayed, ``parallel`` at a time: the session starts when the first one needs it, and serves
all of them. What ends the replay of one cluster is its line and its exit code, and no other cluster's.

Each cluster has a thread. One whose log or lake hangs, as on a dead mount, is given up after some time: nothing can end
such a thread, so it is left alone, and its cluster is looked at again once it has ended.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jbod_model.errors import JbodError, Retriable, first_line_of
from pipelines.fleet.clusters import FleetCluster
from pipelines.lake.uris import LakeUri
from pipelines.quorum import KAFKA
from pipelines.run.decision import PRELOAD, Way, decide
from pipelines.run.options import Replay
from pipelines.spark.jvm import end_jvm, exit_code
from pipelines.start.process import return_memory
from pipelines.storage.objects import fault_of_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.run.options import RunOutcome
    from pipelines.run.runner import Runner
    from pipelines.settings import Settings, Spark

REPLAYED, NOTHING_NEW, FAILED, STOPPED = "replayed", "nothing new", "failed", "stopped"
"""What became of a cluster in a round."""
LOOK_SECONDS, REPLAY_SECONDS = 90.0, 900.0
"""The longest look at a log, and the longest time without progress of a replay. A quorum has 60 s to answer."""
_LOOKS = 6
"""How many clusters are looked at while others are replayed."""
_SLOW_SECONDS = 3.0
"""After this time, a look does not count as one of these."""
_TICK = 0.2
SESSION_REPLAYS = 100
"""Replays after which a session ends and another one starts. Spark's JVM and its workers keep some memory of every
query, so without an end a run of days would take all that there is."""
RETURN_SECONDS = 10.0
"""Time between two returns of memory. Each replay leaves three megabytes that only the collector frees, and collections
are rare (pipelines.start.process). Looks and replays free memory that glibc keeps."""


@dataclass(frozen=True)
class Done:
    """What a round did about a cluster."""

    name: str
    lake: LakeUri
    state: str
    code: int
    """The exit code that ``jbod replay`` of this cluster would have."""
    start_offset: int | None = None
    end_offset: int | None = None
    batches: int = 0
    seconds: float = 0.0
    problem: str = ""
    notices: Sequence[str] = ()

    def __str__(self) -> str:
        if self.state == FAILED:
            return f"{self.name}: {self.problem}"
        last = (self.end_offset or 0) - 1
        if self.state == REPLAYED:
            return f"{self.name}: replayed offsets {self.start_offset} to {last} in {self.seconds:.1f} s"
        if self.state == STOPPED:
            if self.end_offset is None:
                return f"{self.name}: stopped before its log was looked at; run again"
            if self.end_offset == 0:
                return f"{self.name}: stopped, nothing was published yet; run again to begin"
            return f"{self.name}: stopped, published up to offset {last}; run again to continue"
        return f"{self.name}: nothing new" + (f" after offset {last}" if self.end_offset else "")


@dataclass(eq=False)
class _Attempt:
    """What goes on about a cluster in a round."""

    cluster: FleetCluster
    notices: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    sign: float = field(default_factory=time.monotonic)
    """When it last made progress."""
    phase: str = "looks"
    """looks, waits for its turn, or replays."""
    given_up: Done | None = None
    thread: threading.Thread | None = None
    runner: Runner | None = None

    def progress(self, _line: str) -> None:
        """Notes progress."""
        self.sign = time.monotonic()

    def enter(self, phase: str) -> None:
        """Begins a phase."""
        self.phase, self.sign = phase, time.monotonic()

    @property
    def silence(self) -> float:
        """Seconds without progress; 0 while it waits for its turn."""
        return 0.0 if self.phase == "waits" else time.monotonic() - self.sign

    def done(self, state: str, code: int = 0, **more: Any) -> Done:
        """What became of it."""
        seconds = time.monotonic() - self.began
        return Done(self.cluster.name, self.cluster.lake, state, code, seconds=seconds, notices=self.notices, **more)


class Fleet:
    """The replays of a fleet's clusters."""

    def __init__(
        self,
        clusters: Iterable[FleetCluster],
        spark: Spark,
        parallel: int,
        relabel: Callable[[Settings], Sequence[str]],
        *,
        keep: Callable[[FleetCluster], None] = lambda _: None,
        brief: bool = True,
        look_seconds: float = LOOK_SECONDS,
        replay_seconds: float = REPLAY_SECONDS,
        session_replays: int = SESSION_REPLAYS,
    ) -> None:
        """``clusters``: iterated in each round. ``relabel``: reads the names of a cluster's directories again.

        ``keep``: is told of each replay. ``brief``: the session ends after a round.
        """
        self._clusters = clusters
        self._spark = spark
        self._relabel = relabel
        self._keep = keep
        self._brief = brief
        self._patience = {"looks": look_seconds, "replays": replay_seconds, "waits": 1.0}
        self._parallel = parallel
        self._turns = threading.Semaphore(parallel)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._session: SparkSession | None = None
        self._running: set[_Attempt] = set()
        self._session_replays = session_replays
        self._renews = False
        self._replays = 0
        self._returned = time.monotonic()
        self._hangs: dict[str, _Attempt] = {}
        self._results: queue.SimpleQueue[tuple[_Attempt, Done]] = queue.SimpleQueue()

    def stop(self) -> None:
        """Begins no further replay, and ends those that run after their current batch."""
        self._stop.set()
        for attempt in [*self._running]:
            if attempt.runner is not None:
                attempt.runner.stop()

    def round(self) -> Iterator[Done]:
        """Replays what is new, and yields every cluster once, as it is done."""
        waiting = deque(self._clusters)
        while waiting or self._running:
            if self._is_worn() and not self._running:
                self._end_session()
            while waiting and self._has_room():
                yield from self._begin(waiting.popleft())
            try:
                attempt, done = self._results.get(timeout=_TICK)
            except queue.Empty:
                yield from self._give_up()
                continue
            if attempt.given_up is None:
                self._running.discard(attempt)
                self._replays += done.state == REPLAYED
                if time.monotonic() - self._returned > RETURN_SECONDS:
                    return_memory()
                    self._returned = time.monotonic()
                yield done

    def _has_room(self) -> bool:
        """Whether another cluster can be begun. A look that takes long is no reason to wait."""
        if self._is_worn():
            return False
        slow = sum(attempt.phase == "looks" and attempt.silence > _SLOW_SECONDS for attempt in [*self._running])
        return len(self._running) - slow < self._parallel + _LOOKS

    def _is_worn(self) -> bool:
        """Whether the session has to end before another cluster is begun."""
        is_old = self._renews and self._session is not None and self._replays >= self._session_replays
        return is_old or self._is_gone()

    def _is_gone(self) -> bool:
        """Whether the JVM of the session was killed: a large cluster may take more memory than there is."""
        return self._renews and self._session is not None and exit_code() is not None

    def _end_session(self) -> None:
        assert self._session is not None
        end_jvm(self._session)
        self._session, self._replays = None, 0

    def _begin(self, cluster: FleetCluster) -> Iterator[Done]:
        attempt = _Attempt(cluster)
        hangs = self._hangs.pop(cluster.name, None)
        if self._stop.is_set():
            yield attempt.done(STOPPED)
        elif hangs is not None and hangs.thread is not None and hangs.thread.is_alive():
            self._hangs[cluster.name] = hangs
            assert hangs.given_up is not None
            yield hangs.given_up
        else:
            self._running.add(attempt)
            # A thread that hangs must not keep the process.
            attempt.thread = threading.Thread(target=self._attempt, args=(attempt,), daemon=True, name=cluster.name)
            attempt.thread.start()

    def _give_up(self) -> Iterator[Done]:
        """Those that have made no progress for too long."""
        for attempt in [*self._running]:
            patience = self._patience[attempt.phase]
            if self._stop.is_set() and attempt.phase == "looks":
                patience = min(patience, _SLOW_SECONDS)
            with self._lock:
                if attempt.silence <= patience:
                    continue
                if patience < self._patience[attempt.phase]:  # it is stopped, and may only be slow
                    attempt.given_up = attempt.done(STOPPED)
                else:
                    where = attempt.cluster.log if attempt.phase == "looks" else attempt.cluster.lake
                    problem = f"{where}: no answer in {patience:.0f} s: does the log or the lake hang?"
                    attempt.given_up = attempt.done(FAILED, 3, problem=problem)
                if attempt.phase == "replays":
                    self._turns.release()
            if attempt.runner is not None:
                attempt.runner.stop()
            self._running.discard(attempt)
            self._hangs[attempt.cluster.name] = attempt
            yield attempt.given_up

    def rounds(self, seconds: float) -> Iterator[Done]:
        """Rounds until ``stop``, one every so many seconds at most. Yields replays, and problems that are new or over.

        Raises JbodError if the session has ended: no cluster could be replayed any more.
        """
        problems: dict[str, str] = {}
        while not self._stop.is_set():
            began = time.monotonic()
            for done in self.round():
                known = problems.get(done.name, "")
                problems[done.name] = done.problem
                if done.state == REPLAYED or done.problem != known:
                    yield done
            self._check_session()
            self._stop.wait(max(seconds - (time.monotonic() - began), 0))

    def _attempt(self, attempt: _Attempt) -> None:
        try:
            outcome = self._replay(attempt)
        except Exception as problem:
            code, line = _fault(attempt.cluster.lake, problem)
            done = attempt.done(FAILED, code, problem=line)
        else:
            new = outcome.end_offset != outcome.start_offset or bool(outcome.rolled_back)
            done = attempt.done(
                STOPPED if self._stop.is_set() else REPLAYED if new else NOTHING_NEW,
                start_offset=max(outcome.start_offset, 0),
                end_offset=max(outcome.end_offset, 0),
                batches=outcome.batches,
            )
        # Not while the exception holds a connection to DuckDB: closed while the process ends, it would abort it.
        self._results.put((attempt, done))

    def _replay(self, attempt: _Attempt) -> RunOutcome:
        cluster = attempt.cluster
        if not cluster.log.startswith(KAFKA):
            return self._replay_files(attempt, cluster.log)
        from pipelines.mirror.follow import mirrored
        from pipelines.quorum.state import mirror_of

        folder = str(mirror_of(cluster.lake))
        with mirrored(cluster.log, folder, cluster.settings.quorum.command_config, attempt.notices.append):
            return self._replay_files(attempt, folder)

    def _replay_files(self, attempt: _Attempt, log_dir: str) -> RunOutcome:
        settings = attempt.cluster.settings
        decision = decide(
            Replay.of(settings, log_dir),
            self._spark,
            settings.replay.load_bytes,
            progress=attempt.progress,
            notice=attempt.notices.append,
            session=self._warm,
        )
        runner = decision.runner
        if runner is None:
            assert decision.nothing is not None
            return decision.nothing
        if decision.way is not Way.NOTHING_NEW:
            self._run(attempt, runner, decision.way)
            self._keep(attempt.cluster)
            if settings.labels.sources and runner.lake.ledger is not None:
                attempt.notices += [f"labels: {line}" for line in self._relabel(settings)]
        return runner.outcome

    def _run(self, attempt: _Attempt, runner: Runner, way: Way) -> None:
        with self._lock:  # it may have been given up, just now
            if attempt.given_up is not None:
                return
            attempt.enter("waits")
        attempt.runner = runner
        self._turns.acquire()
        attempt.enter("replays")
        try:
            if self._stop.is_set():
                runner.stop()
            if way is Way.LOAD:
                from pipelines.spark.session import tasks_of

                runner.load(tasks_of(self._spark.master))
            else:
                runner.run(self._warm())
        finally:
            with self._lock:
                if attempt.given_up is None:
                    attempt.enter("looks")  # at its labels
                    self._turns.release()

    def _warm(self) -> SparkSession:
        """The session, which starts at the first call, and anew if its JVM was killed."""
        with self._starting:
            if self._is_gone():
                self._end_session()
            if self._session is None:
                from pipelines.spark.session import is_of_this_process, spark_session
                from pipelines.spark.versions import check_installed

                check_installed()
                self._renews = is_of_this_process(self._spark)
                self._session = spark_session(self._spark, brief=self._brief, preload=PRELOAD)
            return self._session

    def _check_session(self) -> None:
        if self._session is not None and not self._is_gone() and not self._stop.is_set():
            try:
                self._session.range(1).count()
            except Exception as problem:
                raise JbodError(f"the Spark session has ended ({first_line_of(problem)}): run again") from None


def _fault(lake: LakeUri, problem: Exception) -> tuple[int, str]:
    """The exit code and the line of an error."""
    known = problem if isinstance(problem, JbodError) else fault_of_disk(lake, problem)
    if known is not None:
        return (3 if isinstance(known, Retriable) else 2), " ".join(str(known).split())
    if isinstance(problem, OSError):
        return 2, f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
    return 3, f"{type(problem).__name__}: {first_line_of(problem)}"
