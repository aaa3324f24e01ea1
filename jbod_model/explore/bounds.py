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
    elr: bool = False
    """Eligible leader replicas are on."""

    # HOW

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
