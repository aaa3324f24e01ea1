"""The SQL of a lake's views and functions in Spark, the same for a session and for a catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelines.lake.tables import BY_NAME, Table

OFFLINE_NOW = "offline_now"
_ENDS = ("to_offset", "to_time", "ended_by")


@dataclass(frozen=True)
class Bounds:
    """The offsets that a question may name, as SQL: the oldest and the newest."""

    first: str
    last: str


def true_at(offset: str) -> str:
    """The condition of history rows that are true at an offset, an SQL expression."""
    return f"from_offset <= {offset} AND (to_offset IS NULL OR to_offset > {offset})"


def rows_until(table: Table, offset: str) -> tuple[str, list[str]]:
    """Condition and columns of a table as it was at an offset. Later ends are null; requests have no offset."""
    names = table.schema.names
    if table.history:
        hidden = [f"CASE WHEN to_offset <= {offset} THEN {name} END AS {name}" for name in _ENDS if name in names]
        kept = {one.rpartition(" ")[2]: one for one in hidden}
        return f"from_offset <= {offset}", [kept.get(name, name) for name in names]
    position = next((name for name in ("log_offset", "start_offset") if name in names), None)
    return ("true" if position is None else f"{position} <= {offset}"), names


def views(tables: Mapping[str, str]) -> Iterator[tuple[str, Table, str]]:
    """(name, table, query) of the views of what is true now. ``tables``: each table and the relation of its rows.

    The relations show later ends as null (``rows_until``).
    """
    for name, relation in tables.items():
        table = BY_NAME[name]
        if table.history:
            query = f"SELECT {', '.join(table.schema.names)} FROM {relation} WHERE to_offset IS NULL"
            yield f"{name}_now", table, query
            if name == "offline_replicas":
                yield OFFLINE_NOW, table, query


def functions(tables: Mapping[str, str], bounds: Bounds) -> Iterator[tuple[str, str]]:
    """(signature with RETURNS, query) of the functions: ``offset_at``, and ``T_at`` of each history table."""
    by_then = f"SELECT max(log_offset) FROM {tables['records']} WHERE append_time <= at_time"
    yield "offset_at(at_time TIMESTAMP) RETURNS BIGINT", by_then
    message = f"'this lake knows the offsets ' || {bounds.first} || ' to ' || {bounds.last}"
    known = f"IF(at BETWEEN {bounds.first} AND {bounds.last}, at, CAST(raise_error({message}) AS BIGINT))"
    for name, relation in tables.items():
        if BY_NAME[name].history:
            yield f"{name}_at(at BIGINT) RETURNS TABLE", f"SELECT * FROM {relation} WHERE {true_at(known)}"
