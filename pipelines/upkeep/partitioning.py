"""Format 2: the open rows of a shard are a partition. Format 1 identified them only by file names.

Each table is rewritten from the version that the ledger names, whatever was committed after it. The commits are marked
as those of a batch, so they do not count until the ledger names them. A step that died is repeated from the same
version, and a jbod of format 1 undoes them. Readers use the old versions until then. Afterwards the old versions can no
longer be opened by number, but questions about every offset work, because the newest version has all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake

from pipelines.lake import files
from pipelines.lake.commit import commit_files, live_files
from pipelines.lake.create import Identity, described
from pipelines.lake.delta import delta_at, is_table
from pipelines.lake.files import DataFile
from pipelines.lake.foreign import PUBLISHED, REWRITTEN, commit_info, last_own
from pipelines.lake.publish import LakeWriter
from pipelines.lake.restore import shards_of_rows
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, HISTORY, LEDGER, REQUESTS, TABLES, Table


def partition(location: str) -> None:
    """Converts a lake of format 1 to format 2, or completes the conversion."""
    said = described(location)
    lake = LakeWriter(location, Identity(*(said[name] for name in ("cluster_id", "profile", "ids", "shards"))))
    open_old(lake)
    published = dict((lake.ledger or {}).get("versions", {}))
    versions = dict(published)
    for table in (*HISTORY, ASSIGNMENT_REQUESTS):
        if table.name not in lake.tables:
            continue
        version = published.get(table.name)
        before = delta_at(f"{location}/{table.name}", version)
        if before.metadata().partition_columns != table.partition_by:
            _convert(lake, table, before)
            versions[table.name] = lake.tables[table.name].version()
    if lake.ledger is not None and (versions != published or last_own(location, lake.tables[LEDGER.name]) is None):
        lake.append_ledger(lake.here(), versions, {})


def open_old(lake: LakeWriter) -> None:
    """Opens the tables that a lake of an earlier format has, and its newest ledger row."""
    for table in (*TABLES, *REQUESTS):
        if is_table(f"{lake.location}/{table.name}"):
            lake.tables[table.name] = delta_at(f"{lake.location}/{table.name}")
    ledger = lake.tables[LEDGER.name]
    there = {column.name for column in ledger.schema().fields}
    missing = pa.schema([column for column in LEDGER.schema if column.name not in there])
    if len(missing):
        ledger.alter.add_columns(
            Schema.from_arrow(missing).fields,
            commit_properties=CommitProperties(commit_info({REWRITTEN: "true"}, "added columns of a later format")),
        )
        ledger.update_incremental()
    lake.take_newest_row()


def _convert(lake: LakeWriter, table: Table, before: DeltaTable) -> None:
    """Commits the rows of the version ``before`` to the table, partitioned."""
    written = list(_rewritten(lake, table, before))
    marks = {REWRITTEN: "true"} if lake.ledger is None else {PUBLISHED: str(lake.end_offset)}
    delta = lake.tables[table.name]
    write_deltalake(
        delta,
        table.delta_schema.empty_table(),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=table.partition_by,
        commit_properties=CommitProperties(commit_info(marks, "partitioned the table anew"), max_commit_retries=0),
    )
    delta.update_incremental()
    if written:
        commit_files(lake.location, table, delta, written, (), marks=marks)


def _rewritten(lake: LakeWriter, table: Table, before: DeltaTable) -> Iterator[DataFile]:
    found = [file.path for file in live_files(before)]
    if all(path.startswith(("open-", "closed-")) for path in found):
        for path in found:
            kind, number, *_ = path.split("-")
            rows = files.read(lake.location, table, [path])
            yield files.write(lake.location, table.name, rows, shard=int(number) if kind == "open" else -1)
        return
    # Another engine merged files: replaced rows may remain under another file name, and be duplicated.
    rows = _without_doubles(table, files.read(lake.location, table, found))
    is_open = pc.equal(rows["outcome"], "pending") if table is ASSIGNMENT_REQUESTS else pc.is_null(rows["to_offset"])
    closed, opened = rows.filter(pc.invert(is_open)), rows.filter(is_open)
    if len(closed):
        yield files.write(lake.location, table.name, closed)
    owners = _owners(lake, table, opened)
    for shard in sorted({*owners.to_pylist()}):
        yield files.write(lake.location, table.name, opened.filter(pc.equal(owners, shard)), shard=shard)


def _owners(lake: LakeWriter, table: Table, rows: pa.Table) -> Any:
    from pipelines.replay.blocks import shards_of

    if table is ASSIGNMENT_REQUESTS:
        return pa.array([0] * len(rows), pa.int32())
    return pa.array(shards_of_rows(lake.identity.shards, table, rows, shards_of))


def _without_doubles(table: Table, rows: pa.Table) -> pa.Table:
    """Keeps one row per key. Of an open row and a closed one, the closed one is newer."""
    opened = "outcome = 'pending'" if table is ASSIGNMENT_REQUESTS else "to_offset IS NULL"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows_of_table", rows)
        kept = connection.sql(
            f"SELECT * FROM rows_of_table QUALIFY row_number() OVER "
            f"(PARTITION BY {', '.join(table.key)} ORDER BY {opened}) = 1"
        ).to_arrow_table()
    return kept.cast(table.schema)
