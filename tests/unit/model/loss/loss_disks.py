"""Brokers of ``loss_world``, their disks, and the logs on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from jbod_model.ids import ZERO, Uuid


class Unsound(AssertionError):
    """What the model says and what happened differ."""


class Lack(NamedTuple):
    """What a log lacked, and the doubts about it, at one time."""

    writes: set[int]
    doubt: bool
    unplaced: bool
    either: bool


@dataclass(slots=True, eq=False)
class Log:
    """A replica's log on a disk."""

    entries: list[int] = field(default_factory=list)
    """Writes that are there, acknowledged or not."""
    sure: set[int] = field(default_factory=set)
    """Presumed writes that it had to hold when they were acknowledged."""
    was: Lack | None = None
    """What it, or its leader's log, lacked before it was the measure of the last loss."""
    doubt: bool = False
    """Its broker died since: what was not flushed may be gone."""
    synced: bool = False
    """Whether it was ever part of the in-sync set, or fetched anything."""
    vague: bool = False
    """It was created while the records still named its own broker as the leader, or by a later process than the first
    that lacked the directory: whether it is empty or may have fetched, nobody can tell who does not know when that
    process began."""
    recreated: bool = False
    """The replica had another log before."""
    named: bool = False
    """Whether a record ever named its directory."""
    mounted: bool = False
    """Its disk took its place again after the replica was created in another, and no record names the disk yet."""
    either: bool = False
    """The same, and no record had ever named it: the metadata does not tell which of the two logs is in use."""
    parted: bool = False
    """It was given up with the registration of its broker, which did not register its directory since (R-COPY-9)."""
    unplaced: bool = False
    """Its broker restarted without one of its directories before the metadata said in which the log was: nobody who
    reads the metadata can tell whether it was recreated (R-COPY-5)."""

    def lack(self, presumed: set[int]) -> Lack:
        """What it lacks of ``presumed``."""
        return Lack(presumed - self.sure, self.doubt, self.unplaced, self.either)


@dataclass(slots=True, eq=False)
class Disk:
    """A disk with its directory id."""

    id: Uuid
    log: Log | None = None
    works: bool = True
    unknowable: bool = False
    """Nobody who reads the metadata knows whether the replica's folder is there: somebody deleted it, or the replica
    left the partition while the disk was away."""
    clean_epoch: int = -1
    """The mark of an orderly shutdown."""


@dataclass(slots=True, eq=False)
class Broker:
    """A machine: the disks of its configuration, those on the shelf, and at most one process."""

    id: int
    disks: list[Disk]
    shelf: list[Disk] = field(default_factory=list)
    up: bool = False
    online: list[Disk] = field(default_factory=list)
    """What the process still has online."""
    incarnation: Uuid = ZERO
    epoch: int = -1
