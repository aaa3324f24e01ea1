"""Runs contracts on the published tables of a lake, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from jbod_model.errors import UsageError
from jbod_model.ids import ID_TABLES
from pipelines.check.contract import Contract, rows_of
from pipelines.check.contracts import CONTRACTS
from pipelines.lake.delta import data_files, open_table, read_parquet, run_query
from pipelines.lake.ledger import open_ledger
from pipelines.lake.reader import Lake
from pipelines.lake.tables import DERIVED, HISTORY, LEDGER, RECORDS

TABLE_VERSIONS = (RECORDS, *DERIVED)
SLOTS = """
    SELECT topic_id, partition, from_offset, to_offset, generate_subscripts(replicas, 1) - 1 AS replica_index,
           unnest(replicas) AS broker_id, unnest(directories) AS directory_id
    FROM partitions_history
"""
LEDGER_VERSIONS = """
    SELECT end_offset, entry.key AS table_name, entry.value AS version
    FROM (SELECT end_offset, unnest(map_entries(versions)) AS entry FROM ledger)
"""


@dataclass(frozen=True)
class Broken:
    """A row that breaks a contract."""

    contract: Contract
    what: str
    """The key of the row and other columns that describe it, as ``name value name value``."""


def chosen_contracts(only: Sequence[str] = ()) -> tuple[Contract, ...]:
    """The contracts with these ids, all if none is given. Raises UsageError for an unknown id."""
    known = {contract.id for contract in CONTRACTS}
    for word in only:
        if word not in known:
            raise UsageError(f"{word}: no such contract: there are {min(known)} to {max(known)}")
    return tuple(contract for contract in CONTRACTS if not only or contract.id in only)


def run_contracts(lake: Lake, only: Sequence[str] = ()) -> list[Broken]:
    """The rows that break the contracts (all, or those with these ids), in the order of the contracts."""
    contracts = chosen_contracts(only)
    connection = _with_views(lake)
    try:
        return [
            Broken(contract, what)
            for contract in contracts
            for (what,) in run_query(lake.path, connection, f"{contract.sql} ORDER BY what")
        ]
    finally:
        connection.close()


def about(lake: Lake) -> dict[str, Any]:
    """The row of the view ``lake``."""
    ids = ID_TABLES[lake.published.ids]
    return {
        "end_offset": lake.published.end_offset,
        "profile": lake.published.profile,
        "complete": not lake.published.unknown,
        **{kind: str(getattr(ids, kind)) for kind in ("unassigned", "lost", "migrating")},
    }


def newest_versions(lake: Lake) -> dict[str, int]:
    """The rows of the view ``table_versions``: the newest versions, published or not."""
    return {table.name: open_table(lake.path, table.name, None).version() for table in TABLE_VERSIONS}


def _with_views(lake: Lake) -> duckdb.DuckDBPyConnection:
    connection = lake.cursor()
    for table in (RECORDS, *HISTORY, LEDGER):
        delta = open_ledger(lake.path) if table is LEDGER else lake.tables[table.name]
        rows = read_parquet(lake.path, table.name, delta, [file["path"] for file in data_files(delta)])
        connection.execute(f"CREATE TEMP VIEW {rows_of(table)} AS SELECT * FROM {rows}")
    connection.execute(f"CREATE TEMP VIEW slots AS {SLOTS}")
    connection.execute(f"CREATE TEMP VIEW ledger_versions AS {LEDGER_VERSIONS}")
    row = about(lake)
    connection.execute(f"CREATE TEMP TABLE lake AS SELECT {', '.join(f'? AS {name}' for name in row)}", [*row.values()])
    newest = newest_versions(lake)
    connection.execute(
        "CREATE TEMP TABLE table_versions AS SELECT unnest($1) AS table_name, unnest($2) AS version",
        [list(newest), list(newest.values())],
    )
    return connection
