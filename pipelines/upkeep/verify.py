"""Verifies a lake: its history by a new replay of its records, its files and its constraints.

For a small lake, the plain reference on jbod_model replays the history. It shares no code with the engine. For a large
lake, the engine itself does, which verifies the files and the publications but not the engine. Then the rows are
compared by key.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.fs as pafs

from jbod_model.formats import codec
from jbod_model.formats.batch import read_control
from jbod_model.formats.control_records import CONTROL_TYPE_NAMES, CONTROL_TYPES, ControlRecord
from jbod_model.formats.records import Record
from jbod_model.ids import ID_TABLES
from jbod_model.profiles import PROFILES
from pipelines.lake import files
from pipelines.lake.changes import CONTENT, KEY, in_force, same_changes
from pipelines.lake.delta import RowHash, hashed, open_table, read_parquet, row_hash
from pipelines.lake.foreign import last_own, since
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME, CHANGES, DERIVED, HISTORY, LEDGER, RECORDS, Table
from pipelines.lake.uris import LakeUri
from pipelines.lake.written_lake import described, keeps_changes
from pipelines.storage.filesystem import filesystem_of
from pipelines.upkeep.verify_reference import History, Row

if TYPE_CHECKING:
    from pipelines.lake.publish import LakeWriter

By = Literal["model", "engine"]
MODEL_RECORDS = 5_000
"""The most records for the reference on jbod_model, which looks at every partition after every record."""
SHARDS = 4
"""The number of shards. Rows do not depend on it."""
MOST = 10
"""Differences named per table."""


@dataclass(frozen=True)
class Difference:
    """A difference: its table, its key (as text), its offset, and what differs."""

    table: str
    key: str
    offset: int | None
    what: str


@dataclass
class Verification:
    """The scope and the results of ``verify``."""

    by: By
    end_offset: int
    rows: dict[str, int] = field(default_factory=dict)
    files: int = 0
    differences: list[Difference] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    """Commits of other engines since the publication. A change of data is a difference, too."""


def verify(path: LakeUri, *, by: By | None = None) -> Verification:
    """Compares all tables of the newest ledger row with the records. ``by``: who replays, chosen by size if None.

    Raises UsageError if there is no lake, and MalformedLog or ReplayViolation if its records are not a valid history.
    """
    lake = Lake.open(path)
    verdict = Verification(by or _by(lake), lake.published.end_offset)
    _look_beyond(lake, verdict)
    for name, delta in lake.tables.items():
        verdict.files += len(delta.file_uris())
        verdict.differences += _missing_files(path, name, delta)
    if any(difference.what.startswith("the file") for difference in verdict.differences):
        return verdict
    made = _hashes(lake) if verdict.by == "engine" else {}
    there: dict[str, RowHash] = {}
    same = set()
    for name, delta in lake.tables.items():
        if name in BY_NAME:
            there[name], broken = _scanned(lake, BY_NAME[name], delta)
            verdict.rows[name] = there[name].rows
            verdict.differences += broken
            if _is_made(lake, BY_NAME[name], there[name], made):
                same.add(name)
            # Rows that were made share no key, but changes also has rows about rollbacks.
            if name not in same or there[name].rows != made[name].rows:
                verdict.differences += _doubled(lake, BY_NAME[name])
    if same.issuperset(table.name for table in DERIVED if table.name in lake.tables):
        return verdict
    with tempfile.TemporaryDirectory(prefix="jbod-verify-") as folder:
        if verdict.by == "model":
            _by_model(lake, folder)
        else:
            from pipelines.upkeep.rebuild import recompute

            recompute(_writer(lake), lake.published.end_offset, folder)
        for table in HISTORY:
            if table.name not in same:
                verdict.differences += _compared(lake, table, folder, there[table.name])
        if CHANGES.name not in same and keeps_changes(described(lake.path)):
            verdict.differences += _compared_changes(lake, folder)
    return verdict


def _by(lake: Lake) -> By:
    ((records,),) = lake.query(f"SELECT count(*) FROM {_rows(lake, 'records')}")
    return "model" if records <= MODEL_RECORDS else "engine"


# -- files and constraints --------------------------------------------------------------------------------------------


def _look_beyond(lake: Lake, verdict: Verification) -> None:
    """Commits to the tables after the versions that the ledger names, except those of a batch being published."""
    for name, version in [(LEDGER.name, None), *lake.published.versions.items()]:
        newest = open_table(lake.path, name, None)
        known = version if version is not None else last_own(lake.path, newest)
        if known is None or name not in BY_NAME:
            continue
        commits = since(lake.path, BY_NAME[name], newest, known)
        verdict.foreign += [f"{name}: {commit}" for commit in reversed(commits.foreign)]
        if commits.refused:
            verdict.differences.append(Difference(name, f"after version {known}", None, commits.refused))


def _missing_files(lake: LakeUri, name: str, delta: Any) -> Iterator[Difference]:
    """Files of the table's version that are missing on disk or have another size."""
    fs, root = filesystem_of(lake)
    actions = pa.table(delta.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
    infos = fs.get_file_info([f"{root}/{name}/{action['path']}" for action in actions])
    for action, info in zip(actions, infos, strict=True):
        if info.type != pafs.FileType.File:
            yield Difference(name, action["path"], None, "the file is gone")
        elif info.size != action["size_bytes"]:
            yield Difference(name, action["path"], None, f"the file has {info.size} bytes, not {action['size_bytes']}")


def _scanned(lake: Lake, table: Table, delta: Any) -> tuple[RowHash, list[Difference]]:
    """The hash of a table's rows, and those that break the table's constraints or have a null where none may be."""
    there = {column.name for column in delta.schema().fields}
    rules = {f"breaks the constraint {name}": f"NOT ({text})" for name, text in table.checks.items()}
    required = [column.name for column in table.schema if not column.nullable and column.name in there]
    rules["has a null"] = " OR ".join(f"{name} IS NULL" for name in required)
    lake.query("CREATE OR REPLACE TEMP MACRO cardinality(list) AS len(list)")
    counted = ", ".join(f"count(*) FILTER (WHERE {wrong})" for wrong in rules.values())
    rows = _rows(lake, table.name)
    ((count, total, mixed, *numbers),) = lake.query(f"SELECT {hashed(_compared_columns(table))}, {counted} FROM {rows}")
    broken = []
    for (what, wrong), number in zip(rules.items(), numbers, strict=True):
        if number:
            named = f"SELECT {', '.join(table.key)} FROM {rows} WHERE {wrong} ORDER BY ALL LIMIT {MOST}"
            broken += [_difference(table, row, what) for row in lake.query(named)]
    return RowHash(count, total, mixed), broken


def _doubled(lake: Lake, table: Table) -> Iterator[Difference]:
    """Rows that share a key. Grouping by a hash takes a fraction of the time; only equal hashes need the keys."""
    keys, rows = ", ".join(table.key), _rows(lake, table.name)
    ((count, hashes),) = lake.query(f"SELECT count(*), count(DISTINCT hash({keys})) FROM {rows}")
    if count == hashes:
        return
    for row in lake.query(f"SELECT {keys} FROM {rows} GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT {MOST}"):
        yield _difference(table, row, "exists more than once")


# -- history, again ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """A record of the ``records`` table, for the reference."""

    offset: int
    time: int
    batch_offset: int
    snapshot_index: int | None
    record: Record | None
    control_record: ControlRecord | None


def _by_model(lake: Lake, folder: str) -> None:
    published = lake.published
    history = History(PROFILES[published.profile], ID_TABLES[published.ids]).add(_entries(lake))
    for table in DERIVED:
        Path(folder, table.name).mkdir()
        rows: Sequence[Row] = history.tables[table.name]
        files.write(folder, table.name, pa.Table.from_pylist(list(rows), schema=table.schema))


def _entries(lake: Lake) -> Iterator[_Entry]:
    rows = lake.query(
        "SELECT log_offset, epoch_us(append_time), batch_offset, snapshot_index, record_type, value "
        f"FROM {_rows(lake, 'records')} ORDER BY log_offset, snapshot, snapshot_index"
    )
    controls = {name: number for number, name in CONTROL_TYPE_NAMES.items()}
    for offset, time, batch, index, kind, value in rows:
        read = kind not in controls and not kind.startswith("UNKNOWN_")
        record = codec.decode(value, file="records", offset=offset).record if read else None
        control = read_control(controls[kind], value) if controls.get(kind) in CONTROL_TYPES else None
        yield _Entry(offset, time, batch, index, record, control)


def _writer(lake: Lake) -> LakeWriter:
    from pipelines.lake.publish import LakeWriter
    from pipelines.lake.written_lake import Identity

    published = lake.published
    identity = Identity(published.cluster_id, published.profile, published.ids, SHARDS)
    writer = LakeWriter(lake.path, identity)
    writer.tables[RECORDS.name] = lake.tables[RECORDS.name]
    return writer


def _hashes(lake: Lake) -> dict[str, RowHash]:
    """The hash of the rows of each derived table that follow from the records, by the engine, in memory."""
    from pipelines.upkeep.rebuild import joined, recomputed

    hashes = {table.name: RowHash() for table in DERIVED}

    def take(name: str, parts: list[pa.Table], _: int) -> None:
        lake.connection.register("verified_rows", joined(name, parts))
        hashes[name] += row_hash(lake.path, lake.connection, _compared_columns(BY_NAME[name]), "verified_rows")

    recomputed(_writer(lake), lake.published.end_offset, take)
    return hashes


def _is_made(lake: Lake, table: Table, table_hash: RowHash, made: Mapping[str, RowHash]) -> bool:
    """Whether a table has the rows that were made, each once. Rows of ``changes`` also count only if none was ever
    retracted."""
    if table.name not in made:
        return False
    if table == CHANGES:
        return same_changes(lake.path, lake.connection, _rows(lake, table.name), made[table.name])
    return table_hash == made[table.name]


def _compared_columns(table: Table) -> Sequence[str]:
    return CONTENT if table == CHANGES else table.schema.names


# -- row against row --------------------------------------------------------------------------------------------------


def _compared(lake: Lake, table: Table, folder: str, there: RowHash) -> Iterator[Difference]:
    others = [name for name in table.schema.names if name not in table.key]
    keys = ", ".join(f"coalesce(a.{name}, b.{name})" for name in table.key)
    same_key = " AND ".join(f"a.{name} = b.{name}" for name in table.key)
    differs = " OR ".join(f"a.{name} IS DISTINCT FROM b.{name}" for name in others)
    wanted = ", ".join(f"a.{name}::VARCHAR, b.{name}::VARCHAR" for name in others)
    files = f"'{folder}/{table.name}/**/*.parquet', hive_partitioning = false"
    made = f"(SELECT true AS there, * FROM read_parquet({files}))"
    if not any(Path(folder, table.name).rglob("*.parquet")):
        made = f"(SELECT true AS there, * FROM {_rows(lake, table.name)} WHERE false)"
    if row_hash(lake.path, lake.connection, table.schema.names, made) == there:
        return
    rows = lake.query(
        f"SELECT {keys}, a.there, b.there, {wanted} FROM (SELECT true AS there, * FROM {_rows(lake, table.name)}) a "
        f"FULL JOIN {made} b ON {same_key} WHERE a.there IS NULL OR b.there IS NULL OR {differs} "
        f"ORDER BY coalesce(a.from_offset, b.from_offset), {keys} LIMIT {MOST}"
    )
    for row in rows:
        key, (mine, theirs, *values) = row[: len(table.key)], row[len(table.key) :]
        pairs = zip(values[::2], values[1::2], strict=True)
        yield _difference(table, key, _describe_difference(mine, theirs, dict(zip(others, pairs, strict=True))))


def _compared_changes(lake: Lake, folder: str) -> Iterator[Difference]:
    """The rows of ``changes`` that are in force against those that follow from the records."""
    made = f"(FROM read_parquet('{folder}/{CHANGES.name}/*.parquet'))"
    if not any(Path(folder, CHANGES.name).glob("*.parquet")):
        made = f"(FROM {_rows(lake, CHANGES.name)} WHERE false)"
    table = _rows(lake, CHANGES.name)
    if same_changes(lake.path, lake.connection, table, row_hash(lake.path, lake.connection, CONTENT, made)):
        return
    columns = ", ".join(CONTENT)
    mine, theirs = (f"(SELECT {columns} FROM {rows})" for rows in (in_force(table), made))
    for have, lack, what in (
        (mine, theirs, "is in the table, but does not follow from the records"),
        (theirs, mine, "follows from the records, but is not in the table"),
    ):
        sql = f"SELECT {', '.join(KEY)} FROM (FROM {have} EXCEPT ALL FROM {lack}) ORDER BY ALL LIMIT {MOST}"
        for row in lake.query(sql):
            key_text = ", ".join(f"{name} {value}" for name, value in zip(KEY, row, strict=True) if value is not None)
            yield Difference(CHANGES.name, key_text, row[0], what)


def _describe_difference(
    mine: bool | None, theirs: bool | None, values: Mapping[str, tuple[str | None, str | None]]
) -> str:
    if theirs is None:
        return "is in the table, but does not follow from the records"
    if mine is None:
        return "follows from the records, but is not in the table"
    wrong = (f"{name} is {had}, the records say {due}" for name, (had, due) in values.items() if had != due)
    return "; ".join(wrong)


def _difference(table: Table, key: Sequence[Any], what: str) -> Difference:
    key_values = dict(zip(table.key, key, strict=True))
    offset = key_values.get("from_offset", key_values.get("log_offset"))
    return Difference(table.name, ", ".join(f"{name} {value}" for name, value in key_values.items()), offset, what)


def _rows(lake: Lake, name: str) -> str:
    """SQL for all rows of a table at the version that the ledger names."""
    return read_parquet(lake.path, name, lake.tables[name])
