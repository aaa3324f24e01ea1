"""Every check there is."""

from __future__ import annotations

from collections.abc import Sequence

from jbod_model.errors import UsageError
from pipelines.check import directories, partitions
from pipelines.check.definition import Check, Elsewhere

CHECKS: tuple[Check, ...] = tuple(sorted((*directories.CHECKS, *partitions.CHECKS), key=lambda check: check.id))

ELSEWHERE: tuple[Elsewhere, ...] = ()


def chosen(only: Sequence[str] = ()) -> tuple[Check, ...]:
    """The checks of these ids or names, all of them for none. UsageError for one that does not exist."""
    known = {word: check for check in CHECKS for word in (check.id, check.name)}
    other = {word: check for check in ELSEWHERE for word in (check.id, check.name)}
    for word in only:
        if word in other:
            raise UsageError(f"--only {word}: the tables cannot decide this one: {other[word].decided_by}")
        if word not in known:
            raise UsageError(f"--only {word}: no such check: jbod check --list names all of them")
    wanted = {known[word] for word in only}
    return tuple(check for check in CHECKS if not only or check in wanted)
