"""Compares the tables of a lake with the ledger: undoes what a dead run left, and refuses data of other engines."""

from __future__ import annotations

from deltalake import CommitProperties
from deltalake.exceptions import DeltaError

from pipelines.lake.changes import settle_changes
from pipelines.lake.commit import LakeConflict
from pipelines.lake.foreign import PUBLISHED, RESTORED, CommitsSince, commit_info, last_own, misfit_of, since
from pipelines.lake.tables import CHANGES, LEDGER, REQUESTS, TABLES, Table
from pipelines.lake.written_lake import WrittenLake
from pipelines.storage.objects import fault_of_disk


def read_ledger(lake: WrittenLake) -> None:
    """Reads the ledger's newest row. Raises LakeConflict if another engine changed the ledger."""
    found = _since(lake, LEDGER)
    if found.refused:
        raise _conflict(lake, LEDGER, found)
    lake.take_newest_row()


def compare(lake: WrittenLake) -> bool:
    """Compares every table with the ledger, then undoes the commits of a batch that did not reach it.

    Raises LakeConflict if another engine changed data. Returns whether another engine committed anything.
    """
    judged = [(table, _since(lake, table)) for table in (*TABLES[:-1], *REQUESTS) if table.name in lake.tables]
    for table, found in judged:
        if found.refused:
            raise _conflict(lake, table, found)
    for table, found in judged:
        if found.restore_to is not None and table is CHANGES:
            settle_changes(lake)
        elif found.restore_to is not None:
            _restore(lake, table, found.restore_to)
    return any(found.foreign for _, found in judged)


def mend(lake: WrittenLake, table: Table) -> None:
    """Restores a table to the version that the ledger names, whatever was committed since."""
    found = _since(lake, table)
    if found.refused or found.restore_to is not None:
        delta = lake.tables[table.name]
        version = last_own(lake.path, delta) or 0 if table is LEDGER else lake.versions[table.name]
        if delta.version() < version:
            raise _conflict(lake, table, found)
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


def _conflict(lake: WrittenLake, table: Table, found: CommitsSince) -> LakeConflict:
    return LakeConflict(
        f"{lake.path}/{table.name}: {found.refused}: nothing was published; jbod verify shows the "
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
            f"({problem}): a VACUUM may have removed its files; jbod rebuild recreates the tables from the records"
        ) from None
    lake.tables.refresh(table.name)
