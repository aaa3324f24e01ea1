"""Names of directories that people know: paths and labels, kept beside the tables of a lake.

The metadata log has only the ids of directories. The Delta table ``labels`` keeps statements: a source says that a
directory has a path, or that a directory or path has a label. It is not in the ledger and does not depend on offsets,
so a replay, rollback or rebuild does not change it. ``Names`` combines the statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

KINDS = ("meta.properties", "labels file", "kafka-log-dirs", "elimination")
"""Kinds of sources. The path of an earlier one wins over the path of a later one."""

LABELS = "labels"
"""The name of the table."""


class Statement(NamedTuple):
    """A row of the table: what one source says about a directory."""

    kind: str
    source: str
    broker_id: int | None
    directory_id: str | None
    path: str | None
    label: str | None
    read_time: datetime


class Name(NamedTuple):
    """The name of a directory."""

    path: str | None
    label: str | None

    def behind(self, directory: str, letters: int | None = None) -> str:
        """``/data/disk1b (r60JqwAF)``: the name, then the id, which may be cut to ``letters``."""
        return f"{self.path or self.label} ({directory[:letters]})"

    def in_full(self, directory: str) -> str:
        """``/data/disk1b (r60JqwAFn7gsit5hNSGjVw, rack 7 slot 3)``"""
        if self.path is None or self.label is None:
            return self.behind(directory)
        return f"{self.path} ({directory}, {self.label})"


@dataclass(frozen=True)
class Names:
    """The names of directories."""

    by_id: Mapping[str, Name] = field(default_factory=dict)
    conflicts: Sequence[str] = ()
    """Where two sources disagree, a line each."""

    @property
    def conflicting(self) -> Sequence[str]:
        """The directories about which sources disagree."""
        return tuple(dict.fromkeys(line.split()[1].rstrip(":") for line in self.conflicts))

    def get(self, directory: str | None) -> Name | None:
        """The name of a directory, None if it has none."""
        return None if directory is None else self.by_id.get(directory)

    @classmethod
    def of(cls, statements: Iterable[Statement]) -> Names:
        """The statements combined. For each kind of source, the newest statement wins."""
        listed = sorted(statements, key=lambda one: (_rank(one.kind), -one.read_time.timestamp()))
        paths: dict[str, Statement] = {}
        brokers: dict[str, int] = {}
        conflicts: list[str] = []
        for one in listed:
            if one.directory_id is None:
                continue
            if one.broker_id is not None:
                brokers.setdefault(one.directory_id, one.broker_id)
            if one.path is None:
                continue
            first = paths.setdefault(one.directory_id, one)
            if first.path != one.path and first.kind != one.kind:
                conflicts.append(_conflict(one.directory_id, "path", first, one))
        labels: dict[str, Statement] = {}
        known = [one for one in listed if one.label is not None]
        # A key with an id is more exact than a path with a broker, and that more than a path alone.
        for one in sorted(known, key=lambda one: (one.directory_id is None, one.broker_id is None)):
            for directory in _meant(one, paths, brokers):
                first = labels.setdefault(directory, one)
                if first.label != one.label and _key_of(first) == _key_of(one):
                    conflicts.append(_conflict(directory, "label", first, one))
        by_id = {
            directory: Name(
                paths[directory].path if directory in paths else None,
                labels[directory].label if directory in labels else None,
            )
            for directory in {*paths, *labels}
        }
        return cls(by_id, tuple(dict.fromkeys(conflicts)))


def _rank(kind: str) -> int:
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def _meant(one: Statement, paths: Mapping[str, Statement], brokers: Mapping[str, int]) -> list[str]:
    """The directories that a label is about."""
    if one.directory_id is not None:
        return [one.directory_id]
    return [
        directory
        for directory, said in paths.items()
        if said.path == one.path and (one.broker_id is None or brokers.get(directory, one.broker_id) == one.broker_id)
    ]


def _key_of(one: Statement) -> tuple[object, ...]:
    return (one.directory_id is None, one.broker_id is None)


def _conflict(directory: str, what: str, first: Statement, other: Statement) -> str:
    return (
        f"directory {directory}: the {what} is {getattr(first, what)} by {first.source}, and {getattr(other, what)} by "
        f"{other.source}; the first one is shown"
    )
