"""Rebuilds the history tables from the ``records`` table.

The values of the records go through the same decoder and the same fold as in a replay, in this process. One version per
table replaces all old files by the new ones. Then a ledger row without records names these versions. Until then,
readers see the old tables. A rebuild that dies leaves tables ahead of the ledger with correct rows, so the next
publication may build on them. The next vacuum deletes the files that it did not commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jbod_model.errors import UsageError, first_line_of
from jbod_model.formats.schema import API_KEYS, TYPE_NAMES
from pipelines.fold.rows import record_rows
from pipelines.fold.rules import rules
from pipelines.formats.programs import programs
from pipelines.formats.records import decode_values, kind_of
from pipelines.lake import files
from pipelines.lake.changes import rebuild_changes
from pipelines.lake.delta import connect, read_parquet
from pipelines.lake.files import DataFile
from pipelines.lake.publish import LakeWriter, fit, mend
from pipelines.lake.tables import BY_NAME, CHANGES, DERIVED, HISTORY, RECORDS, REQUESTS, way_back
from pipelines.lake.uris import LakeUri
from pipelines.lake.written_lake import LiveFile, live_files
from pipelines.run.rebuild_states import CHUNK, folded
from pipelines.run.seed import discard_checkpoint
from pipelines.run.stage_options import Job
from pipelines.storage.filesystem import filesystem_of
from pipelines.upkeep.compact import replace_files

Say = Callable[[str], None]
UNKNOWN = "UNKNOWN_"
_READ_AGAIN = ("record_type", "topic_id", "partition", "broker_id")


def rebuild(path: LakeUri, *, say: Say, max_records: int = CHUNK) -> dict[str, int]:
    """Rebuilds the history tables of a lake, and the state for the next run. Returns the number of rows per table.

    Records that were not known when they were published, and are now, count; the ledger then names those that are
    still not known. ``max_records``: the most records that are folded at once. UsageError or MalformedLog if the
    records cannot be read: nothing is changed.
    """
    with LakeWriter.held(path, mending=True) as lake:
        for table in (RECORDS, *REQUESTS):
            if table.name in lake.tables:
                mend(lake, table)
        say(f"reading the records below offset {lake.end_offset}")
        try:
            made = recompute(lake, lake.end_offset, path, max_records=max_records, newly_known=True)
        except duckdb.Error as problem:
            raise UsageError(
                f"{path}/{RECORDS.name}: a file is damaged or gone ({first_line_of(problem)}): "
                f"{way_back(path, RECORDS.name)}"
            ) from None
        names, unnamed = _renamed(lake)
        # A state that was folded by other rules than these tables must not be resumed.
        discard_checkpoint(lake.home)
        for table in HISTORY:
            say(f"replacing {table.name}")
            fit(lake, table)
            replace_files(lake, table, made[table.name], live_files(lake.tables[table.name]), rebuilt=True)
        say("comparing changes")
        rebuild_changes(lake, made[CHANGES.name])
        if names:
            say("naming records that are known now")
            replace_files(lake, RECORDS, names, unnamed, rebuilt=True)
        lake.publish_rewritten(_unknown_in(lake))
    return {name: sum(file.rows for file in written) for name, written in made.items()}


def recompute(
    lake: LakeWriter, end_offset: int, into: str, *, max_records: int = CHUNK, newly_known: bool = False
) -> dict[str, list[DataFile]]:
    """Writes the rows of ``recomputed`` to the folder or lake ``into``."""
    fs, root = filesystem_of(into)
    made: dict[str, list[DataFile]] = {table.name: [] for table in DERIVED}
    for name in made:
        fs.create_dir(f"{root}/{name}")
    with Writer(into) as writer:
        recomputed(lake, end_offset, writer.write, max_records=max_records, newly_known=newly_known)
        for file in writer.written():
            made[file.table].append(file)
    return made


Take = Callable[[str, list[pa.Table], int], None]
"""Takes the name of a table, rows in parts that may have different schemas, and their shard: -1 for closed rows."""


def recomputed(
    lake: LakeWriter, end_offset: int, take: Take, *, max_records: int = CHUNK, newly_known: bool = False
) -> None:
    """Gives ``take`` the derived rows of a lake's records below ``end_offset``, each row once.

    ``newly_known``: also from those whose type was not known when they were published.
    """
    job = Job(lake.path, lake.identity.shards, rules(lake.identity.profile, lake.identity.ids), generation=0)
    opened: dict[tuple[str, int], pa.Table] = {}
    closed: dict[str, list[pa.Table]] = defaultdict(list)
    for shard, _, tables in folded(lake, job, end_offset, max_records=max_records, newly_known=newly_known):
        for name, rows in tables.items():
            if BY_NAME[name].has_open_rows:
                opened[name, shard] = rows.open
            closed[name].append(rows.closed)
            if sum(map(len, closed[name])) >= max_records:
                take(name, closed.pop(name), -1)
    for name, parts in closed.items():
        take(name, parts, -1)
    while opened:
        (name, shard), open_rows = opened.popitem()
        take(name, [open_rows], shard)


class Writer:
    """Writes files in a thread, so that the next rows are made meanwhile. At most one file waits."""

    def __init__(self, into: str) -> None:
        self.into = into
        self.pool = ThreadPoolExecutor(1)
        self.begun: list[Future[DataFile | None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def write(self, name: str, parts: list[pa.Table], shard: int) -> None:
        """Begins to write the rows of ``parts`` as a file, unless there are none. Raises what an earlier file met."""
        if len(self.begun) > 1:
            self.begun[-2].result()
        self.begun.append(self.pool.submit(_write, self.into, name, parts, shard))

    def written(self) -> list[DataFile]:
        """All files, in the order in which they were begun."""
        return [file for file in (each.result() for each in self.begun) if file is not None]


def joined(name: str, parts: list[pa.Table]) -> pa.Table:
    """The rows of all parts. The broker shard's rows have no dictionaries."""
    if len({part.schema for part in parts}) > 1:
        parts = [part.cast(BY_NAME[name].schema) for part in parts]
    return pa.concat_tables(parts)


