"""The logs of a lake's tables on S3, kept in a local folder of this process: delta-rs reads them there.

delta-rs lists a table's log to open it and reads every commit twice. The head of the lake (pipelines.lake.head) holds
the commits of every table since its checkpoint, so a process reads the head, the checkpoints, and what was committed
since the head was written. Commits never change, so an old head only means that more commits are read one by one. A
commit is new if its object is there: a request for each commit, and one that finds nothing.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from pipelines.lake.uris import commit_name, commit_path
from pipelines.storage import objects

PARTS = ("last", "checkpoint", "first", "commits")
"""The parts of a tail: the pointer to the checkpoint, the checkpoint if it is small, the version of the first commit
after it, and the commits."""
SMALL_CHECKPOINT = 48 << 10
"""Bytes of a checkpoint up to which the head holds it."""
RETENTION = timedelta(days=30)
"""How long Delta keeps commits, unless a property of the table says otherwise."""
_LAST = "_last_checkpoint"
_lock = threading.RLock()
_logs: dict[str, TableLog] = {}
"""The logs of this process, by the URI of their table."""
_tails: dict[str, Mapping[str, Any]] = {}
"""What the newest head says of the log of a table, by the table's URI."""
_made: dict[str, str] = {}
"""The id of the ledger of each lake: a lake that was made again has another."""
_folders: dict[int, Path] = {}


