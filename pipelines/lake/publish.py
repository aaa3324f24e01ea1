"""Publish a batch: one Delta version per table in a fixed order, the ledger last. Readers see all of it or nothing.

The version of every table that belongs together stands in the ledger. A table found ahead of the ledger was left by
a run that died between two commits: it is taken back to the ledger's version before anything is added. Upkeep rewrites
files between two batches, so a run looks again at what is there before it publishes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from jbod_model.errors import JbodError, UsageError
from pipelines.lake import FORMAT_VERSION
from pipelines.lake.alone import LOCK, RUN, alone
from pipelines.lake.faults import fault_of_disk
from pipelines.lake.files import DataFile, lake_filesystem, open_prefix
from pipelines.lake.tables import HISTORY, LEDGER, RECORDS, REQUESTS, TABLES, Table

_END = "jbod.end_offset"


class LakeConflict(JbodError):
    """Another run wrote to the lake at the same time, or something else rewrote its files."""


@dataclass(frozen=True)
class Batch:
    """What one micro-batch publishes: its range of offsets, the files, and the ledger's other columns."""

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
    """Where the log was found to end, if that is before the lake's end."""


@dataclass(frozen=True)
class Identity:
    """What a lake is a lake of: fixed when it is made, compared at every run."""

    cluster_id: str
    profile: str
    ids: str
    shards: int


