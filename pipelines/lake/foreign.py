"""The changes of a table since the version that the ledger names, read from Delta's log commit by commit.

jbod marks its commits in their commit info. Every other commit is foreign. A foreign commit is accepted if all its adds
and removes have ``dataChange: false`` (OPTIMIZE, Z-order, VACUUM, a property), because the rows are the same then. It
is refused if it changes data, or changes the schema or protocol in a way that jbod does not support. A RESTORE counts
as the version that it restored, provided that the table now holds the files of that version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pipelines.lake.delta import delta_at
from pipelines.lake.uris import LakeUri, commit_path

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.lake.tables import Table

PUBLISHED = "jbod.end_offset"
"""Marks a commit of a batch. If the table is ahead of the ledger, the batch did not reach the ledger."""
REWRITTEN = "jbod.rewritten"
"""Marks a commit of other files with the same rows."""
REBUILT = "jbod.rebuilt"
"""Marks a commit that rebuilt all files from the records. Earlier commits do not matter."""
RESTORED = "jbod.restored"
"""Marks a commit that restored the version that it names."""
VERSION = "jbod/version"
"""Application id of a transaction. Its version is the last version of the ledger that jbod published."""
_OWN = (PUBLISHED, REWRITTEN, REBUILT, RESTORED)
STARTED = "jbod.start_offset"
"""The first offset of a batch, beside PUBLISHED."""
_LONGEST = 80
# The features of Delta's protocol that the readers (DuckDB on files, deltalake on the log) and the writer support.
_READER_FEATURES = {"timestampNtz", "vacuumProtocolCheck"}
_WRITER_FEATURES = {
    *_READER_FEATURES, "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
}  # fmt: skip
_UNKEPT = {
    "delta.appendOnly": ("false",),
    "delta.columnMapping.mode": ("none",),
    "delta.enableDeletionVectors": ("false",),
    "delta.enableRowTracking": ("false",),
    "delta.enableInCommitTimestamps": ("false",),
    "delta.checkpointPolicy": ("classic",),
}
"""Properties that must have these values."""


@dataclass(frozen=True)
class Commit:
    """A version of a table, as its commit file describes it."""

    version: int
    operation: str
    time: datetime | None
    by: str
    marks: Mapping[str, str] = field(default_factory=dict)
    changes_data: bool = False
    changes_metadata: bool = False
    restores: int | None = None

    def __str__(self) -> str:
        when = "" if self.time is None else f" at {self.time:%Y-%m-%d %H:%M:%S} UTC"
        return f"version {self.version} ({self.operation}{when} by {self.by})"


@dataclass
class CommitsSince:
    """The commits of a table after a version, newest first."""

    foreign: list[Commit] = field(default_factory=list)
    refused: str = ""
    """Why the table does not hold the rows of the ledger's version, empty if it does."""
    restore_to: int | None = None
    """The version before a batch of jbod that did not reach the ledger, None if there is no such batch."""


def commit_info(marks: Mapping[str, str], what: str = "") -> dict[str, str]:
    """The commit info of a commit of jbod: its marks, and what it did as ``userMetadata`` of DESCRIBE HISTORY.

    Without ``what``, the marks say it.
    """
    if what:
        description = f"jbod: {what}"
    elif PUBLISHED in marks and STARTED in marks:
        first, last = int(marks[STARTED]), int(marks[PUBLISHED]) - 1
        description = (
            f"jbod: published offsets {first} to {last}" if first <= last else "jbod: published, no new offsets"
        )
    elif RESTORED in marks or PUBLISHED in marks:
        description = f"jbod: took the table back to version {marks.get(RESTORED, marks.get(PUBLISHED))}"
    elif REBUILT in marks:
        description = "jbod: rebuilt the table from the records"
    else:
        description = "jbod: rewrote files, all rows are the same"
    return {**marks, "userMetadata": description}


def since(lake: LakeUri, table: Table, delta: DeltaTable, published: int) -> CommitsSince:
    """Returns the commits of the table (opened at its newest version) after version ``published``."""
    commits = CommitsSince()
    version = delta.version()
    if version < published:
        commits.refused = f"the ledger names version {published}, but the newest version is {version}"
        return commits
    while version > published:
        commit = read_commit(lake, table.name, version)
        if commit is None:
            commits.refused = f"Delta's log no longer says what version {version} did, and the ledger names {published}"
            return commits
        if REBUILT in commit.marks:
            break
        back = commit.restores
        if back is not None and published <= back < version and _same_files(lake, table.name, version, back):
            if not commit.marks:
                commits.foreign.append(commit)
            version = back
            continue
        if RESTORED in commit.marks:
            commits.refused = f"{commit} took the table back to version {back}, which is no longer there"
        elif PUBLISHED in commit.marks:
            commits.restore_to = version - 1
        elif not commit.marks:
            commits.foreign.append(commit)
            if commit.changes_data and not commits.refused:
                commits.refused = f"{commit} was not written by jbod and changes data"
        version -= 1
    if commits.foreign and not commits.refused and (misfit := _misfit_at(lake, table, delta, commits.restore_to)):
        culprit = next((commit for commit in commits.foreign if commit.changes_metadata), commits.foreign[0])
        commits.refused = f"{culprit} was not written by jbod, and now {misfit}"
    return commits


def last_own(lake: LakeUri, ledger: DeltaTable) -> int | None:
    """The newest version of the ledger that jbod published, None if it published none."""
    newest = read_commit(lake, "ledger", ledger.version())
    if newest is not None and PUBLISHED in newest.marks:
        return newest.version
    return ledger.transaction_version(VERSION)


