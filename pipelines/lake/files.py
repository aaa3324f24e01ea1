"""Parquet files of a lake's tables. Executors write them, and the driver commits them as one Delta version.

A table with open rows is partitioned by the shard of these rows. When a shard changes, its partition is replaced as a
whole. Files of closed rows (partition null) are only added. Delta's log holds the partition value. Folders are named
after it, as by other engines, because polars takes it from there.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from jbod_model.errors import JbodError, UsageError, first_line_of
from pipelines.lake.tables import BY_NAME, IDS, LEDGER, Table, way_back
from pipelines.lake.uris import LakeUri
from pipelines.storage.filesystem import filesystem_of
from pipelines.storage.objects import fault_of_storage, is_object

# Columns with bounds in the file statistics, by which readers skip files.
_BOUNDED = ("generation", "log_offset", "from_offset", "to_offset", "broker_id", "topic_id", "directory_id")
_BOUNDED_IN_LEDGER = ("start_offset", "end_offset")
# Columns whose values mostly rise: delta encoding halves their size and their compression time.
_RISING = ("log_offset", "from_offset", "from_time", "to_offset", "to_time")
_COUNTED = ("to_offset",)
_COUNTED_IN_LEDGER = ("from_snapshot",)
ROW_GROUP = 1 << 20
"""Rows. DuckDB and Spark read the row groups of a file in parallel."""
_DICTIONARY = 1 << 20
"""Bytes of a dictionary, up to which Parquet writes rows as indices of it."""
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that is written but not committed. ``shard``: the shard of its open rows, -1 for closed rows."""

    table: str
    path: str
    size: int
    rows: int
    stats: str
    shard: int = -1
    modified: int | None = None
    """Modification time in Delta's log, in milliseconds since 1970; None for that of the commit."""

    @property
    def partition_values(self) -> dict[str, str | None]:
        """The partition values, as in Delta's log."""
        return partition_values(self.table, self.shard)


def partition_values(table: str, shard: int) -> dict[str, str | None]:
    """The partition values for the open rows of a shard, or for closed rows (-1), as in Delta's log."""
    return {name: None if shard < 0 else str(shard) for name in BY_NAME[table].partition_by}


def write(lake: LakeUri, table: str, rows: pa.Table, *, shard: int = -1, order: pa.Array | None = None) -> DataFile:
    """Writes ``rows`` (columns of the table's schema, dictionaries allowed) as one Parquet file of the table.

    ``order``: the indices of the rows in the order to write them. A row group at a time is copied.
    """
    required_rows = _required(table, rows)
    starts = range(0, max(1, required_rows.num_rows), ROW_GROUP)
    if order is None:
        return _write(
            lake, table, required_rows.schema, (required_rows.slice(start, ROW_GROUP) for start in starts), shard
        )
    schema = _small_dictionaries(table, required_rows)
    parts = (required_rows.take(order.slice(start, ROW_GROUP)).cast(schema) for start in starts)
    return _write(lake, table, schema, parts, shard)


def merge(lake: LakeUri, table: Table, paths: Sequence[str]) -> DataFile:
    """Writes the rows of files, in the order of ``paths``, as one file, with a row group at a time in memory."""
    schema = _with_nulls(lake, table, paths)
    parts = (part.cast(schema) for part in _row_groups(_read(lake, table, paths, encoded=True)))
    return _write(lake, table.name, schema, parts, -1)


