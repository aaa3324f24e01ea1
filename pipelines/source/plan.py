"""What of a metadata log may be read now, and in which slices: transactions, snapshots and cut tails are settled here.

The planner reads headers and transaction markers only; bodies are read by the workers, slice by slice. Rules:
Kafka's OffsetControlManager for transactions, RecordsIterator for batches, the KRaft loader for snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from jbod_model.errors import JbodError, LogChanged, MalformedLog, UsageError
from pipelines.formats.batches import BATCH_DTYPE, HEADER_BYTES, MAX_BATCH_BYTES
from pipelines.source.log_dir import LogDir, Segment, Snapshot
from pipelines.source.markers import is_idle
from pipelines.source.positions import Position, Slice, Tail, log_slices, snapshot_slices
from pipelines.source.snapshots import batches_of, check_follows, is_complete
from pipelines.source.sound_prefix import sound
from pipelines.source.tail import Settle
from pipelines.source.transactions import Transactions

_WINDOW = 4 << 20
_ATTEMPTS = 3


@dataclass
class _File:
    segment: Segment
    scanned: int = 0
    headers: list[np.ndarray] = field(default_factory=list)


class Planner:
    """Follows one log directory. ``refresh`` looks at the disk; the other methods answer from what was seen.

    What cannot be read ends what may be read (R-READ-1): it is refused once all before it was handed out.
    """

    def __init__(self, log: LogDir, *, cut_tail: str = "wait", settle: Settle | None = None) -> None:
        self.log = log
        self.limit: int | None = None
        """Nothing from this offset on may be read."""
        self.damage: MalformedLog | None = None
        """What is wrong after the last batch that was scanned."""
        self.tail: Tail | None = None
        self._cut_tail = cut_tail
        self._settle = settle or Settle()
        self._files: dict[str, _File] = {}
        self._transactions = Transactions()
        self._next = -1
        self._epoch = -1
        self._stirred = -1
        self._floor = 0
        self._frozen: tuple[list[Segment], list[Snapshot]] | None = None
        self.segments: list[Segment] = []
        self.snapshots: list[Snapshot] = []

    def freeze(self) -> None:
        """Take what is on disk now for all there will be: a run that is to end has an end."""
        self._frozen = self.log.files()

    def _forget(self) -> None:
        self._files.clear()
        self._transactions = Transactions()
        self._next, self._epoch, self._stirred = -1, -1, -1

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
        LogChanged where history below ``position`` is another one now; where nothing sound is left that may be read,
        what the log is refused for.
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
            check_follows(begun, self.scanned())
        if self._transactions.violation is not None:  # seen anew, lest a log that was rewritten meanwhile is blamed
            self._forget()
            self.refresh(position)
        if self.changed(position):
            raise self._rewritten(position)
        end = self.target(position, most)
        if end > position.offset:
            return self.position(end, position.snapshot)
        if begun is None and self.problem is not None:
            raise self.problem
        return position

    @property
    def problem(self) -> JbodError | None:
        """What the log is refused for after all that may be read, None where the log is sound so far."""
        found = self._transactions.violation or self.damage
        at = self._next if found is self.damage else found.offset  # type: ignore[union-attr]
        return found if self.limit is None or self.limit > at else None

    def check(self, offset: int) -> None:
        """Raise what is wrong with the log where that is below ``offset``."""
        if self.damage is not None and self._next < offset:
            raise self.damage

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
                self._refresh(position)
            except LogChanged:
                if attempt + 1 == _ATTEMPTS:
                    raise
                self._forget()
                continue
            if self.damage is None or not known:
                return

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
        self.damage = self.tail = None
        try:
            self._scan_all(wanted)
        except LogChanged:
            raise
        except MalformedLog as problem:
            self.damage = problem
        for path in [path for path in self._files if path not in {s.path for s in wanted}]:
            del self._files[path]

    def _reaches(self, index: int, floor: int) -> bool:
        return index + 1 == len(self.segments) or self.segments[index + 1].base_offset > floor

    def _scan_all(self, wanted: list[Segment]) -> None:
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

    def _scan(self, file: _File, size: int, *, last: bool) -> None:
        path, window = file.segment.path, _WINDOW
        while file.scanned < size:
            wanted = min(file.scanned + window, size)
            data = self.log.read(path, file.scanned, wanted)
            if file.scanned + len(data) < wanted:
                raise LogChanged(path, self._next, "the file was cut off while it was read")
            # What is decided here, about transactions above all, stands on these bytes.
            found = sound(data, path, next_offset=self._next, epoch=self._epoch)
            if len(found.headers):
                self._take(file, data, found.headers, found.marks)
            if found.problem is not None:
                raise found.problem
            if len(found.headers):
                continue
            if wanted < size and window > MAX_BATCH_BYTES:
                raise MalformedLog(path, self._next, f"batch length is out of range (byte {file.scanned})")
            if wanted == size:
                if not last or self._cut_tail == "fail":
                    raise MalformedLog(
                        path, self._next, f"batch is cut off at the end of the file (byte {file.scanned})"
                    )
                self.tail = Tail(path, size - file.scanned, self._next)
                return
            window *= 2

    def _take(self, file: _File, data: np.ndarray, headers: np.ndarray, marks: list[tuple[int, int]]) -> None:
        self._transactions.add(marks, self._floor)
        stirring = np.flatnonzero(~is_idle(data, headers))
        if len(stirring):
            self._stirred = int(headers["base_offset"][stirring[-1]] + headers["count"][stirring[-1]])
        headers["position"] += file.scanned
        file.headers.append(headers)
        last = headers[-1]
        self._epoch = int(last["epoch"])
        self._next = int(last["base_offset"]) + int(last["count"])
        file.scanned = int(last["position"]) + int(last["size"])

    # -- what may be read ---------------------------------------------------------------------------------------

    def end(self) -> int:
        """Offset after the last record that may be read: of a complete, settled batch, in no open transaction."""
        headers = self.headers()
        end = self._settle.end(headers, self._next)
        stops = [self.limit, None if self._transactions.violation is None else self._transactions.violation.offset]
        stop = min((stop for stop in stops if stop is not None), default=end)
        if stop < end and len(headers):
            ends = headers["base_offset"] + headers["count"]
            whole = ends[ends <= stop]
            end = int(whole[-1]) if len(whole) else int(headers["base_offset"][0])
        return self._transactions.outside(end)

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

    @property
    def epoch(self) -> int:
        """Epoch of the last batch scanned, -1 where there is none."""
        return self._epoch

    def headers(self) -> np.ndarray:
        """Headers (BATCH_DTYPE) of all batches scanned, in log order."""
        return np.concatenate([np.empty(0, BATCH_DTYPE), *(headers for _, headers in self.scanned())])

    def scanned(self) -> list[tuple[str, np.ndarray]]:
        """Path and headers (BATCH_DTYPE) of what was scanned, in log order."""
        return [(file.segment.path, headers) for file in self._files.values() for headers in file.headers]

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
        within = self._transactions.around(chosen)
        if within is None:
            return chosen
        return within[0] if within[0] > start else within[1]

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
        dropped = self._transactions.aborted()
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
