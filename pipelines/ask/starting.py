"""What the log says of a broker's processes: since when reports are of one that has not registered yet (R-COPY-12), and
which directories and replicas one has lost (R-HOST-3)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pipelines.lake.reader import Lake


class Start(NamedTuple):
    """A later process of the broker reports, from an offset on."""

    broker_id: int
    incarnation_id: str
    """The process that is registered."""
    offset: int


def starts(lake: Lake) -> list[Start]:
    """The first report of each process that named a directory which its broker's process never registered with.

    All reports of an append are of one process, so it counts from the append's first record.
    """
    kept = f"starts_{lake.offset}"
    columns = "broker_id INT, incarnation_id VARCHAR, start BIGINT"
    lake.once((kept,), lambda: lake.make(kept, columns, _starts(lake)))
    return [Start(*row) for row in lake.query(f"SELECT * FROM {kept} ORDER BY start, broker_id")]


def under_way(lake: Lake) -> dict[int, int]:
    """The brokers of which a later process has reported and not registered by the lake's offset, and since when."""
    present = dict(lake.query(f"SELECT broker_id, incarnation_id FROM {lake.at('brokers')}"))
    return {
        start.broker_id: start.offset for start in starts(lake) if present.get(start.broker_id) == start.incarnation_id
    }


def select_brokers(lake: Lake) -> None:
    """Creates loss_brokers_OFFSET, once: the states of brokers. ``undecided`` holds while a report can be of a process
    that has not registered yet: the broker is fenced, or such a process has reported (R-COPY-12)."""
    starts(lake)

    def states() -> str:
        return f"""
        WITH b AS (
            SELECT broker_id, incarnation_id, log_dirs, fenced, from_offset, to_offset, min(start) AS start
            FROM (SELECT broker_id, incarnation_id, log_dirs, fenced, from_offset, to_offset
                  FROM {lake.until("brokers")})
            LEFT JOIN starts_{lake.offset} USING (broker_id, incarnation_id) GROUP BY ALL
        )
        SELECT broker_id, incarnation_id, log_dirs, fenced OR coalesce(start <= from_offset, false) AS undecided,
               from_offset,
               CASE WHEN start > from_offset AND (to_offset IS NULL OR to_offset > start) THEN start
                    ELSE to_offset END AS to_offset
        FROM b
        UNION ALL
        SELECT broker_id, incarnation_id, log_dirs, true, start, to_offset FROM b
        WHERE start > from_offset AND (to_offset IS NULL OR to_offset > start)
        """

    lake.keep("loss_brokers", states)