def read_commit(lake: LakeUri, table: str, version: int) -> Commit | None:
    """Reads a commit from its file in Delta's log. Returns None if the file was cleaned up."""
    actions = _actions(lake, table, version)
    if actions is None:
        return None
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    marks = {name: str(info[name]) for name in _OWN if name in info}
    files = [action.get("add") or action.get("remove") for action in actions]
    stamp = info.get("timestamp")
    parameters = info.get("operationParameters") or {}
    restores = parameters.get("version") if info.get("operation") == "RESTORE" else marks.get(RESTORED)
    return Commit(
        version,
        _plain(info.get("operation", "no operation named")),
        datetime.fromtimestamp(stamp / 1000, UTC) if isinstance(stamp, int) else None,
        _plain(" with ".join(filter(None, (info.get("userName"), info.get("engineInfo")))) or "nobody named"),
        marks,
        any(file.get("dataChange", True) for file in files if file),
        any("metaData" in action or "protocol" in action for action in actions),
        int(str(restores)) if str(restores).isdecimal() else None,
    )


def files_added(lake: LakeUri, table: str, version: int) -> set[str] | None:
    """The paths of the files that a commit added. Returns None if its file was cleaned up."""
    actions = _actions(lake, table, version)
    return None if actions is None else {unquote(action["add"]["path"]) for action in actions if "add" in action}


def _misfit_at(lake: LakeUri, table: Table, delta: DeltaTable, version: int | None) -> str:
    """The same for the version that a rollback would restore, if there is one."""
    from deltalake.exceptions import DeltaError

    try:
        return misfit_of(delta if version is None else delta_at(f"{lake}/{table.name}", version), table)
    except (DeltaError, OSError) as problem:
        return f"version {version}, which must be restored, cannot be opened ({_plain(problem)})"


def misfit_of(delta: DeltaTable, table: Table) -> str:
    """Returns which part of the table's schema, properties or protocol jbod does not support, empty if none."""
    return next(_misfits(delta, table), "")


def _misfits(delta: DeltaTable, table: Table) -> Iterator[str]:
    from deltalake import Schema

    protocol, metadata = delta.protocol(), delta.metadata()
    features = {*(protocol.reader_features or ())} - _READER_FEATURES
    features |= {*(protocol.writer_features or ())} - _WRITER_FEATURES
    if features:
        yield f"the table has features that jbod does not support: {', '.join(sorted(features))}"
    if protocol.min_reader_version == 2 or protocol.min_writer_version in (5, 6):
        yield f"the table needs a writer of version {protocol.min_writer_version}, which jbod does not support"
    for name, values in _UNKEPT.items():
        if (table.name, name) == ("changes", "delta.appendOnly"):
            continue  # jbod only appends to it, whatever the property says
        if metadata.configuration.get(name, values[0]) not in values:
            yield f"the property {name} is {_plain(metadata.configuration[name])}"
    for name in metadata.configuration:
        if name.startswith("delta.constraints.") and name.removeprefix("delta.constraints.") not in table.checks:
            yield f"there is a constraint that jbod does not check: {_plain(name.removeprefix('delta.constraints.'))}"
    if list(metadata.partition_columns) != table.partition_by:
        yield f"the table is partitioned by {', '.join(map(_plain, metadata.partition_columns)) or 'nothing'}"
    if table.name == "ledger" and description_of(delta) is None:
        yield "the description of the ledger, which identifies the lake, has changed"
    wanted = {column.name: column for column in Schema.from_arrow(table.delta_schema).fields}
    there = {column.name: column for column in delta.schema().fields}
    for name in wanted.keys() - there.keys():
        yield f"the column {name} is missing"
    for name, column in there.items():
        if name not in wanted:
            yield f"there is a column {_plain(name)} that jbod does not know"
        elif column.type != wanted[name].type:
            yield f"the column {name} has another type"
        elif (wanted[name].nullable and not column.nullable) or {*column.metadata} - {"comment"}:
            yield f"the column {name} has another rule"


def description_of(ledger: DeltaTable) -> dict[str, Any] | None:
    """The description of a ledger, which identifies the lake; None if another engine changed it."""
    try:
        description: dict[str, Any] = json.loads(ledger.metadata().description or "")
    except ValueError:
        return None
    return description if isinstance(description, dict) and "format" in description else None


def _same_files(lake: LakeUri, table: str, version: int, other: int) -> bool:
    """Whether both versions have the same files."""
    from deltalake.exceptions import DeltaError

    try:
        mine, theirs = (
            set(delta_at(f"{lake}/{table}", at).get_add_actions().column("path").to_pylist()) for at in (version, other)
        )
    except (DeltaError, OSError):
        return False
    return bool(mine == theirs)


def _plain(text: object) -> str:
    """A text by another engine, cut to one short line."""
    words = " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 3] + "..."


def _actions(lake: LakeUri, table: str, version: int) -> list[dict[str, Any]] | None:
    """The actions of a commit, None if its file was cleaned up."""
    path = commit_path(table, version)
    try:
        if "://" in lake:
            from pipelines.storage.filesystem import filesystem_of

            fs, root = filesystem_of(lake)
            with fs.open_input_file(f"{root}/{path}") as source:
                text = bytes(source.read()).decode()
        else:
            text = Path(lake, path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return [json.loads(line) for line in text.splitlines() if line.strip()]
