"""Contracts: statements about the tables of every lake, whatever the cluster does. The pipeline checks itself by them.

Each row of a contract's SQL breaks the contract. Its only column, the text ``what``, describes the broken row. The SQL
is DuckDB's, and sqlglot can translate it to Spark's. It reads all rows of the published versions: ``T_history`` of
every history table, ``records`` and ``ledger``; and ``lake`` (one row: end_offset, profile, the ids unassigned, lost
and migrating, and complete: whether all records are known), ``slots`` (a row for each replica of each row of
partitions), ``ledger_versions`` (a row for each version that a row of the ledger names) and ``table_versions`` (the
newest version of every table). `run_contracts` runs them without a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jbod_model.errors import UsageError
from jbod_model.ids import ID_TABLES
from pipelines.check.contract import OF_QUORUM, Contract, end_of, key_of, meet, overlap, rows_of, same
from pipelines.lake.delta import open_table, read_parquet
from pipelines.lake.reader import Lake
from pipelines.lake.tables import (
    ASSIGNMENTS,
    BROKERS,
    DERIVED,
    DIRECTORIES,
    HISTORY,
    LEDGER,
    OFFLINE_REPLICAS,
    PARTITIONS,
    RECORDS,
    Table,
)

# RULES THAT SEVERAL TABLES HAVE


def _keys_are_complete(table: Table) -> str:
    nulls = " OR ".join(f"t.{name} IS NULL" for name in table.key)
    return f"SELECT {key_of(table)} FROM {rows_of(table)} t WHERE {nulls}"


def _keys_are_unique(table: Table) -> str:
    return f"SELECT {key_of(table)} FROM {rows_of(table)} t GROUP BY {', '.join(table.key)} HAVING count(*) > 1"


def _intervals_are_ordered(table: Table) -> str:
    return f"""
        SELECT {key_of(table, "to_offset")} FROM {rows_of(table)} t CROSS JOIN lake
        WHERE t.to_offset <= t.from_offset OR t.from_offset >= lake.end_offset OR t.to_offset >= lake.end_offset
           OR (t.to_offset IS NULL) <> (t.to_time IS NULL)
    """


def _intervals_do_not_overlap(table: Table) -> str:
    subject = ", ".join(name for name in table.key if name != "from_offset")
    return f"""
        WITH t AS (
            SELECT {", ".join(table.key)}, to_offset,
                   lead(from_offset) OVER (PARTITION BY {subject} ORDER BY from_offset, to_offset) AS next_offset
            FROM {rows_of(table)}
        )
        SELECT {key_of(table, "to_offset", "next_offset")} FROM t
        WHERE next_offset IS NOT NULL AND (to_offset IS NULL OR to_offset > next_offset)
    """


def _causes_are_records(table: Table) -> str:
    return f"""
        SELECT {key_of(table, "to_offset")} FROM {rows_of(table)} t
        WHERE NOT EXISTS (SELECT 1 FROM records r WHERE r.log_offset = t.from_offset)
           OR (t.to_offset IS NOT NULL AND NOT EXISTS (SELECT 1 FROM records r WHERE r.log_offset = t.to_offset))
    """


# 16 bytes are 22 characters. The last one carries two bits.
_ID = "[A-Za-z0-9_-]{21}[AQgw]"
_ID_COLUMNS = {
    "brokers": ("incarnation_id", "array_to_string(t.log_dirs, ' ')"),
    "directories": ("directory_id",),
    "partitions": ("topic_id", "array_to_string(t.directories, ' ')"),
    "assignments": ("topic_id", "directory_id"),
    "offline_replicas": ("topic_id", "directory_id"),
    "controllers": ("incarnation_id",),
    "voters": ("directory_id",),
}


def _ids_are_base64(table: Table) -> str:
    columns = (name if "(" in name else f"t.{name}" for name in _ID_COLUMNS[table.name])
    wrong = " OR ".join(f"NOT regexp_matches({column}, '^({_ID}( |$))*$')" for column in columns)
    return f"SELECT {key_of(table)} FROM {rows_of(table)} t WHERE {wrong}"


# RULES OF ONE TABLE

_LIFE_HAS_NO_GAP = f"""
    WITH t AS (
        SELECT topic_id, partition, from_offset, to_offset,
               lead(from_offset) OVER (PARTITION BY topic_id, partition ORDER BY from_offset, to_offset) AS next_offset
        FROM partitions_history
    )
    SELECT {key_of(PARTITIONS, "to_offset", "next_offset")} FROM t WHERE next_offset > to_offset
