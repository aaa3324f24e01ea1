"""The replicas and disks of a cluster as columns of numbers: what every plan is made from.

Rows are partitions, in the order of topic and number, and slots are their replicas, as in
``pipelines.ask.restart_columns``. A replica is on a disk; disks are numbered from 0. Sizes are those of a source
(``pipelines.ask.sizes``). Without a source, every replica counts 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jbod_model.errors import UsageError
from jbod_model.ids import ID_TABLES, IdTable, Uuid
from pipelines.ask.advice import MOST_NAMES, few
from pipelines.ask.log_dirs import BrokerLogDir
from pipelines.ask.lost_data import complete_copies
from pipelines.ask.restart_columns import Columns, Flags, Numbers, columns
from pipelines.ask.sizes import CERTAIN, LIKELY, Sizes, sizes
from pipelines.ask.starting import not_taken_back, without_a_disk
from pipelines.lake.reader import Lake

Bytes = npt.NDArray[np.int64]
Loads = npt.NDArray[np.float64]

ANY = "any"
"""What a reassignment file names where Kafka chooses the directory."""
HEADROOM = 10
"""Percent of a disk that plans leave free, unless another number is given."""

NOWHERE = ("unassigned", "migrating")
"""Kinds of directory ids that say no directory."""
OPEN, DOWN, OFFLINE, CORDONED, NO_PATH, NO_SIZE, HALTED = range(7)
CLOSED = {
    DOWN: "its broker is down or is shutting down",
    OFFLINE: "it is offline",
    CORDONED: "it is cordoned, see cordoned.log.dirs of its broker",
    NO_PATH: "its path is not known: give --sizes, or see jbod label",
    NO_SIZE: "no source says its size",
    HALTED: "its broker has lost a disk, and moves nothing between the others until it is restarted without that",
}
"""Why no replica can be put on a disk."""
_CHOSEN = (OPEN, NO_PATH, NO_SIZE, HALTED)
"""Of these Kafka may choose one for a new replica."""


@dataclass(frozen=True)
class PlanDisks:
    """The disks. Arrays have an element for each."""

    broker: Numbers
    """The number of its broker in ``Columns.brokers``."""
    ids: Sequence[str]
    """The directory id; empty for the one that Kafka chooses, where no path of the broker is known."""
    paths: Sequence[str]
    """``any`` where Kafka chooses, empty if it is unknown."""
    likely: Flags
    """Whether path and id are a pair that is only likely."""
    state: npt.NDArray[np.int8]
    """OPEN, or why nothing can be put on it: a key of ``CLOSED``."""
    total: Bytes
    """The size of its file system, -1 if it is unknown."""
    load: Loads
    """Bytes on it, with those that moves under way will add; replicas if there are no sizes."""
    nowhere: Flags
    """Whether it stands for the replicas of which the log says no directory."""
    whole: Flags
    """Whether its broker has lost no disk. It begins no copy between disks otherwise (R-HOST-5)."""
    parts: Numbers
    """Directories of which Kafka chooses one; 1 for a disk of its own."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Problem:
    """A cluster at an offset, as plans see it."""

    state: Columns
    disks: PlanDisks
    place: Numbers
    """Partition, slot -> the disk, as the solver sees it: ``state.directory``, as the first disks are its directories.
    Where Kafka chooses the directory, all replicas of the broker are on one disk."""
    reported: Numbers
    """Partition, slot -> the disk by the log, and by the sources where that says no directory; -1 for no replica."""
    errors: Mapping[tuple[int, str], str]
    """(broker, path) -> why its broker cannot read it, empty if it can: the log directories that sources list."""
    bytes: Bytes
    """Partition, slot -> its size; that of the largest replica if its own is not known."""
    busy: Flags
    """Partitions that are being reassigned, or of which a replica is being moved between disks."""
    late: Numbers
    """Partition -> numbers of the brokers that take it back after a restart only (R-HOST-3); -1 for none."""
    empty: Flags
    """Partition, slot -> whether the replica is eligible, and lacks writes that the leader has (R-QUIRK-3)."""
    headroom: float
    """The part of a disk that stays free: 0 to 1."""
    sized: bool
    """Whether a source says the sizes."""
    notes: Sequence[str]

    @cached_property
    def by_path(self) -> Mapping[tuple[int, str], int]:
        """(broker, path) -> disk: of several with one path, the one that the broker lists."""
        brokers = self.state.brokers[self.disks.broker].tolist()
        listed = {broker: {*map(str, of.directories or ())} for broker, of in self.state.registered.items()}
        places = [*zip(brokers, self.disks.paths, self.disks.ids, range(len(self.disks)), strict=True)]
        places.sort(key=lambda place: place[2] in listed.get(place[0], ()))
        return {(broker, path): disk for broker, path, _, disk in places if path not in ("", ANY)}

    @cached_property
    def largest(self) -> Bytes:
        """What a new replica of each partition takes."""
        maximum: Bytes = self.bytes.max(axis=1, initial=0)
        return maximum

    @cached_property
    def limit(self) -> Loads:
        """What each disk may hold; infinite if its size is not known."""
        known = self.disks.total >= 0
        return np.where(known & self.sized, self.disks.total * (1 - self.headroom), np.inf)

    @cached_property
    def chosen(self) -> Flags:
        """The disks that Kafka may choose for a new replica: that with the fewest (LogManager.nextLogDirs)."""
        candidates: Flags = np.isin(self.disks.state, _CHOSEN) & ~self.disks.nowhere
        return candidates

    @cached_property
    def count(self) -> Bytes:
        """Replicas on each disk."""
        return np.bincount(self.place[self.place >= 0], minlength=len(self.disks))

    @cached_property
    def runs(self) -> Flags:
        """Which brokers run: they are unfenced, and not shutting down."""
        able = [broker for broker, registration in self.state.registered.items() if registration.is_active]
        active: Flags = np.isin(self.state.brokers, np.array(able, np.int64))
        return active

    @cached_property
    def racks(self) -> Numbers:
        """A number for the rack of each broker, -1 if it has none."""
        names: dict[str, int] = {}
        known = (self.state.registered.get(broker) for broker in self.state.brokers.tolist())
        rack_names = [None if registration is None else registration.rack for registration in known]
        return np.array([-1 if rack is None else names.setdefault(rack, len(names)) for rack in rack_names], np.int32)

    @cached_property
    def by_size(self) -> bool:
        """Whether disks are compared by the part of their size that is used: that of every open one is known."""
        return self.sized and bool((self.disks.total[self.disks.state == OPEN] > 0).all())

    @cached_property
    def fit(self) -> Loads:
        """By what the load of a disk is divided to compare it with others."""
        return (
            np.maximum(self.disks.total, 1).astype(np.float64) if self.by_size else self.disks.parts.astype(np.float64)
        )

    def refusal(self, broker: int, path: str) -> str:
        """Why the broker refuses a path of a reassignment by the sources; empty if they say nothing against it."""
        if (broker, path) in self.errors:
            error = self.errors[broker, path]
            return f"{path} of broker {broker}: {error}" if error else ""
        return f"broker {broker} has no log directory {path}" if broker in {at for at, _ in self.errors} else ""

    def disk_name(self, disk: int) -> str:
        """``/data/a of broker 1``"""
        broker = int(self.state.brokers[self.disks.broker[disk]])
        name = self.disks.paths[disk] or self.disks.ids[disk]
        return f"broker {broker}" if name in ("", ANY) else f"{name} of broker {broker}"

    def disk_names(self, disks: Sequence[int]) -> str:
        """The names of the first disks, and how many more there are."""
        return few([*map(self.disk_name, disks)])

    def state_of(self, disk: int) -> str:
        """The same, without a reason if it is open."""
        return self.disk_name(disk) if self.disks.state[disk] == OPEN else self.why_closed(disk)

    def why_closed(self, disk: int) -> str:
        """``/data/a of broker 1: it is offline``"""
        return f"{self.disk_name(disk)}: {CLOSED[int(self.disks.state[disk])]}"

    def why_all_closed(self, disks: Sequence[int]) -> str:
        """The same of the first disks, and how many more there are; empty if there are none."""
        disks = [disk for disk in disks if not self.disks.nowhere[disk]]
        more = [f"and {len(disks) - MOST_NAMES:,} more"] if len(disks) > MOST_NAMES else []
        return "; ".join([*map(self.why_closed, disks[:MOST_NAMES]), *more])


