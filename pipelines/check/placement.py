"""Checks of the placement of replicas on disks: what depends on one disk, and what is uneven."""

from pipelines.check.definition import Check

BLAST_RADIUS = Check(
    id="B-18",
    name="blast-radius",
    severity="info",
    title="Partitions would lose their leader with one disk",
    why="No other replica of them is in sync and online. A warning from many partitions on.",
    sql="""
        WITH sole AS (
            SELECT broker_id, max(directory_id) AS directory_id FROM directories GROUP BY broker_id HAVING count(*) = 1
        ), led AS (
            SELECT a.broker_id, d.directory_id, d.from_offset, d.from_time, count(*) AS leaderless,
                   count(CASE WHEN array_length(p.replicas) - coalesce(f.replicas, 0) = 1 THEN 1 END) AS last_copies,
                   count(CASE WHEN array_length(p.replicas) - coalesce(f.replicas, 0) = 1 AND t.topic IS NOT NULL
                              THEN 1 END) AS tiered_copies
            FROM partitions p
            JOIN assignments a ON a.topic_id = p.topic_id AND a.partition = p.partition AND a.broker_id = p.leader
            LEFT JOIN sole s ON s.broker_id = a.broker_id
            JOIN directories d ON d.broker_id = a.broker_id
                 AND d.directory_id = CASE WHEN a.kind = 'assigned' THEN a.directory_id ELSE s.directory_id END
            LEFT JOIN offline_counts f ON f.topic_id = p.topic_id AND f.partition = p.partition
            LEFT JOIN tiered t ON t.topic = p.topic
            WHERE array_contains(p.isr, p.leader) AND array_length(p.isr) - coalesce(f.in_sync, 0) = 1
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
    advice="wait until replicas are in sync again, or give these partitions more replicas (jbod risk names them)",
    source="KIP-858, Motivation",
)

UNEVEN = Check(
    id="B-24",
    name="dir-skew",
    severity="info",
    title="Disks hold far more than others of the same broker, or nothing",
    why="Kafka places new replicas by count, when they are made, and never evens out. An empty disk is idle.",
    sql="""
        WITH held AS (
            SELECT d.broker_id, d.directory_id, d.from_offset, d.from_time, count(a.topic_id) AS replicas,
                   count(CASE WHEN p.leader = d.broker_id THEN 1 END) AS leaders
            FROM directories d
            LEFT JOIN assignments a ON a.broker_id = d.broker_id AND a.directory_id = d.directory_id
            LEFT JOIN partitions p ON p.topic_id = a.topic_id AND p.partition = a.partition
            GROUP BY d.broker_id, d.directory_id, d.from_offset, d.from_time
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
    advice="move replicas between the disks of broker {broker_id} (kafka-reassign-partitions with log dirs)",
    source="KIP-113; LogManager",
)

CORDONED = Check(
    id="B-25",
    name="cordon-leftover",
    severity="info",
    title="Cordons were forgotten, or replicas were placed in cordoned disks nevertheless",
    why="A cordon that was forgotten keeps a good disk unused; a replica placed after it defeats the drain. A warning "
    "where one was placed, or where the cordon is old.",
    # A new registration lists no cordons until the first heartbeats. That does not end a cordon.
    sql="""
        WITH free AS (
            SELECT d.broker_id, d.directory_id,
                   coalesce(max(CASE WHEN NOT array_contains(h.cordoned_log_dirs, d.directory_id)
                                     THEN h.from_offset END), -1) AS from_offset
            FROM directories d
            JOIN brokers b ON b.broker_id = d.broker_id
            JOIN brokers_history h ON h.broker_id = d.broker_id
            WHERE array_contains(b.cordoned_log_dirs, d.directory_id) AND h.cordoned_log_dirs IS NOT NULL
            GROUP BY d.broker_id, d.directory_id
        ), cordons AS (
            SELECT f.broker_id, f.directory_id, min(h.from_offset) AS from_offset, min(h.from_time) AS from_time
            FROM free f
            JOIN brokers_history h ON h.broker_id = f.broker_id AND h.from_offset > f.from_offset
            WHERE array_contains(h.cordoned_log_dirs, f.directory_id)
            GROUP BY f.broker_id, f.directory_id
        ), held AS (
            SELECT c.broker_id, c.directory_id, c.from_offset, c.from_time, count(a.topic_id) AS replicas,
                   count(CASE WHEN a.from_offset > c.from_offset THEN 1 END) AS later
            FROM cordons c
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
    advice="remove the disk from broker {broker_id} or lift the cordon; replicas placed since must be moved first",
    source="KIP-1066",
)

CHECKS = (BLAST_RADIUS, UNEVEN, CORDONED)