"""

_A_DIRECTORY_PER_REPLICA = f"""
    SELECT {key_of(PARTITIONS)} FROM partitions_history t WHERE array_length(t.directories) <> array_length(t.replicas)
"""

_ONE_ID_PER_NAME = f"""
    WITH names AS (
        SELECT topic FROM partitions_history WHERE to_offset IS NULL GROUP BY topic HAVING count(DISTINCT topic_id) > 1
    ), ids AS (
        SELECT topic_id FROM partitions_history GROUP BY topic_id HAVING count(DISTINCT topic) > 1
    )
    SELECT {key_of(PARTITIONS)} FROM partitions_history t
    WHERE t.topic_id IN (SELECT topic_id FROM ids)
       OR (t.to_offset IS NULL AND t.topic IN (SELECT topic FROM names))
"""

_RESERVED_IDS_HAVE_THEIR_KIND = f"""
    SELECT {key_of(ASSIGNMENTS, "kind")} FROM assignments_history t CROSS JOIN lake
    WHERE t.kind <> CASE t.directory_id WHEN lake.unassigned THEN 'unassigned' WHEN lake.lost THEN 'lost'
                                        WHEN lake.migrating THEN 'migrating' ELSE 'assigned' END
"""

_REPLICA = "topic_id partition replica_index broker_id directory_id"


def _gaps(
    rows: str, key: str, what: str, others: str, on: str, *, parts: str = "", times: str = "1", before: str = ""
) -> str:
    """SQL: the rows ``t`` that ``others`` do not tell, each ``times``, at all their offsets.

    ``key``: the columns that identify a row. ``what``: the columns to show. ``on``: which of ``others``, named ``o``,
    tell which ``parts`` of a row; without parts, it is told as a whole. ``before``: the common table expressions that
    make them.
    """
    columns = ", ".join(f"t.{name}" for name in key.split())
    return f"""
        WITH {before} told AS (
            SELECT {columns}, sum({overlap("t", "o")}) AS offsets
            FROM {parts or rows} t CROSS JOIN lake JOIN {others} o ON {on} AND {meet("t", "o")}
            GROUP BY {columns}
        )
        SELECT {what} FROM {rows} t CROSS JOIN lake LEFT JOIN told ON {same(key, "told", "t")}
        WHERE coalesce(told.offsets, 0) <> {times} * ({end_of("t")} - t.from_offset)
    """


_SLOT = "topic_id partition replica_index from_offset"

_ASSIGNMENTS_ARE_WHAT_PARTITIONS_SAY = _gaps(
    "assignments_history", _SLOT, key_of(ASSIGNMENTS, "broker_id", "directory_id"), "slots", same(_REPLICA, "t", "o")
)
_PARTITIONS_HAVE_THEIR_ASSIGNMENTS = _gaps(
    "partitions_history",
    "topic_id partition from_offset",
    key_of(PARTITIONS),
    "assignments_history",
    same(_REPLICA, "t", "o"),
    parts="slots",
    times="array_length(t.replicas)",
)
_DIRECTORIES_ARE_LISTED_BY_BROKERS = _gaps(
    "directories_history",
    "broker_id directory_id from_offset",
    key_of(DIRECTORIES),
    "brokers_history",
    "o.broker_id = t.broker_id AND list_contains(o.log_dirs, t.directory_id)",
)
_BROKERS_HAVE_THEIR_DIRECTORIES = _gaps(
    "brokers_history",
    "broker_id from_offset",
    key_of(BROKERS),
    "directories_history",
    "o.broker_id = t.broker_id AND list_contains(t.log_dirs, o.directory_id)",
    times="array_length(array_distinct(t.log_dirs))",
)

# When and why each replica was offline, from assignments and registrations only (R-OFF-4, R-OFF-8; Kafka's
# DirectoryId#isOnline). A broker's timeline is its registrations, and its absence between, before and after them.
_DERIVED = f"""
    ends AS (
        SELECT broker_id, from_offset, {end_of("b")} AS to_offset FROM brokers_history b CROSS JOIN lake
        UNION ALL
        SELECT DISTINCT broker_id, end_offset, end_offset FROM assignments_history CROSS JOIN lake
    ), absent AS (
        SELECT broker_id, from_offset AS to_offset, coalesce(lag(to_offset)
               OVER (PARTITION BY broker_id ORDER BY from_offset, to_offset), -1) AS from_offset
        FROM ends
    ), life AS (
        SELECT broker_id, from_offset, to_offset, fenced, log_dirs, FALSE AS missing FROM brokers_history
        UNION ALL
        SELECT broker_id, from_offset, to_offset, FALSE, NULL, TRUE FROM absent WHERE from_offset < to_offset
    ), judged AS (
        SELECT a.topic_id, a.partition, a.replica_index, a.broker_id, a.directory_id,
               greatest(a.from_offset, b.from_offset) AS from_offset, least({end_of("a")}, {end_of("b")}) AS to_offset,
               CASE WHEN b.missing THEN 'broker missing'
                    WHEN b.fenced THEN 'broker fenced'
                    WHEN list_contains(b.log_dirs, a.directory_id) THEN 'online'
                    WHEN a.directory_id = lake.lost THEN 'directory lost'
                    WHEN lake.profile <> 'kafka' AND array_length(b.log_dirs) <= 1 THEN 'online'
                    WHEN lake.profile <> 'kafka' THEN 'directory offline'
                    WHEN a.directory_id IN (lake.unassigned, lake.migrating) THEN 'online'
                    WHEN array_length(b.log_dirs) = 0 THEN 'online'
                    ELSE 'directory offline' END AS reason
        FROM assignments_history a CROSS JOIN lake JOIN life b ON b.broker_id = a.broker_id AND {meet("a", "b")}
    ), derived AS (
        SELECT * FROM judged WHERE reason <> 'online'
    ),
