"""Directories of several controllers with one log: a reader gets what they agree on, from one that holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jbod_model.errors import JbodError, LogChanged, MalformedLog, UsageError
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner
from pipelines.source.positions import Position, Slice
from pipelines.source.quorum import Held, judge, keys_of
from pipelines.source.snapshots import is_complete
from pipelines.source.tail import Settle
from pipelines.source.voters import SliceIds, voters_of


@dataclass(frozen=True)
class Fork:
    """Two directories whose logs differ from ``offset`` on, and the epochs that they hold there."""

    offset: int
    location: str
    epoch: int
    other: str
    other_epoch: int

    def __str__(self) -> str:
        return (
            f"the directories part at offset {self.offset}: {self.location} has a batch of epoch {self.epoch}, "
            f"{self.other} one of epoch {self.other_epoch}; what a majority holds counts"
        )


@dataclass(frozen=True)
class Agreed:
    """What the directories agree on: one that holds it (None for nothing), its end offset, whether it is committed."""

    chosen: Planner | None
    end: int
    is_committed: bool
    ahead: tuple[str, ...] = ()
    """A line for each directory that holds more."""


class LogDirs:
    """Answers as a Planner does, for what the directories agree on. Slices are read from one that holds them."""

    def __init__(self, locations: Sequence[str], *, tail: str = "wait", settle: Settle | None = None) -> None:
        self._locations = list(locations)
        self._options = {"tail": tail, "settle": settle}
        self._planners: dict[str, Planner] = {}
        self._silent: dict[str, JbodError] = {}
        self._nodes: dict[str, int] = {}
        self._named: dict[str, tuple[int, SliceIds | None]] = {}
        self._frozen = False
        self.limit: int | None = None
        """Nothing from this offset on may be read."""
        self._open()
        names = {planner.log.cluster_id() for planner in self._planners.values()} - {""}
        if len(names) > 1:
            several = ", ".join(sorted(names))
            raise UsageError(f"{', '.join(self._locations)}: directories of several clusters ({several})")

    def afresh(self) -> LogDirs:
        """Returns the same directories in their initial state: none is open."""
        return LogDirs(self._locations, **self._options)  # type: ignore[arg-type]

    @property
    def log(self) -> LogDir:
        """The first directory that can be read."""
        return next(iter(self._planners.values())).log

    @property
    def silent(self) -> dict[str, JbodError]:
        """Directories that cannot be read now, or from some offset on, with the reason. They have no vote there."""
        damaged = {location: planner.damage for location, planner in self._planners.items() if planner.damage}
        return {**self._silent, **damaged}

    @property
    def problem(self) -> JbodError | None:
        """The error to raise after all that may be read was read: half of the directories or more are damaged."""
        damaged = [planner.damage for planner in self._planners.values() if planner.damage]
        sound = len(self._planners) - len(damaged)
        return damaged[0] if damaged and sound <= len(self._locations) // 2 else None

    def begin(self, start: str = "auto") -> Position:
        """Returns the start of a first read, from the first directory that has one."""
        problems = []
        for planner in self._planners.values():
            try:
                return planner.begin(start)
            except JbodError as problem:
                problems.append(problem)
        raise problems[0]

    def freeze(self) -> None:
        """Treats the present files as the whole log."""
        self._frozen = True
        for planner in self._planners.values():
            planner.freeze()

    def advance(self, position: Position, max_records: int | None = None) -> Position:
        """Returns the end of the next micro-batch, as Planner.advance; ``position`` if they agree on nothing more."""
        agreed = self.agreed(position)
        there = position
        if agreed.chosen is not None:
            agreed.chosen.limit = agreed.end if self.limit is None else min(agreed.end, self.limit)
            there = agreed.chosen.advance(position, max_records)
        if there == position and self.limit is None and self.problem is not None:
            raise self.problem
        return there

    def agreed(self, position: Position) -> Agreed:
        """What the directories agree on from ``position`` on."""
        self._refresh(position)
        if not self._frozen:
            # The first scan of a large log takes long. The second one brings all directories to the same moment.
            self._refresh(position)
        voting = self._voting()
        least = max(position.offset, 0)
        held = [self._held(planner, least) for planner in voting.values()]
        given = len(self._locations) - len(self._planners) + len(voting)
        voters = max(given, len(self.voters()))
        verdict = judge(held, voters=voters, given=given, least=least)
        end, committed, holders = -1, False, list(self._planners.values())
        if verdict is not None:
            end, committed = verdict.end, verdict.is_committed
            holders = [planner for planner, has in zip(voting.values(), verdict.holders, strict=True) if has]
        proven = self._proven(max(end, position.offset))
        if proven is not None:
            end, committed, holders = proven[0], True, proven[1]
        if end < 0:
            return Agreed(None, -1, is_committed=False)
        # Prefer a directory that also has what was read before: one that lags behind must not cause a rollback.
        holders.sort(key=lambda planner: (planner.changed(position), planner.first_offset() > position.offset))
        most = f"{voters // 2 + 1} of {voters} controllers"
        ahead = [_ahead(planner, end, most) for planner in voting.values() if planner in holders]
        return Agreed(holders[0], end, committed, tuple(filter(None, ahead)))

    def voters(self) -> frozenset[int]:
        """Ids of the voters that the newest directory names. Empty if no directory names any (R-QUORUM-1)."""
        named = []
        for location, planner in self._planners.items():
            if self._named.get(location, (-1, None))[0] != planner.epoch:
                self._named[location] = planner.epoch, voters_of(planner)
            named.append(self._named[location][1])
        return max((one for one in named if one is not None), default=(-1, -1, frozenset()))[2]

    def observers(self) -> dict[str, int]:
        """Directories of nodes that are not voters, by location, with the node id. They have no vote."""
        voters = self.voters()
        ids = {location: self._nodes[location] for location in self._planners}
        return {location: node for location, node in ids.items() if voters and node >= 0 and node not in voters}

    def unseen(self) -> list[int]:
        """Ids of voters whose directory was not given. Empty if the directories do not name their nodes."""
        known = set(self._nodes.values())
        return [] if -1 in known or len(known) < len(self._nodes) else sorted(self.voters() - known)

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
        """Append time in milliseconds of the last batch before ``offset``, -1 if none was scanned."""
        return max(planner.time(offset) for planner in self._planners.values())

    def holds(self, position: Position) -> bool:
        """Whether some directory has the batch before ``position`` as it was planned."""
        return any(planner.holds(position) for planner in self._planners.values())

    def forks(self) -> list[Fork]:
        """For each directory, the first batch that differs from that of the first readable directory."""
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

    def _voting(self) -> dict[str, Planner]:
        observers = self.observers()
        voting = {location: planner for location, planner in self._planners.items() if location not in observers}
        return voting or self._planners

    def _held(self, planner: Planner, least: int) -> Held:
        snapshots = [snapshot.epoch for snapshot in planner.snapshots]
        epoch = max([planner.epoch, *snapshots])
        return Held(keys_of(planner.headers(), least), epoch, planner.next_offset, planner.damage is None)

    def _proven(self, least: int) -> tuple[int, list[Planner]] | None:
        """End offset of the newest complete snapshot beyond an offset, and the directory that has it (R-QUORUM-5)."""
        there = [(snapshot, planner) for planner in self._planners.values() for snapshot in planner.snapshots]
        there.sort(key=lambda one: -one[0].end_offset)
        for snapshot, planner in there:
            if snapshot.end_offset > least and is_complete(planner.log, snapshot):
                end = snapshot.end_offset
                return end, [planner for other, planner in there if other.end_offset == end]
        return None

    def _open(self) -> None:
        for location in self._locations:
            if location in self._planners:
                continue
            try:
                planner = Planner(LogDir(location), **self._options)  # type: ignore[arg-type]
                if self._frozen:
                    planner.freeze()
                self._planners[location] = planner
                self._nodes[location] = planner.log.node_id()
            except JbodError as problem:
                self._silent[location] = problem
        if len(self._planners) <= len(self._locations) // 2:
            why = "; ".join(str(problem) for problem in self._silent.values())
            raise UsageError(f"only {len(self._planners)} of {len(self._locations)} directories can be read: {why}")

    def _refresh(self, position: Position) -> None:
        self._silent.clear()
        self._open()
        for location, planner in list(self._planners.items()):
            try:
                planner.refresh(position)
            except (JbodError, OSError) as problem:
                del self._planners[location]
                self._silent[location] = problem if isinstance(problem, JbodError) else UsageError(str(problem))
        if len(self._planners) <= len(self._locations) // 2:
            self._raise()

    def _raise(self) -> None:
        damaged = next((p for p in self._silent.values() if isinstance(p, MalformedLog)), None)
        raise damaged or next(iter(self._silent.values()))

    def _holding(self, start: Position, end: Position) -> Planner:
        for planner in self._planners.values():
            there = end.snapshot in (-1, start.snapshot) or any(s.end_offset == end.snapshot for s in planner.snapshots)
            if there and planner.covers(start, end) and planner.holds(end):
                return planner
        raise LogChanged(self._locations[0], end.base, "no directory holds the planned batches any longer")


def _ahead(planner: Planner, end: int, most: str) -> str:
    last = planner.next_offset - 1
    if last < end:
        return ""
    what = f"offsets {end} to {last}" if last > end else f"offset {end}"
    until = "they are published once {} hold them" if last > end else "it is published once {} hold it"
    return f"{planner.log.location}: is ahead of the others by {what} (epoch {planner.epoch}): {until.format(most)}"
