"""Checks of partitions: their leaders, the replicas that are left, and data of which the last complete copy is gone."""

from __future__ import annotations

from pipelines.check.definition import Check

_SQL = """
        SELECT topic_id, topic, partition, from_offset, from_time, finding, advice,
               CASE WHEN accepted THEN 'info' ELSE '{severity}' END AS severity
        FROM losses WHERE kind = '{kind}'
    """

DATA_LOST = Check(
    id="B-32",
    name="data-lost",
    severity="critical",
    title="The last copy with every acknowledged write was given up",
    why="Kafka does not report it: an empty, recreated replica leads like any other while its broker counts as in "
    "sync or eligible. Only the old disk may still have the data, as long as nobody wipes it.",
    sql=_SQL.format(severity="critical", kind="lost"),
    finding="{finding}",
    advice="{advice}",
    source="KIP-858; KIP-966; R-LOSS-4, R-LOSS-6",
)

MAY_LACK_WRITES = Check(
    id="B-33",
    name="may-lack-writes",
    severity="warning",
    title="Partitions may lack acknowledged writes: their leader's copy was not complete",
    why="The partition continued without the writes that its leader lacks, and other copies are truncated to the "
    "leader's log. The metadata does not say how many writes are missing.",
    sql=_SQL.format(severity="warning", kind="may lack writes"),
    finding="{finding}",
    advice="{advice}",
    source="KIP-704; KIP-966; R-LOSS-5, R-LOSS-6",
)

DATA_UNREACHABLE = Check(
    id="B-37",
    name="data-unreachable",
    severity="critical",
    title="The last copy with every acknowledged write lies on a broker that is not registered",
    why="Nothing is lost while that disk keeps the copy and no other replica leads: the copy is back when the broker "
    "registers with that disk.",
    sql=_SQL.format(severity="critical", kind="unreachable"),
    finding="{finding}",
    advice="{advice}",
    source="KIP-858; R-COPY-9, R-LOSS-4",
)

LEADER_ON_OFFLINE_DIRECTORY = Check(
    id="B-04",
    name="leader-on-offline-dir",
    severity="critical",
    title="Partitions have a leader or in-sync replica on a disk that is gone",
    why="Clients are sent to a replica that cannot answer, and the controller does not know that it should move the "
    "leader. Kafka does this if a disk fails while its broker restarts (docs/spec/invariants.md, R-INV-9).",
    sql="""
        SELECT o.broker_id, o.directory_id, o.topic_id, o.topic, o.partition, o.replica_index,
               greatest(o.from_offset, p.from_offset) AS from_offset, greatest(o.from_time, p.from_time) AS from_time,
               CASE WHEN p.leader = o.broker_id THEN 'leads' ELSE 'counts as in sync' END AS what,
               coalesce(k.keep, concat(coalesce(k.before_restart || '; then ', ''), 'restart broker ',
                        CAST(o.broker_id AS VARCHAR), ' with the same log.dirs, so that the controller elects another ',
                        'leader; then look at the disk')) AS advice
        FROM offline_replicas o
        LEFT JOIN last_copies k ON k.broker_id = o.broker_id
        JOIN partitions p ON p.topic_id = o.topic_id AND p.partition = o.partition
        WHERE o.reason IN ('directory offline', 'directory lost')
          AND (p.leader = o.broker_id OR (array_contains(p.isr, o.broker_id) AND array_length(p.isr) > 1))
    """,
    finding="the replica on broker {broker_id} {what}, but directory {directory_id} is offline",
    advice="{advice}",
    source="KIP-858, Handling log directory failures; KAFKA-16297",
)

