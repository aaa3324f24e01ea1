"""Which partitions can have lost data, in a few queries over the history tables.

In every other partition the members of the in-sync set and the eligible leaders hold every acknowledged write at any
offset (R-LOSS-2, R-LOSS-4), so that nothing is lost. The queries may name too many partitions, but never too few:
``jbod_model.loss.fate`` decides about those. The replay has compared each state with the one before
(``may_follow_loss``); the queries look for directories that left with a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.ask.starting import select_brokers
from pipelines.lake.reader import Lake

FEW_STATES = 1_000
"""With up to this number of states of partitions, to follow all partitions is faster than to select some."""


def candidates(lake: Lake) -> str:
    """SQL: topic_id and partition of the partitions that can have lost data by the lake's offset, or of all if few.

    Creates temporary tables, which the SQL reads. DuckDB knows their size, so it joins a large table to a small one,
    and not the other way round. It does not read the large table if the other one is empty. A join with two columns is
    evaluated after all columns are read, one with a single column before: so the topics alone are compared, too.
    """
    # The large tables stand in each place that reads them. DuckDB would copy all rows of a common table expression.
    partitions, assignments, brokers = lake.scan("partitions"), lake.scan("assignments"), lake.until("brokers")
    if lake.query(f"SELECT count(*) FROM {partitions}")[0][0] <= FEW_STATES:
        return f"SELECT DISTINCT topic_id, partition FROM {partitions}"
    select_brokers(lake)
    _select_left(lake, assignments)
    lake.query(f"CREATE OR REPLACE TEMP TABLE loss_doubtful AS {_doubtful(lake, assignments)}")
    return f"""
        WITH {_placed(partitions)},
             {_unregistered(partitions, brokers)}
        SELECT topic_id, partition FROM {partitions} WHERE may_follow_loss
        UNION SELECT topic_id, partition FROM placed
        UNION SELECT topic_id, partition FROM unregistered
    """


_ENDED_RARELY = "ended_by <> 'assigned'"
"""Most rows of assignments end with a first placement. DuckDB compares one value while it reads, but not a list."""


def _select_left(lake: Lake, assignments: str) -> None:
    """Creates loss_left: the assignments that ended with another directory, and may have ended with the copy.

    Most are first placements. Nothing is recreated while every process of the broker registers with all the directories
    where the copy can lie, wherever it is placed (R-COPY-5). So a first placement is looked at only if a directory of
    its broker left after its first offset (while the broker is fenced, also after its second one, R-COPY-12), or if the
    replica had a directory before (loss_renamed).

    Also creates loss_ends: when directories left, and since when their broker was fenced then.
    """
    lake.query(
        f"""
        CREATE OR REPLACE TEMP TABLE loss_ends AS
        SELECT d.broker_id, d.to_offset AS at_offset,
               coalesce(max(least(coalesce(u.to_offset, d.to_offset), d.to_offset)), 0) AS fenced_since
        FROM {lake.until("directories")} d
        LEFT JOIN loss_brokers_{lake.offset} u
             ON u.broker_id = d.broker_id AND NOT u.undecided AND u.from_offset < d.to_offset
        WHERE d.to_offset IS NOT NULL GROUP BY ALL
        """
    )
    lake.query(
        f"""
        CREATE OR REPLACE TEMP TABLE loss_renamed AS
        SELECT topic_id, partition, broker_id, min(to_offset) AS first_end FROM {assignments}
        WHERE {_ENDED_RARELY} AND ended_by IN ('unassigned', 'reordered', 'resync') GROUP BY ALL
        """
    )
    ((last_end, fenced_since),) = lake.query("SELECT max(at_offset), min(fenced_since) FROM loss_ends")
    columns = "topic_id, partition, broker_id, directory_id, kind, from_offset, to_offset"
    placed = f"(SELECT {columns} FROM {assignments} WHERE ended_by = 'assigned' AND kind = 'unassigned')"
    # The bounds of all directories stand beside those of each one, as DuckDB skips what they rule out.
    lake.query(
        f"""
        CREATE OR REPLACE TEMP TABLE loss_left AS
        SELECT {columns} FROM {assignments}
        WHERE {_ENDED_RARELY} AND ended_by IN ('moved', 'lost', 'unassigned', 'reordered', 'resync')
        UNION SELECT {columns} FROM {assignments} WHERE ended_by = 'assigned' AND kind <> 'unassigned'
        UNION SELECT {columns} FROM {placed} p
        SEMI JOIN loss_ends e ON e.broker_id = p.broker_id AND e.at_offset > p.from_offset
             AND e.fenced_since <= p.to_offset
        WHERE p.from_offset < {last_end or 0} AND p.to_offset >= {fenced_since or 0}
        UNION SELECT {columns} FROM {placed} p
        SEMI JOIN loss_renamed r ON r.topic_id = p.topic_id AND r.partition = p.partition AND r.broker_id = p.broker_id
        """
    )


def _doubtful(lake: Lake, assignments: str) -> str:
    """Replicas that may have lost their copy, each with the offsets between which it was in doubt.

    A replica whose directory changes surely keeps its copy if the old directory (or the new one, if the old one was
    unknown) was online all the time; while its broker is fenced, until it registers or is unfenced (R-COPY-12). A
    replica without a directory is in doubt once a directory of its broker leaves. One in LOST has lost its copy
    (R-COPY-6), also where the lake begins.
    """
    ((first_end, last_end),) = lake.query("SELECT min(at_offset), max(at_offset) FROM loss_ends")
    return f"""
    WITH b AS (SELECT * FROM loss_brokers_{lake.offset}),
    d AS MATERIALIZED (
        SELECT broker_id, directory_id, from_offset, to_offset,
               min(from_offset) OVER (PARTITION BY broker_id) AS first_offset
        FROM {lake.until("directories")}
    ),
    changed AS MATERIALIZED (
        SELECT o.topic_id, o.partition, o.broker_id, o.kind, n.kind AS new_kind, o.from_offset AS since,
               n.from_offset AS at_offset,
               CASE WHEN o.kind = 'assigned' THEN o.directory_id ELSE n.directory_id END AS directory_id
        FROM loss_left o JOIN {assignments} n ON n.topic_id = o.topic_id AND n.partition = o.partition
             AND n.broker_id = o.broker_id AND n.from_offset = o.to_offset
        WHERE o.directory_id <> n.directory_id AND n.kind NOT IN ('unassigned', 'migrating')
    ),
    reports AS (
        SELECT c.at_offset, f.broker_id, min(n.from_offset) AS decided
        FROM (SELECT DISTINCT broker_id, at_offset FROM changed) c
        JOIN b f ON f.broker_id = c.broker_id AND f.undecided AND f.from_offset <= c.at_offset
             AND (f.to_offset IS NULL OR f.to_offset > c.at_offset)
        JOIN b n ON n.broker_id = c.broker_id AND n.from_offset > c.at_offset
             AND (NOT n.undecided OR n.incarnation_id <> f.incarnation_id)
        GROUP BY ALL
    ),
    decided_changes AS MATERIALIZED (
        SELECT c.*, coalesce(r.decided, c.at_offset) AS decided
        FROM changed c LEFT JOIN reports r ON r.broker_id = c.broker_id AND r.at_offset = c.at_offset
    )
    SELECT c.topic_id, c.partition, c.broker_id, c.at_offset, c.decided
    FROM decided_changes c
    LEFT JOIN d ON d.broker_id = c.broker_id AND d.directory_id = c.directory_id
         AND d.from_offset <= greatest(c.since, d.first_offset)
         AND (d.to_offset IS NULL OR d.to_offset > c.decided)
    WHERE d.broker_id IS NULL OR c.kind = 'lost' OR c.new_kind = 'lost'
    UNION ALL
    SELECT c.topic_id, c.partition, c.broker_id, c.at_offset, c.decided
    FROM decided_changes c
    JOIN loss_ends e ON c.kind <> 'assigned' AND e.broker_id = c.broker_id AND e.at_offset > c.since
         AND e.at_offset <= c.decided
    UNION ALL
    SELECT c.topic_id, c.partition, c.broker_id, c.at_offset, c.decided
    FROM decided_changes c
    JOIN loss_renamed r ON r.topic_id = c.topic_id AND r.partition = c.partition AND r.broker_id = c.broker_id
         AND r.first_end <= c.since
    UNION ALL
    SELECT a.topic_id, a.partition, a.broker_id, e.at_offset, e.at_offset
    FROM {assignments} a
    JOIN loss_ends e ON e.broker_id = a.broker_id AND e.at_offset > a.from_offset
         AND (a.to_offset IS NULL OR e.at_offset <= a.to_offset)
    WHERE a.kind IN ('unassigned', 'migrating') AND a.from_offset < {last_end or 0}
      AND (a.to_offset IS NULL OR a.to_offset >= {first_end or 0})
    UNION ALL
    SELECT topic_id, partition, broker_id, from_offset, from_offset FROM {assignments} WHERE kind = 'lost'
    UNION ALL
    SELECT a.topic_id, a.partition, a.broker_id, a.from_offset, coalesce(a.to_offset, 9223372036854775807)
    FROM {assignments} a
    JOIN loss_renamed r ON r.topic_id = a.topic_id AND r.partition = a.partition AND r.broker_id = a.broker_id
         AND r.first_end <= a.from_offset
    WHERE a.kind IN ('unassigned', 'migrating')
    """


def _placed(partitions: str) -> str:
    """The partitions of doubtful replicas. While another replica leads, one that is neither in sync nor eligible has
    nothing to lose."""
    return f"""
    placed AS (
        SELECT topic_id, partition FROM (
            SELECT p.topic_id, p.partition, p.leader, p.isr, p.elr, c.broker_id
            FROM (SELECT * FROM {partitions} WHERE topic_id IN (SELECT topic_id FROM loss_doubtful)) p
            JOIN loss_doubtful c ON c.topic_id = p.topic_id AND c.partition = p.partition
                 AND p.from_offset <= c.decided AND (p.to_offset IS NULL OR p.to_offset >= c.at_offset)
        )
        WHERE leader IN (-1, broker_id) OR list_contains(isr, broker_id) OR list_contains(elr, broker_id)
    )
    """


def _unregistered(partitions: str, brokers: str) -> str:
    """Partitions with a replica that mattered on a broker whose registration ended."""
    return f"""
    gone AS (
        SELECT o.broker_id, o.to_offset AS at_offset
        FROM {brokers} o ANTI JOIN {brokers} n ON n.broker_id = o.broker_id AND n.from_offset = o.to_offset
        WHERE o.to_offset IS NOT NULL
    ),
    unregistered AS (
        SELECT topic_id, partition
        FROM {partitions} p
        JOIN gone ON p.from_offset <= gone.at_offset AND (p.to_offset IS NULL OR p.to_offset >= gone.at_offset)
        WHERE list_contains(replicas, broker_id) AND (
            leader IN (-1, broker_id) OR list_contains(isr, broker_id) OR list_contains(elr, broker_id)
            OR list_contains(last_known_elr, broker_id)
        )
    )
    """


def select_rests(lake: Lake, changes: Sequence[tuple[int, int]]) -> None:
    """Creates loss_rests: spans of offsets in which the partitions of loss_states probably rest (``Fate.rests``).

    All replicas are in sync where a span begins and where it ends. Within it no state may follow a loss, and neither
    the replicas nor the directories change, nor those that their brokers list. ``changes``: (broker, offset) of these.
    After a loss a span begins once another replica leads, which the former leader follows (R-LOSS-11).
    """
    brokers, offsets = [broker for broker, _ in changes], [offset for _, offset in changes]
    lake.query(
        """
        CREATE OR REPLACE TEMP TABLE loss_rests AS
        WITH turns AS (
            SELECT topic_id, partition, from_offset, leader, leader >= 0 AND list_has_all(isr, replicas) AS whole,
                   CASE WHEN may_follow_loss THEN leader END AS goes_on,
                   coalesce(
                       may_follow_loss OR from_snapshot OR lag(to_offset) OVER w <> from_offset
                       OR lag(replicas) OVER w <> replicas OR lag(directories) OVER w <> directories
                       OR from_time IN (lag(from_time) OVER w, lead(from_time) OVER w), false
                   ) AS turns
            FROM loss_states WINDOW w AS (PARTITION BY topic_id, partition ORDER BY from_offset)
            UNION ALL
            SELECT topic_id, partition, changed, -1, false, NULL, true
            FROM (SELECT DISTINCT topic_id, partition, unnest(replicas) AS broker_id FROM loss_states)
            JOIN (SELECT unnest($1::INT[]) AS broker_id, unnest($2::BIGINT[]) AS changed) USING (broker_id)
        ),
        stretches AS (
            SELECT topic_id, partition, from_offset, sum(turns::INT) OVER w AS stretch,
                   whole AND NOT turns AND leader IS DISTINCT FROM last_value(goes_on IGNORE NULLS) OVER w AS whole
            FROM turns WINDOW w AS (PARTITION BY topic_id, partition ORDER BY from_offset)
        )
        SELECT topic_id, partition, min(from_offset) AS begins, max(from_offset) AS ends
        FROM stretches WHERE whole GROUP BY topic_id, partition, stretch HAVING begins < ends
        """,
        [brokers, offsets],
    )


def left_elsewhere(lake: Lake, which: str) -> str:
    """SQL: broker_id, directory_id, topic and partition of the replicas that are placed elsewhere since a directory
    left. ``which`` (SQL): of the assignments ``a`` that ended, and the directories ``d``."""
    return f"""
        WITH listed AS (
            SELECT broker_id, directory_id, min(from_offset) AS listed FROM {lake.until("directories")} GROUP BY ALL
        ),
        early AS (
            SELECT s.topic_id, s.partition, s.broker_id, s.from_offset FROM {lake.until("assignments")} s
            JOIN listed USING (broker_id, directory_id) WHERE s.from_offset < listed
        )
        SELECT DISTINCT d.broker_id, d.directory_id, n.topic, n.partition
        FROM {lake.until("assignments")} a
        JOIN {lake.at("assignments")} n ON n.topic_id = a.topic_id AND n.partition = a.partition
             AND n.broker_id = a.broker_id AND n.kind = 'assigned'
        JOIN {lake.until("directories")} d ON d.broker_id = a.broker_id AND d.directory_id <> n.directory_id
        LEFT JOIN {lake.until("brokers")} f ON f.broker_id = a.broker_id AND f.to_offset = d.to_offset AND f.fenced
        LEFT JOIN early e ON e.topic_id = a.topic_id AND e.partition = a.partition AND e.broker_id = a.broker_id
             AND e.from_offset = a.to_offset
        WHERE {which} AND a.to_offset IS NOT NULL AND d.to_offset IS NOT NULL
          AND (a.to_offset >= coalesce(f.from_offset, d.to_offset) OR e.from_offset IS NOT NULL)
        ORDER BY ALL
    """
