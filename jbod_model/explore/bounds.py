"""How large a cluster, how far, and what may happen in it (R-EXPLORE-5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of a search. Everything that may happen is a switch, so that the space stays as small as wanted."""

    # HOW FAR

    brokers: int = 2
    directories: int = 2
    partitions: int = 1
    replication: int = 0
    """Replicas of each partition; 0: one on every broker."""
    depth: int = 6
    states: int = 2_000_000

    # WHAT MAY HAPPEN

    failures: bool = True
    """Disks fail."""
    crashes: bool = True
    """Processes are killed; they can always start again."""
    expiry: bool = True
    """Sessions of live processes expire."""
    moves: bool = False
    """Operators move replicas between disks."""
    wishes: bool = False
    """They also ask for moves that are refused: while a directory is offline, of replicas that are not here."""
    elr: bool = False
    """Eligible leader replicas are on."""
    timeouts: bool = False
    """The checks that failures were reported in time end a process (R-LIFE-7, R-LIFE-8)."""
    lost: bool = False
    """Every request and every answer gets lost; else only answers to assignments."""
    cut: bool = False
    """A broker is cut off from the controller for good."""
    late: int = 0
    """Requests that the broker gave up may still arrive, so many of a broker at a time; sending, handling and hearing
    are steps of their own."""
    doubled: bool = False
    """A request arrives twice; needs ``late``."""
    failover: bool = False
    """Another controller takes over with a snapshot and the log, and nothing else."""
    repair: bool = False
    """A disk that failed works again, with what is on it, while no process runs."""
    replace: bool = False
    """A disk that failed is replaced by an empty one, while no process runs."""
    add: int = 0
    """So many directories more may be configured, while no process runs."""
    remove: bool = False
    """A directory whose disk failed is taken out of the configuration, while no process runs."""
    shutdown: bool = False
    """Brokers are stopped in order."""
    reassign: bool = False
    """Partitions are reassigned to other brokers, and reassignments are cancelled."""
    delete: bool = False
    """Topics are deleted."""
    shrink: bool = False
    """Leaders take replicas that nobody serves out of their in-sync sets."""
    migrating: bool = False
    """At the beginning the cluster has just learnt of directories: logs exist, assignments and registrations do not."""
    records: int = 0
    """So many records are written to each partition, and acknowledged once every replica in sync has them."""

    # HOW

    first: bool = False
    """The first breach ends the search."""
    literal: bool = False
    """The controller elects by the rule for what clients are shown (R-SIM-7)."""
    free_choice: bool = True
    """A new log goes into any of the emptiest directories; else into the first of the configuration."""
    liveness: bool = True
    """Leads-to properties are looked at as well, where the search is complete."""
    symmetry: bool = True
    """States that differ only in the names of directories are one (R-EXPLORE-4)."""
    ids: str = "kafka"
    """The table of reserved ids (R-SIM-10)."""
