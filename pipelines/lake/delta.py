"""The files of a Delta table at a version, and queries on them by DuckDB. No JVM is needed."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import duckdb

from jbod_model.errors import JbodError, UsageError, first_line_of
from pipelines.lake.uris import LakeUri, commit_path
from pipelines.storage import objects
from pipelines.storage.objects import fault_of_storage, is_object, storage_options, to_read

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SQL_TYPES = {
    "string": "VARCHAR",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMPTZ",
    "binary": "BLOB",
}
_BOUNDS = (
    "min.from_offset",
    "max.to_offset",
    "null_count.to_offset",
    "min.log_offset",
    "max.log_offset",
    "min.start_offset",
    "max.end_offset",
    "null_count.from_snapshot",
    "num_records",
    "partition.open_shard",
)
_OURS = ("open-", "closed-")
_DATA_FILE = re.compile(r"/(\w+)/(?:\w+=[^/]+/)?[^/]+\.parquet")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|\\")


class NoLake(UsageError):
    """Nothing of a lake is there: neither its ledger nor its records."""


def local_path(path: str) -> str:
    """``path`` without a leading file://, which some readers do not understand."""
    return unquote(urlsplit(path).path) if path.startswith("file://") else path


def uri_of(path: str) -> str:
    """A local path as a URI. In a URI, delta-rs accepts characters that it refuses in a path."""
    refuse_misread(path)
    return path if "://" in path else Path(path).absolute().as_uri()


def refuse_tilde(path: str) -> None:
    """Raises UsageError for a path that is meant to begin at the home folder: only a shell reads it so."""
    if path.startswith("~/"):
        raise UsageError(f"{path}: no shell has replaced the ~: write the whole path, {Path.home()}/...")


def refuse_misread(path: str) -> None:
    """Raises UsageError for a local path that means another one to delta-rs, which decodes the path of a log twice, and
    takes ~ for the home folder; and for the URI file:/PATH or file://PATH, which would be a folder below this one."""
    refuse_tilde(path)
    if re.match("file:(?!//(localhost)?/)", path):
        raise UsageError(f"{path}: write file:// and the whole path, file:///..., or only the path")
    if _CONTROL.search(path):
        raise UsageError(f"{path!r}: delta-rs takes no control character in a path: move or name the lake without it")
    match = None if "://" in path else _MISREAD.search(os.path.realpath(path))
    if match is not None:
        raise UsageError(
            f"{path}: delta-rs takes the {match[0]} in this path for another character, and so another folder: move or "
            "name the lake without it"
        )


def delta_at(location: str, version: int | None = None) -> DeltaTable:
    """Opens the table at a path or URI, at its newest version or at ``version``. Raises delta-rs' errors."""
    from deltalake import DeltaTable

    return DeltaTable(location, version=version, storage_options=storage_options(location))


def is_newest(location: str, version: int) -> bool:
    """Whether the commit of a version of the table at a path or URI is there, and that of the next one is not.

    One request on S3: a listing from that commit on.
    """
    commit, following = commit_path(location, version), commit_path(location, version + 1)
    if is_object(location):
        there = {str(each["path"]) for each in objects.listed(f"{location}/_delta_log", after=f"{version:020d}")}
        return objects.parts(commit)[1] in there and objects.parts(following)[1] not in there
    return _is_there(commit) and not _is_there(following)


def is_table(location: str) -> bool:
    """Whether there is a table at a path or URI."""
    if is_object(location):  # delta-rs would hold Python's lock while it waits for the answer
        return objects.exists_below(f"{location}/_delta_log")
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(location, storage_options(location))


def open_table(lake: LakeUri, name: str, version: int | None) -> DeltaTable:
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        if version is not None:
            refuse_empty_commits(lake, name, version)
        return delta_at(uri_of(f"{lake}/{name}"), version)
    except (TableNotFoundError, DeltaError, OSError) as problem:
        if fault := fault_of_storage(lake, problem):
            raise fault from None
        _refuse_unreadable(lake, name)
        what = first_line_of(problem)
        if name == "ledger" and isinstance(problem, TableNotFoundError):
            if not is_table(f"{lake}/records"):
                raise no_lake(lake) from None
            if not _has_records(lake):
                raise unpublished(lake) from None
        from pipelines.lake.tables import way_back  # a question loads no Arrow unless it fails

        if name == "ledger":
            raise UsageError(
                f"{lake}/ledger: is gone or cannot be read ({what}), and the other tables are there: "
                f"{way_back(lake, name)}"
            ) from None
        which = "" if version is None else f" at version {version}, which the ledger names"
        raise UsageError(
            f"{lake}/{name}: cannot be opened{which} ({what}): jbod optimize searches for a newer one with the same "
            f"rows; if there is none, {way_back(lake, name)}"
        ) from None


