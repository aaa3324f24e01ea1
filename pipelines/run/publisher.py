"""Publishes the micro-batches of a run. What was published is read from the ledger, in every kind of Spark session.

Spark calls a function for foreachBatch in the driver's process, or, through Spark Connect, in a process of the server.
There it gets its parameters by value, and returns nothing. So ``ForeachBatch`` has all that it needs to publish, and
``Publications`` follows the ledger. The run holds its lock: a query that survives its client publishes nothing more.
``batch_of`` combines the reports of both stages on one micro-batch.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jbod_model.errors import JbodError, crossing
from pipelines.formats.records import first_of
from pipelines.lake import files
from pipelines.lake.files import DataFile
from pipelines.lake.foreign import files_added
from pipelines.lake.lock import RunWatch, alone
from pipelines.lake.publish import LakeWriter, Publication
from pipelines.lake.reader import ADVICE
from pipelines.lake.tables import BY_NAME, CHANGES, LEDGER
from pipelines.lake.uris import LakeUri
from pipelines.run.errors import first_error
from pipelines.run.options import Requests, RunOutcome
from pipelines.run.seed import stamp
from pipelines.run.stages import (
    ClosedRows,
    FileWritten,
    MetadataVersion,
    OpenRowsReplaced,
    Refusal,
    SliceRead,
    clear_staged,
    report_of,
)
from pipelines.storage.objects import is_object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECONDS_OF_LOOK = 10.0
"""Seconds between two looks at the ledger of a lake on S3 while a query runs: each is a request."""


@dataclass
class ForeachBatch:
    """The function for foreachBatch of the log's query, and of that of the request logs.

    It is pickled to a server of Spark Connect, and then called by one process.
    """

    lake: LakeWriter
    """The lake as it was when the query started."""
    watch: RunWatch
    """Tells whether the run still holds its lock."""
    requests: Requests | None
    of_requests: bool = False
    """Whether these are the batches of the request logs."""

    def __call__(self, frame: DataFrame, _batch_id: int) -> None:
        """Publishes a micro-batch of executors' reports, or of request logs. An error is marked for the run."""
        with crossing():
            if not self.of_requests:
                self.publish_reports([row.payload for row in frame.select("payload").collect()])
            elif self.requests is not None:
                from pipelines.run.request_stream import RequestBatches

                RequestBatches(self.lake, self.requests, self._writing).publish(frame)

    def publish_reports(self, reports: Sequence[bytes]) -> None:
        """Publishes the reports of both stages on one micro-batch."""
        with self._writing():
            level = self.lake.ledger["metadata_version"] if self.lake.ledger else -1
            batch = batch_of(self.lake.path, reports, level)
            if batch is None:
                return
            self.lake.publish(batch)
            if self.requests is not None:
                from pipelines.run.request_stream import RequestBatches

                RequestBatches(self.lake, self.requests, nullcontext).join_waiting()
        clear_staged(self.lake.path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Holds the lake's lock: threads and processes that publish exclude each other by it."""
        with alone(self.lake.path):
            self.watch.check()
            self.lake.appended = lambda: stamp(self.lake)
            if self.of_requests:
                self.lake.catch_up()
            yield


class Publications:
    """What a run published, as the ledger says, and the functions that publish."""

    def __init__(
        self,
        lake: LakeWriter,
        requests: Requests | None,
        say: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        self.lake = lake
        self.outcome = RunOutcome(lake.end_offset, lake.end_offset)
        self._wanted = requests
        self._say = say
        self._tell = tell
        self._run = ""
        self._functions: list[ForeachBatch] = []
        self._newest = _key(lake.ledger)
        self._looked = 0.0

    def begin(self, run: str) -> None:
        """The run holds its lock under this name (pipelines.lake.lock.only_run)."""
        self._run = run

    def function(self, *, of_requests: bool = False) -> ForeachBatch:
        """What foreachBatch calls, for a query that starts now. It takes the open tables of this lake."""
        if not of_requests:
            self._newest = _key(self.lake.ledger)
        watch = RunWatch(self.lake.path, self._run)
        self._functions.append(ForeachBatch(self.lake.handed_over(), watch, self._wanted, of_requests))
        return self._functions[-1]

    def end(self) -> None:
        """Closes the tables of the functions, once their queries have ended: the JVM holds the functions for long."""
        for function in self._functions:
            function.lake.tables.close()
        self._functions.clear()

    def look(self, *, last: bool = False) -> None:
        """Counts what was published since the last look. ``last``: waits for a publication that is under way."""
        path = self.lake.path
        if last:
            with alone(path):
                self._count()
        elif not is_object(path) or time.monotonic() - self._looked >= SECONDS_OF_LOOK:
            self._looked = time.monotonic()
            self._count()

    def _count(self) -> None:
        for row in _rows_since(self.lake, self._newest):
            rows = dict(row["rows"] or ())
            known = self.lake.unknown
            before, self._newest = self.lake.end_offset, _key(row)
            self.lake.take_row(row)
            if row["end_offset"] == before and not any(rows.values()):
                continue
            if row["end_offset"] != before:
                self.outcome.add_batch(before, row["end_offset"], row["from_snapshot"])
                for kind, offset in self.lake.unknown.items():
                    if kind not in known:
                        self._tell(f"offset {offset}: {kind} is not known to this jbod: {ADVICE}")
                self._say(f"published up to offset {row['end_offset'] - 1}, batch {self.outcome.batches}")
            self.outcome.add_rows(rows)


_Key = tuple[int, datetime]
_FIRST: _Key = (-1, datetime.min.replace(tzinfo=UTC))


def _key(row: dict[str, Any] | None) -> _Key:
    return _FIRST if row is None else (row["end_offset"], row["published_time"])


def _rows_since(lake: LakeWriter, newest: _Key) -> Iterator[dict[str, Any]]:
    """The rows of the ledger's versions after the known one, in their order, and without those before ``newest``."""
    while (paths := files_added(lake.path, LEDGER.name, lake.tables.versions[LEDGER.name] + 1)) is not None:
        lake.tables.committed(LEDGER.name)
        rows = files.read(lake.path, LEDGER, sorted(paths)).to_pylist()
        yield from sorted((row for row in rows if _key(row) > newest), key=_key)


def batch_of(lake: LakeUri, reports: Iterable[bytes], metadata_version: int) -> Publication | None:
    """Returns the batch of the stages' reports, None if nothing was read. Raises the error of a stage, and UsageError
    if a file that a stage wrote is missing.

    Closed rows that came as rows are written here: one file per table for all shards. ``metadata_version`` is the
    feature level before the batch.
    """
    written: list[DataFile] = []
    small: dict[str, list[pa.Table]] = defaultdict(list)
    replaced: set[tuple[str, int]] = set()
    slices: list[SliceRead] = []
    errors: list[JbodError] = []
    for report in map(report_of, reports):
        match report:
            case Refusal():
                errors.append(report.error)
            case FileWritten():
                written.append(report.file)
            case ClosedRows():
                small[report.table].append(report.rows)
            case OpenRowsReplaced():
                replaced.add((report.table, report.shard))
            case MetadataVersion():
                metadata_version = report.level
            case SliceRead():
                slices.append(report)
    if errors:
        raise first_error(errors)
    if not slices:
        return None
    for name in sorted(small):
        rows_of_table = pa.concat_tables([part.cast(BY_NAME[name].schema) for part in small[name]])
        if name == CHANGES.name:
            rows_of_table = rows_of_table.sort_by("log_offset")
        written.append(files.write(lake, name, rows_of_table))
    files.check_there(lake, written)
    last = max(slices, key=lambda piece: (piece.end, piece.snapshot < 0))
    snapshots = [piece.snapshot for piece in slices if piece.snapshot >= 0]
    return Publication(
        start_offset=min(piece.start for piece in slices),
        end_offset=last.end,
        epoch=last.epoch,
        fingerprint=last.crc,
        end_time=last.time,
        files=[file for file in written if file.rows],
        touched=frozenset(replaced),
        metadata_version=metadata_version,
        from_snapshot=max(snapshots) if snapshots else None,
        dropped=sum(piece.dropped for piece in slices),
        unknown=first_of(piece.unknown for piece in slices),
    )
