"""A lake as its writer sees it: how its tables are made and removed, the newest row of the ledger, and one commit.

To open a table, its log is read: dozens of requests on S3. Whether it has a newer version takes one request, because
the name of the next commit follows from the known version. So a table is opened when it is first needed. A commit adds
and removes files only on top of the version that was read before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from shlex import quote
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from jbod_model.errors import JbodError, Retriable, UsageError, first_line_of
from pipelines.lake import FORMAT_VERSION, files
from pipelines.lake.delta import DeltaTables, delta_at, is_newest, local_path, no_lake, refuse_misread
from pipelines.lake.files import DataFile, partition_values
from pipelines.lake.foreign import PUBLISHED, STARTED, VERSION, commit_info, description_of, last_own
from pipelines.lake.ledger import HEAD, read_head
from pipelines.lake.lock import LOCK, RUN, check_held
from pipelines.lake.tables import BY_NAME, CHANGES, LEDGER, OPEN_SHARD, REQUESTS, TABLES, Table, way_back
from pipelines.lake.uris import LakeUri, commit_name, home_of
from pipelines.storage import objects
from pipelines.storage.filesystem import filesystem_of
from pipelines.storage.objects import fault_of_disk, is_object, storage_options

_SHARD = f"partition.{OPEN_SHARD}"


class LakeConflict(JbodError):
    """Another run or engine wrote to the lake, and its changes conflict with this run."""


class Overtaken(LakeConflict, Retriable):
    """Another writer committed between reading a table and committing to it. Read the table again and retry."""


@dataclass(frozen=True)
class LiveFile:
    """A file of a table's version. ``shard``: the shard of its open rows, -1 for closed rows."""

    path: str
    size: int
    shard: int
    statistics: Mapping[str, Any]
    """The statistics by delta-rs' names, such as ``max.to_offset``. An unknown one is missing or None."""

    def is_less(self, bound: str, offset: int) -> bool:
        """Whether a bound is known and below the offset."""
        value = self.statistics.get(bound)
        return value is not None and value < offset


def live_files(delta: DeltaTable, shards: Iterable[int] | None = None) -> list[LiveFile]:
    """The files of a table's version: those of ``shards``, or of all partitions if it is None."""
    actions = pa.table(delta.get_add_actions(flatten=True))
    partitioned = _SHARD in actions.column_names
    if shards is not None:
        wanted = pa.array([*shards], pa.int32())
        if not partitioned or not len(wanted):
            return []
        actions = actions.filter(pc.is_in(actions[_SHARD].cast(pa.int32()), wanted))
    version_files = []
    for row in actions.to_pylist():
        shard = row.get(_SHARD)
        version_files.append(LiveFile(row["path"], row["size_bytes"], -1 if shard is None else int(shard), row))
    return version_files


_CHANGES = "changes"
APPEND_ONLY = {"delta.appendOnly": "true"}
"""Every engine refuses to delete rows of such a table (Delta's protocol). To merge its files is allowed."""
_NAMED = 3
"""The most foreign files that an error names."""


@dataclass(frozen=True)
class Identity:
    """The cluster and rules of a lake. They are fixed when it is created and compared at every run."""

    cluster_id: str
    profile: str
    ids: str
    shards: int


def described(lake: LakeUri, ledger: DeltaTable | None = None) -> dict[str, Any]:
    """Reads the format and the fields of ``Identity`` from the description of the lake's ledger.

    If another engine replaced the description, the previous one counts. Raises UsageError if there is no lake.
    """
    refuse_misread(lake)
    uri = f"{lake}/{LEDGER.name}"
    try:
        ledger = ledger or delta_at(uri)
        description = description_of(ledger)
        if description is None:
            description = description_of(delta_at(uri, last_own(lake, ledger) or 0))
    except (DeltaError, OSError) as problem:
        if fault := fault_of_disk(lake, problem):
            raise fault from None
        if isinstance(problem, TableNotFoundError):
            raise no_lake(lake) from None
        raise UsageError(f"{lake}: its ledger cannot be read ({first_line_of(problem)})") from None
    if description is None:
        raise UsageError(f"{lake}: the description of its ledger, which says what lake it is, is lost")
    return description


