"""Decides how far a metadata log may be read now, and in which slices: transactions, snapshots and cut tails.

Theory of operation
-------------------
A *position* is an offset with the fingerprint (base offset, epoch, checksum) of the batch before it. A reader stands at
a position. The planner says where its next micro-batch ends and which *slices* it has: whole batches of one file.

The planner works in two steps. It *lists* the directory: segments and snapshots. It *scans* the segments, from the one
that holds the reader's position (pipelines.source.scan): headers, checksums and transaction markers, no bodies.
Workers read the bodies, slice by slice. A later refresh scans only what was appended.

Five things limit how far the log may be read. The lowest of their offsets wins:
- the last complete batch, as a batch that is cut off at the end of the last segment may be in the middle of a write;
- ``settle``, which stays behind the end of the log, because an election may remove it;
- the first damaged batch, and the first marker that breaks a transaction rule: everything before it is read first,
  then the log is refused (R-READ-1);
- ``limit``: where a replay was refused;
- an open transaction: its records may still be aborted (docs/spec/replay.md, "Transactions").

A log may change between two refreshes. If a file is gone, is shorter, or has another batch at the end of the scan, the
log was cut off: the planner drops the scan. If the batch before a position has another fingerprint, or a newer epoch
took its offsets, the log was rewritten: the planner raises LogChanged, and pipelines.run.rollback compares the lake.
Retention deletes the oldest segments; this is not a change. A reader below the first segment begins with a snapshot.

Order of calls:
1. The caller sets ``limit``, if at all, before any call, and calls ``freeze``, if at all, before 2 and 3.
2. ``begin`` says where a first read begins. A reader that resumes from its own position skips it.
3. ``advance`` looks at the disk and says where the next micro-batch ends.
4. ``covers``, ``holds``, ``is_quiet``, ``time`` and ``problem`` answer from what ``advance`` saw. They read no file.
5. ``slices`` of a micro-batch need an ``advance`` before, the one that gave its end or another one from its start.
   ``covers`` says whether there was one, ``holds`` whether the log is still the one that was planned.

Invariants:
- Scanned batches are sound and have no gap, and their epochs never decrease.
- A slice never divides a batch. A micro-batch never divides a transaction.
- The same bytes on disk give the same answers. The reader's clock does not matter.

A refresh lists the directory and reads the new bytes. Memory: the headers from the reader's segment on.

Rules: Kafka's OffsetControlManager for transactions, RecordsIterator for batches, the KRaft loader for snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from jbod_model.errors import JbodError, LogChanged, MalformedLog, UsageError
from pipelines.source.log_dir import LogDir, Segment, Snapshot
from pipelines.source.log_options import LogOptions, Settle
from pipelines.source.positions import Position, Slice, Tail, log_slices, snapshot_slices
from pipelines.source.scan import Scan, batches_of, check_follows, is_complete

_ATTEMPTS = 3


_Listing = tuple[list[Segment], list[Snapshot]]


class Planner:
    """Follows a log directory. ``refresh`` looks at the disk; the other methods answer from what was seen.

    Everything before damage is read first, then the log is refused (R-READ-1).
    """

    @classmethod
    def of(cls, options: LogOptions) -> Planner:
        """The planner of the log that the options of the data source name."""
        planner = cls(LogDir(options.path), tail=options.tail, settle=Settle.parse(options.settle))
        planner.limit = options.limit if options.limit >= 0 else None
        return planner

    def __init__(self, log: LogDir, *, tail: str = "wait", settle: Settle | None = None) -> None:
        self.log = log
        self.limit: int | None = None
        """Nothing from this offset on may be read."""
        self._tail = tail
        self._settle = settle or Settle()
        self._listing: _Listing | None = None
        self._frozen: _Listing | None = None
        self.scan = Scan(log, tail)
        """The part of the log that was read so far."""
        self._floor = 0
        """All transactions below this offset were read completely."""

    @property
    def segments(self) -> list[Segment]:
        """The segments at the last refresh."""
        return self._listed()[0]

    @property
    def snapshots(self) -> list[Snapshot]:
        """The snapshots at the last refresh."""
        return self._listed()[1]

    def _listed(self) -> _Listing:
        if self._listing is None:
            raise RuntimeError("a planner was asked before begin, advance or refresh read the disk")
        return self._listing

    def freeze(self) -> None:
        """Treats the present files as the whole log, so that a run that must end has an end."""
        self._frozen = self.log.files()

    def _forget(self) -> None:
        self.scan = Scan(self.log, self._tail)

    def _look(self, *, anew: bool = False) -> None:
        """Lists the directory. A frozen listing is renewed only if ``anew``: a file that it names is gone."""
        if anew and self._frozen is not None:
            self.freeze()
        self._listing = self._frozen or self.log.files()

    # -- where to begin -----------------------------------------------------------------------------------------

    def begin(self, start: str = "auto") -> Position:
        """Returns where a first read begins: offset 0 or the newest snapshot (``start``: auto, log or snapshot)."""
        self._look()
        first = self.first_offset()
        if start == "log" and first != 0:
            raise UsageError(f"{self.log.log_dir}: the log does not begin at 0 but at {first}; start from a snapshot")
        if start == "log" or (start == "auto" and first == 0):
            return Position(offset=0)
        return Position(offset=0) if self._snapshot(0) is None else Position()

    def _snapshot(self, least: int) -> Snapshot | None:
        """Returns the newest complete snapshot (R-LOG-3), None if the log alone is enough (R-LOG-4).

        It must reach offset ``least`` and the beginning of the log.
        """
        newest = self._newest_snapshot()
        end = 0 if newest is None else newest.end_offset
        first = self.first_offset()
        if first > end:
            cut = [snapshot.path for snapshot in self.snapshots if snapshot.end_offset >= first]
            why = ": copy its snapshots (*.checkpoint), too, or take those of another controller"
            if cut:
                why = f" ({', '.join(cut)} is not complete: take it from another controller)"
            raise MalformedLog(
                self.segments[0].path, end, f"gap: the log begins at {first} and no complete snapshot reaches it{why}"
            )
        if end < least:
            raise MalformedLog(self.log.log_dir, least, f"gap: no snapshot reaches offset {least}")
        return newest

    def _newest_snapshot(self) -> Snapshot | None:
        for _ in range(_ATTEMPTS):
            try:
                made = (snapshot for snapshot in reversed(self.snapshots) if snapshot.end_offset > 0)
                return next((snapshot for snapshot in made if is_complete(self.log, snapshot)), None)
            except LogChanged:  # deleted since it was listed: there is a newer one
                self._look(anew=True)
        return None

    def advance(self, position: Position, max_records: int | None = None) -> Position:
        """Returns the end of the next micro-batch, or ``position`` itself if there is nothing new.

        A reader without a position, or below the first offset on disk, begins with the newest snapshot. So does one at
        the end of a log that ends before it.
        Raises LogChanged if history below ``position`` was rewritten. If nothing more may be read and the log is
        damaged, raises ``problem``.
        """
        self._look()
        begun, reader_position = None, position
        if position.offset < 0 or self.first_offset() > position.offset:
            begun = self._snapshot(position.offset)
            end = 0 if begun is None else begun.end_offset
            if begun is not None and begun.epoch < position.epoch:
                raise self._rewritten(position)
            position = Position(end, snapshot=-1 if begun is None else end)
        self._read_on(position, looked=True)
        if self.first_offset() > position.offset:  # segments were deleted meanwhile
            return self.advance(reader_position, max_records)
        if begun is not None:
            check_follows(begun, self.scan.files())
        if self.scan.transactions.violation is not None:  # look again: the log may have been rewritten meanwhile
            self._forget()
            self.refresh(position)
        if self.scan.changed(position):
            raise self._rewritten(position)
        end = self.target(position, max_records)
        if end > position.offset:
            return self.scan.position(end, position.snapshot)
        if begun is None and (problem := self.problem) is not None:
            raise problem
        beyond = self._snapshot_beyond(position)
        return position if beyond is None else Position(beyond, snapshot=beyond)

    def _snapshot_beyond(self, position: Position) -> int | None:
        """The end of a complete snapshot that is after the log's: Kafka truncates the log to it (R-LOG-4)."""
        read = max(self.scan.next_offset, position.offset)
        if not any(snapshot.end_offset > read for snapshot in self.snapshots):
            return None  # no file is read
        newest = self._newest_snapshot()
        if newest is None or newest.epoch < max(self.scan.epoch, position.epoch):
            return None
        end = newest.end_offset
        return end if end > read and (self.limit is None or end <= self.limit) else None

    @property
    def problem(self) -> JbodError | None:
        """The error to raise after all that may be read was read, None if the log is sound so far."""
        error = self.scan.transactions.violation or self.scan.damage
        if error is None:
            return None
        at = self.scan.next_offset if error is self.scan.damage else error.offset
        return self._with_a_way_out(error) if self.limit is None or self.limit > at else None

    def _with_a_way_out(self, error: JbodError) -> JbodError:
        """The error, and what to do about damage."""
        if not isinstance(error, MalformedLog):
            return error
        todo = "take the file from another controller"
        newest = None
        with suppress(JbodError):  # a snapshot that is damaged, too, is no way out
            newest = self._newest_snapshot()
        if newest is not None and newest.end_offset > error.offset:
            todo += f", or begin a new lake with the snapshot at {newest.end_offset}: jbod replay --start snapshot"
        return MalformedLog(error.file, error.offset, f"{error.problem}: {todo}")

    def check(self, offset: int) -> None:
        """Raises the error of the log if it is below ``offset``."""
        if self.scan.damage is not None and self.scan.next_offset < offset:
            raise self._with_a_way_out(self.scan.damage)

    def ends_with(self, end: int, epoch: int, crc: int) -> bool:
        """Whether nothing after ``end`` may be read yet, and the batch before it has this epoch and checksum.

        With another batch there the log was rewritten, so nothing from ``end`` on is judged. Raises the error of a log
        that is refused before or at ``end``.
        """
        here = Position(end)
        self.refresh(here)
        self.check(end)
        there = self.scan.position(end, -1)
        return (there.epoch, there.crc) == (epoch, crc) and self.advance(here) == here

    def _rewritten(self, position: Position) -> LogChanged:
        return LogChanged(
            self.log.log_dir, position.base, "history changed: the batch that was read there is another one now"
        )

    # -- what is on disk ----------------------------------------------------------------------------------------

    def refresh(self, position: Position) -> None:
        """Scans what is new on disk, from the segment that holds ``position`` on.

        Kafka may be writing at the same moment, so bytes that cannot be read are read once more before the refusal.
        """
        self._read_on(position, looked=False)

    def _read_on(self, position: Position, *, looked: bool) -> None:
        """``looked``: whether the directory was listed just now."""
        for attempt in range(_ATTEMPTS):
            known = self.scan.is_begun
            try:
                if attempt > 0 or not looked:
                    self._look(anew=attempt > 0)
                # A scan that ends before the log begins has nothing to do with it any more: a reader slept too long.
                if self.scan.is_cut(self.segments) or 0 <= self.scan.next_offset < self.first_offset():
                    self._forget()
                self._refresh(position)
            except LogChanged:
                if attempt + 1 == _ATTEMPTS:
                    raise
                self._forget()
                continue
            if self.scan.damage is None or not known:
                return

    def _refresh(self, position: Position) -> None:
        self._floor = max(self._floor, position.offset)
        # Include the batch before the position: its fingerprint is compared.
        floor = max(position.base if position.base >= 0 else position.offset, 0)
        self.scan.read_on(self.segments, floor, self._floor)

    # -- what may be read ---------------------------------------------------------------------------------------

    def end(self) -> int:
        """Offset after the last record that may be read: in a complete batch, not held back, in no open transaction."""
        end = self.scan.next_offset
        if self._settle != Settle():
            end = self._settle.end(self.scan.headers(), end)
        stops = [
            self.limit,
            None if self.scan.transactions.violation is None else self.scan.transactions.violation.offset,
        ]
        stop = min((stop for stop in stops if stop is not None), default=end)
        if stop < end and len(headers := self.scan.headers()):
            ends = headers["base_offset"] + headers["count"]
            whole = ends[ends <= stop]
            end = int(whole[-1]) if len(whole) else int(headers["base_offset"][0])
        return self.scan.transactions.outside(end)

    def target(self, position: Position, max_records: int | None) -> int:
        """The end of the next micro-batch: at most ``max_records``, whole batches, whole transactions."""
        end = self.end()
        start = position.offset
        if max_records is None or start + max_records >= end:
            return max(end, start)
        headers = self.scan.headers()
        ends = headers["base_offset"] + headers["count"]
        ends = ends[(ends > start) & (ends <= end)]
        if not len(ends):
            return max(end, start)
        fits = ends[ends <= start + max_records]
        chosen = int(fits[-1]) if len(fits) else int(ends[0])
        within = self.scan.transactions.around(chosen)
        if within is None:
            return chosen
        return within[0] if within[0] > start else within[1]

    def holds(self, position: Position) -> bool:
        """Whether the batch before ``position`` is the one it names."""
        return position.base < 0 or self.scan.position(position.offset, position.snapshot) == position

    def first_offset(self) -> int:
        """The first offset that the log on disk still has, -1 if it has no segment."""
        return self.segments[0].base_offset if self.segments else -1

    # -- slices -------------------------------------------------------------------------------------------------

    def micro_batches(
        self, position: Position, max_records: int | None = None
    ) -> Iterator[tuple[Position, list[Slice]]]:
        """The micro-batches from ``position`` to the end of what may be read: the end and the slices of each."""
        while (end := self.advance(position, max_records)) != position:
            yield end, list(self.slices(position, end))
            position = end

    def slices(self, start: Position, end: Position) -> Iterator[Slice]:
        """The slices between two positions, in log order. If ``end`` names a newer snapshot, its slices come first."""
        self._listed()  # raises RuntimeError before step 2 or 3
        first = max(start.offset, 0)
        if end.snapshot >= 0 and (end.snapshot != start.snapshot or start.offset < 0):
            yield from self._snapshot_slices(end.snapshot)
            first = max(first, end.snapshot)
        begins = self.scan.first_offset()
        if begins is not None and begins > first:
            raise LogChanged(self.log.log_dir, first, "the planned batches are no longer complete")
        dropped = self.scan.transactions.aborted()
        for segment, headers in self.scan.files():
            yield from log_slices(self.log.log_dir, segment.path, headers, first, end.offset, dropped)

    def _snapshot_slices(self, end_offset: int) -> Iterator[Slice]:
        for snapshot in reversed(self.snapshots):
            if snapshot.end_offset == end_offset and (batches := batches_of(self.log, snapshot)) is not None:
                yield from snapshot_slices(self.log.log_dir, snapshot, *batches)
                return
        raise LogChanged(self.log.log_dir, end_offset, "the planned snapshot was deleted")


def lines_of_end(planner: Planner) -> tuple[Tail | None, list[str]]:
    """The incomplete batch at the end of the log that a planner has scanned, and a line for all that waits there."""
    log, begin, lines = planner.log, planner.scan.transactions.open_from, []
    if begin is not None:
        lines.append(
            f"{log.log_dir}: the transaction at offset {begin} has not ended: it is read, with all after it, when it "
            "ends"
        )
    if planner.scan.tail is not None:
        tail = planner.scan.tail
        lines.append(
            f"{log.log_dir}: the log ends within a batch at offset {tail.offset}: {tail.path} has {tail.size} bytes "
            "of it; it is read when it is complete"
        )
        return tail, lines
    empty = [segment for segment in planner.segments[-1:] if segment.size == 0]
    return None, [*lines, *(f"{segment.path}: is empty; it is read when it has records" for segment in empty)]
