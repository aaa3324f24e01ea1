"""The contents of a lake's tables as plain rows, to compare engines by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from pipelines.lake.delta import connect, delta_at
from pipelines.lake.tables import BY_NAME, CHANGES, DERIVED, LEDGER, RECORDS
from pipelines.upkeep.verify_reference import Row
from tests.support.lakes import Reference

COMPARED = (RECORDS, *DERIVED)


def rows_of(lake: Path | str) -> dict[str, list[Row]]:
    """Every table of a lake at the version that the newest row of its ledger names, rows in the order of the key."""
    newest_last = [("end_offset", "ascending"), ("published_time", "ascending")]
    ledger = delta_at(f"{lake}/{LEDGER.name}").to_pyarrow_table().sort_by(newest_last).to_pylist()
    versions = dict(ledger[-1]["versions"])
    tables = {table.name: plain(delta_at(f"{lake}/{table.name}", versions[table.name])) for table in COMPARED}
    tables[CHANGES.name] = in_force(tables[CHANGES.name])
    return {name: in_order(name, rows) for name, rows in tables.items()}


def in_force(changes: list[Row]) -> list[Row]:
    """The rows of ``changes`` that were not taken back, without their generation (R-EVENT-7)."""
    newest: dict[tuple[Any, ...], Row] = {}
    for row in sorted(changes, key=lambda row: (row["generation"], not row["retraction"])):
        if row["what"] != "history":
            newest[tuple(row[name] for name in CHANGES.key if name not in ("generation", "retraction"))] = row
    return [{**row, "generation": 0} for row in newest.values() if not row["retraction"]]


def plain(delta: DeltaTable) -> list[Row]:
    """Rows of a table without partition columns."""
    rows = delta.to_pyarrow_table().drop_columns(delta.metadata().partition_columns)
    return rows.to_pylist()  # type: ignore[no-any-return]


def expected_rows(reference: Reference) -> dict[str, list[Row]]:
    """What the reference says, in the same order."""
    return {name: in_order(name, rows) for name, rows in reference.tables.items()}


def in_order(name: str, rows: list[Row]) -> list[Row]:
    key = BY_NAME[name].key
    return sorted(rows, key=lambda row: [(row[column] is not None, row[column]) for column in key])


def differences(actual: Mapping[str, list[Row]], expected: Mapping[str, list[Row]]) -> list[str]:
    """What differs, a few lines per table; none when all tables hold the same."""
    lines: list[str] = []
    for name, rows in expected.items():
        if len(actual[name]) != len(rows):
            lines.append(f"{name}: {len(actual[name])} rows, expected {len(rows)}")
        for mine, theirs in zip(actual[name], rows, strict=False):
            wrong: dict[str, Any] = {
                column: (mine.get(column), value) for column, value in theirs.items() if mine.get(column) != value
            }
            if wrong or set(mine) != set(theirs):
                lines.append(f"{name} {[theirs[column] for column in BY_NAME[name].key]}: (found, expected) {wrong}")
                if len(lines) > 20:
                    return lines
    return lines


def same_rows(relations: dict[str, str], **tables: pa.Table) -> dict[str, int]:
    """The number of rows in each relation that the first one does not have, or has more often; both ways."""
    connection = connect()
    for name, table in tables.items():
        connection.register(name, table)
    first, *others = relations.values()
    counts = {}
    for name, other in zip([*relations][1:], others, strict=True):
        both = f"(FROM {first} EXCEPT ALL FROM {other}) UNION ALL (FROM {other} EXCEPT ALL FROM {first})"
        counts[name] = connection.execute(f"SELECT count(*) FROM ({both})").fetchall()[0][0]
    return counts
