"""The bounds of a search: the size of the cluster, the depth, and what may happen (R-EXPLORE-5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of a search. Each thing that may happen has a switch, so the space can be kept small."""

    # HOW FAR

    brokers: int = 2
    directories: int = 2
    partitions: int = 1
    replication: int = 0
    """Replicas of each partition; 0 puts one on every broker."""
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
    """Operators also request moves that are refused: while a directory is offline, or of replicas that the broker does
    not host."""
    elr: bool = False
    """Eligible leader replicas are on."""
    timeouts: bool = False
    """A process ends if it could not report a failure in time (R-LIFE-7, R-LIFE-8)."""
    lost: bool = False
    """Every request and every answer may be lost; otherwise only answers to assignments."""
    cut: bool = False
    """A broker is cut off from the controller for good."""
    late: int = 0
    """The number of a broker's abandoned requests that may still arrive. Sending, handling and answering are separate
    steps."""
    doubled: bool = False
    """A request may arrive twice; needs ``late``."""
    failover: bool = False
    """Another controller takes over, with only a snapshot and the log."""
    repair: bool = False
    """A failed disk works again, with its content, while no process runs."""
    replace: bool = False
    """A failed disk is replaced by an empty one, while no process runs."""
    add: int = 0
    """The number of directories that may be added to the configuration, while no process runs."""
    remove: bool = False
    """A directory whose disk failed may be removed from the configuration, while no process runs."""
    shutdown: bool = False
    """Brokers are shut down in order."""
    reassign: bool = False
    """Partitions are reassigned to other brokers, and reassignments are cancelled."""
    delete: bool = False
    """Topics are deleted."""
    shrink: bool = False
    """Leaders remove replicas that no process serves from their in-sync sets."""
    migrating: bool = False
    """At the start the cluster has just been upgraded to directories: logs exist, assignments and registrations do
    not."""
    records: int = 0
    """The number of records that are written to each partition, and acknowledged once every in-sync replica has
    them."""

    # HOW

    first: bool = False
    """The first breach ends the search."""
    literal: bool = False
    """The controller elects by the rule that is meant for clients (R-SIM-7)."""
    free_choice: bool = True
    """A new log goes into any of the emptiest directories; otherwise into the first of the configuration."""
    liveness: bool = True
    """Leads-to properties are checked as well, if the search is complete."""
    symmetry: bool = True
    """States that differ only in the names of directories count as one (R-EXPLORE-4)."""
    ids: str = "kafka"
    """The table of reserved ids (R-SIM-10)."""