def _write(into: str, name: str, parts: list[pa.Table], shard: int) -> DataFile | None:
    rows = joined(name, parts)
    return files.write(into, name, rows, shard=shard) if len(rows) else None


def _unknown_in(lake: LakeWriter) -> dict[str, int]:
    """The kinds of records of a lake that are not known, each with the offset of the first."""
    delta = lake.tables[RECORDS.name]
    source = read_parquet(lake.path, RECORDS.name, delta)
    with connect(lake.path) as connection:
        rows = connection.execute(
            f"SELECT record_type, record_version, min(log_offset) FROM {source} GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    numbers = {TYPE_NAMES[kind]: number for number, kind in API_KEYS.items()}
    first_offsets: dict[str, int] = {}
    for name, version, offset in rows:
        number = _number(name) if name.startswith(UNKNOWN) else numbers.get(name)
        if number is not None and programs().entries_of(np.array([number]), np.array([version]))[0] < 0:
            kind = kind_of(number, version)
            first_offsets[kind] = min(offset, first_offsets.get(kind, offset))
    return first_offsets


def _renamed(lake: LakeWriter) -> tuple[list[DataFile], list[LiveFile]]:
    """Files of ``records`` in which types that are known now have their names, and those that they replace.

    MalformedLog where such a record cannot be read.
    """
    known = {f"{UNKNOWN}{number}" for number in API_KEYS}
    added, gone = [], []
    for file in live_files(lake.tables[RECORDS.name]):
        rows = files.read(lake.path, RECORDS, [file.path])
        mask = pc.is_in(rows["record_type"].cast(pa.string()), pa.array(sorted(known)))
        if pc.any(mask).as_py():
            added.append(files.write(lake.path, RECORDS.name, _read_again(rows, mask)))
            gone.append(file)
    return added, gone


def _read_again(rows: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    """The rows, with the columns that are read from the value made again where ``mask``."""
    chosen = rows.filter(mask)
    values = chosen["value"].to_pylist()
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    data = np.frombuffer(b"".join(values), np.uint8)
    offsets = chosen["log_offset"].to_numpy()
    times = chosen["append_time"].cast(pa.int64()).to_numpy() // 1000
    records = decode_values(data, ends, offsets, times, RECORDS.name)
    again = record_rows(records, np.ones(len(records), np.bool_), None).cast(RECORDS.schema)
    for name in _READ_AGAIN:
        at = rows.schema.get_field_index(name)
        column = rows[name].combine_chunks().to_pylist()
        for row, value in zip(np.flatnonzero(mask.to_numpy()).tolist(), again[name].to_pylist(), strict=True):
            column[row] = value
        rows = rows.set_column(at, rows.schema.field(at), pa.array(column, rows.schema.field(at).type))
    return rows


def _number(name: str) -> int | None:
    """The api key in ``UNKNOWN_35``; None for a control record."""
    number = name.removeprefix(UNKNOWN)
    return int(number) if number.isdigit() else None
