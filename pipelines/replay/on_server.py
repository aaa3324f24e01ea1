"""A replay through Spark Connect: the server publishes the micro-batches, and the client follows the ledger.

Spark runs a function for foreachBatch in a Python process of the server. It receives its parameters by value and
returns nothing, so ``Batches`` opens the lake there, and ``ServerPublisher`` reads what happened from the ledger.
The client holds the lock of the run. Its query survives a client that dies, but publishes nothing without that lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any

from jbod_model.errors import crossing
from pipelines.ask.assignment_requests import request_rows
from pipelines.lake import files
from pipelines.lake.commit import Overtaken, live_files
from pipelines.lake.create import Identity
from pipelines.lake.lock import RunWatch, alone
from pipelines.lake.publish import LakeWriter
from pipelines.lake.reader import Lake
from pipelines.lake.tables import LEDGER
from pipelines.replay.options import RunOutcome
from pipelines.replay.publisher import Publisher, unknown_kind
from pipelines.replay.request_stream import Requests, RequestStream
from pipelines.replay.seed import stamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LakeLock:
    """The lock of a lake as a reentrant context manager: processes that publish exclude each other by it.

    ``taken`` is called each time that this process takes the lock.
    """

    def __init__(self, lake: str, taken: Callable[[], None] = lambda: None) -> None:
        self._lake = lake
        self._taken = taken
        self._held: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        lock = alone(self._lake)
        lock.__enter__()
        self._held.append(lock)
        if len(self._held) == 1:
            try:
                self._taken()
            except BaseException:
                self.__exit__(None, None, None)
                raise

    def __exit__(self, *problem: Any) -> None:
        self._held.pop().__exit__(*problem)


@dataclass
class Batches:
    """The function for foreachBatch of both queries, with all that it needs: it is pickled to the server."""

    lake: str
    identity: Identity
    home: str
    run: str
    """The name of the client's run (pipelines.lake.lock.only_run)."""
    end: int
    """The lake's end when the query starts."""
    wanted: Requests | None
    of_requests: bool = False
    """Whether these are the batches of the request logs."""
    _publisher: Publisher | None = field(default=None, repr=False)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Publishes a micro-batch. An error is marked for the client. Called on the server, by one process."""
        with crossing():
            self._publisher = self._publisher or self._opened()
            if not self.of_requests:
                self._publisher.publish(frame, batch_id)
            elif self._publisher.requests is not None:
                self._publisher.requests.batch(frame, batch_id)

    def _opened(self) -> Publisher:
        watch = RunWatch(self.lake, self.run)
        watch.check()
        lake = LakeWriter.create_or_open(self.lake, self.identity, self.home)
        if lake.end_offset != self.end and not self.of_requests:
            raise Overtaken(f"{self.lake}: another run published up to offset {lake.end_offset - 1}: run again, alone")
        lake.appended = lambda: stamp(lake)

        def taken() -> None:
            watch.check()
            if self.of_requests:
                lake.load()

        return Publisher(lake, self.wanted, _nowhere, _nowhere, lock=LakeLock(self.lake, taken))


def _nowhere(_line: str) -> None:
    """Discards a line: the client reports progress and notices."""


class ServerPublisher:
    """The client's counterpart of Publisher, for a run whose batches the server publishes."""

    def __init__(
        self,
        lake: LakeWriter,
        requests: Requests | None,
        outcome: RunOutcome,
        run: str,
        say: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        self.lake = lake
        self.outcome = outcome
        self.problem = None  # the query raises the server's errors
        self._run = run
        self._wanted = requests
        self._say = say
        self._tell = tell
        self._newest = _key(lake.ledger) if lake.ledger else _FIRST
        self.requests = None if requests is None else _ServerRequests(lake, requests, self.function)

    def function(self, *, of_requests: bool = False) -> Batches:
        """What foreachBatch calls on the server, for a query that starts now."""
        lake = self.lake
        self._newest = _key(lake.ledger) if lake.ledger else _FIRST
        return Batches(
            lake.location, lake.identity, lake.home, self._run, lake.end_offset, self._wanted, of_requests=of_requests
        )

    def look(self, *, last: bool = False) -> None:
        """Counts what was published since the last look. ``last``: waits for a publication that is under way."""
        if last:
            with alone(self.lake.location):
                self._count()
            self.lake.load()
        else:
            self._count()

    def _count(self) -> None:
        for row in _rows_since(self.lake, self._newest):
            rows = dict(row["rows"] or ())
            known = self.lake.unknown
            before, self.lake.ledger = self.lake.end_offset, {**row, "versions": dict(row["versions"])}
            self._newest = _key(row)
            if row["end_offset"] == before and not any(rows.values()):
                continue
            if row["end_offset"] != before:
                self.outcome.add_batch(before, row["end_offset"], row["from_snapshot"])
                for kind, offset in self.lake.unknown.items():
                    if kind not in known:
                        self._tell(unknown_kind(kind, offset))
                self._say(f"published up to offset {row['end_offset'] - 1}, batch {self.outcome.batches}")
            self.outcome.add_rows(rows)


class _ServerRequests(RequestStream):
    """The query of the request logs. The outcomes are counted in the table, before and after."""

    def __init__(self, lake: LakeWriter, wanted: Requests, function: Callable[..., Batches]) -> None:
        super().__init__(lake, wanted, LakeLock(lake.location), lambda _rows: None)
        self._function = function
        self._before: Counter[str] | None = None

    def run(self, spark: SparkSession, stopped: Event) -> None:
        self._note()
        super().run(spark, stopped)

    def follow(self, spark: SparkSession, seconds: float) -> None:
        self._note()
        super().follow(spark, seconds)

    def stop(self) -> None:
        super().stop()
        if self._before is not None:
            after, self.strange = self._counts()
            self.outcomes = Counter(after)
            self.outcomes.subtract(self._before)

    def batches(self) -> Any:
        return self._function(of_requests=True)

    def _note(self) -> None:
        if self._before is None and self.lake.ledger is not None:
            self._before, _ = self._counts()

    def _counts(self) -> tuple[Counter[str], int]:
        """The requests by outcome, as RequestStream counts them, and how many wait that the log does not know."""
        found: Counter[str] = Counter()
        strange = 0
        with _opened(self.lake.location) as lake:
            rows = request_rows(lake)
            counted = lake.query(f"SELECT outcome, why, count(*) FROM {rows} GROUP BY ALL") if rows else []
        for outcome, why, count in counted:
            if outcome == "pending":
                strange += count if why else 0
            found[outcome if outcome == "pending" else ": ".join(filter(None, (outcome, why)))] += count
        return found, strange


@contextmanager
def _opened(location: str) -> Iterator[Lake]:
    lake = Lake.open(location)
    with lake.connection:
        yield lake


_Key = tuple[int, datetime]
_FIRST: _Key = (-1, datetime.min.replace(tzinfo=UTC))


def _key(row: dict[str, Any]) -> _Key:
    return row["end_offset"], row["published_time"]


def _rows_since(lake: LakeWriter, newest: _Key) -> list[dict[str, Any]]:
    """The ledger's rows after ``newest``, in the order of their publication."""
    if not lake.tables.refresh(LEDGER.name):
        return []
    found = live_files(lake.tables[LEDGER.name])
    ends = [(file.path, file.statistics.get("max.end_offset")) for file in found]
    wanted = [path for path, end in ends if end is None or end >= newest[0]]
    rows: list[dict[str, Any]] = files.read(lake.location, LEDGER, wanted).to_pylist()
    return sorted((row for row in rows if _key(row) > newest), key=_key)
