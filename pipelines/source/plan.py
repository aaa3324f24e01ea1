"""What of a metadata log may be read now, and in which slices: transactions, snapshots and cut tails are settled here.

The planner reads headers and transaction markers only; bodies are read by the workers, slice by slice. Rules:
Kafka's OffsetControlManager for transactions, RecordsIterator for batches, the KRaft loader for snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from jbod_model.errors import LogChanged, MalformedLog, ReplayViolation, UsageError
from pipelines.formats.batches import BATCH_DTYPE, HEADER_BYTES, MAX_BATCH_BYTES, scan, verify
from pipelines.source.log_dir import LogDir, Segment, Snapshot
from pipelines.source.markers import ABORT, BEGIN, is_idle, markers
from pipelines.source.pieces import Position, Slice, log_slices, snapshot_slices
from pipelines.source.settle import Settle
from pipelines.source.snapshots import batches_of, is_complete

_WINDOW = 4 << 20
_ATTEMPTS = 3


@dataclass
class _File:
    segment: Segment
    scanned: int = 0
    headers: list[np.ndarray] = field(default_factory=list)


class Planner:
    """Follows one log directory. ``refresh`` looks at the disk; the other methods answer from what was seen."""

    def __init__(self, log: LogDir, *, cut_tail: str = "wait", settle: Settle | None = None) -> None:
        self.log = log
        self.limit: int | None = None
        """Nothing from this offset on may be read."""
        self._cut_tail = cut_tail
        self._settle = settle or Settle()
        self._files: dict[str, _File] = {}
        self._begin: int | None = None
        self._transactions: list[tuple[int, int, bool]] = []
        self._next = -1
        self._epoch = -1
        self._stirred = -1
        self._violation: ReplayViolation | None = None
        self._floor = 0
        self._frozen: tuple[list[Segment], list[Snapshot]] | None = None
        self.segments: list[Segment] = []
        self.snapshots: list[Snapshot] = []

    def freeze(self) -> None:
        """Take what is on disk now for all there will be: a run that is to end has an end."""
        self._frozen = self.log.files()

    def _forget(self) -> None:
        self._files.clear()
        self._transactions.clear()
        self._begin, self._next, self._epoch, self._stirred = None, -1, -1, -1
        self._violation = None

    def _look(self, *, anew: bool = False) -> None:
        """List the directory; where the listing is frozen, only if what it lists is gone (``anew``)."""
        if anew and self._frozen is not None:
            self.freeze()
        self.segments, self.snapshots = self._frozen or self.log.files()

    # -- where to begin -----------------------------------------------------------------------------------------

    def begin(self, start: str = "auto") -> Position:
        """Where a first read begins: offset 0, or before the newest snapshot (``start``: auto, log or snapshot)."""
        self._look()
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
        newest = self._newest_snapshot()
        end = 0 if newest is None else newest.end_offset
        first = self.first_offset()
        if first > end:
            raise MalformedLog(
                self.segments[0].path, end, f"gap: the log begins at {first} and no complete snapshot reaches it"
            )
        if end < least:
            raise MalformedLog(self.log.location, least, f"gap: no snapshot reaches offset {least}")
        return newest

    def _newest_snapshot(self) -> Snapshot | None:
        for _ in range(_ATTEMPTS):
            try:
                made = (snapshot for snapshot in reversed(self.snapshots) if snapshot.end_offset > 0)
                return next((snapshot for snapshot in made if is_complete(self.log, snapshot)), None)
            except LogChanged:  # deleted since it was listed: there is a newer one
                self._look(anew=True)
        return None

    def advance(self, position: Position, most: int | None = None) -> Position:
        """Where the next micro-batch ends; ``position`` itself where there is nothing new.

        A reader that stands nowhere, or below the first offset that is left, begins with the newest snapshot.
        LogChanged where history below ``position`` is another one now.
        """
        self._look()
        begun, asked = None, position
        if position.offset < 0 or self.first_offset() > position.offset:
            begun = self._snapshot(position.offset)
            end = 0 if begun is None else begun.end_offset
            if begun is not None and begun.epoch < position.epoch:
                raise self._rewritten(position)
            position = Position(end, snapshot=-1 if begun is None else end)
        self.refresh(position)
        if self.first_offset() > position.offset:  # segments were deleted meanwhile
            return self.advance(asked, most)
        if begun is not None:
            self._check_follows(begun)
        if self._violation is not None:  # seen anew, lest a log that was rewritten meanwhile is blamed
            self._forget()
            self.refresh(position)
        if self.changed(position):
            raise self._rewritten(position)
        if self._violation is not None:
            raise self._violation
        end = self.target(position, most)
        return position if end <= position.offset else self.position(end, position.snapshot)

    def _rewritten(self, position: Position) -> LogChanged:
        return LogChanged(
            self.log.location, position.base, "history changed: the batch that was read there is another one now"
        )

    # -- what is on disk ----------------------------------------------------------------------------------------

    def refresh(self, position: Position) -> None:
        """Scan what is new on disk, from the segment that holds ``position`` on.

        What cannot be read may have been written at the same moment: it is looked at again before it is refused.
        """
        for attempt in range(_ATTEMPTS):
            known = bool(self._files)
            try:
                self._look(anew=attempt > 0)
                if self._is_cut():
                    self._forget()
                return self._refresh(position)
            except MalformedLog as problem:
                if attempt + 1 == _ATTEMPTS or not (known or isinstance(problem, LogChanged)):
                    raise
                self._forget()
        return None

    def _is_cut(self) -> bool:
        """Whether what was scanned is there no more: the tail was cut off, and perhaps written anew."""
        first = self.first_offset()
        sizes = {segment.path: segment.size for segment in self.segments}
        for file in self._files.values():
            # A segment that is gone below the first one left was deleted by retention, not by an election.
            behind = file.segment.path not in sizes and file.segment.base_offset < first
            if not behind and sizes.get(file.segment.path, -1) < file.scanned:
                return True
        read = [file for file in self._files.values() if file.headers and file.segment.path in sizes]
        if not read:
            return False
        last = read[-1].headers[-1][-1]
        start = int(last["position"])
        head = self.log.read(read[-1].segment.path, start, start + HEADER_BYTES).tobytes()
        said = head[:8], head[12:16], head[17:21]
        values = zip((last["base_offset"], last["epoch"], last["crc"]), (8, 4, 4), strict=True)
        return said != tuple(int(value).to_bytes(size, "big") for value, size in values)

    def _refresh(self, position: Position) -> None:
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
            wanted = min(file.scanned + window, size)
            data = self.log.read(file.segment.path, file.scanned, wanted)
            if file.scanned + len(data) < wanted:
                raise LogChanged(file.segment.path, self._next, "the file was cut off while it was read")
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
            stirring = np.flatnonzero(~is_idle(data, headers))
            if len(stirring):
                self._stirred = int(headers["base_offset"][stirring[-1]] + headers["count"][stirring[-1]])
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
                self._violate(offset, f"BeginTransactionRecord while that of offset {self._begin} is open (R-TXN-1)")
            self._begin = offset
            return
        if self._begin is None:
            name = "AbortTransactionRecord" if kind == ABORT else "EndTransactionRecord"
            self._violate(offset, f"{name} while no transaction is open (R-TXN-2, R-TXN-3)")
            return
        self._transactions.append((self._begin, offset, kind == ABORT))
        self._begin = None

    def _violate(self, offset: int, problem: str) -> None:
        if self._violation is None:
            self._violation = ReplayViolation(offset, problem)

    # -- what may be read ---------------------------------------------------------------------------------------

    def end(self) -> int:
        """Offset after the last record that may be read: of a complete, settled batch, in no open transaction."""
        end = self._settle.end(self.headers(), self._next)
        if self.limit is not None:
            end = min(end, self.limit)
        if self._begin is not None:
            end = min(end, self._begin)
        for begin, close, _ in reversed(self._transactions):
            if begin < end <= close:
                end = begin
        return end

    def is_quiet(self, start: Position, end: Position) -> bool:
        """Whether there are only NoOpRecords between two positions."""
        return self._stirred <= start.offset and end.snapshot == start.snapshot

    def time(self, offset: int) -> int:
        """Append time in milliseconds of the last batch before ``offset``, -1 where none was scanned."""
        headers = self.headers()
        rows = np.flatnonzero(headers["base_offset"] < offset)
        return int(headers["timestamp"][rows[-1]]) if len(rows) else -1

    @property
    def next_offset(self) -> int:
        """Offset after the last complete batch on disk, -1 where there is none."""
        return self._next

    def headers(self) -> np.ndarray:
        """Headers (BATCH_DTYPE) of all batches scanned, in log order."""
        return np.concatenate([np.empty(0, BATCH_DTYPE), *(h for file in self._files.values() for h in file.headers)])

    def target(self, position: Position, most: int | None) -> int:
        """The end of the next micro-batch: at most ``most`` records, whole batches, whole transactions."""
        end = self.end()
        start = position.offset
        if most is None or start + most >= end:
            return max(end, start)
        headers = self.headers()
        ends = headers["base_offset"] + headers["count"]
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
        if not scanned or min(scanned) <= position.base:
            # A log that only ends earlier disproves nothing.
            return bool(scanned) and (self._next > position.base or self._epoch > position.epoch)
        first = self.headers()[:1]  # below what the log still has only an older epoch after it tells
        return len(first) > 0 and int(first[0]["epoch"]) < position.epoch

    def holds(self, position: Position) -> bool:
        """Whether the batch before ``position`` is the one it names."""
        return position.base < 0 or self.position(position.offset, position.snapshot) == position

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
        if self._files and min(file.segment.base_offset for file in self._files.values()) > first:
            raise LogChanged(self.log.location, first, "what was planned is no longer all there")
        dropped = [(begin, close) for begin, close, aborted in self._transactions if aborted]
        for file in self._files.values():
            if file.headers:
                headers = np.concatenate(file.headers)
                yield from log_slices(self.log.location, file.segment.path, headers, first, end.offset, dropped)

    def _snapshot_slices(self, end_offset: int) -> Iterator[Slice]:
        matches = [snapshot for snapshot in self.snapshots if snapshot.end_offset == end_offset]
        if not matches:
            raise LogChanged(self.log.location, end_offset, "the snapshot that was to be read is gone")
        headers, taken_at = batches_of(self.log, matches[-1])
        yield from snapshot_slices(self.log.location, matches[-1], headers, taken_at)
