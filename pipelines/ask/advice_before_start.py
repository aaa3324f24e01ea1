"""Advice before a broker starts with other disks, about partitions whose only complete copy in use is on it."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.ask.advice import Action, Advice, directories_of, few


def wait_until_in_sync(broker: int, names: Sequence[str]) -> Advice:
    """Another replica is online, and not in sync."""
    of = "replica" if len(names) == 1 else "replicas"
    text = (
        f"first bring the {of} of {few(names)} on broker {broker} into sync: wait until kafka-topics.sh "
        "--bootstrap-server HOST:PORT --describe --under-replicated-partitions does not list "
        f"{'it' if len(names) == 1 else 'them'}"
    )
    return Advice(Action.LOOK, text, broker, partitions=tuple(names))


def start_holder(broker: int, names: Sequence[str]) -> Advice:
    """Another complete copy is on a broker or disk that is offline."""
    text = (
        f"first bring broker {broker} back with all its disks: it has a complete copy of {few(names)}, which is then "
        "in use again"
    )
    return Advice(Action.START, text, broker, partitions=tuple(names), every_disk=True)


def add_replica(names: Sequence[str]) -> Advice:
    """The partitions have one replica."""
    text = (
        f"first give {few(names)} another replica (kafka-reassign-partitions.sh --bootstrap-server HOST:PORT "
        "--execute, with a plan that adds a broker), or move the replica to another disk, and wait until it is done"
    )
    return Advice(Action.LOOK, text, partitions=tuple(names))


def keep_in_use(broker: int, directories: Sequence[str], names: Sequence[str], *, registered: bool = True) -> Advice:
    """The only complete copies in use are in the directories."""
    it = "it" if len(directories) < 2 else "them"
    out = f", and do not take {it} out of log.dirs" if registered else ""
    text = (
        f"until then do not replace or format {directories_of(broker, directories)}{out}: no other complete copy of "
        f"{few(names)} is in use, and broker {broker} would recreate the replicas empty"
    )
    return Advice(
        Action.REPLACE, text, broker, tuple(directories), partitions=tuple(names), cost=tuple(names), forbidden=True
    )
