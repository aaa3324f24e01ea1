"""What of a metadata log may be read now, and in which slices: transactions, snapshots and cut tails are settled here.

The planner reads headers and transaction markers only; bodies are read by the workers, slice by slice. Rules:
Kafka's OffsetControlManager for transactions, RecordsIterator for batches, the KRaft loader for snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from jbod_model.batch import read_batch
from jbod_model.control import SnapshotFooterRecord, SnapshotHeaderRecord
from jbod_model.errors import MalformedLog, ReplayViolation, UsageError
from pipelines.formats.batches import (
    MAX_BATCH_BYTES,
    scan,
    verify,
)
from pipelines.source.log_dir import LogDir, Segment, Snapshot
from pipelines.source.markers import ABORT, BEGIN, markers

_WINDOW = 32 << 20
SLICE_BYTES = 8 << 20


@dataclass(frozen=True)
class Position:
    """Where a reader stands: everything below ``offset`` is read.

    ``base``, ``epoch`` and ``crc`` are those of the batch before ``offset`` (-1, -1, 0 before the first): if they
    differ later, history was rewritten. ``snapshot`` is the end offset of the last snapshot read, -1 for none.
    """

    offset: int = -1
    base: int = -1
    epoch: int = -1
    crc: int = 0
    snapshot: int = -1


@dataclass(frozen=True)
class Slice:
    """Whole batches of one file: bytes ``[start, end)``, of which records ``[first, last)`` count.

    ``dropped`` are the aborted transactions: offsets (begin, abort), both exclusive. ``snapshot``: the file is the
    snapshot with that end offset, its offsets count within it; ``snapshot_time`` is the append time of the last record
    it contains (milliseconds), ``closes``: it is its last slice.
    """

    location: str
    path: str
    start: int
    end: int
    first: int
    last: int
    next_offset: int
    dropped: tuple[tuple[int, int], ...] = ()
    snapshot: int = -1
    snapshot_time: int = -1
    closes: bool = False


@dataclass
class _File:
    segment: Segment
    scanned: int = 0
    headers: list[np.ndarray] = field(default_factory=list)


class Planner:
    """Follows one log directory. ``refresh`` looks at the disk; the other methods answer from what was seen."""

    def __init__(self, log: LogDir, *, cut_tail: str = "wait") -> None:
        self.log = log
        self._cut_tail = cut_tail
        self._files: dict[str, _File] = {}
        self._begin: int | None = None
        self._transactions: list[tuple[int, int, bool]] = []
        self._next = -1
        self._epoch = -1
        self._floor = 0
        self._frozen: tuple[list[Segment], list[Snapshot]] | None = None
        self.segments: list[Segment] = []
        self.snapshots: list[Snapshot] = []

    def freeze(self) -> None:
        """Take what is on disk now for all there will be: a run that is to end has an end."""
        self._frozen = self.log.files()

    # -- where to begin -----------------------------------------------------------------------------------------

    def begin(self, start: str = "auto") -> Position:
        """Where a first read begins: offset 0, or before the newest snapshot (``start``: auto, log or snapshot)."""
        self.segments, self.snapshots = self._frozen or self.log.files()
        first = self.first_offset()
        if start == "log" and first != 0:
            raise UsageError(f"{self.log.location}: the log does not begin at 0 but at {first}; start from a snapshot")
        if start == "log" or (start == "auto" and first == 0):
            return Position(offset=0)
        return Position(offset=0) if self._snapshot(0) is None else Position()

    def _snapshot(self, least: int) -> Snapshot | None:
        """The newest complete snapshot (R-LOG-3), None where the log alone is enough (R-LOG-4).

        It must reach offset ``least`` and where the log begins.
        """
        newest = next((s for s in reversed(self.snapshots) if s.end_offset > 0 and self._is_complete(s)), None)
        end = 0 if newest is None else newest.end_offset
        first = self.first_offset()
        if first > end:
            raise MalformedLog(
                self.segments[0].path, end, f"gap: the log begins at {first} and no complete snapshot reaches it"
            )
        if end < least:
            raise MalformedLog(self.log.location, least, f"gap: no snapshot reaches offset {least}")
        return newest

    def _is_complete(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot ends with its footer; one that does not is passed over, as Kafka's loader does."""
        data = self.log.read(snapshot.path, 0, snapshot.size)
        whole = scan(data, snapshot.path, next_offset=0)
        if not whole.complete or not len(whole.headers):
            return False
        last = whole.headers[-1]
        start = int(last["position"])
        batch = read_batch(data[start : start + int(last["size"])].tobytes(), 0, file=snapshot.path)
        return batch is not None and bool(batch.control) and type(batch.control[-1]) is SnapshotFooterRecord

    def advance(self, position: Position, most: int | None = None, *, boundary: int = -1) -> Position:
        """Where the next micro-batch ends; ``position`` itself where there is nothing new.

        A reader that stands nowhere, or below the first offset that is left, begins with the newest snapshot.
        ``boundary``: an offset at which a batch must end. MalformedLog where history below ``position`` changed.
        """
        self.segments, self.snapshots = self._frozen or self.log.files()
        begun = None
        if position.offset < 0 or self.first_offset() > position.offset:
            begun = self._snapshot(position.offset)
            end = 0 if begun is None else begun.end_offset
            position = Position(end, snapshot=-1 if begun is None else end)
        self.refresh(position)
        if begun is not None:
            self._check_follows(begun)
        if self.changed(position):
            raise MalformedLog(
                self.log.location,
                position.base,
                "history changed: the batch that was read there is another one now; replay into a new lake",
            )
        end = self.target(position, most)
        if position.offset < boundary < end:
            end = boundary
        return position if end <= position.offset else self.position(end, position.snapshot)

    # -- what is on disk ----------------------------------------------------------------------------------------

    def refresh(self, position: Position) -> None:
        """Scan what is new on disk, from the segment that holds ``position`` on."""
        self.segments, self.snapshots = self._frozen or self.log.files()
        self._floor = max(self._floor, position.offset)
        # The batch before the position, too: its fingerprint is compared.
        floor = max(position.base if position.base >= 0 else position.offset, 0)
        wanted = [s for i, s in enumerate(self.segments) if self._reaches(i, floor)]
        for index, segment in enumerate(wanted):
            known = self._files.get(segment.path)
            if known is None:
                if self._next >= 0 and segment.base_offset != self._next:
                    raise MalformedLog(
                        segment.path, self._next, f"gap: offset {self._next} is missing before {segment.base_offset}"
                    )
                known = self._files[segment.path] = _File(segment)
                if self._next < 0:
                    self._next = segment.base_offset
            self._scan(known, segment.size, last=index == len(wanted) - 1)
        for path in [path for path in self._files if path not in {s.path for s in wanted}]:
            del self._files[path]

    def _reaches(self, index: int, floor: int) -> bool:
        return index + 1 == len(self.segments) or self.segments[index + 1].base_offset > floor

    def _scan(self, file: _File, size: int, *, last: bool) -> None:
        window = _WINDOW
        while file.scanned < size:
            data = self.log.read(file.segment.path, file.scanned, min(file.scanned + window, size))
            batches = scan(data, file.segment.path, next_offset=self._next)
            if not len(batches.headers):
                if file.scanned + len(data) < size:
                    if window > MAX_BATCH_BYTES:
                        raise MalformedLog(
                            file.segment.path, self._next, f"batch length is out of range (byte {file.scanned})"
                        )
                    window *= 2
                    continue
                if not last or self._cut_tail == "fail":
                    raise MalformedLog(
                        file.segment.path, self._next, f"batch is cut off at the end of the file (byte {file.scanned})"
                    )
                return
            headers = batches.headers
            # What is decided here, about transactions above all, stands on these bytes.
            verify(data, headers, file.segment.path)
            for offset, kind in markers(data, headers, file.segment.path):
                self._mark(offset, kind)
            self._check_epochs(headers, file.segment.path)
            self._next = batches.next_offset
            headers["position"] += file.scanned
            file.headers.append(headers)
            file.scanned += batches.end

    def _check_epochs(self, headers: np.ndarray, path: str) -> None:
        epochs = np.concatenate([[self._epoch], headers["epoch"]])
        back = np.flatnonzero(np.diff(epochs) < 0)
        if len(back):
            at = headers[back[0]]
            raise MalformedLog(
                path, int(at["base_offset"]), f"epoch {int(at['epoch'])} follows epoch {int(epochs[back[0]])}"
            )
        self._epoch = int(epochs[-1])

    def _check_follows(self, snapshot: Snapshot) -> None:
        """R-LOG-5: a snapshot ends where a batch does, and epochs do not fall after it."""
        for file in self._files.values():
            for headers in file.headers:
                ends = headers["base_offset"] + headers["count"]
                for header in headers[(ends > snapshot.end_offset)][:1]:
                    base, epoch = int(header["base_offset"]), int(header["epoch"])
                    if base < snapshot.end_offset:
                        raise MalformedLog(
                            file.segment.path, base, f"the snapshot ends inside this batch, at {snapshot.end_offset}"
                        )
                    if epoch < snapshot.epoch:
                        raise MalformedLog(
                            file.segment.path, base, f"epoch {epoch} follows epoch {snapshot.epoch} of the snapshot"
                        )

    def _mark(self, offset: int, kind: int) -> None:
        if offset < self._floor:
            return  # read before, when all of its transaction was seen
        if kind == BEGIN:
            if self._begin is not None:
                raise ReplayViolation(
                    offset, f"BeginTransactionRecord while the transaction of offset {self._begin} is open (R-TXN-1)"
                )
            self._begin = offset
            return
        if self._begin is None:
            name = "AbortTransactionRecord" if kind == ABORT else "EndTransactionRecord"
            raise ReplayViolation(offset, f"{name} while no transaction is open (R-TXN-2, R-TXN-3)")
        self._transactions.append((self._begin, offset, kind == ABORT))
        self._begin = None

    # -- what may be read ---------------------------------------------------------------------------------------

    def end(self) -> int:
        """Offset after the last record that may be read: the end of the complete batches, or an open transaction."""
        return self._next if self._begin is None else min(self._begin, self._next)

    def target(self, position: Position, most: int | None) -> int:
        """The end of the next micro-batch: at most ``most`` records, whole batches, whole transactions."""
        end = self.end()
        start = position.offset
        if most is None or start + most >= end:
            return max(end, start)
        ends = np.concatenate(
            [h["base_offset"] + h["count"] for file in self._files.values() for h in file.headers] or [np.empty(0, int)]
        )
        ends = ends[(ends > start) & (ends <= end)]
        if not len(ends):
            return max(end, start)
        fits = ends[ends <= start + most]
        chosen = int(fits[-1]) if len(fits) else int(ends[0])
        for begin, close, _ in self._transactions:
            if begin < chosen <= close:
                return begin if begin > start else close + 1
        return chosen

    def position(self, offset: int, snapshot: int) -> Position:
        """The position at ``offset``, with the fingerprint of the batch before it."""
        for file in reversed(self._files.values()):
            for headers in reversed(file.headers):
                rows = np.flatnonzero(headers["base_offset"] < offset)
                if len(rows):
                    header = headers[rows[-1]]
                    return Position(
                        offset, int(header["base_offset"]), int(header["epoch"]), int(header["crc"]), snapshot
                    )
        return Position(offset, snapshot=snapshot)

    def changed(self, position: Position) -> bool:
        """Whether the batch before ``position`` is another one now: history was rewritten below it."""
        if position.base < 0:
            return False
        for file in self._files.values():
            for headers in file.headers:
                at = np.flatnonzero(headers["base_offset"] == position.base)
                if len(at):
                    found = headers[at[0]]
                    return (int(found["epoch"]), int(found["crc"])) != (position.epoch, position.crc)
        scanned = [file.segment.base_offset for file in self._files.values()]
        return bool(scanned) and min(scanned) <= position.base

    def covers(self, start: Position, end: Position) -> bool:
        """Whether the batches between two positions are scanned."""
        first = min((f.segment.base_offset for f in self._files.values()), default=-1)
        return (
            0 <= first <= max(start.offset, end.snapshot if end.snapshot != start.snapshot else 0, 0)
            and end.offset <= self._next
        )

    def first_offset(self) -> int:
        """The first offset that the log on disk still has, -1 where it has no segment."""
        return self.segments[0].base_offset if self.segments else -1

    # -- slices -------------------------------------------------------------------------------------------------

    def slices(self, start: Position, end: Position) -> Iterator[Slice]:
        """The slices between two positions, in log order: a snapshot first where ``end`` begins with another one."""
        first = max(start.offset, 0)
        if end.snapshot >= 0 and (end.snapshot != start.snapshot or start.offset < 0):
            yield from self._snapshot_slices(end.snapshot)
            first = max(first, end.snapshot)
        dropped = [(begin, close) for begin, close, aborted in self._transactions if aborted]
        for file in self._files.values():
            if not file.headers:
                continue
            headers = np.concatenate(file.headers)
            ends = headers["base_offset"] + headers["count"]
            headers = headers[(ends > first) & (headers["base_offset"] < end.offset)]
            for rows in _runs(headers):
                bounds = int(rows[0]["base_offset"]), int(rows[-1]["base_offset"]) + int(rows[-1]["count"])
                yield Slice(
                    location=self.log.location,
                    path=file.segment.path,
                    start=int(rows[0]["position"]),
                    end=int(rows[-1]["position"]) + int(rows[-1]["size"]),
                    first=max(first, bounds[0]),
                    last=min(end.offset, bounds[1]),
                    next_offset=bounds[0],
                    dropped=tuple((b, c) for b, c in dropped if b < bounds[1] and c > bounds[0]),
                )

    def _snapshot_slices(self, end_offset: int) -> Iterator[Slice]:
        matches = [s for s in self.snapshots if s.end_offset == end_offset]
        if not matches:
            raise UsageError(f"{self.log.location}: snapshot {end_offset} is gone; start a new lake")
        snapshot = matches[-1]
        data = self.log.read(snapshot.path, 0, snapshot.size)
        headers = scan(data, snapshot.path, next_offset=0).headers
        first_batch = read_batch(data[: int(headers[0]["size"])].tobytes(), 0, file=snapshot.path)
        if first_batch is None or not first_batch.control or type(first_batch.control[0]) is not SnapshotHeaderRecord:
            raise MalformedLog(snapshot.path, 0, "the snapshot does not begin with its header record")
        if (headers["epoch"] != snapshot.epoch).any():
            raise MalformedLog(snapshot.path, 0, f"a batch is not of the snapshot's epoch {snapshot.epoch}")
        taken_at = first_batch.control[0].last_contained_log_timestamp
        runs = list(_runs(headers))
        for index, rows in enumerate(runs):
            first, last = int(rows[0]["base_offset"]), int(rows[-1]["base_offset"]) + int(rows[-1]["count"])
            yield Slice(
                location=self.log.location,
                path=snapshot.path,
                start=int(rows[0]["position"]),
                end=int(rows[-1]["position"]) + int(rows[-1]["size"]),
                first=first,
                last=last,
                next_offset=first,
                snapshot=end_offset,
                snapshot_time=taken_at,
                closes=index == len(runs) - 1,
            )


def _runs(headers: np.ndarray) -> Iterator[np.ndarray]:
    """Cut consecutive batches into runs of about SLICE_BYTES."""
    if not len(headers):
        return
    sizes = np.cumsum(headers["size"].astype(np.int64))
    cuts = np.flatnonzero(np.diff(sizes // SLICE_BYTES)) + 1
    yield from np.split(headers, cuts)
