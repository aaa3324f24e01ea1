"""The copies of a partition's log, the events that change them, and losses (docs/spec/loss.md).

A copy is a replica's log in one directory, from its creation there. A replica that is recreated in another directory is
a new, empty copy. A replica that moves stays the same copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jbod_model.ids import IdTable, Uuid
from jbod_model.replay.registrations import Partition

Level = Literal["complete", "unsure", "partial", "empty"]
"""Which acknowledged writes a copy holds (R-COPY-1).

``complete``: all. ``unsure``: all, unless its broker lost unflushed writes. ``partial``: it may lack some. ``empty``:
none, and it had no leader to fetch from.
"""
How = Literal["recreated", "removed", "lost", "unregistered"]
"""Why a copy was given up: its replica was recreated in another directory, left the partition, was assigned to the LOST
directory, or its broker was unregistered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The part of a broker's registration that copies depend on."""

    directories: frozenset[Uuid]
    """The directories that are online. If it is empty, the registration is older than directories, and all are
    online."""
    incarnation: Uuid
    fenced: bool = False
    starting: bool = False
    """Whether a later process has reported, which has not registered yet: it named a directory that no registration of
    this process listed (R-COPY-12)."""

    @property
    def undecided(self) -> bool:
        """Whether a report can be from a process that has not registered yet (R-COPY-12)."""
        return self.fenced or self.starting

    def lists(self, directory: Uuid) -> bool:
        """Whether the broker can serve a log in the directory."""
        return not self.directories or directory in self.directories


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Where a copy lay, or could lie, before an undecided report (R-COPY-12)."""

    directories: frozenset[Uuid]
    """The directory that a record named before; if none did, the copy's other places."""
    report: int
    """Offset of the report."""
    placement: bool
    """Whether the report was the copy's first one, and named one of its places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A replica's log in one directory."""

    broker_id: int
    since: int
    """Offset of the record that created it."""
    level: Level
    directory: Uuid | None = None
    """The directory of the copy; None if no record has named it yet."""
    places: frozenset[Uuid] = frozenset()
    """The directories that it can lie in while ``directory`` is None. If this is empty, it can lie anywhere. If its
    broker lacked some of them when a record named ``directory``: these. It may lie there, and have been recreated."""
    missed: int | None = None
    """Offset at which a process of its broker first registered without its directory or one of its places. The replica
    may have been recreated after it. None once the directory is listed again."""
    left: tuple[Left, ...] = ()
    """What it left by reports that are undecided, the oldest first. Each may be from a process that had not registered
    yet and that recreated the replica (R-COPY-12)."""
    earlier: frozenset[Uuid] = frozenset()
    """Directories in which earlier copies of the replica lie that were not empty: it has one again, if one of these
    disks is mounted again (R-COPY-14)."""
    measured: Level | None = None
    """What its leader's copy was before it was the measure of the last loss; None if it was not (R-LOSS-12)."""
    given_up: How | None = None
    away: int | None = None
    """Offset of the record by which it was given up."""
    overwritten: int | None = None
    """In a loss: the offset since which its replica is in sync with a leader without its writes (R-LOSS-11)."""

    @property
    def holds_everything(self) -> bool:
        """Whether it holds every acknowledged write, as far as the metadata shows."""
        return self.level in ("complete", "unsure")

    @property
    def where(self) -> frozenset[Uuid]:
        """Its directory, or the places that it can lie in; empty if it can lie anywhere."""
        return self.places if self.directory is None else frozenset({self.directory})

    @property
    def perhaps_recreated(self) -> bool:
        """Whether its log may be an empty one, and lie in one of its places (R-COPY-5)."""
        return self.directory is not None and bool(self.places)

    @property
    def usable(self) -> bool:
        """Whether it holds every acknowledged write and was not given up. Its disk may be offline."""
        return self.holds_everything and self.given_up is None

    def may_have_fetched(self, led: int) -> bool:
        """Whether its replica, if recreated, may have fetched since. ``led``: the last offset at which the partition
        had a leader from which the new copy can have fetched."""
        return self.missed is not None and led > self.missed

    def give_up(self, how: How, offset: int) -> Copy:
        """The copy after the record at ``offset`` gave it up. The first reason stays."""
        return self if self.given_up is not None else replace(self, given_up=how, away=offset)

    def returned(self) -> Copy:
        """The copy after it came into use again."""
        return replace(self, given_up=None, away=None)


