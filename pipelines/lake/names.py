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
        listed = sorted(statements, key=lambda statement: (_rank(statement.kind), -statement.read_time.timestamp()))
        paths: dict[str, Statement] = {}
        brokers: dict[str, int] = {}
        conflicts: list[str] = []
        for statement in listed:
            if statement.directory_id is None:
                continue
            if statement.broker_id is not None:
                brokers.setdefault(statement.directory_id, statement.broker_id)
            if statement.path is None:
                continue
            first = paths.setdefault(statement.directory_id, statement)
            if first.path != statement.path and first.kind != statement.kind:
                conflicts.append(_conflict(statement.directory_id, "path", first, statement))
        labels: dict[str, Statement] = {}
        known = [statement for statement in listed if statement.label is not None]
        # A key with an id is more exact than a path with a broker, and that more than a path alone.
        for statement in sorted(known, key=_key_of):
            for directory in _meant(statement, paths, brokers):
                first = labels.setdefault(directory, statement)
                if first.label != statement.label and _key_of(first) == _key_of(statement):
                    conflicts.append(_conflict(directory, "label", first, statement))
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


def _meant(label: Statement, paths: Mapping[str, Statement], brokers: Mapping[str, int]) -> list[str]:
    """The directories that a label is about."""
    if label.directory_id is not None:
        return [label.directory_id]
    return [
        directory
        for directory, statement in paths.items()
        if statement.path == label.path
        and (label.broker_id is None or brokers.get(directory, label.broker_id) == label.broker_id)
    ]


def _key_of(statement: Statement) -> tuple[object, ...]:
    return (statement.directory_id is None, statement.broker_id is None)


def _conflict(directory: str, what: str, first: Statement, other: Statement) -> str:
    return (
        f"directory {directory}: the {what} is {getattr(first, what)} by {first.source}, and {getattr(other, what)} by "
        f"{other.source}; the first one is shown"
    )