def no_lake(lake: LakeUri) -> NoLake:
    """The error for a path at which no lake is. A log may be there."""
    from jbod_model.formats.log import PARTITION_DIRECTORY

    folder = Path(local_path(lake))
    if folder.is_file():
        return NoLake(f"{lake}: no lake there: it is a file: name a folder with --lake")
    if folder.name == PARTITION_DIRECTORY or (folder / PARTITION_DIRECTORY).is_dir():
        start = f"it is a metadata log: ask it with --log, or make a lake of it: jbod replay {quote(lake)} --lake LAKE"
        return NoLake(f"{lake}: no lake there: {start}")
    return NoLake(f"{lake}: no lake there: make one with jbod replay LOG_DIR --lake {quote(lake)}")


def _refuse_unreadable(lake: LakeUri, name: str) -> None:
    """Raises UsageError for a table's log that this user may not read: delta-rs does not tell it from one that is not
    there, or damaged."""
    folder = local_path(f"{lake}/{name}/_delta_log")
    if "://" in folder:
        return
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            for path in Path(folder).iterdir():
                if path.is_file():
                    path.open("rb").close()
    except OSError as problem:
        raise UsageError(f"{lake}: cannot be read: {problem.strerror}{to_read(problem)}") from None


def _has_records(lake: LakeUri) -> bool:
    """Whether a run has written records: it creates the ledger before the first of them, and after all other tables."""
    from deltalake.exceptions import DeltaError

    from pipelines.lake.tables import RECORDS

    try:
        return delta_at(uri_of(f"{lake}/{RECORDS.name}")).version() > len(RECORDS.checks)
    except (DeltaError, OSError):
        return True


def unpublished(lake: LakeUri) -> UsageError:
    """The error for a lake whose first run is not done, or was killed."""
    return UsageError(f"{lake}: nothing was published into this lake yet: run jbod replay LOG_DIR --lake {quote(lake)}")


class DeltaTables(Mapping[str, "DeltaTable"]):
    """The tables of a lake at the versions that its ledger names, and those that are open already: the ledger.

    A table is opened when it is first asked for. Where the commit of its version is not there, it is opened at once: so
    a table that is gone is reported by every question, whether the question needs it or not.
    """

    def __init__(self, lake: LakeUri, versions: Mapping[str, int], opened: Mapping[str, DeltaTable]) -> None:
        self._lake = lake
        self._versions = dict(versions)
        self._opened = dict(opened)
        for name, version in versions.items():
            if not _is_there(commit_path(f"{lake}/{name}", version)):
                self._opened[name] = open_table(lake, name, version)

    def __getitem__(self, name: str) -> DeltaTable:
        if name not in self._opened:
            self._opened[name] = open_table(self._lake, name, self._versions[name])
        return self._opened[name]

    def __contains__(self, name: object) -> bool:
        return name in self._versions

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)


def refuse_empty_commits(lake: LakeUri, name: str, version: int) -> None:
    """Raises OSError if a commit of a table up to ``version`` is empty. delta-rs takes it for one without changes.

    An earlier one is not refused if no publication of records was the first to name its version: then it is of a
    publication that did not end.
    """
    commit = commit_path(f"{lake}/{name}", version)
    if "://" in commit:  # an object store takes a commit whole
        return
    if _is_empty(commit):
        raise OSError("its commit is empty, as after a crash")
    folder, newest = Path(commit).parent, Path(commit).name
    files = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    checkpoint = max((file[:20] for file in files if ".checkpoint." in file and file <= newest), default="")
    commits = (
        file for file in files if file.endswith(".json") and file[:20].isdecimal() and checkpoint < file < newest
    )
    empty = [int(file[:20]) for file in commits if _is_empty(f"{folder}/{file}")]
    if empty and (lost := _with_records(lake, name).intersection(empty)):
        raise OSError(f"its commit {min(lost)} is empty")