def keeps_changes(description: Mapping[str, Any]) -> bool:
    """Whether a lake with this description has rows in ``changes``."""
    return bool(description.get(_CHANGES, True))


def create_table(uri: str, table: Table, identity: Identity, *, changes: bool = True) -> DeltaTable:
    """Creates an empty table with its comments and constraints. The ledger's description holds the identity.

    ``changes``: whether the lake will have rows in the table ``changes``. Its description and the ledger's say so.
    """
    comment = table.comment
    if table is LEDGER:
        comment = json.dumps({"format": FORMAT_VERSION, **vars(identity), **({} if changes else {_CHANGES: False})})
    if table is CHANGES and not changes:
        comment = "Not kept in this lake: replay.changes was off when it was made."
    try:
        delta = DeltaTable.create(
            uri,
            table.delta_schema,
            partition_by=table.partition_by,
            name=table.name,
            description=comment,
            configuration={"delta.enableDeletionVectors": "false"} | (APPEND_ONLY if table is CHANGES else {}),
            storage_options=storage_options(uri),
        )
        add_checks(delta, table)
    except (DeltaError, OSError) as problem:
        raise fault_of_disk(uri, problem) or UsageError(f"{uri}: cannot be created ({problem})") from None
    return delta


def cannot_be_opened(lake: LakeUri, table: Table, problem: Exception) -> JbodError:
    """Returns the error for a table whose log cannot be read. A run that is killed during creation may leave one."""
    if fault := fault_of_disk(lake, problem):
        return fault
    if nothing_published(lake):
        advice = f"nothing was published into this lake yet: delete {quote(lake)} and run again"
    else:
        advice = way_back(lake, table.name)
    return UsageError(f"{lake}/{table.name}: cannot be opened ({first_line_of(problem)}): {advice}")


def nothing_published(lake: LakeUri) -> bool:
    """Whether the ledger, which is created last, is missing or has only its first version."""
    try:
        return delta_at(f"{lake}/{LEDGER.name}").version() == 0
    except TableNotFoundError:
        return True
    except (DeltaError, OSError):
        log = Path(local_path(lake), LEDGER.name, "_delta_log")
        return [path.name for path in log.glob("*.json")] == [commit_name(0)]


def add_checks(delta: DeltaTable, table: Table) -> None:
    """Adds the constraints that a table lacks, one version each."""
    there = delta.metadata().configuration
    for name, expression in table.checks.items():
        if f"delta.constraints.{name}" not in there:
            delta.alter.add_constraint({name: expression})


def check_folder(lake: LakeUri) -> None:
    """Raises UsageError if a folder without a ledger holds files that no replay made.

    Names that begin with ``_`` or ``.`` are ignored: jbod and file systems use them.
    """
    if objects.is_object(lake) and objects.head(f"{lake}/{HEAD}") is not None:
        return
    refuse_misread(lake)
    if Path(lake).is_symlink() and not Path(lake).exists():
        raise UsageError(f"{lake}: is a link to nothing: make the folder that it names, or remove the link")
    parents = [] if "://" in lake else Path(lake).absolute().parents
    if file := next((parent for parent in parents if parent.is_file()), None):
        raise UsageError(f"{lake}: {file} is a file: name a folder with --lake")
    fs, root = filesystem_of(lake)
    info = fs.get_file_info(root)
    if info.type == pafs.FileType.File:
        raise UsageError(f"{lake}: is a file: name a folder with --lake")
    within = [parent for parent in parents if (parent / "_delta_log").is_dir()]
    if within:
        raise UsageError(
            f"{lake}: lies in the Delta table {within[0]}, whose VACUUM would delete it: use another --lake"
        )
    there = [info.base_name for info in fs.get_file_info(pafs.FileSelector(root, allow_not_found=True))]
    kafkas = [parent for parent in parents if (parent / "meta.properties").is_file()]
    if kafkas and LEDGER.name not in there:
        raise UsageError(
            f"{lake}: lies in {kafkas[0]}, a directory of Kafka, and a broker does not start with a folder there that "
            "is no partition: use another --lake"
        )
    ours = {table.name for table in (*TABLES, *REQUESTS)}
    foreign = sorted(name for name in there if name not in ours and name[0] not in "._" and name != "lost+found")
    if foreign and LEDGER.name not in there:
        more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
        raise UsageError(
            f"{lake}: is not a lake and is not empty: it holds {', '.join(foreign[:_NAMED])}{more}: use another --lake"
        )


