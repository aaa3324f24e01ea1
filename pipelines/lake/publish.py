"""Publishes a batch: one Delta version per table in a fixed order, the ledger last. Readers see all of it or nothing.

The ledger names the versions of all tables that belong together. Before a run writes, it compares every table with the
ledger (pipelines.lake.foreign). It restores the tables that a dead run left between two commits, accepts commits of
other engines that do not change data, and refuses all others. Upkeep and other engines rewrite files between two
batches, so a run reads the tables' state again before it publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError

from jbod_model.errors import JbodError, UsageError
from pipelines.lake import FORMAT_VERSION, files
from pipelines.lake.batch import Batch
from pipelines.lake.changes import settle_changes
from pipelines.lake.commit import LakeConflict, LiveFile, Overtaken, commit_files, live_files
from pipelines.lake.create import Identity, add_checks, cannot_be_opened, create_table, described, keeps_changes
from pipelines.lake.delta import delta_at
from pipelines.lake.faults import fault_of_disk
from pipelines.lake.files import DataFile
from pipelines.lake.folder import remove_lake
from pipelines.lake.foreign import PUBLISHED, RESTORED, STARTED, VERSION, Since, commit_info, last_own, misfit_of, since
from pipelines.lake.head import take_head, write_head
from pipelines.lake.lock import alone
from pipelines.lake.object_commit import refresh, write_due_checkpoint
from pipelines.lake.object_log import kept_log
from pipelines.lake.tables import CHANGES, DERIVED, LEDGER, RECORDS, REQUESTS, TABLES, Table
from pipelines.lake.uris import home_of
from pipelines.storage.objects import is_object

TRIES = 3
"""How often a publication is retried if another engine commits between its read and its own commit."""
Rows = dict[str, int]


@dataclass
class LakeWriter:
    """A lake open for writing."""

    location: str
    identity: Identity
    tables: dict[str, DeltaTable] = field(default_factory=dict)
    ledger: dict[str, Any] | None = None
    made: int = 0
    """The number of tables that this run created."""
    keeps_changes: bool = True  # whether ``changes`` has rows
    half: int | None = None  # end offset of a batch that ``changes`` has and the ledger not yet
    home: str = ""  # where the checkpoints of its runs are: the lake, or a folder for a lake on S3
    appended: Callable[[], None] = lambda: None  # called after each row of the ledger

    def __post_init__(self) -> None:
        self.home = self.home or home_of(self.location)

    @classmethod
    def create_or_open(
        cls, location: str, identity: Identity, home: str = "", *, keeps_changes: bool = True
    ) -> LakeWriter:
        """Opens the lake at ``location``, or creates it (``keeps_changes``). UsageError if it is of another cluster."""
        if "[" in location or "]" in location:
            raise UsageError(f"{location}: delta-rs cannot write to a path with brackets: choose another --lake")
        lake = cls(location, identity, home=home, keeps_changes=keeps_changes)
        lake.load()
        return lake

    @classmethod
    @contextmanager
    def held(cls, location: str, *, mending: bool = False) -> Iterator[LakeWriter]:
        """Opens a lake that has a publication, and holds its lock until the end of the block.

        Raises UsageError if there is none. With ``mending``, tables may be damaged, or changed by another engine.
        """
        said = described(location)
        with alone(location):
            lake = cls(location, Identity(*(said[part.name] for part in fields(Identity))))
            lake._load(mending=mending)
            if lake.ledger is None:
                raise UsageError(f"{location}: nothing was published into this lake yet")
            yield lake

    def load(self) -> None:
        """Opens the newest versions, also where another process of the same run published."""
        with alone(self.location):
            self._load()

    def _load(self, *, mending: bool = False) -> None:
        take_head(self.location)
        self._open(TABLES)
        self._check_identity()
        if mending:
            self.mend(LEDGER)
        self.read_ledger()
        if REQUESTS[0].name in self._versions:
            self._open(REQUESTS)
        if not mending and self._compare() and self.ledger is not None:
            # Publish the new versions: the next VACUUM may delete the files of the versions that the ledger names.
            self.publish_rewritten()

    def open_requests(self) -> None:
        """Opens the tables of the request stream, too, and creates them if they do not exist."""
        if REQUESTS[0].name in self.tables:
            return
        made = self.made
        with alone(self.location):
            self._open(REQUESTS)
            self._compare()
        self.made = made

    def _open(self, tables: Sequence[Table]) -> None:
        for table in tables:
            uri = f"{self.location}/{table.name}"
            try:
                self.tables[table.name] = delta_at(uri)
            except TableNotFoundError:
                self.tables[table.name] = create_table(uri, table, self.identity, changes=self.keeps_changes)
                self.made += 1
            except (DeltaError, OSError) as problem:
                raise cannot_be_opened(self.location, table, problem) from None
            if self.tables[table.name].version() < len(table.checks):
                # A run that died may have left out constraints.
                add_checks(self.tables[table.name], table)
                self.tables[table.name].update_incremental()
            self.tables[table.name] = kept_log(self.tables[table.name], uri)

    @property
    def end_offset(self) -> int:
        """Offset after the last record published, -1 for an empty lake."""
        return -1 if self.ledger is None else int(self.ledger["end_offset"])

    def _check_identity(self) -> None:
        said = described(self.location, self.tables[LEDGER.name])
        if said["format"] != FORMAT_VERSION:
            raise UsageError(
                f"{self.location}: lake of format {said['format']}, this is {FORMAT_VERSION}: use a new --lake"
            )
        self.keeps_changes = keeps_changes(said)
        for name in ("profile", "ids", "cluster_id"):
            mine, theirs = getattr(self.identity, name), said.get(name)
            if mine != theirs and not (name == "cluster_id" and "" in (mine, theirs)):
                raise UsageError(
                    f"{self.location}: lake was made with {name} {theirs!r}, this run has {mine!r}: use another --lake"
                )
        self.identity = Identity(
            self.identity.cluster_id or said["cluster_id"],
            self.identity.profile,
            self.identity.ids,
            said["shards"],
        )

    @property
    def unknown(self) -> dict[str, int]:
        """The kinds of records that were not known when they were published, each with the offset of the first."""
        return dict((self.ledger or {}).get("unknown_types") or {})

    @property
    def _versions(self) -> dict[str, int]:
        """The versions that the ledger names."""
        return self.ledger["versions"] if self.ledger else {}

    def read_ledger(self) -> None:
        """Reads the newest row. Raises LakeConflict if another engine changed the ledger."""
        found = self._since(LEDGER)
        if found.refused:
            raise self._conflict(LEDGER, found)
        self.take_newest_row()

    def take_newest_row(self) -> None:
        """Reads the ledger's newest row, even if another engine wrote it."""
        found = live_files(self.tables[LEDGER.name])
        ends = [file.statistics.get("max.end_offset") for file in found]
        newest = max((end for end in ends if end is not None), default=None)
        wanted = [file.path for file, end in zip(found, ends, strict=True) if end in (None, newest)]
        rows = files.read(self.location, LEDGER, wanted)
        rows = rows.sort_by([("end_offset", "ascending"), ("published_time", "ascending")])
        self.ledger = rows.slice(rows.num_rows - 1).to_pylist()[0] if rows.num_rows else None
        if self.ledger is not None:
            self.ledger["versions"] = dict(self.ledger["versions"])

    def _since(self, table: Table) -> Since:
        """The commits of an open table since the ledger's version; of the ledger itself, since jbod's last row."""
        delta = self.tables[table.name]
        if table is LEDGER:
            return since(self.location, table, delta, last_own(self.location, delta) or 0)
        return since(self.location, table, delta, self._versions.get(table.name, len(table.checks)))

    def _conflict(self, table: Table, found: Since) -> LakeConflict:
        return LakeConflict(
            f"{self.location}/{table.name}: {found.refused}: nothing was published; jbod verify shows the "
            "differences, jbod rebuild restores the tables"
        )

    def _compare(self) -> bool:
        """Compares every open table with the ledger, then undoes the commits of a batch that did not reach it.

        Raises LakeConflict if another engine changed data. Returns whether another engine committed anything.
        """
        judged = [(table, self._since(table)) for table in (*TABLES[:-1], *REQUESTS) if table.name in self.tables]
        for table, found in judged:
            if found.refused:
                raise self._conflict(table, found)
        for table, found in judged:
            if found.restore_to is not None and table is CHANGES:
                settle_changes(self)
            elif found.restore_to is not None:
                self._restore(table, found.restore_to)
        return any(found.foreign for _, found in judged)

    def _restore(self, table: Table, version: int, *, emptied: bool = False) -> None:
        """Restores a table to a version. ``emptied``: its files do not matter, as the current batch replaces them."""
        delta = self.tables[table.name]
        properties = CommitProperties(
            commit_info({PUBLISHED if emptied else RESTORED: str(version)}), max_commit_retries=0
        )
        try:
            delta.restore(
                version,
                ignore_missing_files=emptied,
                protocol_downgrade_allowed=True,
                commit_properties=properties,
            )
        except DeltaError as problem:
            raise fault_of_disk(self.location, problem) or LakeConflict(
                f"{self.location}/{table.name}: cannot be restored to version {version}, which the ledger names "
                f"({problem}): a VACUUM may have removed its files; jbod rebuild recreates the tables from the records"
            ) from None
        delta.update_incremental()

    def mend(self, table: Table) -> None:
        """Restores a table to the version that the ledger names, whatever was committed since."""
        found = self._since(table)
        if found.refused or found.restore_to is not None:
            delta = self.tables[table.name]
            version = last_own(self.location, delta) or 0 if table is LEDGER else self._versions[table.name]
            if delta.version() < version:
                raise self._conflict(table, found)
            self._restore(table, version)

    def fit(self, table: Table) -> None:
        """Restores the schema and properties of a table whose files will all be replaced."""
        if misfit_of(self.tables[table.name], table):
            self._restore(table, self._versions[table.name], emptied=True)

    def discard(self, *more: str) -> None:
        """Removes a lake that this run created and did not publish to, with the folders ``more`` of its home."""
        if self.ledger is None and self.made >= len(TABLES):
            with suppress(OSError, JbodError):  # it would hide the error that ended the run
                remove_lake(self.location, self.home, more)

    def publish(self, batch: Batch) -> Rows:
        """Commits every table, then the ledger. Returns rows written per table, none if it was published already."""
        if batch.end_offset <= self.end_offset:
            return {}
        return self._published(
            lambda: self._publish(replace(batch, unknown={**batch.unknown, **self.unknown}), (RECORDS, *DERIVED))
        )

    def publish_requests(self, files: Sequence[DataFile], replaced: frozenset[tuple[str, int]]) -> Rows:
        """Commits the tables of the request stream, then a ledger row. The log's tables do not change."""
        if self.ledger is None:
            raise UsageError(f"{self.location}: nothing of a log was published yet, so requests cannot be joined to it")
        return self._published(lambda: self._publish(self.here(files, replaced), REQUESTS))

    def _published(self, publish: Callable[[], Rows]) -> Rows:
        """Publishes on top of the current versions, and retries if another engine commits in between."""
        for left in reversed(range(TRIES)):
            with self.writing(anew=left < TRIES - 1):
                try:
                    return publish()
                except Overtaken:
                    if not left:
                        raise
        raise AssertionError("not reached")

    def publish_rewritten(self, unknown: Mapping[str, int] | None = None) -> None:
        """A ledger row for tables that were rewritten with the same rows. The caller holds the lock.

        ``unknown``: the kinds of records that are still not known, if that was determined again.
        """
        here = self.here() if unknown is None else replace(self.here(), unknown=unknown)
        known = [table for table in (RECORDS, *DERIVED, *REQUESTS) if table.name in self.tables]
        self._publish(here, known)

    def mark_log_end(self, log_end: int | None) -> None:
        """Records in the ledger that the log ends before the lake, or (None) that it no longer does."""
        if self.ledger is not None and self.ledger.get("log_end") != log_end:
            with self.writing():
                here = replace(self.here(), log_end=log_end)
                self.append_ledger(here, self._versions, {})

    def here(self, files: Sequence[DataFile] = (), touched: frozenset[tuple[str, int]] = frozenset()) -> Batch:
        """Returns a batch without records, at the lake's end."""
        assert self.ledger is not None
        at = self.ledger
        return Batch(
            start_offset=at["end_offset"],
            end_offset=at["end_offset"],
            epoch=at["epoch"],
            fingerprint=at["fingerprint"],
            end_time=round(at["end_time"].timestamp() * 1e6),
            files=files,
            touched=touched,
            metadata_version=at["metadata_version"],
            from_snapshot=None,
            dropped=0,
            log_end=at.get("log_end"),
            unknown=self.unknown,
        )

    @contextmanager
    def writing(self, *, anew: bool = True) -> Iterator[None]:
        """Holds the lock until the end of the block, and reads what upkeep has changed since the lake was opened."""
        with alone(self.location):
            self._look_again(anew=anew)
            yield

    def _look_again(self, *, anew: bool) -> None:
        """Raises LakeConflict if another run published, or another engine changed data."""
        end = self.end_offset
        # On S3 a refresh is a request. A table that changed refuses the next commit, which is then retried.
        names = self.tables if anew or not is_object(self.location) else (LEDGER.name,)
        newer = [name for name in names if refresh(f"{self.location}/{name}", self.tables[name])]
        if LEDGER.name in newer:
            self.read_ledger()
        if self.end_offset != end:
            last = self.end_offset - 1
            raise Overtaken(f"{self.location}: another run published up to offset {last} meanwhile: run again, alone")
        if newer:
            self._compare()

    def _publish(self, batch: Batch, tables: Sequence[Table]) -> Rows:
        rows: Rows = {}
        versions = dict(self._versions)
        for table in tables:
            files = [file for file in batch.files if file.table == table.name]
            shards = [shard for name, shard in batch.touched if name == table.name]
            if table is not CHANGES or self.half != batch.end_offset:
                self._commit(table, files, shards, batch)
            if table is CHANGES and files:
                self.half = batch.end_offset
            rows[table.name] = sum(file.rows for file in files)
            versions[table.name] = self.tables[table.name].version()
        self.append_ledger(batch, versions, rows)
        return rows

    def _commit(self, table: Table, files: Sequence[DataFile], shards: Sequence[int], batch: Batch) -> None:
        # Remove all files in these partitions, whatever their writer or name: they hold the shards' open rows.
        gone = live_files(self.tables[table.name], shards)
        self.commit(table, files, gone, batch.start_offset, batch.end_offset)

    def commit(self, table: Table, files: Sequence[DataFile], gone: Sequence[LiveFile], start: int, end: int) -> None:
        """Commits one version: adds ``files``, removes ``gone``. Raises LakeConflict if another writer interferes."""
        if not files and not gone:
            return
        delta = self.tables[table.name]
        transactions = []
        if table is LEDGER:
            transactions = [Transaction(VERSION, delta.version() + 1)]
        elif table not in REQUESTS:
            # Rows of requests identify themselves, and several of their commits share an offset.
            transactions = [Transaction(f"jbod/{self.identity.cluster_id}/{table.name}", end)]
        marks = {PUBLISHED: str(end), STARTED: str(start)}
        commit_files(self.location, table, delta, files, gone, marks=marks, transactions=transactions)

    def append_ledger(self, batch: Batch, versions: dict[str, int], rows: Rows) -> None:
        """Appends the row that makes table versions visible to readers. The caller holds the lock."""
        entry = {
            "start_offset": batch.start_offset,
            "end_offset": batch.end_offset,
            "epoch": batch.epoch,
            "fingerprint": batch.fingerprint,
            "end_time": datetime.fromtimestamp(batch.end_time / 1e6, UTC),
            "published_time": datetime.now(UTC),
            "profile": self.identity.profile,
            "ids": self.identity.ids,
            "cluster_id": self.identity.cluster_id,
            "metadata_version": batch.metadata_version,
            "from_snapshot": batch.from_snapshot,
            "dropped": batch.dropped,
            "log_end": batch.log_end,
            "unknown_from": min(batch.unknown.values(), default=None),
            "unknown_types": dict(batch.unknown) or None,
            "versions": versions,
            "rows": rows,
        }
        row = files.write(self.location, LEDGER.name, pa.Table.from_pylist([entry], schema=LEDGER.schema))
        self.commit(LEDGER, [row], (), batch.start_offset, batch.end_offset)
        self.ledger, self.half = entry, None
        if is_object(self.location):
            write_due_checkpoint(self.tables)
            write_head(self.location, self.identity, entry, self.tables)
        self.appended()
