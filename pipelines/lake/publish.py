"""Publishes a batch: one Delta version per table in a fixed order, the ledger last. Readers see all of it or nothing.

The ledger names the versions of all tables that belong together. Before a run writes, it compares every table with the
ledger (``compare``). It restores the tables that a dead run left between two commits, accepts commits of other engines
that do not change data, and refuses all others. Upkeep and other engines rewrite files between two batches, so a run
reads the tables' state again before it publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import DeltaError, TableNotFoundError

from jbod_model.errors import JbodError, UsageError
from pipelines.lake import FORMAT_VERSION, files
from pipelines.lake.changes import settle_changes
from pipelines.lake.delta import delta_at, refuse_empty_commits, unpublished
from pipelines.lake.files import DataFile
from pipelines.lake.foreign import PUBLISHED, RESTORED, CommitsSince, commit_info, last_own, misfit_of, since
from pipelines.lake.ledger import write_head
from pipelines.lake.lock import alone
from pipelines.lake.tables import BY_NAME, CHANGES, DERIVED, LEDGER, RECORDS, REQUESTS, TABLES, Table, way_back
from pipelines.lake.uris import LakeUri
from pipelines.lake.written_lake import (
    Identity,
    LakeConflict,
    Overtaken,
    WrittenLake,
    add_checks,
    cannot_be_opened,
    create_table,
    described,
    keeps_changes,
    live_files,
    remove_lake,
)
from pipelines.storage.objects import fault_of_disk, is_object

TRIES = 3
"""How often a publication is retried if another engine commits between its read and its own commit."""
CHECKPOINT_EVERY = 5
"""The publications between two checkpoints of a table on S3. To open a table, delta-rs reads each commit after the
newest checkpoint twice, and a checkpoint by eleven requests."""
Rows = dict[str, int]


@dataclass(frozen=True)
class Publication:
    """The publication of one micro-batch: its range of offsets, the files, and the ledger's other columns."""

    start_offset: int
    end_offset: int
    epoch: int
    fingerprint: int
    end_time: int
    files: Sequence[DataFile]
    touched: frozenset[tuple[str, int]]
    metadata_version: int
    from_snapshot: int | None
    dropped: int
    log_end: int | None = None
    """The log's end offset, if it is before the lake's end."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """The kinds of records that are not known, each with the offset of the first (R-REC-4)."""


@dataclass
class LakeWriter(WrittenLake):
    """A lake open for writing."""

    made: int = 0
    """The number of tables that this run created."""
    appended: Callable[[], None] = lambda: None
    """Called after each row of the ledger."""

    @classmethod
    def create_or_open(
        cls, path: LakeUri, identity: Identity, home: str = "", *, keeps_changes: bool = True
    ) -> LakeWriter:
        """Opens the lake at ``path``, or creates it (``keeps_changes``). UsageError if it is of another cluster."""
        if "[" in path or "]" in path:
            raise UsageError(f"{path}: delta-rs cannot write to a path with brackets: choose another --lake")
        lake = cls(path, identity, home=home, keeps_changes=keeps_changes)
        lake.load()
        return lake

    @classmethod
    @contextmanager
    def held(cls, path: LakeUri, *, mending: bool = False) -> Iterator[LakeWriter]:
        """Opens a lake that has a publication, and holds its lock until the end of the block.

        Raises UsageError if there is none. With ``mending``, tables may be damaged, or changed by another engine.
        """
        description = described(path)
        with alone(path):
            lake = cls(path, Identity(*(description[part.name] for part in fields(Identity))))
            lake._load(mending=mending)
            if lake.ledger is None:
                raise unpublished(path)
            yield lake

    def load(self) -> None:
        """Opens the newest versions, also where another process of the same run published."""
        with alone(self.path):
            self._load()

    def _load(self, *, mending: bool = False) -> None:
        is_new = not self._open_newest(LEDGER, create=False)
        if is_new:
            self._open(TABLES[:-1])
            self._refuse_lost_ledger()
            self._open(TABLES[-1:])
        self._check_identity()
        if mending:
            mend(self, LEDGER)
        read_ledger(self)
        self._refuse_empty_commits()
        if not is_new:
            self._open(TABLES[:-1])
        if REQUESTS[0].name in self.versions:
            self._open(REQUESTS)
        if not mending and compare(self) and self.ledger is not None:
            # Publish the new versions: the next VACUUM may delete the files of the versions that the ledger names.
            self.publish_rewritten()

    def _refuse_empty_commits(self) -> None:
        for name, version in self.versions.items():
            try:
                refuse_empty_commits(self.path, name, version)
            except OSError as problem:
                raise cannot_be_opened(self.path, BY_NAME[name], problem) from None

    def _refuse_lost_ledger(self) -> None:
        """Raises UsageError if tables have rows. The ledger's table is created before the first of them."""
        filled = [table.name for table in TABLES[:-1] if self.tables.versions[table.name] > len(table.checks)]
        if filled:
            raise UsageError(
                f"{self.path}: its ledger is gone, and {', '.join(filled)} have rows: restore {self.path}/ledger from "
                "a backup, or replay the log into another --lake"
            )

    def handed_over(self) -> LakeWriter:
        """Another writer of the lake as it is now, for another thread or process. It takes the open tables."""
        writer = LakeWriter(self.path, self.identity, self.ledger, self.keeps_changes, home=self.home)
        writer.tables = self.tables.handed_over()
        return writer

    def catch_up(self) -> None:
        """Takes what another writer of the same run published. The caller holds the lock."""
        if self.tables.refresh(LEDGER.name):
            read_ledger(self)
            self._refresh_tables()
            compare(self)

    def open_requests(self) -> None:
        """Opens the tables of the request stream, too, and creates them if they do not exist."""
        if REQUESTS[0].name in self.tables:
            return
        made = self.made
        with alone(self.path):
            self._open(REQUESTS)
            compare(self)
        self.made = made

    def _open(self, tables: Sequence[Table]) -> None:
        """Opens tables, and creates those that do not exist.

        On S3 only those that are not at the version that the ledger names. On a disk, opening costs little and finds a
        damaged log at once.
        """
        for table in tables:
            version = self.versions.get(table.name) if is_object(self.path) else None
            if version is None or not self.tables.note(table.name, version):
                self._open_newest(table)

    def _open_newest(self, table: Table, *, create: bool = True) -> bool:
        """Opens a table. Returns False if it does not exist, unless ``create``."""
        uri = f"{self.path}/{table.name}"
        try:
            delta = delta_at(uri)
        except TableNotFoundError:
            if not create:
                return False
            delta = create_table(uri, table, self.identity, changes=self.keeps_changes)
            self.made += 1
        except (DeltaError, OSError) as problem:
            raise cannot_be_opened(self.path, table, problem) from None
        if delta.version() < len(table.checks):
            # A run that died may have left out constraints.
            add_checks(delta, table)
            delta.update_incremental()
        self.tables[table.name] = delta
        return True

    def _check_identity(self) -> None:
        description = described(self.path, self.tables[LEDGER.name])
        if description["format"] != FORMAT_VERSION:
            raise UsageError(
                f"{self.path}: lake of format {description['format']}, this is {FORMAT_VERSION}: use a new --lake"
            )
        self.keeps_changes = keeps_changes(description)
        for name in ("profile", "ids", "cluster_id"):
            mine, theirs = getattr(self.identity, name), description.get(name)
            if mine != theirs and not (name == "cluster_id" and "" in (mine, theirs)):
                raise UsageError(
                    f"{self.path}: lake was made with {name} {theirs!r}, this run has {mine!r}: use another --lake"
                )
        self.identity = Identity(
            self.identity.cluster_id or description["cluster_id"],
            self.identity.profile,
            self.identity.ids,
            description["shards"],
        )

    def discard(self, *more: str) -> None:
        """Removes a lake that this run created and did not publish to, with the folders ``more`` of its home."""
        if self.ledger is None and self.made >= len(TABLES):
            with suppress(OSError, JbodError):  # it would hide the error that ended the run
                remove_lake(self.path, self.home, more)

    def publish(self, batch: Publication) -> Rows:
        """Commits every table, then the ledger. Returns rows written per table, none if it was published already."""
        if batch.end_offset <= self.end_offset:
            return {}
        return self._published(
            lambda: self._publish(replace(batch, unknown={**batch.unknown, **self.unknown}), (RECORDS, *DERIVED))
        )

    def publish_requests(self, files: Sequence[DataFile], replaced: frozenset[tuple[str, int]]) -> Rows:
        """Commits the tables of the request stream, then a ledger row. The log's tables do not change."""
        if self.ledger is None:
            raise UsageError(f"{self.path}: nothing of a log was published yet, so requests cannot be joined to it")
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
                self.append_ledger(here, self.versions, {})

    def here(self, files: Sequence[DataFile] = (), touched: frozenset[tuple[str, int]] = frozenset()) -> Publication:
        """Returns a batch without records, at the lake's end."""
        assert self.ledger is not None
        at = self.ledger
        return Publication(
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
        with alone(self.path):
            self._look_again(anew=anew)
            yield

    def _look_again(self, *, anew: bool) -> None:
        """Raises LakeConflict if another run published, or another engine changed data."""
        end = self.end_offset
        # On S3 a look is a request. A table that changed refuses the next commit, which is then retried.
        names = list(self.tables) if anew or not is_object(self.path) else [LEDGER.name]
        newer = [name for name in names if self.tables.refresh(name)]
        if LEDGER.name in newer:
            read_ledger(self)
        if self.end_offset != end:
            last = self.end_offset - 1
            raise Overtaken(f"{self.path}: another run published up to offset {last} meanwhile: run again, alone")
        if LEDGER.name in newer:
            self._refresh_tables()
        if newer:
            compare(self)

    def _refresh_tables(self) -> None:
        """Takes the newest version of every table that is not at the one that the ledger names."""
        for name in self.tables:
            if name != LEDGER.name and self.tables.versions[name] != self.versions.get(name):
                self.tables.refresh(name)

    def _publish(self, batch: Publication, tables: Sequence[Table]) -> Rows:
        rows: Rows = {}
        versions = dict(self.versions)
        for table in tables:
            files = [file for file in batch.files if file.table == table.name]
            shards = [shard for name, shard in batch.touched if name == table.name]
            if (files or shards) and (table is not CHANGES or self.half != batch.end_offset):
                self._commit(table, files, shards, batch)
            if table is CHANGES and files:
                self.half = batch.end_offset
            rows[table.name] = sum(file.rows for file in files)
            versions[table.name] = self.tables.versions[table.name]
        self.append_ledger(batch, versions, rows)
        return rows

    def _commit(self, table: Table, files: Sequence[DataFile], shards: Sequence[int], batch: Publication) -> None:
        # Remove all files in these partitions, whatever their writer or name: they hold the shards' open rows.
        gone = live_files(self.tables[table.name], shards)
        self.commit(table, files, gone, batch.start_offset, batch.end_offset)

    def append_ledger(self, batch: Publication, versions: dict[str, int], rows: Rows) -> None:
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
        row = files.write(self.path, LEDGER.name, pa.Table.from_pylist([entry], schema=LEDGER.schema))
        self.commit(LEDGER, [row], (), batch.start_offset, batch.end_offset)
        before, self.ledger, self.half = self.versions, entry, None
        if is_object(self.path):
            write_head(self.path, self.identity, entry, self.tables.versions[LEDGER.name])
            self._write_checkpoints(before)
        self.appended()

    def _write_checkpoints(self, before: Mapping[str, int]) -> None:
        """Writes checkpoints of the tables whose turn it is, if this publication changed them."""
        turn = self.tables.versions[LEDGER.name]
        for place, (name, version) in enumerate(self.tables.versions.items()):
            if place % CHECKPOINT_EVERY == turn % CHECKPOINT_EVERY and version != before.get(name):
                # The batch is published. Without the checkpoint, opening the table takes more requests.
                with suppress(DeltaError, OSError, JbodError):
                    self.tables[name].create_checkpoint()


def read_ledger(lake: WrittenLake) -> None:
    """Reads the ledger's newest row. Raises LakeConflict if another engine changed the ledger."""
    commits = _since(lake, LEDGER)
    if commits.refused:
        raise _conflict(lake, LEDGER, commits)
    lake.take_newest_row()


def compare(lake: WrittenLake) -> bool:
    """Compares every table with the ledger, then undoes the commits of a batch that did not reach it.

    Raises LakeConflict if another engine changed data. Returns whether another engine committed anything.
    """
    judged = [(table, _since(lake, table)) for table in (*TABLES[:-1], *REQUESTS) if table.name in lake.tables]
    for table, commits in judged:
        if commits.refused:
            raise _conflict(lake, table, commits)
    for table, commits in judged:
        if commits.restore_to is not None and table is CHANGES:
            settle_changes(lake)
        elif commits.restore_to is not None:
            _restore(lake, table, commits.restore_to)
    return any(commits.foreign for _, commits in judged)


def mend(lake: WrittenLake, table: Table) -> None:
    """Restores a table to the version that the ledger names, whatever was committed since."""
    commits = _since(lake, table)
    if commits.refused or commits.restore_to is not None:
        delta = lake.tables[table.name]
        version = last_own(lake.path, delta) or 0 if table is LEDGER else lake.versions[table.name]
        if delta.version() < version:
            raise LakeConflict(f"{lake.path}/{table.name}: {commits.refused}: {way_back(lake.path, table.name)}")
        _restore(lake, table, version)


def fit(lake: WrittenLake, table: Table) -> None:
    """Restores the schema and properties of a table whose files will all be replaced."""
    if misfit_of(lake.tables[table.name], table):
        _restore(lake, table, lake.versions[table.name], emptied=True)


def _since(lake: WrittenLake, table: Table) -> CommitsSince:
    """The commits of a table since the ledger's version; of the ledger itself, since jbod's last row."""
    if table is LEDGER:
        delta = lake.tables[table.name]
        return since(lake.path, table, delta, last_own(lake.path, delta) or 0)
    published = lake.versions.get(table.name, len(table.checks))
    if lake.tables.versions[table.name] == published:
        return CommitsSince()
    return since(lake.path, table, lake.tables[table.name], published)


def _conflict(lake: WrittenLake, table: Table, commits: CommitsSince) -> LakeConflict:
    return LakeConflict(
        f"{lake.path}/{table.name}: {commits.refused}: nothing was published; jbod verify shows the "
        "differences, jbod rebuild restores the tables"
    )


def _restore(lake: WrittenLake, table: Table, version: int, *, emptied: bool = False) -> None:
    """Restores a table to a version. ``emptied``: its files do not matter, as the current batch replaces them."""
    delta = lake.tables[table.name]
    properties = CommitProperties(commit_info({PUBLISHED if emptied else RESTORED: str(version)}), max_commit_retries=0)
    try:
        delta.restore(
            version,
            ignore_missing_files=emptied,
            protocol_downgrade_allowed=True,
            commit_properties=properties,
        )
    except DeltaError as problem:
        raise fault_of_disk(lake.path, problem) or LakeConflict(
            f"{lake.path}/{table.name}: cannot be restored to version {version}, which the ledger names "
            f"({problem}): a VACUUM may have removed its files; {way_back(lake.path, table.name)}"
        ) from None
    lake.tables.refresh(table.name)