def registered(copy: Copy, broker: Registration, offset: int, *, new_process: bool) -> Copy:
    """The copy after its broker registered (R-COPY-9)."""
    if copy.directory is None:
        there, listed = bool(copy.places & broker.directories), copy.places <= broker.directories
    else:
        there = listed = broker.lists(copy.directory)
    if copy.given_up == "unregistered" and (there or not broker.directories or not (copy.directory or copy.places)):
        copy = copy.returned()
    if listed or not broker.directories:
        if copy.directory is None:
            return copy
        others = other_folders(copy, broker)
        return replace(copy, missed=None, earlier=copy.earlier - others, places=copy.places - others)
    if not new_process:
        return copy
    if copy.directory is None and copy.level == "complete":
        copy = replace(copy, level="unsure")  # R-COPY-5
    return replace(copy, missed=offset) if copy.missed is None else copy


def other_folders(copy: Copy, broker: Registration) -> frozenset[Uuid]:
    """The directories in which the replica has no earlier copy: those that a broker lists which serves ``copy``. It
    refuses to start with two folders of a partition (R-COPY-14)."""
    serves = copy.directory in broker.directories and copy.given_up is None and not broker.undecided
    return broker.directories if serves else frozenset()


def lay_outside(old: Copy, copy: Copy, broker: Registration) -> Copy:
    """A copy that was recreated before any record named its directory, once its broker serves ``copy``."""
    if old.broker_id != copy.broker_id or old.given_up != "recreated" or old.directory is not None:
        return old
    return _lay_in(old, old.places - other_folders(copy, broker))


def lies_in_listed(copy: Copy, before: Registration | None, after: Registration) -> Copy:
    """A copy that can lie anywhere, once its broker lacks a directory that it listed (R-COPY-2)."""
    lacks = before is not None and after.directories and not before.directories <= after.directories
    if before is None or not lacks or copy.directory is not None or copy.places:
        return copy
    return replace(copy, places=before.directories | after.directories)


def created(
    broker_id: int, assigned: Uuid, offset: int, level: Level, broker: Registration | None, ids: IdTable
) -> Copy:
    """A new copy (R-COPY-2).

    If ``directory`` is not a real one, the copy can lie in any online directory of its broker.
    """
    copy = Copy(broker_id=broker_id, since=offset, level=level)
    if assigned == ids.lost:
        return copy.give_up("lost", offset)
    if ids.kind(assigned) == "assigned":
        return replace(copy, directory=assigned)
    if assigned == ids.unassigned and broker is not None:
        return replace(copy, places=broker.directories)
    return copy


def reassigned(
    copy: Copy, was: Uuid, now: Uuid, offset: int, broker: Registration | None, ids: IdTable, *, led: int = -1
) -> tuple[Copy, Copy | None]:
    """A replica's directory changes from ``was`` to ``now``: (its present copy, the copy that was given up).

    ``broker`` is the registration at that offset; None if the broker is not registered. ``led``: the last offset at
    which the partition had a leader from which the new copy can have fetched.
    """
    if now == ids.lost:  # R-COPY-6
        return copy.give_up("lost", offset), None
    if now in (ids.unassigned, ids.migrating):  # R-COPY-7
        return copy, None
    if copy.directory == now:  # R-COPY-8: assigned again to where it lies
        return (copy.returned() if copy.given_up == "lost" else copy), None
    if copy.directory is None:  # R-COPY-5
        same_copy = not copy.places or now in copy.places or copy.missed is None
    else:  # R-COPY-3
        same_copy = was != ids.lost and broker is not None and broker.lists(copy.directory)
    if same_copy:
        return _place(copy, now, offset if broker is not None and broker.undecided else None, broker), None
    # R-COPY-4
    listed = broker.directories if broker is not None and not broker.undecided else frozenset[Uuid]()
    old = copy if copy.directory is not None else _lay_in(copy, copy.places - listed)
    return _recreated(old, now, offset, fetched=copy.may_have_fetched(led)), old.give_up("recreated", offset)


def _recreated(old: Copy, now: Uuid | None, offset: int, *, fetched: bool) -> Copy:
    """The new copy of a replica in the directory ``now``, after ``old``. ``fetched``: whether it may have fetched."""
    earlier = _left_behind(old)
    level: Level = "partial" if fetched or now in earlier else "empty"
    return Copy(broker_id=old.broker_id, since=offset, level=level, directory=now, earlier=earlier - {now})


def _left_behind(copy: Copy) -> frozenset[Uuid]:
    """Where the replica has a copy that is not empty, once it goes on with another (R-COPY-14)."""
    return copy.earlier if copy.level == "empty" else copy.earlier | copy.where


def _lay_in(copy: Copy, places: frozenset[Uuid]) -> Copy:
    """A copy that no record had placed, once it is known to lie in one of the ``places``. None of them: nothing is."""
    if not places:
        return copy
    (directory, where) = (min(places), frozenset[Uuid]()) if len(places) == 1 else (None, places)
    return replace(copy, directory=directory, places=where)


