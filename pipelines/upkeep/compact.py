"""Makes the files of a lake fewer and larger, and deletes old ones. The rows do not change.

``optimize`` merges small files of closed rows, of ``records`` and of requests: neighbours in time become one file,
sorted by key. Files of open rows stay, because each shard replaces its own. Every table gets a version, then the ledger
gets a row without records that names them. A run that dies in between leaves tables ahead of the ledger with the same
rows: readers ignore them, and the next publication builds on them.

``vacuum`` deletes files that belong only to versions replaced more than some hours ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from pipelines.lake import files
from pipelines.lake.delta import delta_at
from pipelines.lake.directory_sizes import TABLE as DIRECTORY_SIZES
from pipelines.lake.files import DataFile
from pipelines.lake.foreign import REBUILT, REWRITTEN, commit_info, files_added
from pipelines.lake.kept_sizes import MEND as MEND_SIZES
from pipelines.lake.ledger import write_head
from pipelines.lake.publish import LakeWriter
from pipelines.lake.side_tables import side_table
from pipelines.lake.tables import CHANGES, DERIVED, LEDGER, RECORDS, REQUESTS, Table
from pipelines.lake.uris import LakeUri
from pipelines.lake.written_lake import LiveFile, live_files
from pipelines.storage.filesystem import filesystem_of
from pipelines.storage.objects import is_object

TARGET_BYTES = 32 << 20
"""Larger files stay, and merged files grow to about this size. Their uncompressed rows are held in memory."""
MERGED_AT_ONCE = 2
"""Reading, sorting and writing of a file use one core."""
_ENDS = ("max.to_offset", "max.log_offset", "max.answered_time", "max.first_time")
"""The statistics by which files are ordered in time."""
YOUNG = timedelta(hours=24)
"""A younger file may belong to a batch that is not published yet."""


@dataclass(frozen=True)
class Merged:
    """The result of ``optimize`` for a table: number of files before and after."""

    table: str
    before: int
    after: int


@dataclass(frozen=True)
class RemovedFiles:
    """The files that ``vacuum`` deleted from a table, or would delete."""

    table: str
    files: int
    size: int


# -- optimize ---------------------------------------------------------------------------------------------------------


def optimize(path: LakeUri, *, target: int = TARGET_BYTES) -> list[Merged]:
    """Merges the small files of a lake. ``target`` in bytes. Raises LakeConflict if another writer rewrote files."""
    with LakeWriter.held(path) as lake:
        tables = [table for table in (RECORDS, *DERIVED, *REQUESTS) if table.name in lake.tables]
        done = _merge_tables(lake, tables, target)
        if any(merged.after < merged.before for merged in done):
            lake.publish_rewritten()
        done.append(_compacted(LEDGER, lake.tables[LEDGER.name], retries=0))
        if (sizes := side_table(path, DIRECTORY_SIZES.name, MEND_SIZES)) is not None:
            done.append(_compacted(DIRECTORY_SIZES, sizes))
        lake.tables.refresh(LEDGER.name)
        if is_object(path):
            # Elsewhere, delta-rs does this with every hundredth commit.
            for delta in lake.tables.values():
                delta.create_checkpoint()
                delta.cleanup_metadata()
            write_head(path, lake.identity, lake.ledger or {}, lake.tables.versions[LEDGER.name])
    return done


def _merge_tables(lake: LakeWriter, tables: Sequence[Table], target: int) -> list[Merged]:
    """Merges files of all tables in threads, and commits a version of each table in turn."""
    done = []
    workers = ThreadPoolExecutor(MERGED_AT_ONCE)
    try:
        begun = []
        for table in tables:
            there = live_files(lake.tables[table.name])
            groups = [*_groups(_by_commit(there) if table is CHANGES else _closed_files(there), target)]
            merging = [workers.submit(_merged, lake.path, table, group) for group in groups]
            begun.append((table, len(there), groups, merging))
        for table, before, groups, merging in begun:
            added = [each.result() for each in merging]
            gone = [file for group in groups for file in group]
            if gone:
                replace_files(lake, table, added, gone)
            done.append(Merged(table.name, before, before - len(gone) + len(added)))
    finally:
        workers.shutdown(cancel_futures=True)
    return done


def replace_files(
    lake: LakeWriter, table: Table, added: Sequence[DataFile], gone: Sequence[LiveFile], *, rebuilt: bool = False
) -> None:
    """Commits a version of a table with other files. ``rebuilt``: it replaces all files, and rows may differ, too.

    The commit is not marked as part of a batch, so it stays even if the ledger never names it: its rows follow from the
    records.
    """
    marks = {REBUILT if rebuilt else REWRITTEN: "true"}
    lake.commit_marked(table, added, gone, marks, changes=rebuilt)


def _closed_files(table_files: Iterable[LiveFile]) -> list[LiveFile]:
    """The files that do not hold open rows, oldest rows first."""

    def age(file: LiveFile) -> tuple[bool, Any, str]:
        end = next((file.statistics[name] for name in _ENDS if name in file.statistics), None)
        return end is not None, end, file.path

    return sorted((file for file in table_files if file.shard < 0), key=age)


def _by_commit(table_files: Iterable[LiveFile]) -> list[LiveFile]:
    """The files in the order of their commits, which is the order in which a stream reads them."""
    return sorted(table_files, key=lambda file: (_modified(file), file.path))


def _modified(file: LiveFile) -> int:
    time = file.statistics["modification_time"]
    return int(time.timestamp() * 1000) if isinstance(time, datetime) else int(time)


def _groups(table_files: Iterable[LiveFile], target: int) -> Iterator[list[LiveFile]]:
    """Runs of neighbours that are worth merging."""
    group: list[LiveFile] = []
    total = 0
    for file in table_files:
        if group and total + file.size > target:
            if len(group) > 1:
                yield group
            group, total = [], 0
        group.append(file)
        total += file.size
    if len(group) > 1:
        yield group


def _merged(lake: LakeUri, table: Table, group: Sequence[LiveFile]) -> DataFile:
    paths = [file.path for file in group]
    if table is CHANGES:
        # A new stream reads files by their modification time: the merged file takes the place of its last part.
        return replace(files.merge(lake, table, paths), modified=_modified(group[-1]))
    order = _order(files.read(lake, table, paths, table.key, encoded=True))
    if np.array_equal(order, np.arange(len(order), dtype=np.uint64)):  # records mostly are in order
        return files.merge(lake, table, paths)
    rows = files.read(lake, table, paths, encoded=True).unify_dictionaries()
    return files.write(lake, table.name, rows, order=order)


def _order(keys: pa.Table) -> pa.Array:
    """The indices of these rows by key. Texts are compared by their rank, which takes a sixth of the time."""
    columns = {}
    for name in keys.column_names:
        column = keys[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = pc.rank(column.dictionary, tiebreaker="dense").take(column.indices)
        columns[name] = column
    return pc.sort_indices(pa.table(columns), [(name, "ascending") for name in keys.column_names])


def _compacted(table: Table, delta: DeltaTable, retries: int | None = None) -> Merged:
    """Merges the files of a table with delta-rs. Readers always read its newest version, so this is safe."""
    before = len(delta.file_uris())
    delta.optimize.compact(commit_properties=CommitProperties(commit_info({REWRITTEN: "true"}), retries))
    delta.update_incremental()
    return Merged(table.name, before, len(delta.file_uris()))


# -- vacuum -----------------------------------------------------------------------------------------------------------


def vacuum(path: LakeUri, keep: timedelta, *, dry_run: bool = False, now: datetime | None = None) -> list[RemovedFiles]:
    """Deletes files that belong only to versions replaced more than ``keep`` ago.

    It keeps the versions of the newest ledger row and of every row that was the newest since then, the tables' present
    versions, and files younger than a day.
    """
    now = now or datetime.now(UTC)
    done = []
    with LakeWriter.held(path) as lake:
        kept = _kept_versions(lake, now - keep)
        if side_table(path, DIRECTORY_SIZES.name, MEND_SIZES) is not None:
            kept[DIRECTORY_SIZES.name] = {_version_at(f"{path}/{DIRECTORY_SIZES.name}", now - keep)}
        for name, versions in kept.items():
            needed = _needed(path, name, versions)
            done.append(_delete(path, name, needed, now - max(keep, YOUNG), dry_run))
    return done


def _kept_versions(lake: LakeWriter, since: datetime) -> dict[str, set[int]]:
    """The versions of every table that a reader that started at ``since`` or later may have open."""
    rows = lake.tables[LEDGER.name].to_pyarrow_table(columns=["end_offset", "published_time", "versions"])
    newest_first = rows.sort_by([("published_time", "descending"), ("end_offset", "descending")]).to_pylist()
    kept: dict[str, set[int]] = {LEDGER.name: {_version_at(f"{lake.path}/{LEDGER.name}", since)}}
    for row in [lake.ledger or {}, *newest_first]:
        for name, version in dict(row["versions"]).items():
            kept.setdefault(name, set()).add(version)
        if row is not lake.ledger and row["published_time"] < since:
            break
    return kept


def _version_at(table: str, since: datetime) -> int:
    """The version of a table that was the newest at ``since``. Its readers open the newest version, by no ledger."""
    delta = delta_at(table)
    delta.load_as_version(since)
    return delta.version()


def _needed(lake: LakeUri, name: str, versions: set[int]) -> set[str]:
    """The files of a table's present version and of ``versions``.

    These are the files of the oldest of them, and those that later commits added. On S3 this takes a request for each
    commit, and opening a version would take many.
    """
    present = delta_at(f"{lake}/{name}")
    needed = {file.path for file in live_files(present)}
    if not versions:
        return needed
    first = min(versions)
    needed |= _files_of(f"{lake}/{name}", first)
    for version in range(first + 1, present.version() + 1):
        added = files_added(lake, name, version)
        needed |= _files_of(f"{lake}/{name}", version) if added is None else added
    return needed


def _files_of(table: str, version: int) -> set[str]:
    try:
        return {file.path for file in live_files(delta_at(table, version))}
    except DeltaError:
        # Delta's log no longer has this version, so no reader can open it.
        return set()


def _delete(lake: LakeUri, name: str, needed: set[str], before: datetime, dry_run: bool) -> RemovedFiles:
    fs, root = filesystem_of(lake)
    folder = f"{root}/{name}"
    infos = [
        info
        for info in fs.get_file_info(pafs.FileSelector(folder, recursive=True))
        if info.base_name.endswith(".parquet") and info.mtime < before and _is_unneeded(info.path, folder, needed)
    ]
    if not dry_run:
        for info in infos:
            fs.delete_file(info.path)
    return RemovedFiles(name, len(infos), sum(info.size for info in infos))


def _is_unneeded(path: str, folder: str, needed: set[str]) -> bool:
    """Whether a file in a table's folder may be deleted. Files in ``_delta_log`` and similar folders may not."""
    relative = path[path.index(folder) + len(folder) + 1 :]
    return relative not in needed and not relative.startswith(("_", "."))