"""

_OFFLINE = key_of(OFFLINE_REPLICAS, "reason")
_SAME = same(_REPLICA + " reason", "t", "o")
_OFFLINE_REPLICAS_ARE_DERIVED = _gaps("offline_replicas_history", _SLOT, _OFFLINE, "derived", _SAME, before=_DERIVED)
_WHAT_IS_DERIVED_IS_THERE = _gaps("derived", _SLOT, _OFFLINE, "offline_replicas_history", _SAME, before=_DERIVED)

_LEDGER_IS_CONTIGUOUS = f"""
    WITH t AS (
        SELECT start_offset, end_offset, from_snapshot, lag(end_offset) OVER (ORDER BY end_offset) AS before
        FROM ledger
    )
    SELECT {key_of(LEDGER, "start_offset", "before")} FROM t
    WHERE end_offset <= start_offset
       OR (from_snapshot IS NULL AND start_offset <> coalesce(before, 0))
       OR from_snapshot <= before OR from_snapshot > end_offset
"""

_VERSIONS_EXIST = f"""
    WITH t AS (
        SELECT v.end_offset, v.table_name, v.version, n.version AS newest,
               lag(v.version) OVER (PARTITION BY v.table_name ORDER BY v.end_offset) AS before
        FROM ledger_versions v LEFT JOIN table_versions n ON n.table_name = v.table_name
    )
    SELECT {key_of(LEDGER, "table_name", "version", "newest")} FROM t
    WHERE newest IS NULL OR version > newest OR version < before
"""

_RECORDS_ARE_COMPLETE = """
    WITH said AS (
        SELECT sum(end_offset - coalesce(from_snapshot, start_offset) - dropped) AS records FROM ledger
    ), t AS (
        SELECT count(DISTINCT log_offset) AS held FROM records WHERE NOT snapshot
    )
    SELECT concat_ws(' ', 'records', said.records, 'held', t.held) AS what FROM said CROSS JOIN t
    WHERE said.records <> t.held