def back(copy: Copy, now: Uuid, gone: Sequence[Copy], broker: Registration | None) -> tuple[Copy, Copy] | None:
    """The copy that was given up when ``copy`` was recreated, and its return, if its replica is assigned again to its
    directory or to one of its places.

    ``gone`` lack nothing since, so nobody led without them: the old disk is back, and its log is used (R-COPY-13).
    """
    if copy.directory == now or (copy.usable and may_serve(copy, broker)):
        return None
    for old in gone:
        if old.broker_id != copy.broker_id or old.given_up == "removed":
            continue
        earlier = (old.earlier | _left_behind(copy)) - {now}
        back = replace(old.returned(), directory=now, places=frozenset(), missed=None, left=(), earlier=earlier)
        if old.directory == now:
            return old, back
        whole = broker is not None and old.places <= broker.directories
        mounted = broker is not None and not broker.lists(now)  # by a process that has not registered yet
        if old.directory is None and now in old.places and (whole or mounted or not may_serve(copy, broker)):
            return old, back if whole else replace(back, level="unsure")
    return None


def caught_up(copy: Copy, offset: int, broker: Registration | None) -> Copy:
    """The copy with which a replica joins the in-sync set, complete from now on (R-LOSS-3).

    A replica joins with a log that its broker serves. If the directory in the metadata is not online, the replica was
    recreated in another one, and a later record names it (R-COPY-10).
    """
    if not may_serve(copy, broker) or copy.given_up is not None:
        copy = _recreated(copy, None, offset, fetched=True)
    if copy.directory is not None:
        return replace(copy, level="complete", places=frozenset())
    if broker is None:
        return replace(copy, level="complete")
    return replace(copy, level="complete", places=broker.directories, missed=None)


def completes(before: Partition, after: Partition) -> bool:
    """Whether the record completes a reassignment (R-LOSS-3).

    If the same replicas were being added and removed, a cancelled reassignment leaves the same replicas as a completed
    one. It completes only with all of them in sync. The brokers of replicas that join are active, so one of them leads.
    """
    staying = set(before.replicas) - set(before.removing_replicas)
    if set(after.replicas) != staying:
        return False
    if staying != set(before.replicas) - set(before.adding_replicas):
        return True
    return staying <= set(after.isr) and after.leader >= 0


def may_serve(copy: Copy, broker: Registration | None) -> bool:
    """Whether the broker lists the copy's directory, or one of its places."""
    if broker is None or not broker.directories:
        return True
    if copy.directory is not None:
        return copy.directory in broker.directories
    return not copy.places or bool(copy.places & broker.directories)


def elected(copy: Copy, offset: int, broker: Registration | None, *, led: int) -> tuple[Copy, Copy | None]:
    """The copy with which a replica leads, and the copy that was given up. If no record has placed a copy and its
    broker lists none of its places, the copy was recreated (R-COPY-5). ``led``: as for ``reassigned``."""
    if copy.directory is not None or may_serve(copy, broker):
        return copy, None
    assert broker is not None
    recreated = _recreated(copy, None, offset, fetched=copy.may_have_fetched(led))
    return replace(recreated, places=broker.directories), copy.give_up("recreated", offset)


def measure(copy: Copy, broker: Registration | None) -> Copy:
    """The copy of a leader, which is complete by definition from now on (R-LOSS-6).

    If no record names its directory, it can lie in a failed one: the controller counts it as online.
    """
    if copy.directory is not None:
        return replace(copy, level="complete", places=frozenset())
    if broker is None or not copy.places:
        return replace(copy, level="complete")
    return replace(copy, level="complete", places=copy.places | broker.directories, missed=None)


def _place(copy: Copy, now: Uuid, report: int | None, broker: Registration | None) -> Copy:
    """The same copy, in the directory ``now``; ``report``: the report's offset if it is undecided."""
    away = frozenset[Uuid]()
    if (copy.directory is not None or copy.missed is not None) and broker is not None:
        away = copy.places - broker.directories - {now}
    left: tuple[Left, ...] = ()
    if report is not None:
        every = (*copy.left, Left(directories=copy.where, report=report, placement=now in copy.places))
        left = tuple(
            replace(former_place, directories=former_place.directories - {now})
            for former_place in every
            if former_place.directories - {now}
        )
    earlier = copy.earlier if left else copy.earlier - {now}
    return replace(copy, directory=now, places=away, left=left, earlier=earlier, missed=report).returned()