def problem(lake: Lake, sources: Sequence[str] = (), default_min_isr: int = 1, headroom: int = HEADROOM) -> Problem:
    """The cluster at the lake's offset. ``sources``: of sizes, as for jbod sizes; without any, replicas are counted."""
    state = columns(lake, default_min_isr)
    source_sizes = sizes(lake, sources) if sources else None
    made = _Table.of(lake, state, source_sizes)
    busy = (state.adding | state.removing).any(axis=1) | state.strange
    bytes_of = np.where(state.there, 1, 0).astype(np.int64)
    rows = _rows_of(state, () if source_sizes is None else source_sizes.log_dirs)
    if source_sizes is not None:
        if len(rows.row) and not (rows.row >= 0).any():
            raise UsageError(
                f"{', '.join(sources)}: none of its {len(rows.row):,} replicas is in the log at offset {lake.offset}: "
                "it is of another cluster, or of another time"
            )
        bytes_of = _bytes(state, rows)
        moving = np.flatnonzero((rows.row >= 0) & rows.future)
        # a move between disks ends with the disk that it copies from
        busy[rows.row[moving[state.online[rows.row[moving], rows.slot[moving]]]]] = True
    held, ids = state.directory, ID_TABLES[lake.published.ids]
    load = _load(made, source_sizes)
    reported = held
    if source_sizes is not None:
        reported = _reserve(load, made, source_sizes, rows, bytes_of, ids)
    disks = made.disks(load, source_sizes is not None, ids)
    place = held if not made.merged else np.where(held >= 0, np.array(made.merged_into(), np.int32)[held], -1)
    return Problem(
        state=state,
        disks=disks,
        place=place.astype(np.int32),
        reported=reported.astype(np.int32),
        errors={
            (log_dir.broker_id, log_dir.path): log_dir.error
            for log_dir in (() if source_sizes is None else source_sizes.log_dirs)
            if log_dir.broker_id is not None
        },
        bytes=bytes_of,
        busy=busy,
        late=_late(lake, state),
        empty=_empty(lake, state, default_min_isr),
        headroom=headroom / 100,
        sized=source_sizes is not None,
        notes=[] if source_sizes is None else list(source_sizes.notes),
    )


