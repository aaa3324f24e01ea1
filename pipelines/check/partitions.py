"""Checks of partitions: their leaders, the replicas and complete copies that are left, and their placement on disks."""

from __future__ import annotations

from pipelines.check.definition import Check

_SQL = """
        SELECT topic_id, topic, partition, from_offset, from_time, finding, advice, grade,
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


BLAST_RADIUS = Check(
    id="B-18",
    name="blast-radius",
    severity="info",
    title="Partitions would lose their leader with one disk",
    why="No other replica of them is in sync and online. A warning from many partitions on.",
    sql="""
        WITH sole AS (
            SELECT broker_id, max(directory_id) AS directory_id FROM directories GROUP BY broker_id HAVING count(*) = 1
        ), alone AS (
            SELECT p.topic_id, p.partition, p.leader, t.topic IS NOT NULL AS tiered,
                   array_length(p.replicas) - coalesce(f.replicas, 0) = 1 AS last_copy
            FROM partitions p
            LEFT JOIN offline_counts f ON f.topic_id = p.topic_id AND f.partition = p.partition
            LEFT JOIN tiered t ON t.topic = p.topic
            WHERE array_contains(p.isr, p.leader) AND array_length(p.isr) - coalesce(f.in_sync, 0) = 1
        ), led AS (
            SELECT a.broker_id, d.directory_id, d.from_offset, d.from_time, count(*) AS leaderless,
                   count(CASE WHEN p.last_copy THEN 1 END) AS last_copies,
                   count(CASE WHEN p.last_copy AND p.tiered THEN 1 END) AS tiered_copies
            FROM alone p
            JOIN assignments a ON a.topic_id = p.topic_id AND a.partition = p.partition AND a.broker_id = p.leader
            LEFT JOIN sole s ON s.broker_id = a.broker_id
            JOIN directories d ON d.broker_id = a.broker_id
                 AND d.directory_id = CASE WHEN a.kind = 'assigned' THEN a.directory_id ELSE s.directory_id END
            GROUP BY a.broker_id, d.directory_id, d.from_offset, d.from_time
        )
        SELECT l.broker_id, l.directory_id, l.from_offset, l.from_time, l.leaderless,
               l.last_copies,
               CASE WHEN l.tiered_copies = 0 THEN ''
                    ELSE concat(' (of ', CAST(l.tiered_copies AS VARCHAR),
                                ' only the local part, which was not copied to remote storage yet)') END AS tiered,
               CASE WHEN l.leaderless >= params.blast_partitions THEN 'warning' ELSE 'info' END AS severity
        FROM led l CROSS JOIN params
    """,
    finding="partitions without a leader if it failed now: {leaderless:,}; without any copy online: {last_copies:,}"
    "{tiered}",
    advice="wait until replicas are in sync again, or add replicas (jbod plan replicas TOPIC=N) to the partitions that "
    "jbod whatif --fail BROKER:DIR names",
    source="KIP-858, Motivation",
)

UNEVEN = Check(
    id="B-24",
    name="dir-skew",
    severity="info",
    title="Disks hold far more than others of the same broker, or nothing",
    why="Kafka places new replicas by count, when they are made, and never evens out. An empty disk is idle.",
    sql="""
        WITH placed AS (
            SELECT a.broker_id, a.directory_id, count(*) AS replicas,
                   count(CASE WHEN p.leader = a.broker_id THEN 1 END) AS leaders
            FROM assignments a LEFT JOIN partitions p ON p.topic_id = a.topic_id AND p.partition = a.partition
            GROUP BY a.broker_id, a.directory_id
        ), held AS (
            SELECT d.broker_id, d.directory_id, d.from_offset, d.from_time, coalesce(p.replicas, 0) AS replicas,
                   coalesce(p.leaders, 0) AS leaders
            FROM directories d
            LEFT JOIN placed p ON p.broker_id = d.broker_id AND p.directory_id = d.directory_id
        ), means AS (
            SELECT broker_id, count(*) AS directories, avg(replicas) AS replicas, avg(leaders) AS leaders
            FROM held GROUP BY broker_id
        ), judged AS (
            SELECT h.broker_id, h.directory_id, h.from_offset, h.from_time, h.replicas,
                   h.leaders, CAST(round(m.replicas) AS BIGINT) AS mean_replicas,
                   CAST(round(m.leaders) AS BIGINT) AS mean_leaders,
                   h.replicas = 0 AND m.replicas > 0 AS unused,
                   (h.replicas > params.skew_factor * m.replicas AND h.replicas >= m.replicas + params.skew_replicas)
                   OR (h.leaders > params.skew_factor * m.leaders AND h.leaders >= m.leaders + params.skew_replicas)
                       AS heavy
            FROM held h
            JOIN means m ON m.broker_id = h.broker_id
            CROSS JOIN params
        )
        SELECT broker_id, directory_id, from_offset, from_time, replicas, leaders, mean_replicas, mean_leaders
        FROM judged WHERE unused OR heavy
    """,
    finding="replicas: {replicas:,} (mean of the broker's directories {mean_replicas:,}), leaders: {leaders:,} "
    "({mean_leaders:,})",
    advice="jbod plan balance {broker_id} --by replicas evens the disks out, or says why the broker moves nothing",
    source="KIP-113; LogManager",
)

CORDONED = Check(
    id="B-25",
    name="cordon-leftover",
    severity="info",
    title="Cordons were forgotten, or replicas were placed in cordoned disks nevertheless",
    why="A cordon that was forgotten keeps a good disk unused; a replica placed after it defeats the drain. A warning "
    "where one was placed, or where the cordon is old.",
    sql="""
        WITH held AS (
            SELECT c.broker_id, c.directory_id, c.from_offset, c.from_time, count(a.topic_id) AS replicas,
                   count(CASE WHEN a.from_offset > c.from_offset THEN 1 END) AS later
            FROM cordons c
            JOIN directories d ON d.broker_id = c.broker_id AND d.directory_id = c.directory_id
            LEFT JOIN assignments a ON a.broker_id = c.broker_id AND a.directory_id = c.directory_id
            GROUP BY c.broker_id, c.directory_id, c.from_offset, c.from_time
        )
        SELECT h.broker_id, h.directory_id, h.from_offset, h.from_time, h.replicas,
               h.later,
               CASE WHEN h.from_time <= params.cordon_time THEN 'cordoned for too long' ELSE 'cordoned' END AS what,
               CASE WHEN h.later > 0 OR h.from_time <= params.cordon_time THEN 'warning' ELSE 'info' END AS severity
        FROM held h CROSS JOIN params
        WHERE h.replicas = 0 OR h.later > 0 OR h.from_time <= params.cordon_time
    """,
    finding="{what}; replicas in it: {replicas:,}, placed there since: {later:,}",
    advice="jbod safe-to-remove {broker_id}:{directory_id} says whether the disk can be removed, and what to move "
    "first; or lift the cordon",
    source="KIP-1066",
)


CHECKS = (
    DATA_LOST,
    MAY_LACK_WRITES,
    DATA_UNREACHABLE,
    LEADER_ON_OFFLINE_DIRECTORY,
    ARITY,
    NOT_AVAILABLE,
    BLAST_RADIUS,
    UNEVEN,
    CORDONED,
)