def decided(copy: Copy, broker: Registration, offset: int, *, new_process: bool, led: int) -> tuple[Copy, Copy | None]:
    """Decide which processes sent the undecided reports (R-COPY-12).

    The result is (the present copy, the copy that was given up).

    ``led``: as for ``reassigned``.
    """
    if not copy.left or (broker.undecided and not new_process):
        return copy, None
    lay = replace(copy, left=(), missed=None)
    same = replace(lay, earlier=copy.earlier - {copy.directory})
    if not new_process or not broker.directories:
        return same, None
    absent = [former_place for former_place in copy.left if not former_place.directories <= broker.directories]
    moves = [former_place for former_place in absent if not former_place.placement]
    if not moves:
        if absent and same.holds_everything:
            away = frozenset[Uuid]().union(*(former_place.directories for former_place in absent))
            same = replace(same, level="unsure", places=away - broker.directories)
        return same, None
    old = _lay_in(lay, moves[0].directories - broker.directories)
    recreated = _recreated(old, copy.directory, offset, fetched=led >= moves[-1].report)
    return recreated, old.give_up("recreated", offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The partition's state after a record."""

    offset: int
    state: Partition
    in_snapshot: bool = False
    """Whether a snapshot says so. Records between the state before and this one may then be missing."""
    superseded: bool = False
    """Whether a later record of the same append changes the partition again (R-LOSS-10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The topic was deleted."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChanged:
    """A broker registered or its registration changed; ``registration`` is None where it was unregistered."""

    offset: int
    broker_id: int
    registration: Registration | None
    unclean: bool = False
    """A new process of the broker registers, and the one before it did not shut down in order."""
    first: int | None = None
    """Offset of the first record of its append. None if no other record of the append matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinIsrChanged:
    """The topic's effective min.insync.replicas."""

    offset: int
    value: int


Event = Version | Removed | BrokerChanged | MinIsrChanged


Kind = Literal["lost", "may lack writes", "unreachable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Acknowledged writes that are gone, or may be, or that no registered broker holds."""

    kind: Kind
    offset: int
    """Of the record that gave up the last complete copy, that elected a leader without one, or that made lost data of
    unreachable data."""
    copies: tuple[Copy, ...]
    """The last copies that held every acknowledged write, by broker: where to look for the data."""
    older: tuple[Copy, ...] = ()
    """Of lost data: the copies that lacked newer writes by then, by broker: what remains if the last ones cannot be
    read."""
    leader: int | None = None
    """The broker that leads without the data; None if there is no leader."""
    went_on: int | None = None
    """Offset of the record that made it lead. After it the data does not return by itself."""
    until: int | None = None
    """Offset at which a complete copy returned, the topic was deleted, or the next loss of another kind took its place.
    None while the loss lasts."""


def known_better(loss: Loss, recreated: Copy) -> Loss:
    """The loss from the time when a ``recreated`` copy still counted as moved (R-COPY-12, R-LOSS-6)."""
    if loss.until is not None:
        return loss
    copies = tuple(
        replace(copy, directory=recreated.directory, places=recreated.places, left=()).give_up(
            "recreated", recreated.away or 0
        )
        if copy.left and (copy.broker_id, copy.since) == (recreated.broker_id, recreated.since)
        else copy
        for copy in loss.copies
    )
    if copies == loss.copies:
        return loss
    return replace(loss, copies=copies, kind=loss.kind if any(copy.usable for copy in copies) else "lost")


def overwritten(loss: Loss, copies: Mapping[int, Copy], brokers: Mapping[int, Registration], event: Event) -> Loss:
    """The loss after an event: a copy of a replica that is in sync later has its leader's log (R-LOSS-11)."""
    if not isinstance(event, Version) or loss.went_on is None or loss.until is not None:
        return loss
    state = event.state

    def is_in_sync(copy: Copy) -> bool:
        now = copies.get(copy.broker_id)
        if copy.overwritten is not None or copy.given_up == "recreated":
            return False
        if now is None or now.given_up is not None or now.since != copy.since:
            return False
        if copy.broker_id == state.leader:  # its log is that of all replicas once they are in sync
            return copy.broker_id != loss.leader and {*state.isr} >= {*state.replicas}
        return copy.broker_id in state.isr and state.leader >= 0

    def after(before: tuple[Copy, ...]) -> tuple[Copy, ...]:
        return tuple(
            _overwrite(copy, brokers.get(copy.broker_id), event.offset) if is_in_sync(copy) else copy for copy in before
        )

    return replace(loss, copies=after(loss.copies), older=after(loss.older))


def _overwrite(copy: Copy, broker: Registration | None, offset: int) -> Copy:
    """A copy of a loss once its replica is in sync: overwritten, or in one of its places that its broker lacks."""
    away = copy.places - (frozenset() if broker is None else broker.directories)
    return _lay_in(copy, away).give_up("recreated", offset) if away else replace(copy, overwritten=offset)
