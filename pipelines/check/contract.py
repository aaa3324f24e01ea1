"""What a contract is, the pieces of SQL that contracts share, and those of ``controllers`` and ``voters``.

Of these two tables each row follows from a record, and each record has its row. ``pipelines.check.contracts`` lists
them with the others, and says what their SQL may read.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.lake.tables import CONTROLLERS, VOTERS, Table


@dataclass(frozen=True)
class Contract:
    """One rule about one table. If several tables share a rule, they share its id."""

    id: str
    table: str
    title: str
    sql: str

    @property
    def name(self) -> str:
        """``C-04 brokers``"""
        return f"{self.id} {self.table}"


def rows_of(table: Table) -> str:
    """The view with all rows of a table."""
    return f"{table.name}_history" if table.history else table.name


def key_of(table: Table, *more: str) -> str:
    """SQL that names a row ``t`` of a table by its key."""
    columns = (f"'{name}', coalesce(CAST(t.{name} AS VARCHAR), 'null')" for name in (*table.key, *more))
    return f"concat_ws(' ', {', '.join(columns)}) AS what"


def same(columns: str, left: str, right: str) -> str:
    """SQL: two rows are equal in columns, which are separated by blanks."""
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in columns.split())


def end_of(alias: str) -> str:
    """SQL: the offset at which an interval ends. An open interval lasts until the end of the lake."""
    return f"coalesce({alias}.to_offset, lake.end_offset)"


def overlap(left: str, right: str) -> str:
    """SQL: the number of offsets that two intervals share, if they meet."""
    return f"least({end_of(left)}, {end_of(right)}) - greatest({left}.from_offset, {right}.from_offset)"


def meet(left: str, right: str) -> str:
    """SQL: two intervals share an offset."""
    return f"{left}.from_offset < {end_of(right)} AND {right}.from_offset < {end_of(left)}"


_REGISTERED = "REGISTER_CONTROLLER_RECORD"
_ELECTED = "LEADER_CHANGE"
_OF_VOTERS = f"'{_ELECTED}', 'KRAFT_VERSION', 'KRAFT_VOTERS'"


def _ended_by_its_record(ways: dict[str, str]) -> str:
    """SQL: no row ``t`` ended in another way than ``ended_by`` says. ``ways``: the type of record of each way."""
    kinds = " ".join(f"WHEN '{way}' THEN '{kind}'" for way, kind in ways.items())
    return f"""
        (t.to_offset IS NULL) <> (t.ended_by IS NULL)
        OR (t.to_offset IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM records r
            WHERE r.log_offset = t.to_offset
              AND ((t.ended_by = 'resync' AND r.snapshot)
                   OR (NOT r.snapshot AND r.record_type = CASE t.ended_by {kinds} END))
        ))
    """


_FEATURES_HAVE_LEVELS = f"""
    SELECT {key_of(CONTROLLERS)} FROM controllers_history t
    WHERE array_length(t.features) <> array_length(t.lowest_levels)
       OR array_length(t.features) <> array_length(t.highest_levels)
       OR t.features <> list_sort(t.features)
"""

_REGISTRATIONS_ARE_RECORDS = f"""
    SELECT {key_of(CONTROLLERS, "to_offset", "ended_by")} FROM controllers_history t
    WHERE NOT EXISTS (
            SELECT 1 FROM records r
            WHERE r.log_offset = t.from_offset AND r.snapshot = t.from_snapshot AND r.record_type = '{_REGISTERED}'
          )
       OR {_ended_by_its_record({"registered": _REGISTERED, "unregistered": "UNREGISTER_CONTROLLER_RECORD"})}
"""

# A record that jbod did not know (R-REC-4) has no row, so this holds for a complete lake only.
_RECORDS_ARE_REGISTRATIONS = f"""
    SELECT concat_ws(' ', 'log_offset', r.log_offset) AS what
    FROM records r CROSS JOIN lake LEFT JOIN controllers_history t ON t.from_offset = r.log_offset
    WHERE lake.complete AND r.record_type = '{_REGISTERED}' AND NOT r.snapshot AND t.from_offset IS NULL
"""

_VOTERS_ARE_RECORDS = f"""
    SELECT {key_of(VOTERS, "to_offset", "ended_by")} FROM voters_history t
    WHERE NOT EXISTS (
            SELECT 1 FROM records r
            WHERE r.log_offset = t.from_offset AND r.snapshot = t.from_snapshot AND r.record_type IN ({_OF_VOTERS})
          )
       OR {_ended_by_its_record({"election": _ELECTED, "voters": "KRAFT_VOTERS", "kraft version": "KRAFT_VERSION"})}
"""

_RECORDS_ARE_ELECTIONS = f"""
    SELECT concat_ws(' ', 'log_offset', r.log_offset) AS what
    FROM records r CROSS JOIN lake
    LEFT JOIN voters_history t ON t.from_offset = r.log_offset AND t.elected_offset = r.log_offset AND t.role = 'leader'
    WHERE lake.complete AND r.record_type = '{_ELECTED}' AND NOT r.snapshot AND t.from_offset IS NULL
"""

_ROLES_FIT = f"""
    SELECT {key_of(VOTERS, "role")} FROM voters_history t
    WHERE (t.role = 'voter' AND NOT t.voter) OR (t.role = 'observer' AND t.voter)
       OR (t.role = 'leader') <> (t.elected_offset IS NOT NULL)
       OR (t.elected_offset IS NULL) <> (t.elected_time IS NULL)
       OR (t.heard_offset IS NULL) <> (t.heard_time IS NULL)
       OR (t.kraft_lowest IS NULL) <> (t.kraft_highest IS NULL)
       OR greatest(t.role_offset, coalesce(t.elected_offset, 0), coalesce(t.heard_offset, 0)) > t.from_offset
"""

_ONE_LEADER = f"""
    WITH t AS (
        SELECT node_id, from_offset, to_offset, lead(from_offset) OVER (ORDER BY from_offset, to_offset) AS next_offset
        FROM voters_history WHERE role = 'leader'
    )
    SELECT {key_of(VOTERS, "to_offset", "next_offset")} FROM t
    WHERE coalesce(to_offset, -1) <> coalesce(next_offset, -1)
"""

_ONE_KRAFT_VERSION = f"""
    WITH differ AS (
        SELECT from_offset FROM voters_history GROUP BY from_offset HAVING count(DISTINCT kraft_version) > 1
    ), now AS (
        SELECT count(DISTINCT kraft_version) AS versions FROM voters_history WHERE to_offset IS NULL
    )
    SELECT {key_of(VOTERS, "kraft_version")} FROM voters_history t CROSS JOIN now
    WHERE t.from_offset IN (SELECT from_offset FROM differ) OR (t.to_offset IS NULL AND now.versions > 1)
"""

OF_QUORUM: tuple[Contract, ...] = (
    Contract("C-20", "controllers", "every feature has its levels", _FEATURES_HAVE_LEVELS),
    Contract("C-21", "controllers", "registrations began and ended it", _REGISTRATIONS_ARE_RECORDS),
    Contract("C-22", "controllers", "every registration has its row", _RECORDS_ARE_REGISTRATIONS),
    Contract("C-23", "voters", "control records began and ended it", _VOTERS_ARE_RECORDS),
    Contract("C-24", "voters", "every election has its leader", _RECORDS_ARE_ELECTIONS),
    Contract("C-25", "voters", "role, vote and offsets agree", _ROLES_FIT),
    Contract("C-26", "voters", "there is one leader from the first election on", _ONE_LEADER),
    Contract("C-27", "voters", "all nodes name one kraft.version", _ONE_KRAFT_VERSION),
)