def remove_lake(lake: LakeUri, home: str, more: Sequence[str]) -> None:
    """Removes the tables and locks of a lake, and the folders ``more`` of ``home``, where its checkpoints are."""
    fs, root = filesystem_of(home)
    for name in more:
        if fs.get_file_info(f"{root}/{name}").type == pafs.FileType.Directory:
            fs.delete_dir(f"{root}/{name}")
    fs, root = filesystem_of(lake)
    if objects.is_object(lake):
        # The locks stay: this run still holds one.
        fs.delete_file(f"{root}/{HEAD}")
        for table in TABLES:
            fs.delete_dir(f"{root}/{table.name}")
        return
    for name in (LOCK, RUN):
        if fs.get_file_info(f"{root}/{name}").type == pafs.FileType.File:
            fs.delete_file(f"{root}/{name}")
    for table in TABLES:
        if fs.get_file_info(f"{root}/{table.name}").type == pafs.FileType.Directory:
            fs.delete_dir(f"{root}/{table.name}")
    if not fs.get_file_info(pafs.FileSelector(root, allow_not_found=True)):
        fs.delete_dir(root)


class OpenTables(DeltaTables):
    """The tables of a lake by name. ``tables[name]`` raises Overtaken if there is a version after the known one."""

    def __init__(self, lake: LakeUri) -> None:
        super().__init__(lake, {}, {})

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

    def close(self) -> None:
        """Lets go of the open tables. The next use opens them again."""
        self._opened = {}

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
        ledger_files = live_files(self.tables[LEDGER.name])
        ends = [file.statistics.get("max.end_offset") for file in ledger_files]
        newest = max((end for end in ends if end is not None), default=None)
        wanted = [file.path for file, end in zip(ledger_files, ends, strict=True) if end in (None, newest)]
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
        """Commits one version with these marks (pipelines.lake.foreign). ``changes``: rows change.

        Raises Overtaken if that version exists already, and LakeConflict if Delta refuses the commit for another
        reason.
        """
        delta = self.tables[table.name]
        check_held(self.path)
        now = int(time.time() * 1000)
        where = f"{self.path}/{table.name}"
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, file.partition_values, file.modified or now, changes, file.stats)
            for file in added
        ]
        actions += [
            RemoveAction(file.path, changes, now, file.size, partition_values(table.name, file.shard)) for file in gone
        ]
        properties = CommitProperties(commit_info(marks), max_commit_retries=0, app_transactions=list(transactions))
        # On S3 the writer of the lake decides about checkpoints, and ``jbod optimize`` deletes old commits.
        hooks = PostCommitHookProperties(False, False) if is_object(self.path) else None
        try:
            delta.create_write_transaction(
                actions,
                "append",
                table.delta_schema,
                partition_by=table.partition_by,
                commit_properties=properties,
                post_commithook_properties=hooks,
            )
        except DeltaError as problem:
            disk = fault_of_disk(self.path, problem)
            if disk is not None:
                raise disk from None
            if delta_at(where).version() != delta.version():
                raise Overtaken(f"{where}: something else wrote at the same time: run again") from None
            raise LakeConflict(f"{where}: cannot be written to ({problem})") from None
        self.tables.committed(table.name)


def newest_head(path: LakeUri) -> dict[str, Any] | None:
    """``identity`` and the ledger's newest ``row`` of a lake, None if a writer must look: there is none, or damage.

    On S3 from the head, on a disk from the ledger. It opens no other table.
    """
    if is_object(path):
        return read_head(path)
    try:
        ledger = delta_at(f"{path}/{LEDGER.name}")
        description = described(path, ledger)
        lake = WrittenLake(path, Identity(*(description[part.name] for part in fields(Identity))))
        lake.tables[LEDGER.name] = ledger
        lake.take_newest_row()
    except (JbodError, DeltaError, OSError, LookupError):
        return None
    if lake.ledger is None or description["format"] != FORMAT_VERSION:
        return None
    return {"identity": description, "row": lake.ledger}
