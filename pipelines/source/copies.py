"""Several controllers' copies of one log, which settle it by majority.

A batch is taken once more than half of the copies hold it, the same offset, epoch and checksum, and the newest epoch
that any of them has seen is among what a majority holds: an older epoch's batch on a majority may still be replaced
(Raft, section 5.4.2). By log matching all before such a batch is the same, too. Give the copies of all voters, and no
others: an observer's copy has no vote in Kafka either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jbod_model.errors import JbodError, LogChanged, MalformedLog, UsageError
from pipelines.source.log_dir import LogDir
from pipelines.source.pieces import Position, Slice
from pipelines.source.plan import Planner
from pipelines.source.settle import Settle

_Batch = tuple[int, int, int, int]
"""Base offset, end offset, epoch, CRC-32C."""


@dataclass(frozen=True)
class Fork:
    """A copy whose log parts at ``offset`` from that of another: the epochs that they hold there."""

    offset: int
    location: str
    epoch: int
    other: str
    other_epoch: int

    def __str__(self) -> str:
        return (
            f"the copies part at offset {self.offset}: {self.location} has a batch of epoch {self.epoch}, "
            f"{self.other} one of epoch {self.other_epoch}; what a majority holds counts"
        )


class Copies:
    """Answers as a Planner does, for what a majority of the copies holds; slices are read from one that holds it."""

    def __init__(self, locations: Sequence[str], *, cut_tail: str = "wait", settle: Settle | None = None) -> None:
        self._locations = list(locations)
        self._options = {"cut_tail": cut_tail, "settle": settle}
        self._planners: dict[str, Planner] = {}
        self._silent: dict[str, JbodError] = {}
        self._frozen = False
        self._open()
        names = {planner.log.cluster_id() for planner in self._planners.values()} - {""}
        if len(names) > 1:
            raise UsageError(f"{', '.join(self._locations)}: copies of several clusters ({', '.join(sorted(names))})")

    @property
    def majority(self) -> int:
        """How many copies must agree."""
        return len(self._locations) // 2 + 1

    @property
    def log(self) -> LogDir:
        """The first copy that can be read."""
        return next(iter(self._planners.values())).log

    @property
    def silent(self) -> dict[str, JbodError]:
        """Copies that cannot be read now, and why: they have no vote."""
        return dict(self._silent)

    def begin(self, start: str = "auto") -> Position:
        """Where a first read begins, by the first copy that can tell."""
        problems = []
        for planner in self._planners.values():
            try:
                return planner.begin(start)
            except JbodError as problem:
                problems.append(problem)
        raise problems[0]

    def freeze(self) -> None:
        """Take what is on disk now for all there will be."""
        self._frozen = True
        for planner in self._planners.values():
            planner.freeze()

    def advance(self, position: Position, most: int | None = None) -> Position:
        """Where the next micro-batch ends, as Planner.advance; ``position`` where the majority holds no more."""
        chosen, end = self.settled(position)
        if chosen is None:
            return position
        chosen.limit = end
        return chosen.advance(position, most)

    def settled(self, position: Position) -> tuple[Planner | None, int]:
        """(a copy that holds all that a majority does, the offset after it); (None, -1) where nothing is settled."""
        self._refresh(position)
        floor = position.base if position.base >= 0 else position.offset - 1
        held = {location: _batches(planner, floor) for location, planner in self._planners.items()}
        newest = max((batch[2] for batches in held.values() for batch in batches), default=-1)
        votes = Counter(batch for batches in held.values() for batch in batches)
        agreed = max((batch for batch, count in votes.items() if count >= self.majority), default=None)
        if agreed is None or agreed[2] < newest:
            return None, -1
        holders = [planner for location, planner in self._planners.items() if agreed in held[location]]
        # One that also has what was read, if there is one: a copy that lags behind takes nothing back.
        holders.sort(key=lambda planner: (planner.changed(position), planner.first_offset() > position.offset))
        return holders[0], agreed[1]

    def slices(self, start: Position, end: Position) -> Iterator[Slice]:
        """The slices between two positions."""
        return self._holding(start, end).slices(start, end)

    def covers(self, start: Position, end: Position) -> bool:
        """Whether the batches between two positions are scanned."""
        return any(planner.covers(start, end) for planner in self._planners.values())

    def is_quiet(self, start: Position, end: Position) -> bool:
        """Whether there are only NoOpRecords between two positions."""
        return all(planner.is_quiet(start, end) for planner in self._planners.values())

    def time(self, offset: int) -> int:
        """Append time in milliseconds of the last batch before ``offset``, -1 where none was scanned."""
        return max(planner.time(offset) for planner in self._planners.values())

    def holds(self, position: Position) -> bool:
        """Whether a copy has the batch before ``position`` as it was planned."""
        return any(planner.holds(position) for planner in self._planners.values())

    def forks(self) -> list[Fork]:
        """Where copies part from the first that can be read, each once."""
        found = []
        held = [(location, planner.headers()) for location, planner in self._planners.items()]
        for location, headers in held[1:]:
            other, known = held[0]
            _, mine, theirs = np.intersect1d(headers["base_offset"], known["base_offset"], return_indices=True)
            same = (headers["epoch"][mine] == known["epoch"][theirs]) & (headers["crc"][mine] == known["crc"][theirs])
            at = np.flatnonzero(~same)
            if len(at):
                one, two = headers[mine[at[0]]], known[theirs[at[0]]]
                found.append(Fork(int(one["base_offset"]), location, int(one["epoch"]), other, int(two["epoch"])))
        return found

    def _open(self) -> None:
        for location in self._locations:
            if location in self._planners:
                continue
            try:
                planner = Planner(LogDir(location), **self._options)  # type: ignore[arg-type]
                if self._frozen:
                    planner.freeze()
                self._planners[location] = planner
            except JbodError as problem:
                self._silent[location] = problem
        if len(self._planners) < self.majority:
            why = "; ".join(str(problem) for problem in self._silent.values())
            raise UsageError(f"only {len(self._planners)} of {len(self._locations)} copies can be read: {why}")

    def _refresh(self, position: Position) -> None:
        self._silent.clear()
        self._open()
        for location, planner in list(self._planners.items()):
            try:
                planner.refresh(position)
            except (JbodError, OSError) as problem:
                del self._planners[location]
                self._silent[location] = problem if isinstance(problem, JbodError) else UsageError(str(problem))
        if len(self._planners) < self.majority:
            self._raise()

    def _raise(self) -> None:
        damaged = next((p for p in self._silent.values() if isinstance(p, MalformedLog)), None)
        raise damaged or next(iter(self._silent.values()))

    def _holding(self, start: Position, end: Position) -> Planner:
        for planner in self._planners.values():
            there = end.snapshot in (-1, start.snapshot) or any(s.end_offset == end.snapshot for s in planner.snapshots)
            if there and planner.covers(start, end) and planner.holds(end):
                return planner
        raise LogChanged(self._locations[0], end.base, "no copy holds what was planned any more")


def _batches(planner: Planner, floor: int) -> set[_Batch]:
    """The batches of a copy from an offset on."""
    headers = planner.headers()
    headers = headers[headers["base_offset"] >= floor]
    columns = headers["base_offset"], headers["base_offset"] + headers["count"], headers["epoch"], headers["crc"]
    return set(zip(*(column.tolist() for column in columns), strict=True))
