"""Checks of partitions: who leads them, and what is left of them."""

from pipelines.check.definition import Check

LEADER_ON_OFFLINE_DIRECTORY = Check(
    id="B-04",
    name="leader-on-offline-dir",
    severity="critical",
    title="Partitions are led, or kept in sync, by a replica on a disk that is gone",
    why="Clients are sent to a replica that cannot answer, and the controller does not know that it should move the "
    "leader. Kafka leaves it so where a disk fails while its broker comes back (docs/spec/invariants.md, R-INV-9).",
    sql="""
        SELECT o.broker_id, o.directory_id, o.topic_id, o.topic, o.partition, o.replica_index,
               greatest(o.from_offset, p.from_offset) AS since_offset, greatest(o.from_time, p.from_time) AS since_time,
               CASE WHEN p.leader = o.broker_id THEN 'leads' ELSE 'counts as in sync' END AS what
        FROM offline_replicas o
        JOIN partitions p ON p.topic_id = o.topic_id AND p.partition = o.partition
        WHERE o.reason IN ('directory offline', 'directory lost')
          AND (p.leader = o.broker_id OR (array_contains(p.isr, o.broker_id) AND array_length(p.isr) > 1))
    """,
    message="the replica on broker {broker_id} {what}, but directory {directory_id} is offline",
    todo="restart broker {broker_id}, so that the controller elects another leader; then look at the disk",
    source="KIP-858, Handling log directory failures; KAFKA-16297",
)

NOT_AVAILABLE = Check(
    id="B-17",
    name="offline-partition",
    severity="critical",
    title="Partitions cannot be used: no leader, no replica online, or too few in sync",
    why="Without a leader nothing can be read or written; below min.insync.replicas, writes with acks=all are refused.",
    sql="""
        WITH off AS (
            SELECT o.topic_id, o.partition, count(*) AS replicas, max(o.from_offset) AS from_offset,
                   max(o.from_time) AS from_time,
                   count(CASE WHEN array_contains(p.isr, o.broker_id) THEN 1 END) AS in_sync
            FROM offline_replicas o
            JOIN partitions p ON p.topic_id = o.topic_id AND p.partition = o.partition
            GROUP BY o.topic_id, o.partition
        ), state AS (
            SELECT p.topic_id, p.topic, p.partition, p.leader, array_length(p.replicas) AS replicas,
                   coalesce(off.replicas, 0) AS offline,
                   array_length(p.isr) - coalesce(off.in_sync, 0) AS in_sync,
                   least(coalesce(m.min_insync_replicas, params.min_insync_replicas),
                         array_length(p.replicas)) AS wanted,
                   p.from_offset, p.from_time, off.from_offset AS off_offset, off.from_time AS off_time
            FROM partitions p
            CROSS JOIN params
            LEFT JOIN off ON off.topic_id = p.topic_id AND off.partition = p.partition
            LEFT JOIN min_isr m ON m.topic = p.topic
        ), bad AS (
            SELECT * FROM state WHERE leader = -1 OR offline = replicas OR in_sync < wanted
        ), leaderless AS (
            SELECT h.topic_id, h.partition,
                   coalesce(max(CASE WHEN h.leader <> -1 THEN h.to_offset END), min(h.from_offset)) AS from_offset,
                   coalesce(max(CASE WHEN h.leader <> -1 THEN h.to_time END), min(h.from_time)) AS from_time
            FROM bad b
            JOIN partitions_history h ON h.topic_id = b.topic_id AND h.partition = b.partition
            WHERE b.leader = -1
            GROUP BY h.topic_id, h.partition
        )
        SELECT b.topic_id, b.topic, b.partition,
               coalesce(l.from_offset, greatest(b.from_offset, coalesce(b.off_offset, b.from_offset))) AS since_offset,
               coalesce(l.from_time, greatest(b.from_time, coalesce(b.off_time, b.from_time))) AS since_time,
               CASE WHEN b.offline = b.replicas THEN 'every replica is offline'
                    WHEN b.leader = -1 THEN 'no replica leads it'
                    ELSE concat(CAST(b.in_sync AS VARCHAR), ' in sync and online, min.insync.replicas is ',
                                CAST(b.wanted AS VARCHAR)) END AS what
        FROM bad b
        LEFT JOIN leaderless l ON l.topic_id = b.topic_id AND l.partition = b.partition
    """,
    message="{what}",
    todo="bring back a broker or disk that holds a replica (jbod offline says which)",
    source="KIP-858, Motivation; KIP-966",
)

ARITY = Check(
    id="B-11",
    name="directories-arity",
    severity="critical",
    title="Partitions have more or fewer directories than replicas",
    why="Nobody can say which replica is where. Kafka refuses such records, so the log or the lake is damaged.",
    sql="""
        SELECT topic_id, topic, partition, from_offset AS since_offset, from_time AS since_time,
               array_length(directories) AS directories, array_length(replicas) AS replicas
        FROM partitions WHERE array_length(directories) <> array_length(replicas)
    """,
    message="{directories} directories for {replicas} replicas",
    todo="rebuild the lake; if it stays, keep a copy of the log and compare with another controller's",
    source="PartitionRegistration",
)

CHECKS = (LEADER_ON_OFFLINE_DIRECTORY, ARITY, NOT_AVAILABLE)