def _starts(lake: Lake) -> list[Start]:
    assignments, brokers = lake.until("assignments"), lake.until("brokers")
    directories = lake.until("directories")
    # Of most disks no row has to be looked at: one broker had them online from the first placement to the last one.
    ((doubted,),) = lake.query(
        f"""
        CREATE OR REPLACE TEMP TABLE starts_doubted AS
        SELECT directory_id FROM (
            SELECT directory_id, min(broker_id) AS lowest, max(broker_id) AS highest, min(from_offset) AS earliest,
                   max(from_offset) AS latest
            FROM {assignments} WHERE kind = 'assigned' GROUP BY directory_id
        ) a
        ANTI JOIN {directories} d ON d.directory_id = a.directory_id AND d.broker_id = lowest AND d.broker_id = highest
             AND d.from_offset <= earliest AND (d.to_offset IS NULL OR d.to_offset > latest)
        """
    )
    if not doubted:
        return []
    rows = lake.query(
        f"""
        WITH d AS (SELECT broker_id, directory_id, from_offset, to_offset FROM {directories}),
        placed AS (
            SELECT n.topic_id, n.partition, n.broker_id, n.directory_id, n.from_offset
            FROM (SELECT topic_id, partition, broker_id, directory_id, from_offset FROM {assignments}
                  WHERE kind = 'assigned') n
            SEMI JOIN starts_doubted t ON t.directory_id = n.directory_id
            ANTI JOIN d ON d.broker_id = n.broker_id AND d.directory_id = n.directory_id
                 AND d.from_offset <= n.from_offset AND (d.to_offset IS NULL OR d.to_offset > n.from_offset)
        ),
        reports AS (
            SELECT DISTINCT p.broker_id, p.directory_id, p.from_offset
            FROM placed p
            SEMI JOIN (SELECT * FROM {assignments} WHERE ended_by IN ('assigned', 'moved', 'reordered')) o
                 ON o.topic_id = p.topic_id AND o.partition = p.partition AND o.broker_id = p.broker_id
                 AND o.to_offset = p.from_offset AND o.directory_id <> p.directory_id
        ),
        b AS (SELECT broker_id, incarnation_id, log_dirs, from_offset, to_offset FROM {brokers})
        SELECT r.broker_id, b.incarnation_id, min(r.from_offset) AS report,
               (SELECT min(f.from_offset) FROM b f
                WHERE f.broker_id = r.broker_id AND f.incarnation_id = b.incarnation_id) AS began
        FROM reports r
        JOIN b ON b.broker_id = r.broker_id AND b.from_offset <= r.from_offset
             AND (b.to_offset IS NULL OR b.to_offset > r.from_offset) AND len(b.log_dirs) > 0
        WHERE NOT EXISTS (
            SELECT 1 FROM b p WHERE p.broker_id = r.broker_id AND p.incarnation_id = b.incarnation_id
                 AND p.from_offset <= r.from_offset AND list_contains(p.log_dirs, r.directory_id)
        )
        GROUP BY ALL ORDER BY report, r.broker_id
        """
    )
    if not rows:
        return []
    batches = lake.batches(sorted({report for *_, report, _ in rows}))
    process_starts = []
    for broker, incarnation, report, began in rows:
        first = batches.get(report, report)
        process_starts.append(Start(broker, incarnation, first if began < first else report))
    return process_starts


def not_taken_back(lake: Lake) -> dict[tuple[str, int, int], str]:
    """Topic, partition, broker -> the directory in which the replica was when it failed. Until the broker restarts, it
    takes these partitions back into no directory (R-HOST-3)."""
    rows = lake.query(
        f"""
        SELECT p.topic, p.partition, a.broker_id, a.directory_id
        FROM {lake.at("partitions")} p
        JOIN {lake.until("assignments")} a USING (topic_id, partition)
        JOIN {lake.until("directories")} d USING (broker_id, directory_id)
        JOIN {lake.at("brokers")} b USING (broker_id)
        JOIN (
            SELECT broker_id, incarnation_id, min(from_offset) AS registered
            FROM {lake.until("brokers")} GROUP BY ALL
        ) r ON r.broker_id = b.broker_id AND r.incarnation_id = b.incarnation_id
        WHERE d.ended_by = 'failed' AND d.to_offset > r.registered
        AND a.from_offset <= d.to_offset AND a.to_offset > d.to_offset AND NOT list_contains(p.isr, a.broker_id)
        """
    )
    return {(topic, partition, broker): directory for topic, partition, broker, directory in rows}


def until_restart(broker: int, directory: str) -> str:
    """Why a broker does not take a replica back (R-HOST-3)."""
    return f"broker {broker} had it in directory {directory}, which failed: it takes it back after a restart only"


def lost_directories(lake: Lake) -> dict[int, set[str]]:
    """Registered broker -> the directories that its present or last process listed and does not list any more.

    They are in its log.dirs, so the marks of a shutdown in order are not on every disk (R-RESTART-3).
    """
    sql = f"""
        SELECT broker_id, list(DISTINCT directory_id) FROM (
            SELECT b.broker_id, unnest(h.log_dirs) AS directory_id, b.log_dirs
            FROM {lake.at("brokers")} b JOIN {lake.until("brokers")} h USING (broker_id, incarnation_id)
        ) WHERE NOT list_contains(log_dirs, directory_id) GROUP BY broker_id
    """
    return {broker: {*lost} for broker, lost in lake.once(("lost directories",), lambda: lake.query(sql))}


def without_a_disk(lake: Lake) -> Collection[int]:
    """Brokers of which the log says that they have lost a disk."""
    rows = lake.query(f"SELECT DISTINCT broker_id FROM {lake.at('offline_replicas')} WHERE reason LIKE 'directory%'")
    return {*lost_directories(lake), *(broker for (broker,) in rows)}
