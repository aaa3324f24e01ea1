"""A table of rows: its columns, and which of them the filters compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from pipelines.lake.names import Names

Kind = Literal["string", "int", "bool", "time", "seconds", "ints", "strings"]


class Column(NamedTuple):
    """A column. ``of`` is the attribute that has the value, if that is not ``name``, or a function."""

    name: str
    kind: Kind
    about: str
    of: str | Callable[[Any], Any] = ""

    def getter(self) -> Callable[[Any], Any]:
        """The function that returns the value of an object."""
        return self.of if callable(self.of) else attrgetter(self.of or self.name)


@dataclass(frozen=True)
class Table:
    """The rows of a question."""

    name: str
    """The question, or the question and its option."""
    row: str
    """What a row is."""
    columns: Sequence[Column]
    reasons: Sequence[str] = ()
    """The columns that --reason compares."""
    reason_words: Sequence[str] | Callable[[], Sequence[str]] = ()
    """What these columns can hold, if not only what the rows hold: --reason refuses what matches none of it."""
    brokers: str = "broker_id"
    """The column that --broker compares: an id, or a list of ids."""
    more: Sequence[str] = ()
    """Attributes that only JSON has: objects, and lists of them."""
    directories: Mapping[str, str] = field(default_factory=dict)
    """Columns with an id of a directory -> the prefix of the columns for its path and its label."""

    def has(self, name: str) -> bool:
        """Whether there is a column of this name."""
        return any(column.name == name for column in self.columns)

    @property
    def filters(self) -> Iterator[str]:
        """The filters that apply to these rows."""
        if self.has(self.brokers):
            yield "broker"
        if self.has("topic"):
            yield "topic"
        if self.directories:
            yield "dir"
        if self.reasons:
            yield "reason"

    @property
    def all_columns(self) -> list[Column]:
        """The columns with those for the names of directories."""
        found = []
        for column in self.columns:
            found.append(column)
            if column.name in self.directories:
                prefix = self.directories[column.name]
                found.append(Column(f"{prefix}_path", "string", "its path, if it is known"))
                found.append(Column(f"{prefix}_label", "string", "its label, if it has one"))
        return found

    def objects(self, rows: Sequence[Any], names: Names) -> list[dict[str, Any]]:
        """The rows as JSON objects: a key for each column, then those of ``more``."""
        columns = self.values(rows, names)
        more = {name: [getattr(row, name) for row in rows] for name in self.more}
        keys, values = [*columns, *more], [*columns.values(), *more.values()]
        return [dict(zip(keys, row, strict=True)) for row in zip(*values, strict=True)]

    def values(self, rows: Sequence[Any], names: Names) -> dict[str, list[Any]]:
        """The columns of these rows: name -> values."""
        found: dict[str, list[Any]] = {}
        for column in self.columns:
            get = column.getter()
            values = [get(row) for row in rows]
            if column.kind == "seconds":
                values = [value.total_seconds() if isinstance(value, timedelta) else value for value in values]
            found[column.name] = values
            if column.name in self.directories:
                prefix = self.directories[column.name]
                known = [names.get(directory) for directory in values]
                found[f"{prefix}_path"] = [one and one.path for one in known]
                found[f"{prefix}_label"] = [one and one.label for one in known]
        return found
