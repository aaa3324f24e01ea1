"""Lakes made without Spark: the plain reference of pipelines.upkeep.verify_reference, and its rows in Delta tables.

``Reference`` collects the rows of all tables, ``write_lake`` makes a lake of them, ``in_memory`` one without files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from shutil import copytree
from time import time
from typing import Self

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jbod_model.formats.records import Record, UnknownRecord
from jbod_model.formats.schema import TYPE_NAMES
from jbod_model.profiles import KAFKA, Profile
from pipelines.formats.records import kind_of, type_name
from pipelines.lake.files import DataFile, write
from pipelines.lake.ledger import Published
from pipelines.lake.reader import Lake
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, BY_NAME, DERIVED, LEDGER, RECORDS
from pipelines.upkeep.verify_reference import History, Row, time_of
from tests.support.logs import Entry
from tests.support.templates import new_folder


class Reference(History):
    """The content of all tables after some entries of a log, including ``records``."""

    def __init__(self, profile: Profile = KAFKA) -> None:
        super().__init__(profile)
        self.records: list[Row] = []
        self.snapshots: list[int] = []

    def add(self, entries: Iterable[Entry]) -> Self:  # type: ignore[override]
        """Replay entries; a run of snapshot entries counts as one step that replaces everything."""
        listed = list(entries)
        before = None
        for entry in listed:
            self.records.append(_record_row(entry))
            if entry.snapshot_index is not None and (before is None or before.snapshot_index is None):
                self.snapshots.append(entry.offset + 1)
            before = entry
        return super().add(listed)

    @property
    def tables(self) -> Mapping[str, list[Row]]:
        """Rows of the records and of the history tables."""
        return {"records": self.records, **super().tables}


def _record_row(entry: Entry) -> Row:
    record = entry.record
    topic_id = getattr(record, "topic_id", None)
    broker_id = getattr(record, "broker_id", None)
    if record is not None and type(record).__name__ in ("FenceBrokerRecord", "UnfenceBrokerRecord"):
        broker_id = record.id  # type: ignore[attr-defined]
    return {
        "log_offset": entry.offset,
        "epoch": entry.epoch,
        "append_time": time_of(entry.time),
        "batch_offset": entry.batch_offset,
        "record_type": entry.control or _type_of(record),
        "record_version": entry.versioned.version if entry.versioned else int.from_bytes(entry.value[:2], "big"),
        "snapshot": entry.snapshot_index is not None,
        "snapshot_index": entry.snapshot_index,
        "topic_id": None if topic_id is None else str(topic_id),
        "partition": getattr(record, "partition_id", None),
        "broker_id": broker_id,
        "value": entry.value,
    }


def _type_of(record: Record | None) -> str:
    return type_name(record.api_key) if isinstance(record, UnknownRecord) else TYPE_NAMES[type(record)]  # type: ignore[index]


def write_lake(
    path: Path,
    *parts: Sequence[Entry],
    profile: Profile = KAFKA,
    cluster_id: str = "test",
    requests: Sequence[Row] = (),
) -> Reference:
    """Make a lake at ``path`` of all ``parts``, each one publication; returns its content.

    ``requests``: rows of the table assignment_requests; without any, the lake does not have the table.
    """
    reference = Reference(profile)
    if requests:
        assignment_requests = pa.Table.from_pylist(list(requests), schema=ASSIGNMENT_REQUESTS.schema)
        write_deltalake((path / ASSIGNMENT_REQUESTS.name).as_uri(), assignment_requests)
    copytree(_empty_lake(), path, dirs_exist_ok=True)
    files: dict[str, DataFile] = {}
    versions = {ASSIGNMENT_REQUESTS.name: 0} if requests else {}
    versions |= {table.name: 0 for table in (RECORDS, *DERIVED)}
    unknown: dict[str, int] = {}
    end = 0
    for number, part in enumerate(parts, 1):
        snapshots = len(reference.snapshots)
        reference.add(part)
        for name, rows in reference.tables.items():
            if rows or name in files:
                versions[name] += 1
                files[name] = _commit(path, name, versions[name], rows, files.get(name))
        for entry in part:
            if isinstance(entry.record, UnknownRecord):
                assert entry.versioned is not None
                unknown.setdefault(kind_of(entry.record.api_key, entry.versioned.version), entry.offset)
        start, end = max(end, part[0].offset), part[-1].offset + 1
        published = {
            "start_offset": start,
            "end_offset": end,
            "epoch": part[-1].epoch,
            "fingerprint": 0,
            "end_time": time_of(part[-1].time),
            "published_time": time_of(part[-1].time),
            "profile": profile.name,
            "ids": "kafka",
            "cluster_id": cluster_id,
            "metadata_version": reference.image.features.get("metadata.version", -1),
            "from_snapshot": reference.snapshots[-1] if len(reference.snapshots) > snapshots else None,
            "dropped": 0,
            "unknown_from": min(unknown.values(), default=None),
            "unknown_types": list(unknown.items()) or None,
            "versions": list(versions.items()),
            "rows": [],
        }
        _commit(path, LEDGER.name, number, [published])
    return reference


def _commit(lake: Path, table: str, version: int, rows: Sequence[Row], before: DataFile | None = None) -> DataFile:
    """Write ``rows`` into a version of a table, in the place of the file ``before``."""
    # delta-rs takes four times as long.
    made = write(str(lake), table, pa.Table.from_pylist(rows, schema=BY_NAME[table].schema))
    now = int(time() * 1000)
    add = {"path": made.path, "size": made.size, "partitionValues": {}, "modificationTime": now, "stats": made.stats}
    actions: list[Mapping[str, object]] = [{"add": {**add, "dataChange": True}}]
    if before is not None:
        actions.append({"remove": {"path": before.path, "deletionTimestamp": now, "dataChange": True}})
    actions.append({"commitInfo": {"timestamp": now, "operation": "WRITE"}})
    log = lake / table / "_delta_log" / f"{version:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)))
    return made


@cache
def _empty_lake() -> Path:
    """Tables without rows, to copy: they are made once, in the time that one of them takes."""
    path = new_folder()
    for table in (RECORDS, *DERIVED, LEDGER):
        DeltaTable.create((path / table.name).as_uri(), table.schema)
    return path


class InMemory(Lake):
    """A lake whose tables are in memory, so that hundreds can be asked."""

    def at(self, table: str) -> str:
        true_now = f"from_offset <= {self.offset} AND (to_offset IS NULL OR to_offset > {self.offset})"
        return f"(SELECT * FROM memory_{table} WHERE {true_now})"

    def until(self, table: str) -> str:
        ends = [name for name in BY_NAME[table].schema.names if name in ("to_offset", "to_time", "ended_by")]
        hidden = ", ".join(f"CASE WHEN to_offset <= {self.offset} THEN {end} END AS {end}" for end in ends)
        return f"(SELECT * REPLACE ({hidden}) FROM memory_{table} WHERE from_offset <= {self.offset})"

    def scan(self, table: str) -> str:
        return self.until(table)

    def records(self) -> str:
        return f"(SELECT * FROM memory_records WHERE log_offset <= {self.offset})"

    @cached_property
    def append_end(self) -> int:
        of_batch = f"NOT snapshot AND log_offset >= {self.offset} AND batch_offset <= {self.offset}"
        ((end,),) = self.query(f"SELECT max(log_offset) FROM memory_records WHERE {of_batch}")
        return self.offset if end is None else int(end)


def in_memory(entries: Iterable[Entry]) -> Lake:
    """The tables of these entries, as the plain reference makes them, as a lake at its newest offset."""
    reference = Reference().add(entries)
    connection = duckdb.connect()
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET threads = 1")  # tables of a few rows: more only wait for each other
    for name, rows in reference.tables.items():
        connection.register(f"memory_{name}", pa.Table.from_pylist(rows, schema=BY_NAME[name].schema))
    last = reference.records[-1]
    published = Published(
        0, last["log_offset"] + 1, last["append_time"], last["append_time"], "kafka", "kafka", "test", None, {}, {}
    )
    return InMemory("memory", published, 0, last["log_offset"], last["append_time"], {}, connection)
