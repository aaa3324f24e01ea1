"""A lake as its writer sees it: the newest row of the ledger, the tables, and one commit to one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalake import Transaction

from pipelines.lake import files
from pipelines.lake.commit import LiveFile, commit_files, live_files
from pipelines.lake.create import Identity
from pipelines.lake.files import DataFile
from pipelines.lake.foreign import PUBLISHED, STARTED, VERSION
from pipelines.lake.open_tables import OpenTables
from pipelines.lake.tables import LEDGER, REQUESTS, Table
from pipelines.lake.uris import home_of


@dataclass
class WrittenLake:
    """The state of a lake that is open for writing."""

    location: str
    identity: Identity
    ledger: dict[str, Any] | None = None
    """The ledger's newest row."""
    keeps_changes: bool = True
    """Whether the table ``changes`` has rows."""
    half: int | None = None
    """The end offset of a batch that ``changes`` has and the ledger not yet."""
    home: str = ""
    """Where the checkpoints of its runs are: the lake, or a folder for a lake on S3."""
    tables: OpenTables = field(init=False)

    def __post_init__(self) -> None:
        self.home = self.home or home_of(self.location)
        self.tables = OpenTables(self.location)

    @property
    def end_offset(self) -> int:
        """Offset after the last record published, -1 for an empty lake."""
        return -1 if self.ledger is None else int(self.ledger["end_offset"])

    @property
    def unknown(self) -> dict[str, int]:
        """The kinds of records that were not known when they were published, each with the offset of the first."""
        return dict((self.ledger or {}).get("unknown_types") or {})

    @property
    def versions(self) -> dict[str, int]:
        """The versions that the ledger names."""
        return self.ledger["versions"] if self.ledger else {}

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

    def take_row(self, row: Mapping[str, Any]) -> None:
        """Takes a row of the ledger, which another writer of the same run published, as the newest one."""
        self.ledger = {**row, "versions": dict(row["versions"])}
        self.tables.take(self.ledger["versions"])

    def commit(self, table: Table, files: Sequence[DataFile], gone: Sequence[LiveFile], start: int, end: int) -> None:
        """Commits one version of a batch: adds ``files``, removes ``gone``.

        Raises LakeConflict if another writer interferes.
        """
        if not files and not gone:
            return
        transactions = []
        if table is LEDGER:
            transactions = [Transaction(VERSION, self.tables.versions[table.name] + 1)]
        elif table not in REQUESTS:
            # Rows of requests identify themselves, and several of their commits share an offset.
            transactions = [Transaction(f"jbod/{self.identity.cluster_id}/{table.name}", end)]
        marks = {PUBLISHED: str(end), STARTED: str(start)}
        self.commit_marked(table, files, gone, marks, transactions=transactions)

    def commit_marked(
        self,
        table: Table,
        added: Sequence[DataFile],
        gone: Sequence[LiveFile],
        marks: Mapping[str, str],
        *,
        changes: bool = True,
        transactions: Sequence[Transaction] = (),
    ) -> None:
        """Commits one version with these marks (pipelines.lake.foreign). ``changes``: rows change."""
        delta = self.tables[table.name]
        commit_files(self.location, table, delta, added, gone, marks=marks, changes=changes, transactions=transactions)
        self.tables.committed(table.name)