def _late(lake: Lake, state: Columns) -> Numbers:
    failed = not_taken_back(lake)
    row_of = {key: row for row, key in state.among({key[:2] for key in failed}).items()} if failed else {}
    brokers: dict[int, list[int]] = {}
    for topic, number, broker in failed:
        brokers.setdefault(row_of[topic, number], []).append(int(np.searchsorted(state.brokers, broker)))
    late = np.full((len(state), max(map(len, brokers.values()), default=0)), -1, np.int32)
    for row, numbers in brokers.items():
        late[row, : len(numbers)] = numbers
    return late


def _empty(lake: Lake, state: Columns, default_min_isr: int) -> Flags:
    empty = np.zeros_like(state.elr)
    rows = np.flatnonzero(state.elr.any(axis=1) & (state.leader >= 0))
    copies = complete_copies(lake, (), default_min_isr) if len(rows) else {}
    for row, partition in zip(rows.tolist(), state.named(rows), strict=True):
        complete = copies.get((partition["topic_id"], partition["partition"]))
        if complete is not None:
            empty[row] = state.elr[row] & ~np.isin(state.brokers[state.replicas[row]], [*complete])
    return empty


# DISKS


@dataclass
class _Table:
    """Collects the disks: those that replicas name, those that brokers list, and one where Kafka chooses."""

    state: Columns
    keys: dict[tuple[int, str], int]
    """(number of the broker, directory id) -> disk."""
    path: list[str]
    likely: list[bool]
    closed: list[int]
    total: list[int]
    parts: list[int]
    merged: dict[int, int]
    """Broker -> the disk that stands for all its directories that are online."""
    reports: dict[tuple[int, str], Any]
    """(number of the broker, directory id) -> what the sources say of it."""

    lost: Sequence[int]
    """Brokers of which the log or a source says that a directory cannot be read."""

    @classmethod
    def of(cls, lake: Lake, state: Columns, source_sizes: Sizes | None) -> _Table:
        keys = {directory: number for number, directory in enumerate(state.directories)}
        where = {broker: number for number, broker in enumerate(state.brokers.tolist())}
        for broker, registered in state.registered.items():
            for directory in registered.directories or ():
                keys.setdefault((where[broker], str(directory)), len(keys))
        described = {}
        for report in () if source_sizes is None else source_sizes.directories:
            if report.path is not None and report.directory_id is not None and report.pairing in (CERTAIN, LIKELY):
                described[where.get(report.broker_id, -1), report.directory_id] = report
        unread = [] if source_sizes is None else [each.broker_id for each in source_sizes.directories if each.error]
        lost = [where.get(broker, -1) for broker in (*without_a_disk(lake), *unread)]
        made = cls(state, keys, [], [], [], [], [], {}, described, lost)
        for number, name in [*keys]:
            made._add(lake, number, name)
        for broker in range(len(state.brokers)):
            made._choose(broker, source_sizes is not None)
        return made

    def _add(self, lake: Lake, broker: int, directory: str) -> None:
        registered = self.state.registered.get(int(self.state.brokers[broker]))
        report = self.reports.get((broker, directory))
        name = lake.names.get(directory)
        path = report.path if report is not None else (name.path if name is not None and name.path else "")
        listed = [] if registered is None else [str(each) for each in registered.directories or ()]
        cordoned = [] if registered is None else [str(each) for each in registered.cordoned_directories or ()]
        if registered is None or not registered.is_active:
            closed = DOWN
        elif directory not in listed or (report is not None and report.error):
            closed = OFFLINE
        elif directory in cordoned:
            closed = CORDONED
        else:
            closed = OPEN
        self.path.append(path)
        self.likely.append(report is not None and report.pairing == LIKELY)
        self.closed.append(closed)
        self.total.append(-1 if report is None or report.total_bytes is None else report.total_bytes)
        self.parts.append(1)

    def _choose(self, broker: int, sized: bool) -> None:
        """A broker with one directory needs no path; where no path is known, Kafka chooses among several."""
        registered = self.state.registered.get(int(self.state.brokers[broker]))
        if registered is None or not registered.is_active:
            return
        mine = [disk for (of, _), disk in self.keys.items() if of == broker]
        able = [disk for disk in mine if self.closed[disk] == OPEN]
        if len(able) == len(registered.directories or ()) == 1:
            self.path[able[0]] = self.path[able[0]] or ANY
        elif not sized and not any(self.path[disk] for disk in able) and (able or not registered.directories):
            self.merged[broker] = len(self.path)
            self.keys[broker, ""] = len(self.path)
            self.path.append(ANY)
            self.likely.append(False)
            self.closed.append(OPEN)
            self.total.append(-1)
            self.parts.append(max(1, len(able)))

    def merged_into(self) -> list[int]:
        """Disk -> the disk that stands for it."""
        stand_ins = [*range(len(self.path))]
        for (broker, directory), disk in self.keys.items():
            usable = self.closed[disk] in (OPEN, CORDONED) or not directory
            if broker in self.merged and usable:
                stand_ins[disk] = self.merged[broker]
        for broker, into in self.merged.items():
            nowhere = not self.state.registered[int(self.state.brokers[broker])].directories
            for (of, _), disk in self.keys.items():
                if of == broker and nowhere:
                    stand_ins[disk] = into
        return stand_ins

    def nowhere(self, ids: IdTable) -> Flags:
        """The disks that stand for the replicas of which the log says no directory."""
        return np.array([bool(name) and ids.kind(Uuid.parse(name)) in NOWHERE for _, name in self.keys], bool)

    def disks(self, load: Loads, sized: bool, ids: IdTable) -> PlanDisks:
        closed = np.array(self.closed, np.int8)
        unknown = np.array([not path for path in self.path], bool)
        closed = np.where((closed == OPEN) & unknown, NO_PATH, closed)
        if sized:
            described = np.array([key in self.reports and not self.reports[key].error for key in self.keys], bool)
            closed = np.where((closed == OPEN) & ~described, NO_SIZE, closed)
        broker = np.array([number for number, _ in self.keys], np.int32)
        whole = ~np.isin(broker, self.lost)
        several = np.bincount(broker[closed == OPEN], minlength=len(self.state.brokers))[broker] > 1
        closed = np.where((closed == OPEN) & ~whole & several, HALTED, closed)
        return PlanDisks(
            broker=broker,
            ids=[directory for _, directory in self.keys],
            paths=self.path,
            likely=np.array(self.likely, bool),
            state=closed.astype(np.int8),
            total=np.array(self.total, np.int64),
            load=load,
            nowhere=self.nowhere(ids),
            whole=whole,
            parts=np.array(self.parts, np.int32),
        )


