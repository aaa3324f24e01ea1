"""The readers of the data source ``kafka_request_log``, batch and streaming: they find and parse the bytes of each log.

Streams are as Spark 4.2 calls them (pipelines.source.limits).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jbod_model.errors import crossing
from jbod_model.formats.request_log import Reject, RequestLine
from pipelines.formats.requests import Parser, Rejects, TooLong, assignments_table, lines, requests_batch
from pipelines.source.limits import LimitedReader, ReadLimit, ReadMaxBytes
from pipelines.source.log_options import PARTS, REJECTS, REQUESTS, RequestOptions
from pipelines.source.request_files import LogFile, RequestFiles, Text, file_id

SLICE = 16 << 20
"""Bytes of a log for one task. A packed log is not divided: to read its end, a task unpacks it from the beginning."""
ROWS = 2_000


@dataclass(frozen=True)
class Piece:
    """The lines of a log that begin in ``[start, end)``. ``problem`` says why the lines after them cannot be read."""

    file_id: str
    path: str
    start: int
    end: int
    problem: str = ""


class RequestPart(InputPartition):
    """Pieces for one task."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)


def cut(log: LogFile, start: int, end: int) -> Iterator[Piece]:
    """The pieces of ``[start, end)`` of a log."""
    size = end - start if log.packed else SLICE
    for at in range(start, end, max(size, 1)):
        last = min(at + size, end)
        yield Piece(log.file_id, log.path, at, last, log.problem if last == log.end else "")
    if start == end and log.problem:
        yield Piece(log.file_id, log.path, start, end, log.problem)


def parts(pieces: Sequence[Piece], most: int) -> list[RequestPart]:
    """Combines pieces into tasks: at least ``most`` of them if there are enough pieces, and none too large."""
    share = max(min(sum(piece.end - piece.start for piece in pieces) // most, SLICE), 1)
    tasks: list[RequestPart] = []
    held: list[Piece] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += piece.end - piece.start
        if size >= share:
            tasks.append(RequestPart(held))
            held, size = [], 0
    return [*tasks, RequestPart(held)] if held else tasks


def read_pieces(options: RequestOptions, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """The contents of pieces in the columns of the layout."""
    parser = Parser(options.time_zone, assignments=options.layout == PARTS)
    for piece in pieces:
        rejects = Rejects(piece.path, piece.file_id)
        requests = _requests(options, piece, parser, rejects)
        while some := list(islice(requests, ROWS)):
            if options.layout == REQUESTS:
                yield requests_batch(piece.path, some)
            elif options.layout == PARTS:
                yield from _packed("assignments", assignments_table([line for _, line in some]))
        if options.layout == REJECTS:
            yield from rejects.table().to_batches()
        elif options.layout == PARTS:
            yield from _packed("rejects", rejects.table())


def _requests(
    options: RequestOptions, piece: Piece, parser: Parser, rejects: Rejects
) -> Iterator[tuple[int, RequestLine]]:
    """The requests of a piece. Lines that cannot be read go to ``rejects``."""
    source = _open(options, piece)
    if source is None:
        rejects.add(piece.start, Reject("the file went away before it was read", piece.end - piece.start))
        return
    with source:
        for position, line in lines(source, piece.start, piece.end):
            parsed = line if isinstance(line, TooLong) else parser(line)
            if isinstance(parsed, RequestLine):
                yield position, parsed
            elif parsed is not None:
                rejects.add(position, parsed)
    if piece.problem:
        rejects.add(piece.end, Reject(piece.problem, 0))


def _open(options: RequestOptions, piece: Piece) -> Text | None:
    """Opens the log at its current path: a rotation may have moved it since the batch was planned."""
    try:
        if (seen := file_id(piece.path)) and seen[0] == piece.file_id:
            return Text(piece.path)
    except OSError:
        pass
    path = RequestFiles(options.paths).find(piece.file_id)
    return None if path is None else Text(path)


def _packed(kind: str, table: pa.Table) -> Iterator[pa.RecordBatch]:
    if table.num_rows:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        payload = sink.getvalue().to_pybytes()
        yield pa.RecordBatch.from_pydict({"kind": [kind], "payload": [payload]})


class _TaskReader:
    """Reads tasks, whichever reader planned them."""

    def __init__(self, options: RequestOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task."""
        assert isinstance(partition, RequestPart)
        with crossing():
            yield from read_pieces(self._options, partition.pieces)


class RequestBatchReader(_TaskReader, DataSourceReader):
    """Reads all lines that are complete now."""

    @crossing()
    def partitions(self) -> Sequence[InputPartition]:
        """Pieces of the logs, oldest first."""
        files = RequestFiles(self._options.paths)
        files.check()
        pieces = [piece for log in files.scan({}) for piece in cut(log, 0, log.end)]
        return parts(pieces, self._options.partitions)


FORGOTTEN = 1_000
"""How many logs that are gone are remembered, in case they come back."""
Offset = dict[str, Any]
"""``{"files": [[file_id, position, path], ...]}`` in the order in which they were begun."""


class RequestStreamReader(_TaskReader, LimitedReader):
    """Follows the logs. Its offset holds the id of each log and how far it was read."""

    def __init__(self, options: RequestOptions) -> None:
        super().__init__(options)
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
        return next_offset(start, self._scanned, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)

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