def _with_nulls(lake: LakeUri, table: Table, paths: Sequence[str]) -> pa.Schema:
    """The table's schema, where a column is nullable if a file may have a null in it."""
    fs, root = filesystem_of(lake)
    schemas = [pq.read_schema(f"{root}/{table.name}/{path}", filesystem=fs) for path in paths]
    return pa.schema(
        field.with_nullable(
            field.nullable
            or any(field.name not in schema.names or schema.field(field.name).nullable for schema in schemas)
        )
        for field in table.schema
    )


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of tables in tables of ``ROW_GROUP`` rows, the last one of fewer."""
    held, number = [], 0
    for table in tables:
        held.append(table)
        number += table.num_rows
        while number > ROW_GROUP:
            rows = pa.concat_tables(held)
            yield rows.slice(0, ROW_GROUP)
            held, number = [rows.slice(ROW_GROUP)], number - ROW_GROUP
    yield pa.concat_tables(held)


def _small_dictionaries(table: str, rows: pa.Table) -> pa.Schema:
    """The schema of these rows, where columns with a large dictionary have their declared type.

    Parquet writes a dictionary whole into every row group, and above this size it writes the rows as text after that.
    """
    declared = BY_NAME[table].schema
    fields = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if column.num_chunks and _dictionary_bytes(column.chunk(0)) > _DICTIONARY:
            field = field.with_type(declared.field(field.name).type)
        fields.append(field)
    return pa.schema(fields)


def _dictionary_bytes(values: pa.Array) -> int:
    if pa.types.is_list(values.type):
        return _dictionary_bytes(values.values)
    return values.dictionary.nbytes if pa.types.is_dictionary(values.type) else 0


def _write(lake: LakeUri, table: str, schema: pa.Schema, parts: Iterable[pa.Table], shard: int) -> DataFile:
    """``parts``: the row groups."""
    fs, root = filesystem_of(lake)
    name = new_path(table, shard)
    counted = {name for names in _bounded_and_counted(table) for name in names}
    with _output(fs, lake, f"{root}/{table}", name) as sink:
        with pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=1,
            store_schema=False,
            use_dictionary=_dictionary_columns(table),
            column_encoding={column: "DELTA_BINARY_PACKED" for column in _RISING if column in schema.names},
            write_statistics=[column for column in schema.names if column in counted],
            write_batch_size=1 << 17,
        ) as writer:
            for part in parts:
                writer.write_table(part, row_group_size=ROW_GROUP)
        size = sink.tell()
    metadata = writer.writer.metadata  # one that the writer collects would hide the error of a write
    return DataFile(table, name, size, metadata.num_rows, _statistics(table, schema.names, metadata), shard)


def new_path(table: str, shard: int) -> str:
    """Path of a new file in its table's folder. ``shard``: the shard of its open rows, -1 for closed rows."""
    folders = [f"{name}={_NULL if value is None else value}/" for name, value in partition_values(table, shard).items()]
    return f"{''.join(folders)}{'open' if shard >= 0 else 'closed'}-{uuid.uuid4().hex}.parquet"


def _output(fs: pafs.FileSystem, lake: LakeUri, folder: str, name: str) -> Any:
    try:
        return fs.open_output_stream(f"{folder}/{name}")
    except FileNotFoundError:
        if fs.get_file_info(folder).type != pafs.FileType.Directory:
            raise _elsewhere(lake, f"there is no folder {folder}") from None
        # The first file of a partition creates its folder, if the storage has folders.
        fs.create_dir(f"{folder}/{name.rpartition('/')[0]}", recursive=False)
        return fs.open_output_stream(f"{folder}/{name}")


def read(
    lake: LakeUri, table: Table, paths: Sequence[str], columns: Sequence[str] | None = None, *, encoded: bool = False
) -> pa.Table:
    """Reads files of a table, also those of other engines, in the table's schema (or only ``columns`` of it).

    A column that an old file lacks is null. Spark writes times as INT96 without a zone, and writes partition columns.
    ``encoded``: text columns stay dictionaries, which takes half of the memory and a third of the time.
    """
    return pa.concat_tables(_read(lake, table, paths, columns, encoded=encoded))


def _read(
    lake: LakeUri, table: Table, paths: Sequence[str], columns: Sequence[str] | None = None, *, encoded: bool
) -> Iterator[pa.Table]:
    """No rows, then those of each file."""
    fs, root = filesystem_of(lake)
    schema = pa.schema([field for field in table.schema if columns is None or field.name in columns])
    if encoded:
        schema = pa.schema([field.with_type(_encoded(field.type)) for field in schema])
    yield schema.empty_table()
    for path in paths:
        try:
            with fs.open_input_file(f"{root}/{table.name}/{path}") as source:
                rows = _parquet(source, _dictionary_columns(table.name) if encoded else ()).read(columns=schema.names)
        except (OSError, pa.ArrowInvalid) as problem:
            raise _unreadable(lake, table, path, problem) from None
        there = set(rows.column_names)
        yield pa.table(
            [
                rows[field.name].cast(field.type) if field.name in there else pa.nulls(len(rows), field.type)
                for field in schema
            ],
            schema=schema,
        )