# SIZES


@dataclass(frozen=True)
class _Rows:
    """What sources say of replicas. ``row``, ``slot``: -1 for one that the log does not have there."""

    row: npt.NDArray[np.int64]
    slot: npt.NDArray[np.int64]
    bytes: Bytes
    future: Flags
    source: npt.NDArray[np.int64]
    """Index of the directory in the sources."""


def _rows_of(state: Columns, log_dirs: Sequence[BrokerLogDir]) -> _Rows:
    broker_dirs = [log_dir for log_dir in log_dirs if log_dir.broker_id is not None]
    counts = [len(log_dir.replicas) for log_dir in broker_dirs]
    every = [replica for log_dir in broker_dirs for replica in log_dir.replicas]
    number = pc.cast(state.table["partition"], pa.string())
    names = pc.binary_join_element_wise(pc.cast(state.table["topic"], pa.string()), number, "-").combine_chunks()
    positions = pc.index_in(pa.array([replica_info.partition for replica_info in every], pa.string()), value_set=names)
    row = positions.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    broker = np.repeat(np.searchsorted(state.brokers, [log_dir.broker_id or 0 for log_dir in broker_dirs]), counts)
    ids = np.repeat(np.array([log_dir.broker_id or 0 for log_dir in broker_dirs], np.int64), counts)
    real = (broker < len(state.brokers)) & (row >= 0)
    real[real] = state.brokers[broker[real]] == ids[real]
    matches = np.zeros((len(every), state.replicas.shape[1]), bool)
    matches[real] = state.replicas[row[real]] == broker[real][:, None]
    there = matches.any(axis=1)
    return _Rows(
        np.where(there, row, -1),
        np.where(there, matches.argmax(axis=1) if len(every) else 0, -1),
        np.array([replica_info.bytes for replica_info in every], np.int64),
        np.array([replica_info.future for replica_info in every], bool),
        np.repeat([at for at, log_dir in enumerate(log_dirs) if log_dir.broker_id is not None], counts).astype(
            np.int64
        ),
    )


