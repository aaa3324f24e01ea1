"""Replays the clusters of a fleet in one process. Each is decided, replayed and told by itself.

A round looks at every log. A cluster with nothing new costs a look at its log and at the newest row of its ledger, and
no Spark. The others are replayed, ``parallel`` at a time: the session starts when the first one needs it, and serves
all of them. What ends the replay of one cluster is its line and its exit code, and no other cluster's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jbod_model.errors import JbodError, Retriable, first_line_of
from pipelines.fleet.clusters import Cluster
from pipelines.run.decision import PRELOAD, Way, decide
from pipelines.run.options import Replay
from pipelines.storage.objects import fault_of_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.run.options import RunOutcome
    from pipelines.run.runner import Runner
    from pipelines.settings import Settings, Spark

QUORUM = "kafka://"
REPLAYED, NOTHING_NEW, FAILED, STOPPED = "replayed", "nothing new", "failed", "stopped"
"""What became of a cluster in a round."""


@dataclass(frozen=True)
class Done:
    """What a round did about a cluster."""

    name: str
    lake: str
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
        if self.state == REPLAYED:
            last = (self.end_offset or 0) - 1
            return f"{self.name}: replayed offsets {self.start_offset} to {last} in {self.seconds:.1f} s"
        if self.state == STOPPED:
            return f"{self.name}: stopped, the lake stands at offset {self.end_offset}; run again to continue"
        return f"{self.name}: nothing new, the lake stands at offset {self.end_offset}"


class Fleet:
    """The replays of a fleet's clusters."""

    def __init__(
        self,
        clusters: Sequence[Cluster],
        spark: Spark,
        parallel: int,
        relabel: Callable[[Settings], Sequence[str]],
        *,
        brief: bool = True,
    ) -> None:
        """``relabel``: reads the names of a cluster's directories again. ``brief``: the session ends after a round."""
        self._clusters = clusters
        self._spark = spark
        self._relabel = relabel
        self._brief = brief
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._runners: set[Runner] = set()
        self._pool = ThreadPoolExecutor(parallel)

    def stop(self) -> None:
        """Begins no further replay, and ends those that run after their current batch."""
        self._stop.set()
        for runner in [*self._runners]:
            runner.stop()

    def round(self) -> Iterator[Done]:
        """Replays what is new, and yields every cluster in the order of the file."""
        yield from self._pool.map(self._done, self._clusters)

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

    def _done(self, cluster: Cluster) -> Done:
        if self._stop.is_set():
            return Done(cluster.name, cluster.lake, STOPPED, 0)
        began = time.monotonic()
        notices: list[str] = []
        try:
            outcome = self._replay(cluster, notices)
        except Exception as problem:
            code, said = _fault(cluster.lake, problem)
            seconds = time.monotonic() - began
            return Done(cluster.name, cluster.lake, FAILED, code, seconds=seconds, problem=said, notices=notices)
        new = outcome.end_offset != outcome.start_offset or bool(outcome.rolled_back)
        return Done(
            cluster.name,
            cluster.lake,
            STOPPED if self._stop.is_set() else REPLAYED if new else NOTHING_NEW,
            0,
            max(outcome.start_offset, 0),
            max(outcome.end_offset, 0),
            outcome.batches,
            time.monotonic() - began,
            notices=notices,
        )

    def _replay(self, cluster: Cluster, notices: list[str]) -> RunOutcome:
        if not cluster.log.startswith(QUORUM):
            return self._replay_files(cluster, cluster.log, notices)
        from pipelines.mirror.session import mirrored

        folder = f"{cluster.lake.rstrip('/')}.mirror"
        with mirrored(cluster.log, folder, cluster.settings.quorum.command_config, notices.append):
            return self._replay_files(cluster, folder, notices)

    def _replay_files(self, cluster: Cluster, log_dir: str, notices: list[str]) -> RunOutcome:
        settings = cluster.settings
        decision = decide(
            Replay.of(settings, log_dir),
            self._spark,
            settings.replay.load_bytes,
            progress=lambda _line: None,
            notice=notices.append,
            session=self._warm,
        )
        runner = decision.runner
        if runner is None:
            assert decision.nothing is not None
            return decision.nothing
        if decision.way is not Way.NOTHING_NEW:
            self._run(runner, decision.way)
            if settings.labels.sources and runner.lake.ledger is not None:
                notices += [f"labels: {line}" for line in self._relabel(settings)]
        return runner.outcome

    def _run(self, runner: Runner, way: Way) -> None:
        self._runners.add(runner)
        try:
            if self._stop.is_set():
                runner.stop()
            if way is Way.LOAD:
                from pipelines.spark.session import tasks_of

                runner.load(tasks_of(self._spark.master))
            else:
                runner.run(self._warm())
        finally:
            self._runners.discard(runner)

    def _warm(self) -> SparkSession:
        """The session, which starts at the first call."""
        with self._lock:
            if self._session is None:
                from pipelines.spark.session import spark_session
                from pipelines.spark.versions import check_installed

                check_installed()
                self._session = spark_session(self._spark, brief=self._brief, preload=PRELOAD)
            return self._session

    def _check_session(self) -> None:
        if self._session is not None and not self._stop.is_set():
            try:
                self._session.range(1).count()
            except Exception as problem:
                raise JbodError(f"the Spark session has ended ({first_line_of(problem)}): run again") from None


def _fault(lake: str, problem: Exception) -> tuple[int, str]:
    """The exit code and the line of an error."""
    known = problem if isinstance(problem, JbodError) else fault_of_disk(lake, problem)
    if known is not None:
        return (3 if isinstance(known, Retriable) else 2), " ".join(str(known).split())
    if isinstance(problem, OSError):
        return 2, f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
    return 3, f"{type(problem).__name__}: {first_line_of(problem)}"
