"""Checks of replicas whose directory the controller does not know."""

from pipelines.check.definition import Check

STUCK = Check(
    id="B-01",
    name="assignment-stuck",
    severity="warning",
    title="The controller does not know which disk replicas are on",
    why="If that disk dies, the controller elects no other leader, for it cannot tell that the replica is gone. "
    "Critical where the replica leads.",
    sql="""
        WITH stuck AS (
            SELECT a.*, r.from_offset AS process_offset
            FROM assignments a
            JOIN brokers b ON b.broker_id = a.broker_id
            JOIN processes r ON r.broker_id = a.broker_id
            CROSS JOIN params
            WHERE a.kind = 'unassigned' AND NOT b.fenced AND array_length(b.log_dirs) > 1
              AND greatest(a.from_offset, coalesce(r.unfenced_offset, a.from_offset)) <= params.stuck_offset
              AND greatest(a.from_time, coalesce(r.unfenced_time, a.from_time)) <= params.stuck_time
        ), made AS (
            SELECT topic_id, partition, min(from_offset) AS from_offset
            FROM partitions_history GROUP BY topic_id, partition
        ), told AS (
            SELECT s.broker_id, s.topic_id, s.topic, s.partition, s.replica_index, s.from_offset AS since_offset,
                   s.from_time AS since_time,
                   CASE WHEN p.leader = s.broker_id THEN 'critical' ELSE 'warning' END AS severity,
                   h.topic_id IS NULL AND NOT s.from_snapshot AND m.from_offset < s.from_offset
                       AND s.process_offset < s.from_offset AS joined
            FROM stuck s
            JOIN partitions p ON p.topic_id = s.topic_id AND p.partition = s.partition
            JOIN made m ON m.topic_id = s.topic_id AND m.partition = s.partition
            LEFT JOIN assignments_history h ON h.topic_id = s.topic_id AND h.partition = s.partition
                 AND h.broker_id = s.broker_id AND h.to_offset = s.from_offset
        )
        SELECT DISTINCT broker_id, topic_id, topic, partition, replica_index, since_offset, since_time, severity,
               CASE WHEN joined THEN 'joined a partition that existed, and Kafka does not report the directory then'
                    ELSE 'has not reported the directory' END AS what,
               CASE WHEN joined THEN 'the report comes with the next restart of broker '
                    ELSE 'see what the broker asked for (jbod assignments), and restart broker ' END AS advice
        FROM told
    """,
    message="broker {broker_id} {what}",
    todo="{advice}{broker_id}",
    source="KIP-858, Replica management; R-LOCAL-4; KAFKA-17190",
)

LOST = Check(
    id="B-06",
    name="lost-dir",
    severity="critical",
    title="Replicas are marked as lost",
    why="Their broker said that the directory they were in failed, and did not say which one it was. They are offline.",
    sql="""
        SELECT broker_id, topic_id, topic, partition, replica_index, from_offset AS since_offset,
               from_time AS since_time
        FROM assignments WHERE kind = 'lost'
    """,
    message="the replica on broker {broker_id} was in a directory that failed",
    todo="find the failed disk of broker {broker_id} (jbod disks), repair or replace it, then restart the broker",
    source="KIP-858, LOST_DIR",
)

MIGRATING = Check(
    id="B-07",
    name="migrating-leftover",
    severity="warning",
    title="Replicas from before directories were recorded still have none",
    why="They count as online whatever happens to their disk: if it dies, no other leader is elected.",
    sql="""
        WITH known AS (SELECT broker_id, min(from_offset) AS from_offset, min(from_time) AS from_time
                       FROM directories GROUP BY broker_id)
        SELECT a.broker_id, a.topic_id, a.topic, a.partition, a.replica_index,
               greatest(a.from_offset, k.from_offset) AS since_offset, greatest(a.from_time, k.from_time) AS since_time
        FROM assignments a
        JOIN brokers b ON b.broker_id = a.broker_id
        JOIN processes r ON r.broker_id = a.broker_id
        JOIN known k ON k.broker_id = a.broker_id
        CROSS JOIN params
        WHERE a.kind = 'migrating' AND NOT b.fenced AND params.metadata_version >= 17
          AND greatest(a.from_offset, k.from_offset, coalesce(r.unfenced_offset, k.from_offset)) <= params.stuck_offset
          AND greatest(a.from_time, k.from_time, coalesce(r.unfenced_time, k.from_time)) <= params.stuck_time
    """,
    message="broker {broker_id} has directories, but has not reported which one the replica is in",
    todo="restart broker {broker_id}: it reports the directories of all its replicas then",
    source="KIP-858, Reserved UUIDs; KAFKA-16162, KAFKA-16583",
)

UNFENCED = Check(
    id="B-22",
    name="unfenced-with-unassigned",
    severity="info",
    title="Brokers are unfenced while directories of their replicas are not known",
    why="The KIP wants a broker to stay fenced until all are known; Kafka does not wait. Seconds of it are normal.",
    sql="""
        SELECT a.broker_id, count(*) AS replicas, min(a.from_offset) AS since_offset, min(a.from_time) AS since_time
        FROM assignments a
        JOIN brokers b ON b.broker_id = a.broker_id
        WHERE a.kind = 'unassigned' AND NOT b.fenced AND array_length(b.log_dirs) > 1
        GROUP BY a.broker_id
    """,
    message="replicas whose directory is not known: {replicas:,}",
    todo="nothing, unless it lasts (B-01)",
    source="KIP-858, Broker registration; R-LIFE-9",
)

CHECKS = (STUCK, LOST, MIGRATING, UNFENCED)