@dataclass
class Lake:
    """A lake open for writing."""

    location: str
    identity: Identity
    tables: dict[str, DeltaTable] = field(default_factory=dict)
    ledger: dict[str, Any] | None = None
    made: int = 0
    """How many tables this run created."""

    @classmethod
    def create_or_open(cls, location: str, identity: Identity) -> Lake:
        """Open the lake at ``location``, made if it is not there. UsageError if it is a lake of something else."""
        if "[" in location or "]" in location:
            raise UsageError(f"{location}: delta-rs cannot write to a path with brackets: choose another --lake")
        lake = cls(location, identity)
        with alone(location):
            lake._load(TABLES[:-1])
        return lake

    @classmethod
    @contextmanager
    def held(cls, location: str, trusted: Sequence[Table] = TABLES[:-1]) -> Iterator[Lake]:
        """A lake that something was published into, with nobody else writing to it until the end of the block.

        UsageError where there is none. Tables that are not ``trusted`` may be damaged or ahead of the ledger.
        """
        described = json.loads(read_description(location))
        identity = Identity(*(described[part.name] for part in fields(Identity)))
        with alone(location):
            lake = cls(location, identity)
            lake._load(trusted)
            if lake.ledger is None:
                raise UsageError(f"{location}: nothing was published into this lake yet")
            yield lake

    def _load(self, trusted: Sequence[Table]) -> None:
        self._open(TABLES)
        self._check_identity()
        self.read_ledger()
        self._take_back(trusted)

    def open_requests(self) -> None:
        """Open the tables of the request stream too, made if they are not there."""
        made = self.made
        with alone(self.location):
            self._open(REQUESTS)
            self._take_back(REQUESTS)
        self.made = made

    def _open(self, tables: Sequence[Table]) -> None:
        for table in tables:
            uri = f"{self.location}/{table.name}"
            try:
                self.tables[table.name] = DeltaTable(uri)
            except TableNotFoundError:
                self.tables[table.name] = create_table(uri, table, self.identity)
                self.made += 1
            except (DeltaError, OSError) as problem:
                raise UsageError(f"{uri}: cannot be opened ({problem})") from None
            if self.tables[table.name].version() < len(table.checks):
                # A run that died while it made the table left out some of its constraints.
                add_checks(self.tables[table.name], table)

    @property
    def end_offset(self) -> int:
        """Offset after the last record published, -1 for an empty lake."""
        return -1 if self.ledger is None else int(self.ledger["end_offset"])

    def _check_identity(self) -> None:
        described = json.loads(self.tables[LEDGER.name].metadata().description or "{}")
        version = described.get("format")
        if version != FORMAT_VERSION:
            raise UsageError(
                f"{self.location}: lake of format {version}, this is {FORMAT_VERSION}: jbod upgrade, or a new --lake"
            )
        for name in ("profile", "ids", "cluster_id"):
            mine, theirs = getattr(self.identity, name), described.get(name)
            if mine != theirs and not (name == "cluster_id" and "" in (mine, theirs)):
                raise UsageError(
                    f"{self.location}: lake was made with {name} {theirs!r}, this run has {mine!r}: use another --lake"
                )
        self.identity = Identity(
            self.identity.cluster_id or described["cluster_id"],
            self.identity.profile,
            self.identity.ids,
            described["shards"],
        )

    def read_ledger(self) -> None:
        rows = self.tables[LEDGER.name].to_pyarrow_table()
        rows = rows.sort_by([("end_offset", "ascending"), ("published_time", "ascending")])
        self.ledger = rows.slice(rows.num_rows - 1).to_pylist()[0] if rows.num_rows else None
        if self.ledger is not None:
            self.ledger["versions"] = dict(self.ledger["versions"])

    def _take_back(self, tables: Sequence[Table]) -> None:
        """Undo commits of a batch that never reached the ledger."""
        known = self.ledger["versions"] if self.ledger else {}
        for table in tables:
            delta = self.tables[table.name]
            published = known.get(table.name, len(table.checks))
            ahead = delta.version() - published
            if ahead < 0:
                raise LakeConflict(
                    f"{self.location}: the ledger names version {published} of {table.name}, which is not there: "
                    "restore the table or start a new lake"
                )
            if ahead and any(_END in commit for commit in delta.history(ahead)[:ahead]):
                delta.restore(published)
                delta.update_incremental()

    def discard(self, *more: str) -> None:
        """Remove a lake that this run made and never published to, with the folders ``more``: it was not there."""
        if self.ledger is not None or self.made < len(TABLES):
            return
        fs, root = lake_filesystem(self.location)
        for name in (LOCK, RUN):
            if fs.get_file_info(f"{root}/{name}").type == pafs.FileType.File:
                fs.delete_file(f"{root}/{name}")
        for name in (*(table.name for table in TABLES), *more):
            if fs.get_file_info(f"{root}/{name}").type == pafs.FileType.Directory:
                fs.delete_dir(f"{root}/{name}")
        if not fs.get_file_info(pafs.FileSelector(root, allow_not_found=True)):
            fs.delete_dir(root)

    def publish(self, batch: Batch) -> dict[str, int]:
        """Commit every table, then the ledger. Returns rows written per table; a batch already published is none."""
        if batch.end_offset <= self.end_offset:
            return {}
        with self.writing():
            return self._publish(batch, (RECORDS, *HISTORY))

    def publish_requests(self, files: Sequence[DataFile], replaced: frozenset[tuple[str, int]]) -> dict[str, int]:
        """Commit the tables of the request stream, then a ledger row that names them; the log's tables stay."""
        if self.ledger is None:
            raise UsageError(f"{self.location}: nothing of a log was published yet, so requests cannot be joined to it")
        with self.writing():
            return self._publish(self._here(files, replaced), REQUESTS)

    def publish_rewritten(self) -> None:
        """A ledger row for tables that were rewritten without a change of what they say; the lock is held."""
        known = [table for table in (RECORDS, *HISTORY, *REQUESTS) if table.name in self.tables]
        self._publish(self._here((), frozenset()), known)

    def mark_log_end(self, log_end: int | None) -> None:
        """Say in the ledger that the log ends before the lake does, or that it does so no more (None)."""
        if self.ledger is not None and self.ledger.get("log_end") != log_end:
            with self.writing():
                here = replace(self._here((), frozenset()), log_end=log_end)
                self._append_ledger(here, self.ledger["versions"], {})

    def _here(self, files: Sequence[DataFile], touched: frozenset[tuple[str, int]]) -> Batch:
        """A batch without records, where the lake stands."""
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
        )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nobody else writes until the end of the block, and what upkeep did since the lake was opened is seen."""
        with alone(self.location):
            self._look_again()
            yield

    def _look_again(self) -> None:
        """LakeConflict where another run published."""
        end = self.end_offset
        for delta in self.tables.values():
            delta.update_incremental()
        self.read_ledger()
        if self.end_offset != end:
            raise LakeConflict(
                f"{self.location}: another run published up to offset {self.end_offset - 1} meanwhile: run again, alone"
            )
        self._take_back([table for table in (*TABLES[:-1], *REQUESTS) if table.name in self.tables])

    def _publish(self, batch: Batch, tables: Sequence[Table]) -> dict[str, int]:
        rows: dict[str, int] = {}
        versions: dict[str, int] = dict(self.ledger["versions"]) if self.ledger else {}
        for table in tables:
            files = [file for file in batch.files if file.table == table.name]
            shards = [shard for name, shard in batch.touched if name == table.name]
            self._commit(table, files, shards, batch)
            rows[table.name] = sum(file.rows for file in files)
            versions[table.name] = self.tables[table.name].version()
        self._append_ledger(batch, versions, rows)
        return rows

    def _commit(self, table: Table, files: Sequence[DataFile], shards: Sequence[int], batch: Batch) -> None:
        gone = self._open_files(self.tables[table.name], shards)
        self.commit(table, files, gone, batch.start_offset, batch.end_offset)

    def commit(self, table: Table, files: Sequence[DataFile], gone: Sequence[str], start: int, end: int) -> None:
        """One version of a table: ``files`` added, the files named ``gone`` removed. LakeConflict if not alone."""
        if not files and not gone:
            return
        delta = self.tables[table.name]
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {}, now, True, file.stats) for file in files
        ]
        actions += [RemoveAction(path, True, now) for path in gone]
        application = f"jbod/{self.identity.cluster_id}/{table.name}"
        try:
            delta.create_write_transaction(
                actions,
                "append",
                table.schema,
                commit_properties=CommitProperties(
                    custom_metadata={_END: str(end), "jbod.start_offset": str(start)},
                    max_commit_retries=0,
                    # Rows of requests carry their own identity, and one offset has several commits of them.
                    app_transactions=[] if table in REQUESTS else [Transaction(application, end)],
                ),
            )
        except DeltaError as problem:
            raise fault_of_disk(self.location, problem) or LakeConflict(
                f"{self.location}/{table.name}: another run wrote at the same time ({problem}): run again, alone"
            ) from None
        delta.update_incremental()

    def _open_files(self, delta: DeltaTable, shards: Sequence[int]) -> list[str]:
        prefixes = tuple(open_prefix(shard) for shard in shards)
        if not prefixes:
            return []
        names = [uri.rsplit("/", 1)[1] for uri in delta.file_uris()]
        return [name for name in names if name.startswith(prefixes)]

    def _append_ledger(self, batch: Batch, versions: dict[str, int], rows: dict[str, int]) -> None:
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
            "versions": versions,
            "rows": rows,
        }
        delta = self.tables[LEDGER.name]
        # A lake of an earlier version lacks the newest columns, which are all nullable.
        rows_of_ledger = pa.Table.from_pylist([entry], schema=LEDGER.schema)
        write_deltalake(delta, rows_of_ledger, mode="append", schema_mode="merge")
        delta.update_incremental()
        self.ledger = entry


def read_description(location: str) -> str:
    """What a lake says of itself: JSON of its format and identity. UsageError where there is no lake."""
    try:
        return DeltaTable(f"{location}/{LEDGER.name}").metadata().description or "{}"
    except (DeltaError, OSError) as problem:
        what = str(problem).splitlines()[0]
        raise UsageError(f"{location}: no lake there ({what}): make one with jbod replay LOG_DIR") from None


def create_table(uri: str, table: Table, identity: Identity) -> DeltaTable:
    """Make an empty table with its comments and constraints; the ledger says of itself what lake it belongs to."""
    comment = table.comment
    if table is LEDGER:
        comment = json.dumps({"format": FORMAT_VERSION, **vars(identity)})
    try:
        delta = DeltaTable.create(
            uri,
            table.schema,
            name=table.name,
            description=comment,
            configuration={"delta.enableDeletionVectors": "false"},
        )
        add_checks(delta, table)
    except (DeltaError, OSError) as problem:
        raise fault_of_disk(uri, problem) or UsageError(f"{uri}: cannot be created ({problem})") from None
    return delta


def add_checks(delta: DeltaTable, table: Table) -> None:
    """Give a table those of its constraints that it lacks, one version each."""
    there = delta.metadata().configuration
    for name, expression in table.checks.items():
        if f"delta.constraints.{name}" not in there:
            delta.alter.add_constraint({name: expression})
