"""The list of all checks."""

from __future__ import annotations

from collections.abc import Sequence

from jbod_model.errors import UsageError
from pipelines.check import assignments, brokers, directories, log, losses, moves, partitions, placement, upgrades
from pipelines.check.definition import Check, Elsewhere

_MODULES = (assignments, brokers, directories, log, losses, moves, partitions, placement, upgrades)

CHECKS: tuple[Check, ...] = tuple(sorted((one for module in _MODULES for one in module.CHECKS), key=lambda one: one.id))
"""The checks that the tables can decide, by id."""

ELSEWHERE: tuple[Elsewhere, ...] = (
    Elsewhere(
        "B-19",
        "safe-to-remove",
        "Whether a disk holds nothing any more",
        "jbod safe-to-remove BROKER:DIR: a verdict about one disk, not something wrong",
    ),
    Elsewhere(
        "B-26",
        "path-uuid-mismatch",
        "meta.properties of a disk is missing, copied or of another node",
        "jbod disks, on the machine that has the disks",
    ),
    Elsewhere(
        "B-27",
        "log-integrity",
        "A checksum, offset, epoch or record of the log is wrong",
        "jbod replay: it stops at such a record, so the records in the tables have passed",
    ),
)
"""The checks that the tables cannot decide, and the command that can."""


def chosen(only: Sequence[str] = ()) -> tuple[Check, ...]:
    """The checks with these ids or names (case-insensitive), all if none is given. Raises UsageError for an unknown."""
    known = {word.lower(): check for check in CHECKS for word in (check.id, check.name)}
    other = {word.lower(): check for check in ELSEWHERE for word in (check.id, check.name)}
    for word in only:
        if word.lower() in other:
            raise UsageError(f"--only {word}: the tables cannot decide this one: {other[word.lower()].decided_by}")
        if word.lower() not in known:
            raise UsageError(f"--only {word}: no such check: jbod check --list names all of them")
    wanted = {known[word.lower()] for word in only}
    return tuple(check for check in CHECKS if not only or check in wanted)
