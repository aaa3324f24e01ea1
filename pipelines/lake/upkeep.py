"""Fewer and larger files, and no old ones, without a change of what a lake says.

``optimize`` merges small files of closed rows, of ``records`` and of requests: neighbours in time become one, sorted by
key. Files of open rows stay: each shard replaces its own. Every table gets a version, then the ledger a row without
records that names them. A run that dies in between leaves tables ahead of the ledger whose rows are the same: readers
do not look at them, and the next publication stands on them.

``vacuum`` deletes files that no version needs which the ledger names now or named within the last hours.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from pipelines.lake import files
from pipelines.lake.files import DataFile, lake_filesystem
from pipelines.lake.publish import Lake, LakeConflict
from pipelines.lake.tables import HISTORY, LEDGER, RECORDS, REQUESTS, Table

TARGET_BYTES = 32 << 20
"""Files that are larger stay; merged ones grow to about this size. What it unfolds to is held in memory."""
_ENDS = ("max.to_offset", "max.log_offset", "max.answered_time", "max.first_time")
"""The statistics that tell which files are neighbours in time."""
YOUNG = timedelta(hours=24)
"""A file younger than this may be part of a batch that is about to be published."""


@dataclass(frozen=True)
class Merged:
    """What ``optimize`` did to a table: files of all its rows before and after."""

    table: str
    before: int
    after: int


@dataclass(frozen=True)
class Removed:
    """What ``vacuum`` deleted of a table, or would."""

    table: str
    files: int
    size: int


# -- optimize ---------------------------------------------------------------------------------------------------------


def optimize(location: str, *, target: int = TARGET_BYTES) -> list[Merged]:
    """Merge the small files of a lake; ``target`` in bytes. LakeConflict where something else rewrote its files."""
    done = []
    with Lake.held(location) as lake:
        rewritten = False
        requests = REQUESTS if REQUESTS[0].name in (lake.ledger or {})["versions"] else ()
        if requests:
            lake.open_requests()
        for table in (RECORDS, *HISTORY, *requests):
            delta = lake.tables[table.name]
            before = len(delta.file_uris())
            added: list[DataFile] = []
            gone: list[str] = []
            for group in _groups(_closed_files(delta), target):
                added.append(_merged(location, table, group))
                gone += group
            if gone:
                replace_files(lake, table, added, gone)
                rewritten = True
            done.append(Merged(table.name, before, before - len(gone) + len(added)))
        if rewritten:
            lake.publish_rewritten()
        done.append(_optimize_ledger(lake.tables[LEDGER.name]))
    return done


def replace_files(
    lake: Lake, table: Table, added: Sequence[DataFile], gone: Iterable[str], *, changes: bool = False
) -> None:
    """One version of a table with other files; ``changes``: their rows may be others, too.

    It is not marked as part of a batch, so it stays if the ledger never names it: the rows are those of the records.
    """
    delta = lake.tables[table.name]
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, {}, now, changes, file.stats) for file in added
    ]
    actions += [RemoveAction(path, changes, now) for path in gone]
    properties = CommitProperties(custom_metadata={"jbod.rewritten": "true"}, max_commit_retries=0)
    try:
        delta.create_write_transaction(actions, "append", table.schema, commit_properties=properties)
    except DeltaError as problem:
        raise LakeConflict(
            f"{lake.location}/{table.name}: something else wrote at the same time ({problem}): try again later"
        ) from None
    delta.update_incremental()


def _closed_files(delta: DeltaTable) -> list[tuple[str, int]]:
    """Name and size of the files that do not hold open rows, oldest rows first."""
    actions: Mapping[str, list[Any]] = pa.table(delta.get_add_actions(flatten=True)).to_pydict()
    ends = next((actions[name] for name in _ENDS if name in actions), [None] * len(actions["path"]))
    found = sorted(
        zip(ends, actions["path"], actions["size_bytes"], strict=True),
        key=lambda one: (one[0] is not None, one[0], one[1]),
    )
    return [(path, size) for _, path, size in found if not path.startswith("open-")]


def _groups(found: Iterable[tuple[str, int]], target: int) -> Iterator[list[str]]:
    """Runs of neighbours that are worth merging."""
    group: list[str] = []
    total = 0
    for path, size in found:
        if group and total + size > target:
            if len(group) > 1:
                yield group
            group, total = [], 0
        group.append(path)
        total += size
    if len(group) > 1:
        yield group


def _merged(location: str, table: Table, names: Sequence[str]) -> DataFile:
    rows = read_files(location, table, names)
    order = pc.sort_indices(rows.select(table.key), [(name, "ascending") for name in table.key])
    return files.write(location, table.name, rows.take(order))


def read_files(location: str, table: Table, names: Sequence[str]) -> pa.Table:
    """The rows of some files of a table; a column that an old file does not have is null."""
    fs, root = lake_filesystem(location)
    parts = []
    for name in names:
        with fs.open_input_file(f"{root}/{table.name}/{name}") as source:
            found = pq.ParquetFile(source).read()
        columns = [
            found[field.name].cast(field.type) if field.name in found.schema.names else pa.nulls(len(found), field.type)
            for field in table.schema
        ]
        parts.append(pa.table(columns, names=table.schema.names))
    return pa.concat_tables(parts)


def _optimize_ledger(ledger: DeltaTable) -> Merged:
    """The ledger is read as it is now, at no named version, so delta-rs may merge it."""
    before = len(ledger.file_uris())
    ledger.optimize.compact()
    ledger.update_incremental()
    return Merged(LEDGER.name, before, len(ledger.file_uris()))


# -- vacuum -----------------------------------------------------------------------------------------------------------


def vacuum(location: str, keep: timedelta, *, dry_run: bool = False, now: datetime | None = None) -> list[Removed]:
    """Delete the files of a lake that only versions need which were replaced longer than ``keep`` ago.

    What the newest ledger row names stays, what any named that was the newest since then, the tables as they are now,
    and files younger than a day.
    """
    now = now or datetime.now(UTC)
    done = []
    with Lake.held(location) as lake:
        for name, versions in _kept_versions(lake, now - keep).items():
            needed = {uri.rsplit("/", 1)[1] for uri in DeltaTable(f"{location}/{name}").file_uris()}
            for version in versions:
                needed |= _files_of(f"{location}/{name}", version)
            done.append(_delete(location, name, needed, now - max(keep, YOUNG), dry_run))
    return done


def _kept_versions(lake: Lake, since: datetime) -> dict[str, set[int]]:
    """The versions of every table that a reader may have open who began at ``since`` or later."""
    rows = lake.tables[LEDGER.name].to_pyarrow_table(columns=["end_offset", "published_time", "versions"])
    newest_first = rows.sort_by([("published_time", "descending"), ("end_offset", "descending")]).to_pylist()
    kept: dict[str, set[int]] = {LEDGER.name: set()}
    for row in [lake.ledger or {}, *newest_first]:
        for name, version in dict(row["versions"]).items():
            kept.setdefault(name, set()).add(version)
        if row is not lake.ledger and row["published_time"] < since:
            break
    return kept


def _files_of(table: str, version: int) -> set[str]:
    try:
        return {uri.rsplit("/", 1)[1] for uri in DeltaTable(table, version=version).file_uris()}
    except DeltaError:
        # Delta's own log no longer reaches back to it, so nobody can open it.
        return set()


def _delete(location: str, name: str, needed: set[str], before: datetime, dry_run: bool) -> Removed:
    fs, root = lake_filesystem(location)
    found = [
        info
        for info in fs.get_file_info(pafs.FileSelector(f"{root}/{name}"))
        if info.base_name.endswith(".parquet") and info.base_name not in needed and info.mtime < before
    ]
    if not dry_run:
        for info in found:
            fs.delete_file(info.path)
    return Removed(name, len(found), sum(info.size for info in found))
