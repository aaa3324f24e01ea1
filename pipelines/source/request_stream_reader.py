"""The streaming reader of the data source ``kafka_request_log``. It needs Spark 4.2 (pipelines.spark.versions)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from jbod_model.errors import crossing
from pipelines.source.request_files import LogFile, RequestFiles
from pipelines.source.request_options import Options
from pipelines.source.request_readers import Part, Piece, cut, parts, read_pieces

FORGOTTEN = 1_000
"""How many logs that are gone are remembered, in case they come back."""
Offset = dict[str, Any]
"""``{"files": [[file_id, position, path], ...]}`` in the order in which they were begun."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs. Its offset holds the id of each log and how far it was read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._files = RequestFiles(options.paths)
        self._files.check()
        self._scanned: list[LogFile] | None = None
        self._frozen = False

    @crossing()
    def initialOffset(self) -> Offset:
        """Nothing was read."""
        return {"files": []}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option maxBytes."""
        return ReadMaxBytes(self._options.max_bytes)

    @crossing()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next batch ends: the oldest logs first, up to the limit."""
        known = _positions(start)
        if not self._frozen or self._scanned is None:
            self._scanned = self._files.scan(known)
        budget = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if isinstance(limit, ReadAllAvailable):
            budget = None
        return next_offset(start, self._scanned, budget)

    @crossing()
    def prepareForTriggerAvailableNow(self) -> None:
        """The next scan of the files is the last one and fixes the end of this run."""
        self._scanned = None
        self._frozen = True

    @crossing()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Pieces between two offsets."""
        known = _positions(start)
        scanned = self._files.scan(known) if self._scanned is None else self._scanned
        logs = {log.file_id: log for log in scanned}
        pieces: list[Piece] = []
        for identity, position, path in end["files"]:
            begun = known.get(identity, 0)
            if position > begun or identity not in known:
                log = logs.get(identity, LogFile(identity, path, position, b""))
                pieces += cut(log, begun, position)
        return parts(pieces, self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task."""
        assert isinstance(partition, Part)
        with crossing():
            yield from read_pieces(self._options, partition.pieces)

    def commit(self, end: Offset) -> None:
        """Does nothing: the source keeps no state beside the logs."""


def _positions(offset: Offset) -> dict[str, int]:
    return {identity: position for identity, position, _ in offset["files"]}


def next_offset(start: Offset, logs: Sequence[LogFile], budget: int | None) -> Offset:
    """``start`` advanced by at most ``budget`` bytes of ``logs``. A log that is gone keeps its position."""
    files = {identity: (position, path) for identity, position, path in start["files"]}
    for log in logs:
        position, path = files.get(log.file_id, (0, log.path))
        new = max(log.end - position, 0)
        take = new if budget is None else min(new, budget)
        if take or (log.problem and log.file_id not in files and (budget is None or budget > 0)):
            files[log.file_id] = position + take, log.path
        elif log.file_id in files:
            files[log.file_id] = position, path
        if budget is not None:
            budget -= take
    gone = [identity for identity in files if identity not in {log.file_id for log in logs}]
    for identity in gone[:-FORGOTTEN]:
        del files[identity]
    return {"files": [[identity, position, path] for identity, (position, path) in files.items()]}
