"""The rows of an answer: their columns, which are shown, and their forms for other programs.

Filters come first, then the order, then the limit. CSV, ND-JSON and Parquet have the columns of
``pipelines.show.columns``.
"""

from __future__ import annotations

import csv
import difflib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

from jbod_model.errors import UsageError
from pipelines.lake.names import Names

if TYPE_CHECKING:
    from pipelines.lake.reader import Lake

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
class RowTable:
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
        columns = []
        for column in self.columns:
            columns.append(column)
            if column.name in self.directories:
                prefix = self.directories[column.name]
                columns.append(Column(f"{prefix}_path", "string", "its path, if it is known"))
                columns.append(Column(f"{prefix}_label", "string", "its label, if it has one"))
        return columns

    def objects(self, rows: Sequence[Any], names: Names) -> list[dict[str, Any]]:
        """The rows as JSON objects: a key for each column, then those of ``more``."""
        columns = self.values(rows, names)
        more = {name: [getattr(row, name) for row in rows] for name in self.more}
        keys, values = [*columns, *more], [*columns.values(), *more.values()]
        return [dict(zip(keys, row, strict=True)) for row in zip(*values, strict=True)]

    def values(self, rows: Sequence[Any], names: Names) -> dict[str, list[Any]]:
        """The columns of these rows: name -> values."""
        columns: dict[str, list[Any]] = {}
        for column in self.columns:
            get = column.getter()
            values = [get(row) for row in rows]
            if column.kind == "seconds":
                values = [value.total_seconds() if isinstance(value, timedelta) else value for value in values]
            columns[column.name] = values
            if column.name in self.directories:
                prefix = self.directories[column.name]
                known = [names.get(directory) for directory in values]
                columns[f"{prefix}_path"] = [name and name.path for name in known]
                columns[f"{prefix}_label"] = [name and name.label for name in known]
        return columns


class Chosen(NamedTuple):
    """The rows of an answer after the filters."""

    table: RowTable
    rows: Sequence[Any]
    """The rows that match, in the order asked for, up to the limit."""
    matching: Sequence[Any]
    """All rows that match."""
    of: int
    """The number of rows before the filters."""
    wanted: Wanted

    @property
    def line(self) -> str:
        """``3 of 12 shown: broker 1, topic orders*``; empty if all rows are shown."""
        filters = self.wanted.in_words
        if not filters and self.wanted.limit is None:
            return ""
        about = f": {filters}" if filters else ""
        if len(self.rows) == len(self.matching):
            return f"{len(self.rows):,} of {self.of:,} shown{about}"
        return (
            f"{len(self.rows):,} of {len(self.matching):,} shown{f', of {self.of:,} in all' if filters else ''}{about}"
        )

    @property
    def as_json(self) -> dict[str, Any]:
        """The selection, for a JSON object."""
        return {
            "filters": self.wanted.filters,
            "of": self.of,
            "matching": len(self.matching),
            "shown": len(self.rows),
        }