def _unreadable(lake: LakeUri, table: Table, path: str, problem: Exception) -> JbodError:
    """The error for a file of a table that cannot be read, with what brings its rows back."""
    return fault_of_storage(lake, problem) or UsageError(
        f"{lake}/{table.name}/{path}: cannot be read ({first_line_of(problem)}): {way_back(lake, table.name)}"
    )


def _parquet(source: Any, dictionaries: Sequence[str]) -> pq.ParquetFile:
    """Opens a file. ``dictionaries``: the Parquet paths of columns to keep as dictionaries, if the file has them."""
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    there = {file.schema.column(place).path for place in range(len(file.schema))}
    kept = [path for path in dictionaries if path in there]
    if not kept:
        return file
    return pq.ParquetFile(source, metadata=file.metadata, read_dictionary=kept, coerce_int96_timestamp_unit="us")


def _encoded(kind: pa.DataType) -> pa.DataType:
    """The type of a column of which text is kept as a dictionary."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_encoded(kind.value_type)))
    return pa.dictionary(pa.int32(), pa.string()) if pa.types.is_string(kind) else kind


def check_there(lake: LakeUri, written: Sequence[DataFile]) -> None:
    """Raises UsageError if a file is not in the lake: then the executor's lake is on another storage."""
    if is_object(lake):
        # Written files are readable by everyone.
        return
    fs, root = filesystem_of(lake)
    infos = fs.get_file_info([f"{root}/{file.table}/{file.path}" for file in written])
    for file, info in zip(written, infos, strict=True):
        if info.size != file.size:
            raise _elsewhere(lake, f"{file.table}/{file.path} was written and is not there")


def _elsewhere(lake: LakeUri, what: str) -> UsageError:
    return UsageError(
        f"{lake}: on {socket.gethostname()} {what}: the lake must be on storage that the driver and all executors share"
    )


def _required(table: str, rows: pa.Table) -> pa.Table:
    """The same rows, where columns that hold no null are not nullable: a tenth of the time to write them."""
    declared = BY_NAME[table].schema
    fields = [
        field.with_nullable(bool(column.null_count) or declared.field(field.name).nullable)
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(rows.columns, schema=pa.schema(fields, metadata=rows.schema.metadata))


def _dictionary_columns(table: str) -> list[str]:
    """Parquet paths of the text columns, which have many rows and few values."""
    schema = BY_NAME[table].schema
    lists = [f"{field.name}.list.element" for field in schema if field.type == IDS]
    return [*lists, *(field.name for field in schema if pa.types.is_string(field.type))]


def _statistics(table: str, names: Sequence[str], metadata: pq.FileMetaData) -> str:
    """The statistics of a file with columns ``names`` in Delta's log, as JSON: those of its row groups together."""
    bounded, counted = _bounded_and_counted(table)
    parts: dict[str, list[pq.Statistics]] = defaultdict(list)
    for group, place in product(range(metadata.num_row_groups), range(metadata.num_columns)):
        column = metadata.row_group(group).column(place)
        if column.is_stats_set:
            parts[column.path_in_schema].append(column.statistics)
    bounds = {name: [part for part in parts[name] if part.has_min_max] for name in bounded}
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": {name: min(part.min for part in known) for name, known in bounds.items() if known},
            "maxValues": {name: max(part.max for part in known) for name, known in bounds.items() if known},
            "nullCount": {name: sum(part.null_count for part in parts[name]) for name in counted if name in names},
        }
    )


def _bounded_and_counted(table: str) -> tuple[Sequence[str], Sequence[str]]:
    return (_BOUNDED_IN_LEDGER, _COUNTED_IN_LEDGER) if table == LEDGER.name else (_BOUNDED, _COUNTED)
