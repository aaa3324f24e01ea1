"""Changes of a lake's tables by other engines, through delta-rs; and lakes that are published fast, without Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake import Field as DeltaField
from deltalake.schema import PrimitiveType

from pipelines import ask
from pipelines.fold.events import shards_of
from pipelines.lake import files
from pipelines.lake.publish import LakeWriter, Publication
from pipelines.lake.restore import shards_of_rows
from pipelines.lake.tables import BY_NAME, CHANGES, HISTORY, TABLES
from pipelines.lake.written_lake import Identity, live_files
from tests.support.lakes import Reference
from tests.support.logs import read_log
from tests.support.paths import metadata_dir

KAFKA = "kafka-4.1.2"
SHARDS = 2
ENDS = (210, 276, 420, 520)
"""Offsets at which the parts end."""
NAMES = [table.name for table in TABLES]
_SOME = {
    "ledger": ("metadata_version", "metadata_version + 1"),
    "records": ("epoch", "epoch + 1"),
    "changes": ("generation", "generation + 1"),
}
"""A column of each table that an UPDATE can change, and its new value."""
Operation = Callable[[str, random.Random], None]
Content = tuple[Any, ...]


def _compact(uri: str, _: random.Random) -> None:
    DeltaTable(uri).optimize.compact()


def _z_order(uri: str, _: random.Random) -> None:
    DeltaTable(uri).optimize.z_order(["end_offset" if uri.endswith("ledger") else _offset(uri)])


def _vacuum(uri: str, _: random.Random) -> None:
    DeltaTable(uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def _property(uri: str, _: random.Random) -> None:
    DeltaTable(uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 40 days"})


def _column_comment(uri: str, _: random.Random) -> None:
    DeltaTable(uri).alter.set_column_metadata(_offset(uri), {"comment": "seen by another engine"})


def _update(uri: str, _: random.Random) -> None:
    column, value = _SOME.get(Path(uri).name, ("from_time", "from_time + interval '1 second'"))
    DeltaTable(uri).update({column: value})


def _delete(uri: str, _: random.Random) -> None:
    table = DeltaTable(uri)
    least = min(file.statistics[f"min.{_offset(uri)}"] for file in live_files(table))
    table.delete(f"{_offset(uri)} = {least}")


def _delete_all(uri: str, _: random.Random) -> None:
    DeltaTable(uri).delete()


def _append(uri: str, _: random.Random) -> None:
    table = DeltaTable(uri)
    write_deltalake(uri, table.to_pyarrow_table().slice(0, 1), mode="append")


def _overwrite(uri: str, _: random.Random) -> None:
    table = DeltaTable(uri)
    rows = table.to_pyarrow_table()
    write_deltalake(table, rows.slice(0, len(rows) // 2), mode="overwrite")


def _restore(uri: str, chance: random.Random) -> None:
    made = len(BY_NAME[Path(uri).name].checks)
    DeltaTable(uri).restore(chance.randrange(made, made + 2))


def _undo(uri: str, _: random.Random) -> None:
    table = DeltaTable(uri)
    table.restore(table.version() - 1)


def _add_column(uri: str, _: random.Random) -> None:
    DeltaTable(uri).alter.add_columns([DeltaField("seen_by", PrimitiveType("string"))])


def _append_only(uri: str, _: random.Random) -> None:
    DeltaTable(uri).alter.set_table_properties({"delta.appendOnly": "true"})


def _offset(uri: str) -> str:
    return {"ledger": "start_offset", "records": "log_offset", "changes": "log_offset"}.get(
        Path(uri).name, "from_offset"
    )


KEEPING: Mapping[str, Operation] = {
    "compact": _compact,
    "z-order": _z_order,
    "vacuum": _vacuum,
    "property": _property,
    "column comment": _column_comment,
}
"""Operations that change no data."""
CHANGING: Mapping[str, Operation] = {
    "update": _update,
    "delete": _delete,
    "delete all": _delete_all,
    "append": _append,
    "overwrite": _overwrite,
    "restore": _restore,
    "add column": _add_column,
    "append only": _append_only,
}


DELETING = ("update", "delete", "delete all", "overwrite")
"""Those of them that engines refuse on a table that is append-only."""

SOMETIMES: Mapping[str, Operation] = {"undo": _undo}
"""Operations that may or may not change data."""


@dataclass
class Parts:
    """The rows that each part of a log adds to the tables, as after micro-batches."""

    batches: list[Publication] = field(default_factory=list)
    closed: list[dict[str, pa.Table]] = field(default_factory=list)
    opened: list[dict[tuple[str, int], pa.Table]] = field(default_factory=list)

    def publish(self, lake: Path, number: int) -> None:
        """Open the lake as a run does and publish a part."""
        writer = LakeWriter.create_or_open(str(lake), Identity("test", "kafka", "kafka", SHARDS))
        written = [
            *(files.write(str(lake), name, rows) for name, rows in self.closed[number].items()),
            *(files.write(str(lake), name, rows, shard=shard) for (name, shard), rows in self.opened[number].items()),
        ]
        batch = self.batches[number]
        writer.publish(Publication(**{**vars(batch), "files": written}))


@cache
def parts(kafka: str = KAFKA, ends: tuple[int, ...] = ENDS) -> Parts:
    """The parts of a real cluster's log, up to each of some offsets."""
    made = Parts()
    entries = read_log(metadata_dir(kafka), "log")
    reference, begin = Reference(), 0
    for end in ends:
        part = [entry for entry in entries if begin <= entry.offset < end]
        reference.add(part)
        records = pa.Table.from_pylist(reference.records[-len(part) :], schema=BY_NAME["records"].schema)
        happened = [row for row in reference.changes if begin <= row["log_offset"] < end]
        closed, opened = {"records": records, "changes": pa.Table.from_pylist(happened, schema=CHANGES.schema)}, {}
        for table in HISTORY:
            rows = reference.tables[table.name]
            gone = [row for row in rows if row["to_offset"] is not None and row["to_offset"] >= begin]
            if gone:
                closed[table.name] = pa.Table.from_pylist(gone, schema=table.schema)
            still = pa.Table.from_pylist([row for row in rows if row["to_offset"] is None], schema=table.schema)
            owners = pa.array(shards_of_rows(SHARDS, table, still, shards_of))
            for shard in set(owners.to_pylist()):
                opened[table.name, shard] = still.filter(pa.compute.equal(owners, shard))
        made.closed.append(closed)
        made.opened.append(opened)
        made.batches.append(
            Publication(
                start_offset=begin,
                end_offset=end,
                epoch=part[-1].epoch,
                fingerprint=0,
                end_time=part[-1].time,
                files=(),
                touched=frozenset((table.name, shard) for table in HISTORY for shard in range(SHARDS + 1)),
                metadata_version=-1,
                from_snapshot=None,
                dropped=0,
            )
        )
        begin = end
    return made