"""


def _for_each(id_: str, title: str, sql: Callable[[Table], str], *tables: Table) -> Iterator[Contract]:
    for table in tables or HISTORY:
        yield Contract(id_, table.name, title, sql(table))


CONTRACTS: tuple[Contract, ...] = (
    *_for_each("C-01", "no column of the key is null", _keys_are_complete),
    *_for_each("C-02", "no two rows have the same key", _keys_are_unique),
    *_for_each("C-03", "an interval ends after it begins, and by the end of the lake", _intervals_are_ordered),
    *_for_each("C-04", "the intervals of one subject do not overlap", _intervals_do_not_overlap),
    *_for_each("C-05", "records of the lake began and ended each interval", _causes_are_records),
    *_for_each("C-06", "ids are 16 bytes as 22 characters of base64", _ids_are_base64),
    Contract("C-07", "partitions", "a partition is there from its first row to its last", _LIFE_HAS_NO_GAP),
    Contract("C-08", "partitions", "there is a directory for each replica", _A_DIRECTORY_PER_REPLICA),
    Contract("C-09", "partitions", "a topic has one name, and a name one topic", _ONE_ID_PER_NAME),
    Contract("C-10", "partitions", "every replica has its assignment", _PARTITIONS_HAVE_THEIR_ASSIGNMENTS),
    Contract("C-11", "assignments", "partitions say the same", _ASSIGNMENTS_ARE_WHAT_PARTITIONS_SAY),
    Contract("C-12", "assignments", "reserved ids have their kind", _RESERVED_IDS_HAVE_THEIR_KIND),
    Contract("C-13", "brokers", "every listed directory has its row", _BROKERS_HAVE_THEIR_DIRECTORIES),
    Contract("C-14", "directories", "its broker lists it", _DIRECTORIES_ARE_LISTED_BY_BROKERS),
    Contract("C-15", "offline_replicas", "the rule says so too", _OFFLINE_REPLICAS_ARE_DERIVED),
    Contract("C-16", "offline_replicas", "what the rule says is there", _WHAT_IS_DERIVED_IS_THERE),
    Contract("C-17", "ledger", "each range begins where the one before ends", _LEDGER_IS_CONTIGUOUS),
    Contract("C-18", "ledger", "the versions it names exist", _VERSIONS_EXIST),
    Contract("C-19", "ledger", "the records of its ranges are there", _RECORDS_ARE_COMPLETE),
    *OF_QUORUM,
)


TABLE_VERSIONS = (RECORDS, *DERIVED)
SLOTS = """
    SELECT topic_id, partition, from_offset, to_offset, generate_subscripts(replicas, 1) - 1 AS replica_index,
           unnest(replicas) AS broker_id, unnest(directories) AS directory_id
    FROM partitions_history
"""
LEDGER_VERSIONS = """
    SELECT end_offset, entry.key AS table_name, entry.value AS version
    FROM (SELECT end_offset, unnest(map_entries(versions)) AS entry FROM ledger)
"""


@dataclass(frozen=True)
class Broken:
    """A row that breaks a contract."""

    contract: Contract
    what: str
    """The key of the row and other columns that describe it, as ``name value name value``."""


def chosen_contracts(only: Sequence[str] = ()) -> tuple[Contract, ...]:
    """The contracts with these ids, all if none is given. Raises UsageError for an unknown id."""
    known = {contract.id for contract in CONTRACTS}
    for word in only:
        if word not in known:
            raise UsageError(f"{word}: no such contract: there are {min(known)} to {max(known)}")
    return tuple(contract for contract in CONTRACTS if not only or contract.id in only)


def run_contracts(lake: Lake, only: Sequence[str] = ()) -> list[Broken]:
    """The rows that break the contracts (all, or those with these ids), in the order of the contracts."""
    contracts = chosen_contracts(only)
    _make_views(lake)
    return [Broken(contract, what) for contract in contracts for (what,) in lake.query(f"{contract.sql} ORDER BY what")]


def make_tables_of_contracts(lake: Lake) -> None:
    """Makes ``lake``, and ``table_versions``: the newest versions, published or not."""
    ids, published = ID_TABLES[lake.published.ids], lake.published
    columns = (
        "end_offset BIGINT, profile VARCHAR, complete BOOLEAN, unassigned VARCHAR, lost VARCHAR, migrating VARCHAR"
    )
    reserved = (str(kind) for kind in (ids.unassigned, ids.lost, ids.migrating))
    lake.make("lake", columns, [(published.end_offset, published.profile, not published.unknown, *reserved)])
    newest = [(table.name, open_table(lake.path, table.name, None).version()) for table in TABLE_VERSIONS]
    lake.make("table_versions", "table_name VARCHAR, version BIGINT", newest)


def _make_views(lake: Lake) -> None:
    make_tables_of_contracts(lake)
    for table in (RECORDS, *HISTORY, LEDGER):
        rows = read_parquet(lake.path, table.name, lake.tables[table.name])
        lake.query(f"CREATE OR REPLACE TEMP VIEW {rows_of(table)} AS FROM {rows}")
    lake.query(f"CREATE OR REPLACE TEMP VIEW slots AS {SLOTS}")
    lake.query(f"CREATE OR REPLACE TEMP VIEW ledger_versions AS {LEDGER_VERSIONS}")