class TableLog:
    """The log of one table from its newest checkpoint on, or from its first commit."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.folder = _folder() / uuid.uuid4().hex
        self._log = self.folder / "_delta_log"
        self._log.mkdir(parents=True)
        self.checkpoint = -1
        """The version of the newest checkpoint, -1 if there is none."""
        self.first = 0
        """The first version that can be opened."""
        self.last = -1
        """The newest version that is known."""

    def begin(self, tail: Mapping[str, Any] | None) -> bool:
        """Reads the checkpoint, and the commits of a tail of the head. Returns False if delta-rs must read the log."""
        said = tail["last"] if tail else self._pointer()
        if said:
            found = json.loads(said)
            version = found.get("version") if isinstance(found, dict) else None
            if not isinstance(version, int) or "parts" in found or "v2Checkpoint" in found:
                return False
            try:
                content = self._checkpoint_of(version, tail)
            except FileNotFoundError:
                return False
            self._keep(f"{version:020d}.checkpoint.parquet", content)
            self._keep(_LAST, said.encode())
            self.checkpoint = self.first = self.last = version
        self.extend(tail)
        if self.last < 0:
            self.advance()
        return self.last >= 0

    def extend(self, tail: Mapping[str, Any] | None) -> None:
        """Takes the commits of a tail that are not known yet."""
        for version, commit in enumerate(tail["commits"], tail["first"]) if tail else ():
            if version == self.last + 1:
                self.add(version, commit.encode())

    def add(self, version: int, content: bytes) -> None:
        """Takes a commit."""
        self._keep(commit_name(version), content)
        self.last = max(self.last, version)

    def advance(self, until: int | None = None) -> None:
        """Reads the commits up to ``until``, or all that are there."""
        while until is None or self.last < until:
            try:
                content = objects.get(commit_path(self.location, self.last + 1))
            except FileNotFoundError:
                return
            self.add(self.last + 1, content)

    def commit(self, version: int) -> bytes | None:
        """The content of a commit, None if it was not read."""
        try:
            return (self._log / commit_name(version)).read_bytes()
        except FileNotFoundError:
            return None

    def tail(self) -> Mapping[str, Any]:
        """What the head holds of this log."""
        first = self.checkpoint + 1
        known = [self.commit(version) for version in range(first, self.last + 1)]
        pointer, small = None, None
        if self.checkpoint >= 0:
            pointer = (self._log / _LAST).read_text()
            path = self._log / f"{self.checkpoint:020d}.checkpoint.parquet"
            if path.stat().st_size <= SMALL_CHECKPOINT:
                small = base64.b64encode(path.read_bytes()).decode()
        commits = [(one or b"").decode() for one in known]
        return {"last": pointer, "checkpoint": small, "first": first, "commits": commits}

    def put_checkpoint(self, version: int) -> None:
        """Writes the checkpoint that delta-rs made of a version to S3, then the pointer to it."""
        name = f"{version:020d}.checkpoint.parquet"
        for one in (name, _LAST):
            objects.put(f"{self.location}/_delta_log/{one}", (self._log / one).read_bytes())
        self.checkpoint = version

    def _checkpoint_of(self, version: int, tail: Mapping[str, Any] | None) -> bytes:
        if tail and tail["checkpoint"]:
            return base64.b64decode(tail["checkpoint"])
        return objects.get(f"{self.location}/_delta_log/{version:020d}.checkpoint.parquet")

    def _pointer(self) -> str | None:
        try:
            return objects.get(f"{self.location}/_delta_log/{_LAST}").decode()
        except FileNotFoundError:
            return None

    def _keep(self, name: str, content: bytes) -> None:
        path = self._log / f".{name}"
        path.write_bytes(content)
        path.replace(self._log / name)


class ObjectTable(DeltaTable):
    """A table on S3 whose log is in a local folder. What reads or writes data, or changes the table, is delta-rs' own.

    Adding files is not: pipelines.lake.object_commit puts commits.
    """

    def __init__(self, log: TableLog, version: int) -> None:
        super().__init__(log.folder.as_uri(), version=version)
        self.log = log

    @property
    def table_uri(self) -> str:
        """The table's URI on S3."""
        return self.log.location

    def update_incremental(self) -> None:
        """Opens the newest version: a request for each new commit, and one that finds none."""
        with _lock:
            self.log.advance()
        super().update_incremental()

    def take(self, version: int, content: bytes) -> None:
        """Opens a version that this process committed, and the later ones that are known. Makes no request."""
        with _lock:
            self.log.add(version, content)
        super().update_incremental()

    def create_checkpoint(self) -> None:
        """Writes a checkpoint of the open version: two requests."""
        super().create_checkpoint()
        with _lock:
            self.log.put_checkpoint(self.version())

    def cleanup_metadata(self) -> None:
        """Deletes commits that the table no longer keeps, by delta-rs on S3, if a listing shows old ones."""
        before = datetime.now(UTC) - RETENTION
        if any(one["last_modified"] < before for one in objects.listed(f"{self.table_uri}/_delta_log")):
            self._there().cleanup_metadata()

    def restore(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Restores an earlier version, by delta-rs on S3."""
        return self._there().restore(*arguments, **options)

    @property
    def alter(self) -> Any:
        """Changes the table, by delta-rs on S3."""
        return self._there().alter

    @property
    def optimize(self) -> Any:
        """Merges files, by delta-rs on S3."""
        return self._there().optimize

    def to_pyarrow_dataset(self, *arguments: Any, **options: Any) -> Any:
        """The rows of the open version: of a table without partitions in memory, a request for each file."""
        if self.metadata().partition_columns:
            return self._there(self.version()).to_pyarrow_dataset(*arguments, **options)
        import pyarrow.dataset as pads

        from pipelines.lake import files
        from pipelines.lake.tables import BY_NAME

        lake, _, name = self.table_uri.rpartition("/")
        paths = [str(path) for path in self.get_add_actions().column("path").to_pylist()]
        return pads.dataset(files.read(lake, BY_NAME[name], paths))

    def _there(self, version: int | None = None) -> DeltaTable:
        options = objects.storage_options(self.table_uri)
        return DeltaTable(self.table_uri, version=version, storage_options=options)


def open_on_s3(location: str, version: int | None) -> DeltaTable:
    """The table at a URI at its newest version or at ``version``. Raises delta-rs' errors."""
    with _lock:
        log = _logs.get(location)
        if log is None:
            log = TableLog(location)
            if log.begin(_tails.get(location)):
                _logs[location] = log
            else:
                shutil.rmtree(log.folder)
                log = None
        if log is not None:
            log.advance(version)
            wanted = log.last if version is None else version
            if log.first <= wanted <= log.last:
                return ObjectTable(log, wanted)
    return DeltaTable(location, version=version, storage_options=objects.storage_options(location))


def kept_log(delta: DeltaTable, location: str) -> DeltaTable:
    """A table that delta-rs made on S3, with its log kept here; any other table as it is."""
    made = objects.is_object(location) and not isinstance(delta, ObjectTable)
    return open_on_s3(location, None) if made else delta


def commit_of(location: str, version: int) -> bytes | None:
    """The content of a commit of the table at a URI, None if its object is gone."""
    log = _logs.get(location)
    known = None if log is None else log.commit(version)
    if known is not None:
        return known
    try:
        return objects.get(commit_path(location, version))
    except FileNotFoundError:
        return None


def take_tails(lake: str, made: str | None, tails: Mapping[str, Mapping[str, Any]]) -> None:
    """Takes what the head of a lake says of its tables' logs. ``made``: the id of its ledger.

    Forgets what this process knows of another lake that was there before, or of one whose head does not say.
    """
    with _lock:
        if made is None or _made.get(lake) != made:
            forget(lake)
        if made is not None:
            _made[lake] = made
        for table, tail in tails.items():
            location = f"{lake}/{table}"
            _tails[location] = tail
            if location in _logs:
                _logs[location].extend(tail)


def forget(lake: str) -> None:
    """Forgets the logs of a lake."""
    with _lock:
        _made.pop(lake, None)
        for known in (_logs, _tails):
            for location in [one for one in known if one.startswith(f"{lake}/")]:
                del known[location]


def _folder() -> Path:
    process = os.getpid()
    if process not in _folders:
        folder = Path(tempfile.mkdtemp(prefix="jbod-logs-"))
        _folders[process] = folder
        atexit.register(_remove, process, folder)
    return _folders[process]


def _after_fork() -> None:
    """A child process has logs of its own: the parent goes on writing to its folders."""
    global _lock
    _lock = threading.RLock()
    for known in (_logs, _tails, _made):
        known.clear()


os.register_at_fork(after_in_child=_after_fork)


def _remove(process: int, folder: Path) -> None:
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