def _bytes(state: Columns, rows: _Rows) -> Bytes:
    reported_bytes = np.full(state.replicas.shape, -1, np.int64)
    current = (rows.row >= 0) & ~rows.future
    reported_bytes[rows.row[current], rows.slot[current]] = rows.bytes[current]
    largest = reported_bytes.max(axis=1, initial=0)
    filled: Bytes = np.where(state.there, np.where(reported_bytes < 0, largest[:, None], reported_bytes), 0)
    return filled


def _load(made: _Table, source_sizes: Sizes | None) -> Loads:
    """What is on each disk, in bytes if there are sizes."""
    size = len(made.path)
    if source_sizes is None:
        into, held = np.array(made.merged_into(), np.int64), made.state.directory
        counted: Loads = np.bincount(into[held[held >= 0]], minlength=size).astype(np.float64)
        return counted
    load: Loads = np.zeros(size, np.float64)
    for key, report in made.reports.items():
        disk = made.keys.get(key)
        if disk is None:
            continue
        known = report.total_bytes is not None and report.free_bytes is not None
        load[disk] = (
            report.total_bytes - report.free_bytes if known else (report.bytes or 0) + (report.future_bytes or 0)
        )
    return load


def _reserve(load: Loads, made: _Table, source_sizes: Sizes, rows: _Rows, bytes_of: Bytes, ids: IdTable) -> Numbers:
    """Adds what moves under way will add: the rest of replicas that join, and of copies between disks. Returns the disk
    of each replica, by the sources where the log says none.

    A replica that joins has no directory in the log at first, and often later (R-LOCAL-4): if the sources do not say
    where it is either, it counts on every disk of its broker.
    """
    state = made.state
    where = {(report.broker_id, report.path): report.directory_id for report in source_sizes.directories}
    number = {broker: at for at, broker in enumerate(state.brokers.tolist())}
    disk = [
        made.keys.get(
            (number.get(log_dir.broker_id or 0, -1), where.get((log_dir.broker_id or 0, log_dir.path)) or ""), -1
        )
        for log_dir in source_sizes.log_dirs
    ]
    known_bytes, place = np.zeros_like(bytes_of), state.directory.copy()
    nowhere = made.nowhere(ids)
    current = np.flatnonzero(~rows.future & (rows.row >= 0))
    at = rows.row[current], rows.slot[current]
    known_bytes[at] = rows.bytes[current]
    if len(current):
        reported = np.array(disk, np.int64)[rows.source[current]]
        place[at] = np.where(nowhere[place[at]] & (reported >= 0), reported, place[at])
    rest = np.where(state.adding, bytes_of.max(axis=1, initial=0)[:, None] - known_bytes, 0)
    unplaced = state.adding & nowhere[place]
    np.add.at(load, place[state.adding & ~unplaced], rest[state.adding & ~unplaced])
    of_broker = np.bincount(state.replicas[unplaced], rest[unplaced], minlength=len(state.brokers))
    load[: len(made.keys)] += of_broker[[broker for broker, _ in made.keys]]
    copying = np.flatnonzero(rows.future & (rows.row >= 0))
    into = np.array(disk, np.int64)[rows.source[copying]] if len(copying) else copying
    own = bytes_of[rows.row[copying], rows.slot[copying]]
    known = into >= 0
    np.add.at(load, into[known], np.maximum(0, own - rows.bytes[copying])[known])
    return place