@dataclass(frozen=True)
class Wanted:
    """What the options of a question ask for."""

    brokers: tuple[int, ...] = ()
    topics: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    """Names of columns; ``-name`` for the largest first."""
    limit: int | None = None
    names: Names | None = field(default=None, compare=False)
    """The names of directories, which --dir also compares."""

    @property
    def filters(self) -> dict[str, list[Any]]:
        """Filter -> values, those that were given."""
        given = {
            "broker": self.brokers,
            "topic": self.topics,
            "dir": self.directories,
            "reason": self.reasons,
        }
        return {name: [*values] for name, values in given.items() if values}

    @property
    def in_words(self) -> str:
        """The filters in words."""
        words = {"dir": "directory"}
        return ", ".join(f"{words.get(name, name)} {' or '.join(map(str, of))}" for name, of in self.filters.items())

    @property
    def orders(self) -> bool:
        """Whether an order or a limit was asked for."""
        return bool(self.sort) or self.limit is not None

    def choose(self, table: RowTable, rows: Sequence[Any], lake: Lake | None = None) -> Chosen:
        """The rows to show.

        Raises UsageError if a filter or column does not exist in the table, or if a value is known neither to the rows
        nor to the ``lake``.
        """
        self._check(table)
        matching = [*rows]
        for name, values in self.filters.items():
            test = self._test(table, name)
            rows_by_value = {value: [row for row in matching if test(row, value)] for value in values}
            for value, kept in rows_by_value.items():
                if not kept and not any(test(row, value) for row in rows) and lake is not None:
                    if name == "reason":
                        _check_reason(table, value, rows)
                    else:
                        _check_known(lake, table, name, value, self.names)
            keep = {id(row) for kept in rows_by_value.values() for row in kept}
            matching = [row for row in matching if id(row) in keep]
        ordered = self._sorted(table, matching)
        return Chosen(table, ordered[: self.limit], matching, len(rows), self)

    def keeps(self, row: Any) -> bool:
        """Whether an object passes the filters on broker, topic and directory for which it has an attribute."""
        tests: tuple[tuple[Sequence[Any], str, Callable[[Any, Any], bool]], ...] = (
            (self.brokers, "broker_id", _equal),
            (self.topics, "topic", _glob),
            (self.directories, "directory_id", self._is_directory),
        )
        for values, name, test in tests:
            if values and hasattr(row, name) and not any(test(getattr(row, name), value) for value in values):
                return False
        return True

    def _check(self, table: RowTable) -> None:
        allowed = [*table.filters]
        for name in self.filters:
            if name not in allowed:
                others = ", ".join(f"--{filter_name}" for filter_name in allowed) or "none"
                raise UsageError(f"--{name}: jbod {table.name} has nothing to compare it with; filters: {others}")
        for name in self.sort:
            if not table.has(name.removeprefix("-")):
                names = [column.name for column in table.columns]
                near = difflib.get_close_matches(name.removeprefix("-"), names, 3, 0.5)
                hint = f"did you mean {' or '.join(near)}?" if near else f"columns: {', '.join(names)}"
                raise UsageError(f"--sort {name}: no such column in the rows of jbod {table.name}: {hint}")

    def _test(self, table: RowTable, name: str) -> Callable[[Any, Any], bool]:
        columns = {column.name: column.getter() for column in table.columns}
        if name == "broker":
            return lambda row, value: _equal(columns[table.brokers](row), value)
        if name == "topic":
            return lambda row, value: _glob(columns["topic"](row), value)
        if name == "dir":
            broker = columns.get("broker_id")
            return lambda row, value: any(
                self._is_directory(columns[column_name](row), value, broker and broker(row))
                for column_name in table.directories
            )
        return lambda row, value: any(_like(columns[column_name](row), value) for column_name in table.reasons)

    def _is_directory(self, directory: str | None, text: str, broker: int | None = None) -> bool:
        if directory is None:
            return False
        number, colon, rest = text.partition(":")
        if colon and number.isdigit():
            return (broker is None or broker == int(number)) and self._is_directory(directory, rest)
        if directory.startswith(text):
            return True
        name = None if self.names is None else self.names.get(directory)
        return name is not None and any(known is not None and _names(known, text) for known in name)

    def _sorted(self, table: RowTable, rows: list[Any]) -> list[Any]:
        for name in reversed(self.sort):
            column = name.removeprefix("-")
            get = next(candidate.getter() for candidate in table.columns if candidate.name == column)
            with_value = [row for row in rows if get(row) is not None]
            without = [row for row in rows if get(row) is None]
            rows = sorted(with_value, key=get, reverse=name.startswith("-")) + without
        return rows


def _equal(value: Any, wanted: int) -> bool:
    return wanted in value if isinstance(value, list | tuple) else bool(value == wanted)


def _glob(value: str | None, pattern: str) -> bool:
    return value is not None and (value == pattern or fnmatchcase(value, pattern))


def _names(known: str, text: str) -> bool:
    """Whether a text names a path or a label: in full, by a glob, or by the last part of the path."""
    return _glob(known, text) or (known.startswith("/") and _glob(known.rstrip("/").rpartition("/")[2], text))


def _like(value: Any, pattern: str) -> bool:
    """Whether a text contains ``pattern``, or matches it as a glob; upper and lower case are the same."""
    text, wanted = str(value or "").lower(), pattern.lower()
    return wanted in text or fnmatchcase(text, wanted)


