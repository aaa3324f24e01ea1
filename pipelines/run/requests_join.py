"""Joins requested assignments with the log: which record carried out each of them.

The record of an accepted assignment put its replica into that directory while the request was served, within the
skew of the clocks. Otherwise the assignment existed before, or the log has not reached that time yet. If a record fits
several requests, the first one gets it: the others repeated an assignment that existed.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta

import pyarrow as pa

from pipelines.ask.assignment_requests import request_rows
from pipelines.formats.request_rows import ASSIGNMENTS_SCHEMA
from pipelines.lake.delta import data_files, read_parquet
from pipelines.lake.reader import Lake
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, REQUEST_REJECTS, TIME

MEMORY = "1GB"
OPEN_SHARD = 0
"""The shard whose file of open rows has the assignments that wait."""
ASKED = pa.schema([*ASSIGNMENTS_SCHEMA, ("attempt", pa.int32()), ("first_requested_time", TIME)])
"""The columns of an assignment before the join with the log."""
_REPLICA = "topic_id, partition, broker_id"
_WANTED = f"{_REPLICA}, directory_id"
_IDENTITY = "connection, correlation_id, answered_time, entry, broker_id"
_ORDER = "requested_time, answered_time, connection, correlation_id, entry"
_BEFORE = f"{_WANTED}, {_ORDER}, error"
_EMPTY = "SELECT *, '' AS outcome, 0 AS realised_offset FROM asked WHERE false"


def unseen(lake: Lake, asked: pa.Table) -> pa.Table:
    """The rows of ``asked`` that the table lacks, each once, with their attempt and the time of the first attempt."""
    lake.connection.register("asked", asked)
    known = request_rows(lake) or f"({_EMPTY})"
    sql = f"""
        WITH bounds AS (SELECT min(answered_time) AS low, max(answered_time) AS high FROM asked),
        known AS (SELECT {_IDENTITY} FROM {known}, bounds WHERE answered_time BETWEEN low AND high),
        new AS (
            SELECT * FROM asked ANTI JOIN known USING ({_IDENTITY})
            QUALIFY row_number() OVER (PARTITION BY {_IDENTITY}) = 1
        ),
        seen AS (
            SELECT {_BEFORE}, true AS is_new FROM new
            UNION ALL SELECT {_BEFORE}, false FROM {known} SEMI JOIN new USING ({_WANTED})
        ),
        runs AS (
            SELECT *, coalesce(lag(error) OVER earlier = 0, true) AS begins
            FROM seen WINDOW earlier AS (PARTITION BY {_WANTED} ORDER BY {_ORDER})
        ),
        numbered AS (
            SELECT *, count(*) FILTER (begins) OVER (PARTITION BY {_WANTED} ORDER BY {_ORDER}) AS run FROM runs
        ),
        attempts AS (
            SELECT {_BEFORE}, is_new,
                   (row_number() OVER (PARTITION BY {_WANTED}, run ORDER BY {_ORDER}))::INTEGER AS attempt,
                   min(requested_time) OVER (PARTITION BY {_WANTED}, run) AS first_requested_time
            FROM numbered
        )
        SELECT new.*, attempt, first_requested_time
        FROM new JOIN (SELECT * FROM attempts WHERE is_new) USING ({_BEFORE})
    """
    return _table(lake, sql).select(ASKED.names).cast(ASKED)


def pending(lake: Lake) -> pa.Table | None:
    """The open rows of the table: assignments that wait for the log. None if there are none."""
    table = lake.tables.get(ASSIGNMENT_REQUESTS.name)
    found = [] if table is None else data_files(table)
    opened = [file["path"] for file in found if file["partition.open_shard"] == OPEN_SHARD]
    if table is None or not opened:
        return None
    known = read_parquet(lake.path, ASSIGNMENT_REQUESTS.name, table, opened)
    return _table(lake, f"SELECT {', '.join(ASKED.names)} FROM {known}").cast(ASKED)


def unread(lake: Lake, rejects: pa.Table) -> pa.Table:
    """The rows of ``rejects`` whose lines are not counted yet. A log that is read twice gives the same lines."""
    table = lake.tables.get(REQUEST_REJECTS.name)
    if table is None or not rejects.num_rows:
        return rejects
    lake.connection.register("rejects", rejects)
    known = read_parquet(lake.path, REQUEST_REJECTS.name, table, [file["path"] for file in data_files(table)])
    sql = f"""
        SELECT r.* FROM rejects r ANTI JOIN {known} k
        ON r.file_id = k.file_id AND r.reason = k.reason AND r.api IS NOT DISTINCT FROM k.api
           AND r.position BETWEEN k.position AND k.last_position
    """
    return _table(lake, sql)


def joined(lake: Lake, asked: pa.Table, skew: timedelta) -> pa.Table:
    """``asked`` with the outcome according to the log of ``lake``, as rows of the table."""
    lake.connection.register("asked", asked)
    micros = f"to_microseconds({skew // timedelta(microseconds=1)})"
    log_time = f"make_timestamptz({int(lake.published.end_time.timestamp() * 1_000_000)})"
    sql = f"""
        WITH a AS (SELECT row_number() OVER () AS id, * FROM asked),
        {_stays(lake)},
        {_found(micros, log_time)},
        {_makers(request_rows(lake) or f"({_EMPTY})")},
        {_answered(lake, micros, log_time)}
        SELECT *, CASE WHEN outcome = 'not in the log' OR (outcome = 'pending' AND topic IS NULL) THEN lacks END AS why,
               CASE WHEN outcome = 'recorded'
                    THEN greatest(date_diff('millisecond', first_requested_time, realised_time), 0) END AS latency_ms
        FROM answered
    """
    return _table(lake, sql).select(ASSIGNMENT_REQUESTS.schema.names).cast(ASSIGNMENT_REQUESTS.schema)


def _stays(lake: Lake) -> str:
    """``slots``: the rows of ``assignments`` of the requested replicas. ``stays``: each stay in a directory."""
    return f"""
        slots AS (
            SELECT {_WANTED}, from_offset, from_time, to_offset, to_time, from_snapshot,
                   lag(directory_id) OVER replica IS DISTINCT FROM directory_id
                   OR lag(to_offset) OVER replica IS DISTINCT FROM from_offset AS begins
            FROM {lake.until("assignments")} SEMI JOIN (SELECT * FROM a WHERE error = 0) USING ({_REPLICA})
            WINDOW replica AS (PARTITION BY {_REPLICA} ORDER BY from_offset)
        ),
        numbered AS (
            SELECT *, count(*) FILTER (begins) OVER (PARTITION BY {_REPLICA} ORDER BY from_offset) AS stay FROM slots
        ),
        stays AS (
            SELECT {_WANTED}, min(from_offset) AS from_offset, min(from_time) AS from_time,
                   arg_min(from_snapshot, from_offset) AS from_snapshot,
                   CASE WHEN count(*) = count(to_time) THEN max(to_time) END AS to_time
            FROM numbered GROUP BY {_WANTED}, stay
        )"""


def _found(micros: str, log_time: str) -> str:
    """``found``: the stay that best fits an accepted assignment. ``micros``: the skew of the clocks."""
    return f"""
        found AS (
            SELECT id, s.from_offset, s.from_time,
                   NOT s.from_snapshot AND s.from_time >= requested_time - {micros} AS made,
                   greatest(s.from_time - answered_time, requested_time - s.from_time, to_microseconds(0)) AS distance,
                   s.from_time < requested_time AND (s.to_time IS NULL OR s.to_time >= answered_time) AS covers
            FROM a JOIN stays s USING ({_WANTED})
            WHERE error = 0 AND s.from_time <= answered_time + {micros}
              -- If the log ends before the answer, a stay that is open at its end may have ended since.
              AND (answered_time <= {log_time} OR s.from_time BETWEEN requested_time AND answered_time)
              AND (s.to_time IS NULL OR s.to_time >= requested_time - {micros})
            QUALIFY row_number() OVER (
                PARTITION BY id ORDER BY distance > to_microseconds(0), NOT covers, distance, s.from_offset
            ) = 1
        )"""


def _makers(known: str) -> str:
    """``makers``: the assignment that each record carried out. ``known``: the rows of the table before this join."""
    return f"""
        taken AS (
            SELECT {_REPLICA}, realised_offset AS from_offset FROM {known} SEMI JOIN a USING ({_REPLICA})
            WHERE outcome = 'recorded'
        ),
        makers AS (
            SELECT id FROM (SELECT * FROM found WHERE made) JOIN a USING (id)
            ANTI JOIN taken USING ({_REPLICA}, from_offset)
            QUALIFY row_number() OVER (
                PARTITION BY {_REPLICA}, from_offset ORDER BY distance > to_microseconds(0), {_ORDER}
            ) = 1
        )"""


def _answered(lake: Lake, micros: str, log_time: str) -> str:
    """``answered``: each assignment with its outcome, its record, and what the log lacks of it."""
    return f"""
        names AS (
            SELECT topic_id, max(topic) AS name FROM {lake.until("partitions")} SEMI JOIN a USING (topic_id)
            GROUP BY topic_id
        ),
        replicas AS (SELECT DISTINCT {_REPLICA}, true AS is_known FROM slots),
        start AS (SELECT min(append_time) AS time FROM {lake.records()}),
        answered AS (
            SELECT a.*, names.name AS topic, f.from_offset AS realised_offset, f.from_time AS realised_time,
                   CASE WHEN error <> 0 THEN 'refused' WHEN m.id IS NOT NULL THEN 'recorded'
                        WHEN f.id IS NOT NULL THEN 'already true'
                        WHEN answered_time + {micros} < {log_time} THEN 'not in the log' ELSE 'pending' END AS outcome,
                   CASE WHEN name IS NULL THEN 'the log has no topic of this id'
                        WHEN answered_time + {micros} < start.time THEN 'the log begins later'
                        WHEN is_known IS NULL THEN 'the log has no such replica'
                        ELSE 'no record says so' END AS lacks
            FROM start, a LEFT JOIN found f USING (id) LEFT JOIN makers m USING (id) LEFT JOIN names USING (topic_id)
            LEFT JOIN replicas USING ({_REPLICA})
        )"""


def _table(lake: Lake, sql: str) -> pa.Table:
    lake.connection.execute(
        f"SET memory_limit = '{MEMORY}'; SET temp_directory = '{tempfile.gettempdir()}'; SET TimeZone = 'UTC'"
    )
    return lake.connection.sql(sql).to_arrow_table()