def _with_records(lake: LakeUri, name: str) -> set[int]:
    """The versions of a table that a publication of records was the first to name."""
    ledger = delta_at(uri_of(f"{lake}/ledger"))
    rows = read_parquet(lake, "ledger", ledger, by_name=True)
    publications = run_query(
        lake,
        connect(lake),
        f"SELECT versions, start_offset < end_offset FROM {rows} ORDER BY end_offset, published_time",
    )
    first: dict[int, bool] = {}
    for versions, has_records in publications:
        if name in versions:
            first.setdefault(versions[name], has_records)
    return {version for version, has_records in first.items() if has_records}


def _is_empty(commit: str) -> bool:
    """Whether a commit on a disk has no content."""
    try:
        state = Path(commit).stat()
    except OSError:  # jbod optimize deletes old commits
        return False
    return stat.S_ISREG(state.st_mode) and not state.st_size


def _is_there(commit: str) -> bool:
    if is_object(commit):
        return objects.head(commit) is not None
    if "://" not in commit:
        return Path(commit).is_file() and not _is_empty(commit)
    import pyarrow.fs as pafs

    from pipelines.storage.filesystem import filesystem_of

    fs, path = filesystem_of(commit)
    return bool(fs.get_file_info(path).type == pafs.FileType.File)


FEW_RECORDS = 100_000
"""Up to this number of records one thread answers sooner: handing tasks to others takes a third of the CPU time."""

STREAMED_ROWS = 2_000
"""The rows of a batch."""


def connect(lake: LakeUri = "") -> duckdb.DuckDBPyConnection:
    """Opens DuckDB, for the files of the lake at ``lake`` if it reads any.

    It and its cursors take times without a zone, as Spark writes them, for UTC.
    """
    connection = duckdb.connect()
    if is_object(lake):
        from pipelines.storage.duck import register

        register(connection)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL parquet_metadata_cache = true")  # an answer reads a file of a lake many times
    return connection


def use_threads(connection: duckdb.DuckDBPyConnection, records: int) -> None:
    """Lets DuckDB use one thread for a log of few records."""
    if records <= FEW_RECORDS:
        connection.execute("SET GLOBAL threads = 1")


def data_files(table: DeltaTable) -> list[dict[str, Any]]:
    """Path and statistics of every data file. A missing statistic is None."""
    actions = table.get_add_actions(flatten=True)
    names = set(actions.schema.names)
    columns = {name: actions.column(name).to_pylist() if name in names else None for name in ("path", *_BOUNDS)}
    return [
        {name: None if column is None else column[row] for name, column in columns.items()}
        for row in range(actions.num_rows)
    ]


def read_parquet(
    lake: LakeUri, name: str, table: DeltaTable, files: Sequence[str] | None = None, *, by_name: bool = False
) -> str:
    """SQL for the rows of a table, or of some of its files, without partition columns. The session's time zone must be
    UTC.

    ``by_name``: a column that some of the files lack is null there.
    """
    if files is None:
        files = [file["path"] for file in data_files(table)]
    if not files:
        columns = (f"NULL::{_sql_type(field.type)} AS {field.name}" for field in _columns(table))
        return f"(SELECT {', '.join(columns)} WHERE false)"
    listed = file_list(lake, name, files)
    if all(file.rpartition("/")[2].startswith(_OURS) for file in files):
        return f"read_parquet({listed}, hive_partitioning = false{', union_by_name = true' if by_name else ''})"
    # Files of other engines may have partition columns, columns in another order, and times without a zone (INT96).
    columns = (f"{field.name}::{_sql_type(field.type)} AS {field.name}" for field in _columns(table))
    return f"(SELECT {', '.join(columns)} FROM read_parquet({listed}, hive_partitioning = false, union_by_name = true))"


def _columns(table: DeltaTable) -> list[Any]:
    """The fields in the table's data files."""
    partitions = table.metadata().partition_columns
    return [field for field in table.schema().fields if field.name not in partitions]


def file_list(lake: LakeUri, name: str, files: Sequence[str]) -> str:
    """An SQL list of the files of a table."""
    return f"[{', '.join(_quoted(f'{lake}/{name}/{file}') for file in files)}]"


