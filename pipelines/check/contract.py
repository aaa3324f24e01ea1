"""What a contract is, and the pieces of SQL that contracts share."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.check.definition import Severity
from pipelines.lake.tables import Table


@dataclass(frozen=True)
class Contract:
    """One rule about one table. If several tables share a rule, they share its id."""

    id: str
    table: str
    title: str
    severity: Severity
    sql: str

    @property
    def name(self) -> str:
        """``C-04 brokers``"""
        return f"{self.id} {self.table}"


def rows_of(table: Table) -> str:
    """The view with all rows of a table."""
    return f"{table.name}_history" if table.history else table.name


def key_of(table: Table, *more: str) -> str:
    """SQL that names a row ``t`` of a table by its key."""
    columns = (f"'{name}', coalesce(CAST(t.{name} AS VARCHAR), 'null')" for name in (*table.key, *more))
    return f"concat_ws(' ', {', '.join(columns)}) AS what"


def same(columns: str, left: str, right: str) -> str:
    """SQL: two rows are equal in columns, which are separated by blanks."""
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in columns.split())


def end_of(alias: str) -> str:
    """SQL: the offset at which an interval ends. An open interval lasts until the end of the lake."""
    return f"coalesce({alias}.to_offset, lake.end_offset)"


def overlap(left: str, right: str) -> str:
    """SQL: the number of offsets that two intervals share, if they meet."""
    return f"least({end_of(left)}, {end_of(right)}) - greatest({left}.from_offset, {right}.from_offset)"


def meet(left: str, right: str) -> str:
    """SQL: two intervals share an offset."""
    return f"{left}.from_offset < {end_of(right)} AND {right}.from_offset < {end_of(left)}"
