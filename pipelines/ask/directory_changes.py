"""What it means that a replica has another directory of its broker: its log moved, was recreated empty, or is back.

``history``, ``moves``, ``incidents`` and the checks take it from here. ``jbod_model.loss.copies`` has the same rules.
"""

from __future__ import annotations

from pipelines.ask.starting import select_brokers
from pipelines.lake.reader import Lake

MOVED, RECREATED, RETURNED, UNDECIDED = "moved", "recreated", "returned", "undecided"


def directory_changes(lake: Lake, of: str = "true") -> str:
    """SQL: topic, topic_id, partition, replica_index, broker_id, source, target, came_offset, came_time, at_offset,
    at_time, undecided (whether the report can be of a process that had not registered), decided_offset (of the
    registration that decided, or at_offset) and meaning.

    ``of``: a condition on topic and partition.

    - ``moved``: the broker listed the old directory (R-COPY-3).
    - ``recreated``: it did not (R-COPY-4). After an undecided report its next registration decides (R-COPY-12).
    - ``returned``: nobody led since the replica was recreated, and it is again in the directory that it left: the old
      disk is back, with the replica's log (R-COPY-13).
    - ``undecided``: a process reported it that has not registered yet; its registration decides (R-COPY-12).
    """
    select_brokers(lake)
    _select_moved(lake)
    return f"""(
        WITH changed AS (
            SELECT n.topic, n.topic_id, n.partition, n.replica_index, n.broker_id, o.directory_id AS source,
                   n.directory_id AS target, o.from_offset AS came_offset, o.from_time AS came_time,
                   n.from_offset AS at_offset, n.from_time AS at_time
            FROM (SELECT * FROM moved_{lake.offset} WHERE {of}) o
            JOIN (SELECT * FROM {lake.until("assignments")} WHERE {of}) n
                 ON n.topic_id = o.topic_id AND n.partition = o.partition
                 AND n.broker_id = o.broker_id AND n.from_offset = o.to_offset
        ),
        known AS (
            SELECT c.*, b.incarnation_id, coalesce(b.undecided, false) AS undecided,
                   coalesce(len(b.log_dirs) = 0 OR list_contains(b.log_dirs, c.source), false) AS listed
            FROM changed c LEFT JOIN loss_brokers b ON b.broker_id = c.broker_id AND b.from_offset <= c.at_offset
                 AND (b.to_offset IS NULL OR b.to_offset > c.at_offset)
        ),
        reported AS (
            SELECT k.topic_id, k.partition, k.broker_id, k.at_offset
            FROM known k JOIN starts_{lake.offset} s ON s.broker_id = k.broker_id AND s.start <= k.at_offset
                 AND s.incarnation_id = k.incarnation_id
        ),
        decided AS (
            SELECT k.topic_id, k.partition, k.broker_id, k.at_offset, min(n.from_offset) AS decided_offset,
                   arg_min(
                       n.incarnation_id <> k.incarnation_id AND len(n.log_dirs) > 0
                       AND NOT list_contains(n.log_dirs, k.source), n.from_offset
                   ) AS without
            FROM known k JOIN loss_brokers n ON n.broker_id = k.broker_id AND n.from_offset > k.at_offset
                 AND (NOT n.undecided OR n.incarnation_id <> k.incarnation_id)
            WHERE k.undecided GROUP BY ALL
        ),
        judged AS (
            SELECT k.*, NOT listed OR coalesce(without, false) AS recreated,
                   CASE WHEN listed AND undecided THEN decided_offset ELSE at_offset END AS since,
                   listed AND decided_offset IS NULL AND reported.at_offset IS NOT NULL AS waits
            FROM known k LEFT JOIN decided USING (topic_id, partition, broker_id, at_offset)
            LEFT JOIN reported USING (topic_id, partition, broker_id, at_offset)
        ),
        returned AS (
            SELECT DISTINCT n.topic_id, n.partition, n.broker_id, n.at_offset
            FROM judged o JOIN judged n ON n.topic_id = o.topic_id AND n.partition = o.partition
                 AND n.broker_id = o.broker_id AND n.target = o.source AND n.at_offset > o.at_offset
            WHERE o.recreated AND NOT EXISTS (
                SELECT 1
                FROM (SELECT topic_id, partition, leader, from_offset, to_offset FROM {lake.until("partitions")}
                      SEMI JOIN moved_{lake.offset} USING (topic_id, partition)) p
                WHERE p.topic_id = n.topic_id AND p.partition = n.partition AND p.leader >= 0
                  AND p.from_offset < n.at_offset AND (p.to_offset IS NULL OR p.to_offset > o.since)
            )
        )
        SELECT topic, topic_id, partition, replica_index, broker_id, source, target, came_offset, came_time, at_offset,
               at_time, undecided, coalesce(since, at_offset) AS decided_offset,
               CASE WHEN back THEN '{RETURNED}' WHEN recreated THEN '{RECREATED}' WHEN waits THEN '{UNDECIDED}'
                    ELSE '{MOVED}' END AS meaning
        FROM judged LEFT JOIN (SELECT *, true AS back FROM returned) r
             USING (topic_id, partition, broker_id, at_offset)
    )"""


def _select_moved(lake: Lake) -> None:
    """Creates moved_OFFSET: the assignments that ended with another directory of the broker. DuckDB knows that it is a
    small table, and reads nothing of the other assignments if it is empty."""
    kept = f"moved_{lake.offset}"
    if kept not in lake.made:
        lake.query(
            f"""
            CREATE OR REPLACE TEMP TABLE {kept} AS
            SELECT topic, topic_id, partition, broker_id, directory_id, from_offset, from_time, to_offset
            FROM {lake.scan("assignments")} WHERE ended_by = 'moved' AND to_offset <= {lake.offset}
            """
        )
        lake.made.add(kept)