def _check_reason(table: RowTable, value: str, rows: Sequence[Any]) -> None:
    """Raises UsageError, with all reasons, if the table never has one that ``value`` matches."""
    words = table.reason_words() if callable(table.reason_words) else table.reason_words
    if not words:
        columns = [column.getter() for column in table.columns if column.name in table.reasons]
        words = sorted({str(get(row)) for get in columns for row in rows})
    if not any(_like(word, value) for word in words):
        raise UsageError(f"--reason {value}: no reason that jbod {table.name} has: give one of {', '.join(words)}")


def _check_known(lake: Lake, table: RowTable, name: str, value: Any, names: Names | None) -> None:
    """Raises UsageError, with similar names, if the lake never knew what a filter names.

    A value that is known, of which there is only no row, is a valid question: none of these is offline.
    """
    known = [*_known(lake, name)]
    if name == "dir" and names is not None:
        known += [part for directory_name in names.by_id.values() for part in directory_name if part is not None]
    text = str(value)
    if name == "dir" and (match := re.fullmatch(r"\d+:(.+)", text)):
        text = match[1]
    if any(
        _names(known_value, text) or known_value.startswith(text) if name == "dir" else _glob(known_value, text)
        for known_value in known
    ):
        return
    what = {"broker": "broker", "topic": "topic", "dir": "directory"}[name]
    near = difflib.get_close_matches(text, known, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {_some(known)}"
    raise UsageError(f"--{name} {value}: no such {what} up to offset {lake.offset} ({table.name}): {hint}")


def _known(lake: Lake, name: str) -> Iterator[str]:
    queries = {
        "topic": f"SELECT DISTINCT topic FROM {lake.until('partitions')} ORDER BY topic",
        "broker": f"SELECT DISTINCT broker_id FROM {lake.until('brokers')} ORDER BY broker_id",
        "dir": f"SELECT DISTINCT directory_id FROM {lake.until('directories')} ORDER BY directory_id",
    }
    yield from (str(value) for (value,) in lake.query(queries[name]))


def _some(known: Sequence[str]) -> str:
    return (", ".join(known[:8]) + (", ..." if len(known) > 8 else "")) or "none"


def split(given: Iterable[str] | None) -> tuple[str, ...]:
    """The values of an option that may be repeated, or list several with commas."""
    return tuple(word.strip() for text in given or () for word in text.split(",") if word.strip())


class Format(StrEnum):
    """The form of an answer."""

    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"
    parquet = "parquet"


def write_rows(chosen: Chosen, form: Format, names: Names, *, heading: bool = True) -> None:
    """Writes the rows to standard output. ``heading``: whether CSV begins with the names of its columns."""
    values = chosen.table.values(chosen.rows, names)
    if form is Format.parquet:
        sys.stdout.flush()
        _parquet(chosen, values, sys.stdout.buffer)
    elif form is Format.csv:
        out = csv.writer(sys.stdout, lineterminator="\n")
        if heading:
            out.writerow(values)
        out.writerows(zip(*(map(_cell, column) for column in values.values()), strict=True))
    else:
        encode = json.JSONEncoder(default=_plain).encode
        for row in zip(*values.values(), strict=True):
            sys.stdout.write(encode(dict(zip(values, row, strict=True))) + "\n")


def _cell(value: Any) -> Any:
    """A value in a cell of CSV: null is empty, a list has commas, a time ends with Z."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return _time(value) if isinstance(value, datetime) else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, tuple | Sequence):
        return [*value]
    return str(value)


def _time(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def _parquet(chosen: Chosen, values: Mapping[str, list[Any]], out: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        "string": pa.string(),
        "int": pa.int64(),
        "bool": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "seconds": pa.float64(),
        "ints": pa.list_(pa.int64()),
        "strings": pa.list_(pa.string()),
    }
    fields = [
        pa.field(column.name, kinds[column.kind], metadata={"comment": column.about})
        for column in chosen.table.all_columns
    ]
    pq.write_table(pa.table([values[field.name] for field in fields], schema=pa.schema(fields)), out)
