"""Format 3: the tables ``changes``, ``controllers`` and ``voters``, which follow from the records.

The records are folded again, as by a rebuild, and only the new tables are written. Readers see them once a row of the
ledger names them. That row also names the records that were not known when they were published (R-REC-4): an earlier
jbod may have kept such records without marking the lake. The descriptions of the history tables then say that a stream
reads ``changes`` instead. The checkpoint is discarded, as its states lack the quorum.
"""

from __future__ import annotations

from dataclasses import replace

from deltalake import CommitProperties, DeltaTable

from pipelines.lake.changes import rebuild_changes
from pipelines.lake.commit import commit_files, live_files
from pipelines.lake.create import Identity, create_table, described
from pipelines.lake.foreign import PUBLISHED, REWRITTEN, commit_info
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import CHANGES, CONTROLLERS, HISTORY, RECORDS, VOTERS
from pipelines.replay.seed import discard_checkpoint
from pipelines.upkeep.known_again import unknown_in
from pipelines.upkeep.partitioning import open_old
from pipelines.upkeep.rebuild import recompute

ADDED = (CONTROLLERS, VOTERS, CHANGES)


def add_derived(location: str) -> None:
    """Converts a lake of format 2 to format 3, or completes the conversion."""
    said = described(location)
    lake = LakeWriter(location, Identity(*(said[name] for name in ("cluster_id", "profile", "ids", "shards"))))
    open_old(lake)
    for table in ADDED:
        if table.name not in lake.tables:
            lake.tables[table.name] = create_table(f"{location}/{table.name}", table, lake.identity)
    discard_checkpoint(location)
    # An earlier jbod that ran after a conversion that died named the new tables, too, but not their rows.
    if lake.ledger is None or CHANGES.name in dict(lake.ledger["rows"]):
        return
    newest = lake.tables[RECORDS.name]
    lake.tables[RECORDS.name] = DeltaTable(newest.table_uri, version=lake.ledger["versions"][RECORDS.name])
    made = recompute(lake, lake.end_offset, location, tables=ADDED)
    versions = dict(lake.ledger["versions"])
    for table in ADDED:
        delta = lake.tables[table.name]
        there = live_files(delta)
        if table is CHANGES and there:
            rebuild_changes(lake, made[table.name])
        elif made[table.name] or there:
            marks = {PUBLISHED: str(lake.end_offset)}
            commit_files(location, table, delta, made[table.name], there, marks=marks)
        versions[table.name] = delta.version()
    for table in HISTORY:
        delta = lake.tables[table.name]
        if delta.metadata().description != table.comment:
            info = commit_info({REWRITTEN: "true"}, "changed the table's description")
            delta.alter.set_table_description(table.comment, commit_properties=CommitProperties(info))
            delta.update_incremental()
    rows = {name: sum(file.rows for file in files) for name, files in made.items()}
    lake.append_ledger(replace(lake.here(), unknown=unknown_in(lake)), versions, rows)