_ANSWERS: dict[Content, dict[str, Any]] = {}
"""A cache of answers in this process, by the content of the tables."""


def answers(lake: Path) -> dict[str, Any]:
    """The answers of a reader: the image, offline replicas, the directories of replicas, and every row.

    The content of all tables is read every time. Answers follow from it and take ten times as long, so they are
    computed once for each content.
    """
    reader = ask.Lake.open(lake)
    with reader.connection:
        content = _content(reader)
        if content not in _ANSWERS:
            _ANSWERS[content] = _ask(reader)
        return _ANSWERS[content]


def _content(lake: ask.Lake) -> Content:
    """The offset; columns, number and hash of the rows of every relation that questions read."""
    relations = [of(table.name) for table in HISTORY for of in (lake.at, lake.until)]
    each = (
        f"SELECT {number}, any_value(typeof(r)), count(*), sum(hash(r)) FROM {relation} r"
        for number, relation in enumerate([*relations, lake.records()])
    )
    return lake.offset, *sorted(lake.query(" UNION ALL ".join(each)))


def _ask(lake: ask.Lake) -> dict[str, Any]:
    facts: dict[str, Any] = {"end": lake.offset, "image": ask.image(lake), "offline": ask.offline(lake)}
    facts["directories"] = ask.directories(lake)
    for table in HISTORY:
        columns = [name for name in table.schema.names if not name.endswith("_time")]
        columns += ["epoch_us(from_time)", "epoch_us(to_time)"]
        rows = lake.query(f"SELECT {', '.join(columns)} FROM {lake.until(table.name)}")
        facts[table.name] = sorted(map(str, rows))
    ((records,),) = lake.query(f"SELECT count(*) FROM {lake.records()}")
    facts["records"] = records
    return facts
