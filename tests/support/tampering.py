"""Lakes with a row that is wrong, one for each contract."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

Row = dict[str, Any]
Change = Callable[[list[Row]], None]


def tamper(lake: Path, table: str, change: Change) -> None:
    """Rewrite a data file of a table in place (of the ledger its oldest), as no writer of ours would."""
    delta = DeltaTable((lake / table).as_uri())
    files = [lake / table / name for name in delta.get_add_actions().column("path").to_pylist()]
    file = min(files, key=lambda path: pq.read_table(path)["end_offset"][0].as_py()) if table == "ledger" else files[0]
    content = pq.read_table(file)
    rows = content.to_pylist()
    change(rows)
    schema = pa.schema([field.with_nullable(True) for field in content.schema])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    for log in (lake / table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if file.as_posix().endswith(action.get("add", {}).get("path", "nothing")):
                action["add"]["size"] = file.stat().st_size
        log.write_text("\n".join(map(json.dumps, actions)))


def _set(where: Callable[[Row], bool], **values: Any) -> Change:
    """Change the first row of which ``where`` holds."""

    def change(rows: list[Row]) -> None:
        row = next(row for row in rows if where(row))
        row.update({name: value(row) if callable(value) else value for name, value in values.items()})

    return change


def _open(row: Row) -> bool:
    return row["to_offset"] is None


def _closed(row: Row) -> bool:
    return row["to_offset"] is not None


def _twice(rows: list[Row]) -> None:
    rows.append(dict(rows[0]))


def _without(where: Callable[[Row], bool]) -> Change:
    def change(rows: list[Row]) -> None:
        rows.remove(next(row for row in rows if where(row)))

    return change


def _again(**values: Any) -> Change:
    """Add a copy of an open row that differs in ``values``."""

    def change(rows: list[Row]) -> None:
        row = dict(next(row for row in rows if _open(row)))
        rows.append(row | {name: value(row) if callable(value) else value for name, value in values.items()})

    return change


def _history(table: str) -> list[tuple[str, str, Change]]:
    """What breaks the contracts that every history table has."""
    key = "topic_id" if table in ("partitions", "assignments", "offline_replicas") else "broker_id"
    key = {"controllers": "controller_id", "voters": "node_id"}.get(table, key)
    ids = {"brokers": "incarnation_id", "controllers": "incarnation_id", "partitions": "topic_id"}
    an_id = ids.get(table, "directory_id")
    return [
        (f"C-01 {table}", table, _set(_open, **{key: None})),
        (f"C-02 {table}", table, _twice),
        (f"C-03 {table}", table, _set(_closed, to_offset=lambda row: row["from_offset"])),
        (f"C-03 {table}", table, _set(_open, to_offset=10_000, to_time=lambda row: row["from_time"])),
        (f"C-03 {table}", table, _set(_closed, to_time=None)),
        (f"C-04 {table}", table, _again(from_offset=lambda row: row["from_offset"] + 1)),
        (f"C-05 {table}", table, _set(_open, from_offset=-7)),
        (f"C-06 {table}", table, _set(_open, **{an_id: "klcU6Q6pIhmW1Anoahzlq_"})),
    ]


def _moved(row: Row) -> bool:
    return _closed(row) and row["to_offset"] > row["from_offset"] + 1


def _assigned(row: Row) -> bool:
    return bool(row["kind"] == "assigned")


def _leads(row: Row) -> bool:
    return _open(row) and row["role"] == "leader"


def _led_later(row: Row) -> bool:
    """It was elected, but not first."""
    return _closed(row) and row["role"] == "leader" and row["elected_offset"] > 0


def _ended(way: str) -> Callable[[Row], bool]:
    return lambda row: row["ended_by"] == way


# Before a replica went offline it was online, but rows are only of what is offline.
_ONLINE = {
    "reason": "online",
    "from_offset": lambda row: row["from_offset"] - 1,
    "to_offset": lambda row: row["from_offset"],
}

TAMPERINGS: list[tuple[str, str, Change]] = [
    *_history("brokers"),
    *_history("directories"),
    *_history("partitions"),
    *_history("assignments"),
    *_history("offline_replicas"),
    *_history("controllers"),
    *_history("voters"),
    ("C-06 brokers", "brokers", _set(lambda row: bool(row["log_dirs"]), log_dirs=["too-short"])),
    ("C-06 partitions", "partitions", _set(_open, directories=lambda row: [row["directories"][0] + "A"])),
    ("C-07 partitions", "partitions", _set(_moved, to_offset=lambda row: row["to_offset"] - 1)),
    ("C-08 partitions", "partitions", _set(_open, directories=lambda row: row["directories"][1:])),
    ("C-09 partitions", "partitions", _set(_open, topic="another name")),
    ("C-09 partitions", "partitions", _again(topic_id="AAAAAAAAAAAAAAAAAAAAbw")),
    ("C-10 partitions", "assignments", _without(_closed)),
    ("C-10 partitions", "assignments", _without(_open)),
    ("C-11 assignments", "partitions", _without(_open)),
    ("C-11 assignments", "assignments", _set(_open, replica_index=9)),
    ("C-11 assignments", "assignments", _set(_open, directory_id="AAAAAAAAAAAAAAAAAAAAbw")),
    ("C-11 assignments", "assignments", _set(_open, broker_id=77)),
    ("C-12 assignments", "assignments", _set(_assigned, kind="lost")),
    ("C-12 assignments", "assignments", _set(_assigned, directory_id="AAAAAAAAAAAAAAAAAAAAAQ")),
    ("C-13 brokers", "directories", _without(_open)),
    ("C-13 brokers", "brokers", _set(_open, log_dirs=lambda row: [*row["log_dirs"], "AAAAAAAAAAAAAAAAAAAAbw"])),
    ("C-14 directories", "directories", _set(_open, broker_id=77)),
    ("C-14 directories", "brokers", _set(_open, log_dirs=[])),
    ("C-15 offline_replicas", "offline_replicas", _set(_open, reason="directory lost")),
    ("C-15 offline_replicas", "offline_replicas", _set(_moved, to_offset=lambda row: row["to_offset"] + 1)),
    ("C-15 offline_replicas", "offline_replicas", _set(_moved, **_ONLINE)),
    ("C-15 offline_replicas", "brokers", _set(lambda row: _open(row) and row["fenced"], fenced=False)),
    ("C-16 offline_replicas", "offline_replicas", _without(_closed)),
    ("C-16 offline_replicas", "offline_replicas", _without(_open)),
    ("C-16 offline_replicas", "brokers", _without(_open)),
    ("C-17 ledger", "ledger", _set(lambda _: True, start_offset=1)),
    ("C-17 ledger", "ledger", _set(lambda _: True, end_offset=lambda row: row["end_offset"] - 1)),
    ("C-17 ledger", "ledger", _set(lambda _: True, start_offset=lambda row: row["end_offset"])),
    ("C-17 ledger", "ledger", _set(lambda _: True, from_snapshot=10_000)),
    ("C-18 ledger", "ledger", _set(lambda _: True, versions=lambda row: [*row["versions"][1:], ("records", 99)])),
    ("C-18 ledger", "ledger", _set(lambda _: True, versions=lambda row: [*row["versions"], ("nothing", 1)])),
    ("C-19 ledger", "records", _without(lambda row: not row["snapshot"])),
    ("C-19 ledger", "ledger", _set(lambda _: True, dropped=1)),
    ("C-20 controllers", "controllers", _set(_open, lowest_levels=[])),
    ("C-20 controllers", "controllers", _set(_open, highest_levels=lambda row: [*row["highest_levels"], 1])),
    ("C-20 controllers", "controllers", _set(_open, features=lambda row: row["features"][::-1])),
    ("C-21 controllers", "controllers", _set(_open, from_offset=1)),
    ("C-21 controllers", "controllers", _set(_open, from_snapshot=True)),
    ("C-21 controllers", "controllers", _set(_closed, ended_by="registered")),
    ("C-21 controllers", "controllers", _set(_closed, ended_by="resync")),
    ("C-21 controllers", "controllers", _set(_closed, ended_by=None)),
    ("C-21 controllers", "controllers", _set(_open, ended_by="registered")),
    ("C-22 controllers", "controllers", _without(_open)),
    ("C-22 controllers", "controllers", _set(_open, from_offset=lambda row: row["from_offset"] + 20)),
    ("C-23 voters", "voters", _set(_open, from_offset=3)),
    ("C-23 voters", "voters", _set(_open, from_snapshot=True)),
    ("C-23 voters", "voters", _set(_ended("election"), ended_by="voters")),
    ("C-23 voters", "voters", _set(_ended("voters"), ended_by="kraft version")),
    ("C-23 voters", "voters", _set(_ended("kraft version"), ended_by="resync")),
    ("C-23 voters", "voters", _set(_closed, to_offset=lambda row: row["to_offset"] + 3)),
    ("C-24 voters", "voters", _without(_leads)),
    ("C-24 voters", "voters", _set(_leads, role="voter")),
    ("C-24 voters", "voters", _set(_leads, elected_offset=0)),
    ("C-25 voters", "voters", _set(_leads, elected_offset=None)),
    ("C-25 voters", "voters", _set(_leads, elected_time=None)),
    ("C-25 voters", "voters", _set(lambda row: row["role"] == "observer", voter=True)),
    ("C-25 voters", "voters", _set(lambda row: row["role"] == "voter", voter=False)),
    ("C-25 voters", "voters", _set(_open, heard_time=None)),
    ("C-25 voters", "voters", _set(_open, kraft_lowest=None)),
    ("C-25 voters", "voters", _set(_open, role_offset=10_000)),
    ("C-26 voters", "voters", _without(_leads)),
    ("C-26 voters", "voters", _set(lambda row: _open(row) and row["role"] == "voter", role="leader")),
    ("C-26 voters", "voters", _set(_led_later, role="voter")),
    ("C-27 voters", "voters", _set(_open, kraft_version=7)),
    ("C-27 voters", "voters", _set(_closed, kraft_version=7)),
]
"""The contract that must fire, the table that is tampered with, and how."""
