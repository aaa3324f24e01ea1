"""A lake as its writer sees it: the newest row of the ledger, the tables, and one commit to one of them.

To open a table, its log is read: dozens of requests on S3. Whether it has a newer version takes one request, because
the name of the next commit follows from the known version. So a table is opened when it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from deltalake import DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from jbod_model.errors import JbodError
from pipelines.lake import FORMAT_VERSION, files
from pipelines.lake.commit import LiveFile, Overtaken, commit_files, live_files
from pipelines.lake.create import Identity, cannot_be_opened, described
from pipelines.lake.delta import delta_at, is_newest
from pipelines.lake.files import DataFile
from pipelines.lake.foreign import PUBLISHED, STARTED, VERSION
from pipelines.lake.head import read_head
from pipelines.lake.tables import BY_NAME, LEDGER, REQUESTS, Table
from pipelines.lake.uris import LakeUri, home_of
from pipelines.storage.objects import is_object


class OpenTables(Mapping[str, DeltaTable]):
    """The tables of a lake by name. ``tables[name]`` raises Overtaken if there is a version after the known one."""

    def __init__(self, lake: LakeUri) -> None:
        self._lake = lake
        self._versions: dict[str, int] = {}
        self._opened: dict[str, DeltaTable] = {}

    def __getitem__(self, name: str) -> DeltaTable:
        version = self._versions[name]
        delta = self._newest(name) if name not in self._opened or self._opened[name].version() < version else None
        delta = delta or self._opened[name]
        if delta.version() != version:
            raise Overtaken(f"{self._lake}/{name}: something else wrote at the same time: run again")
        return delta

    def __setitem__(self, name: str, delta: DeltaTable) -> None:
        self._opened[name] = delta
        self._versions[name] = delta.version()

    def __contains__(self, name: object) -> bool:
        return name in self._versions

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def versions(self) -> Mapping[str, int]:
        """The known version of each table. Opens none."""
        return self._versions

    def note(self, name: str, version: int) -> bool:
        """Takes a version as known if it is the table's newest one. Returns whether it is."""
        newest = is_newest(f"{self._lake}/{name}", version)
        if newest:
            self._versions[name] = version
        return newest

    def handed_over(self) -> OpenTables:
        """The same tables at the same versions. The open ones are with the result: two writers share none."""
        mine = OpenTables(self._lake)
        mine._versions = dict(self._versions)
        mine._opened, self._opened = self._opened, {}
        return mine

    def __getstate__(self) -> dict[str, object]:
        """What another process gets: names and versions. It opens the tables itself."""
        return {"_lake": self._lake, "_versions": self._versions, "_opened": {}}

    def take(self, versions: Mapping[str, int]) -> None:
        """Takes versions as known, which another writer of the same run published."""
        self._versions |= versions

    def committed(self, name: str) -> None:
        """Notes that this process committed the version after the known one."""
        self._versions[name] += 1

    def refresh(self, name: str) -> bool:
        """Looks for a newer version of a table, and takes it as known. Returns whether there was one."""
        known = self._versions[name]
        if is_newest(f"{self._lake}/{name}", known):
            return False
        self._versions[name] = self._newest(name).version()
        return self._versions[name] != known

    def _newest(self, name: str) -> DeltaTable:
        try:
            if name in self._opened:
                self._opened[name].update_incremental()
            else:
                self._opened[name] = delta_at(f"{self._lake}/{name}")
        except (DeltaError, OSError) as problem:
            raise cannot_be_opened(self._lake, BY_NAME[name], problem) from None
        return self._opened[name]


@dataclass
class WrittenLake:
    """The state of a lake that is open for writing."""

    path: LakeUri
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
        self.home = self.home or home_of(self.path)
        self.tables = OpenTables(self.path)

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
        rows = files.read(self.path, LEDGER, wanted)
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
        commit_files(self.path, table, delta, added, gone, marks=marks, changes=changes, transactions=transactions)
        self.tables.committed(table.name)


def newest_head(path: LakeUri) -> dict[str, Any] | None:
    """``identity`` and the ledger's newest ``row`` of a lake, None if a writer must look: there is none, or damage.

    On S3 from the head, on a disk from the ledger. It opens no other table.
    """
    if is_object(path):
        return read_head(path)
    try:
        ledger = delta_at(f"{path}/{LEDGER.name}")
        said = described(path, ledger)
        lake = WrittenLake(path, Identity(*(said[part.name] for part in fields(Identity))))
        lake.tables[LEDGER.name] = ledger
        lake.take_newest_row()
    except (JbodError, DeltaError, OSError, LookupError):
        return None
    if lake.ledger is None or said["format"] != FORMAT_VERSION:
        return None
    return {"identity": said, "row": lake.ledger}