def _quoted(path: str) -> str:
    """A path as an SQL literal, with wildcards escaped."""
    plain = "".join(f"[{char}]" if char in "*?[" else char for char in path)
    return literal(plain)


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def is_among(column: str, values: Sequence[str]) -> str:
    """SQL: a condition that holds if a column of texts has one of the values.

    DuckDB evaluates an expression of one column while it reads, and skips the other columns where it does not hold. It
    splits a list into comparisons, and evaluates those only afterwards. A map stays an expression.
    """
    if not values:
        return "false"
    listed = ", ".join(map(literal, values))
    return f"map_contains(map([{listed}], [{listed}]), {column})"


def _sql_type(kind: Any) -> str:
    if kind.type == "array":
        return _sql_type(kind.element_type) + "[]"
    if kind.type == "map":
        return f"MAP({_sql_type(kind.key_type)}, {_sql_type(kind.value_type)})"
    return _SQL_TYPES[kind.type]


_OF_FILES = (duckdb.InvalidInputException, duckdb.BinderException)
"""Errors that a file causes, although they are of a class of mistakes in SQL. Binder: it has the columns of another
table."""


@contextmanager
def reading(lake: LakeUri) -> Iterator[None]:
    """Raises UsageError if a file that the block reads cannot be read. DuckDB also opens files to create a view."""
    try:
        yield
    except (duckdb.Error, JbodError) as problem:
        if fault := fault_of_storage(lake, problem):
            raise fault from None
        if isinstance(problem, JbodError):
            raise
        if isinstance(problem, duckdb.ProgrammingError) and not isinstance(problem, _OF_FILES):
            raise
        what = first_line_of(problem)
        if os.strerror(errno.EACCES) in what:
            raise UsageError(f"{lake}: cannot be read ({what}): give this user the right to read it") from None
        from pipelines.lake.tables import way_back

        named = _DATA_FILE.search(what)
        table, file = (named[1], "") if named else _damaged(lake)
        where = f"{file}: " if file else ""
        raise UsageError(
            f"{lake}: a file of the lake is damaged or gone ({where}{what}): ask again; if it stays, jbod optimize "
            f"searches for the file that another engine wrote in its place; if there is none, {way_back(lake, table)}"
        ) from None


def _damaged(lake: LakeUri) -> tuple[str, str]:
    """The first table with a file that DuckDB cannot read, and the file: most errors about its content name neither."""
    from deltalake.exceptions import DeltaError

    from pipelines.lake.tables import BY_NAME

    connection = connect(lake)
    for name in BY_NAME:
        with suppress(DeltaError, OSError):
            table = delta_at(uri_of(f"{lake}/{name}"))
            for file in data_files(table):
                rows = read_parquet(lake, name, table, [file["path"]])
                try:
                    connection.execute(f"SELECT bit_xor(hash(t)) FROM {rows} t")
                except duckdb.Error:
                    return name, f"{name}/{file['path']}"
    return "", ""


def run_query(
    lake: LakeUri, connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()
) -> list[tuple[Any, ...]]:
    with reading(lake):
        return connection.execute(sql, list(parameters)).fetchall()


def stream_query(
    lake: LakeUri, connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a query in batches. The connection takes no other query until the last one is read."""
    with reading(lake):
        cursor = connection.execute(sql, list(parameters))
        while rows := cursor.fetchmany(STREAMED_ROWS):
            yield rows


@dataclass(frozen=True)
class RowHash:
    """The number of some rows, and the sum and the exclusive or of their hashes."""

    rows: int = 0
    total: int = 0
    mixed: int = 0

    def __add__(self, other: RowHash) -> RowHash:
        """That of both sets of rows."""
        return RowHash(self.rows + other.rows, self.total + other.total, self.mixed ^ other.mixed)


def hashed(columns: Sequence[str]) -> str:
    """SQL for the three values of a RowHash of these columns."""
    hash_of_row = f"hash({', '.join(columns)})"
    return f"count(*), coalesce(sum({hash_of_row}), 0), coalesce(bit_xor({hash_of_row}), 0)"


def row_hash(lake: LakeUri, connection: duckdb.DuckDBPyConnection, columns: Sequence[str], rows: str) -> RowHash:
    """The hash of ``rows`` (SQL), of these columns in this order. ``lake``: the lake that an error names."""
    (values,) = run_query(lake, connection, f"SELECT {hashed(columns)} FROM {rows}")
    return RowHash(*values)