# A finding begins, for each partition, after the last change at which the problem did not exist.
NOT_AVAILABLE = Check(
    id="B-17",
    name="offline-partition",
    severity="critical",
    title="Partitions cannot be used: no leader, no replica online, or too few in sync",
    why="Without a leader nothing can be read or written; below min.insync.replicas, writes with acks=all are refused.",
    sql="""
        WITH changes AS (
            SELECT b.topic_id, b.partition, h.from_offset AS at_offset, h.from_time AS at_time
            FROM unusable b JOIN partitions_history h ON h.topic_id = b.topic_id AND h.partition = b.partition
            UNION
            SELECT b.topic_id, b.partition, o.from_offset, o.from_time
            FROM unusable b JOIN offline_replicas_history o ON o.topic_id = b.topic_id AND o.partition = b.partition
            UNION
            SELECT b.topic_id, b.partition, o.to_offset, o.to_time
            FROM unusable b JOIN offline_replicas_history o ON o.topic_id = b.topic_id AND o.partition = b.partition
            WHERE o.to_offset IS NOT NULL
        ), past AS (
            SELECT c.topic_id, c.partition, c.at_offset, c.at_time, h.leader, array_length(h.replicas) AS replicas,
                   array_length(h.isr) AS isr, count(o.broker_id) AS offline,
                   count(CASE WHEN array_contains(h.isr, o.broker_id) THEN 1 END) AS in_sync_offline
            FROM changes c
            JOIN partitions_history h ON h.topic_id = c.topic_id AND h.partition = c.partition
                 AND h.from_offset <= c.at_offset AND (h.to_offset IS NULL OR h.to_offset > c.at_offset)
            LEFT JOIN offline_replicas_history o ON o.topic_id = c.topic_id AND o.partition = c.partition
                 AND o.from_offset <= c.at_offset AND (o.to_offset IS NULL OR o.to_offset > c.at_offset)
            GROUP BY c.topic_id, c.partition, c.at_offset, c.at_time, h.leader, array_length(h.replicas),
                     array_length(h.isr)
        ), wrong AS (
            SELECT p.topic_id, p.partition, p.at_offset, p.at_time,
                   CASE WHEN b.kind = 'offline' THEN p.offline = p.replicas
                        WHEN b.kind = 'leaderless' THEN p.leader = -1
                        ELSE p.isr - p.in_sync_offline < least(b.min_isr, p.replicas) END AS so
            FROM past p JOIN unusable b ON b.topic_id = p.topic_id AND b.partition = p.partition
        ), fine AS (
            SELECT topic_id, partition, max(CASE WHEN NOT so THEN at_offset ELSE -1 END) AS last_offset
            FROM wrong GROUP BY topic_id, partition
        ), since AS (
            SELECT w.topic_id, w.partition, min(w.at_offset) AS from_offset, min(w.at_time) AS from_time
            FROM wrong w JOIN fine f ON f.topic_id = w.topic_id AND f.partition = w.partition
            WHERE w.at_offset > f.last_offset
            GROUP BY w.topic_id, w.partition
        )
        SELECT b.topic_id, b.topic, b.partition, s.from_offset, s.from_time,
               CASE WHEN b.kind = 'offline' AND t.topic IS NOT NULL
                    THEN 'every replica is offline; the topic is tiered: what was copied to remote storage is safe'
                    WHEN b.kind = 'offline' THEN 'every replica is offline'
                    WHEN b.kind = 'leaderless' THEN 'no replica leads it'
                    ELSE concat(CAST(b.in_sync AS VARCHAR), ' in sync and online, min.insync.replicas is ',
                                CAST(b.wanted AS VARCHAR)) END AS what,
               CASE WHEN b.offline = 0 THEN 'jbod offline says why no replica leads or is in sync, and what to do'
                    ELSE 'bring back a broker or disk that holds a replica (jbod offline says which)' END AS advice
        FROM unusable b
        JOIN since s ON s.topic_id = b.topic_id AND s.partition = b.partition
        LEFT JOIN tiered t ON t.topic = b.topic
    """,
    finding="{what}",
    advice="{advice}",
    source="KIP-858, Motivation; KIP-966",
)

ARITY = Check(
    id="B-11",
    name="directories-arity",
    severity="critical",
    title="Partitions have more or fewer directories than replicas",
    why="Nobody can say which replica is where. Kafka refuses such records, so the log or the lake is damaged.",
    sql="""
        SELECT topic_id, topic, partition, from_offset, from_time,
               array_length(directories) AS directories, array_length(replicas) AS replicas
        FROM partitions WHERE array_length(directories) <> array_length(replicas)
    """,
    finding="{directories} directories for {replicas} replicas",
    advice="rebuild the lake; if it stays, keep a copy of the log and compare with another controller's",
    source="PartitionRegistration",
)

CHECKS = (DATA_LOST, MAY_LACK_WRITES, DATA_UNREACHABLE, LEADER_ON_OFFLINE_DIRECTORY, ARITY, NOT_AVAILABLE)
