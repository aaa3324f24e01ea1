"""Rows compared by their hashes, in any order.

A join of all rows takes minutes for millions of them. It is needed only to name what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from pipelines.lake.delta import run_query


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
    one = f"hash({', '.join(columns)})"
    return f"count(*), coalesce(sum({one}), 0), coalesce(bit_xor({one}), 0)"


def row_hash(root: str, connection: duckdb.DuckDBPyConnection, columns: Sequence[str], rows: str) -> RowHash:
    """The hash of ``rows`` (SQL), of these columns in this order. ``root``: the lake that an error names."""
    (found,) = run_query(root, connection, f"SELECT {hashed(columns)} FROM {rows}")
    return RowHash(*found)
