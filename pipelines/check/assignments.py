"""Checks of replicas whose directory the controller does not know, and of brokers' requests for them."""

from pipelines.ask.assignment_requests import RETRY_LOOPS
from pipelines.check.definition import Check

STUCK = Check(
    id="B-01",
    name="assignment-stuck",
    severity="warning",
    title="The controller does not know which disk replicas are on",
    why="If that disk dies, the controller elects no other leader, because it cannot see that the replica is lost. "
    "Critical where the replica leads.",
    sql="""
        WITH made AS (
            SELECT h.topic_id, h.partition, min(h.from_offset) AS from_offset
            FROM (SELECT DISTINCT topic_id, partition FROM stuck_assignments) s
            JOIN partitions_history h ON h.topic_id = s.topic_id AND h.partition = s.partition
            GROUP BY h.topic_id, h.partition
        ), told AS (
            SELECT s.broker_id, s.topic_id, s.topic, s.partition, s.replica_index, s.from_offset,
                   s.from_time, known.requests > 0 AS requests_known, q.broker_id IS NOT NULL AS asked,
                   q.refusal, q.attempt,
                   CAST(floor(epoch(params.at_time)) AS BIGINT) - CAST(floor(epoch(q.requested_time)) AS BIGINT) AS ago,
                   CASE WHEN p.leader = s.broker_id THEN 'critical' ELSE 'warning' END AS severity,
                   h.topic_id IS NULL AND NOT s.from_snapshot AND m.from_offset < s.from_offset
                       AND s.process_offset < s.from_offset AS joined
            FROM stuck_assignments s
            JOIN partitions p ON p.topic_id = s.topic_id AND p.partition = s.partition
            JOIN made m ON m.topic_id = s.topic_id AND m.partition = s.partition
            LEFT JOIN assignments_history h ON h.topic_id = s.topic_id AND h.partition = s.partition
                 AND h.broker_id = s.broker_id AND h.to_offset = s.from_offset
            LEFT JOIN last_asked q ON q.topic_id = s.topic_id AND q.partition = s.partition
                 AND q.broker_id = s.broker_id AND q.realised_offset IS NULL
                 AND q.requested_time >= s.from_time - INTERVAL '1' SECOND
            CROSS JOIN (SELECT count(*) AS requests FROM assignment_requests) known
            CROSS JOIN params
        )
        SELECT DISTINCT broker_id, topic_id, topic, partition, replica_index, from_offset, from_time, severity,
               CASE WHEN refusal IS NOT NULL
                    THEN 'was refused the directory: ' || refusal || ', attempt ' || CAST(attempt AS VARCHAR)
                    WHEN asked
                    THEN 'requested it ' || CAST(greatest(ago, 0) AS VARCHAR) || ' s ago, and it is not yet recorded'
                    WHEN joined AND requests_known
                    THEN 'joined a partition that existed and never asked: Kafka does not report the directory then'
                    WHEN joined THEN 'joined a partition that existed, and Kafka does not report the directory then'
                    WHEN requests_known THEN 'never asked for a directory in the request logs that were read'
                    ELSE 'has not reported the directory' END AS what,
               CASE WHEN refusal IS NOT NULL
                    THEN 'see the requests and answers (jbod assignments); if it continues, restart broker '
                    WHEN asked
                    THEN 'see whether it was recorded since (jbod assignments); if it stays, restart broker '
                    WHEN joined AND requests_known
                    THEN 'jbod assignments shows it until the report, which comes with the next restart of broker '
                    WHEN joined THEN 'the report comes with the next restart of broker '
                    ELSE 'see what the broker asked for (jbod assignments), and restart broker ' END AS ask,
               coalesce(k.before_restart || '; then ', '') AS first
        FROM told LEFT JOIN last_copies k USING (broker_id)
    """,
    finding="broker {broker_id} {what}",
    advice="{first}{ask}{broker_id}",
    source="KIP-858, Replica management; R-LOCAL-4; KAFKA-17190",
)

# If the log no longer has the replica, the cause is the record that removed it.
RETRY_LOOP = Check(
    id="B-02",
    name="assignment-retry-loop",
    severity="warning",
    title="Brokers repeatedly request assignments that the controller refuses",
    why="A refused assignment is not recorded: the log has the replica elsewhere or not at all. Such requests can also "
    "delay later ones.",
    sql=f"""
        WITH loops AS ({RETRY_LOOPS})
        SELECT l.topic_id, l.topic, l.partition, l.broker_id, l.directory_id, l.refusal, l.attempt,
               greatest(max(coalesce(h.to_offset, h.from_offset, l.from_offset)), l.from_offset) AS from_offset,
               greatest(max(coalesce(h.to_time, h.from_time, l.from_time)), l.from_time) AS from_time,
               CASE WHEN count(h.topic_id) > count(h.to_offset)
                    THEN 'see what is asked and answered (jbod assignments), and the log of broker '
                    WHEN l.refusal IN ('UNKNOWN_TOPIC_ID', 'UNKNOWN_TOPIC_OR_PARTITION')
                    THEN 'the topic or partition is gone: the loop ends with a restart of broker '
                    WHEN l.refusal = 'NOT_LEADER_OR_FOLLOWER'
                    THEN 'the replica is on other brokers now: the loop ends with a restart of broker '
                    ELSE 'see what is asked and answered (jbod assignments), and the log of broker ' END AS advice
        FROM loops l
        LEFT JOIN assignments_history h ON h.topic_id = l.topic_id AND h.partition = l.partition
             AND h.broker_id = l.broker_id
        GROUP BY l.topic_id, l.topic, l.partition, l.broker_id, l.directory_id, l.refusal, l.attempt, l.from_offset,
                 l.from_time
    """,
    finding="broker {broker_id} asked {attempt} times in a row for directory {directory_id}, the last answer was "
    "{refusal}",
    advice="{advice}{broker_id}",
    source="KIP-858, Replica management; KAFKA-17190, KAFKA-16886",
)

LOST = Check(
    id="B-06",
    name="lost-dir",
    severity="critical",
    title="Replicas are marked as lost",
    why="Their broker said that the directory they were in failed, and did not say which one it was. They are offline.",
    sql="""
        SELECT a.broker_id, a.topic_id, a.topic, a.partition, a.replica_index, a.from_offset,
               a.from_time,
               coalesce(k.keep, concat(coalesce(k.before_restart || '; then ', ''),
                                       'find the failed disk of broker ', CAST(a.broker_id AS VARCHAR),
                                       ' (jbod disks), repair or replace it, and restart the broker')) AS advice
        FROM assignments a LEFT JOIN last_copies k ON k.broker_id = a.broker_id
        WHERE a.kind = 'lost'
    """,
    finding="the replica on broker {broker_id} was in a directory that failed",
    advice="{advice}",
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
               greatest(a.from_offset, k.from_offset) AS from_offset, greatest(a.from_time, k.from_time) AS from_time,
               coalesce(c.before_restart || '; then ', '') AS first
        FROM assignments a
        LEFT JOIN last_copies c ON c.broker_id = a.broker_id
        JOIN brokers b ON b.broker_id = a.broker_id
        JOIN processes r ON r.broker_id = a.broker_id
        JOIN known k ON k.broker_id = a.broker_id
        CROSS JOIN params
        WHERE a.kind = 'migrating' AND NOT b.fenced AND params.metadata_version >= 17
          AND greatest(a.from_offset, k.from_offset, coalesce(r.unfenced_offset, k.from_offset)) <= params.stuck_offset
          AND greatest(a.from_time, k.from_time, coalesce(r.unfenced_time, k.from_time)) <= params.stuck_time
    """,
    finding="broker {broker_id} has directories, but has not reported which one the replica is in",
    advice="{first}restart broker {broker_id}: it reports the directories of all its replicas then",
    source="KIP-858, Reserved UUIDs; KAFKA-16162, KAFKA-16583",
)

UNFENCED = Check(
    id="B-22",
    name="unfenced-with-unassigned",
    severity="info",
    title="Brokers are unfenced while directories of their replicas are not known",
    why="The KIP wants a broker to stay fenced until all are known; Kafka does not wait. Seconds of it are normal.",
    sql="""
        SELECT a.broker_id, count(*) AS replicas, min(a.from_offset) AS from_offset, min(a.from_time) AS from_time
        FROM assignments a
        JOIN brokers b ON b.broker_id = a.broker_id
        WHERE a.kind = 'unassigned' AND NOT b.fenced AND array_length(b.log_dirs) > 1
        GROUP BY a.broker_id
    """,
    finding="replicas whose directory is not known: {replicas:,}",
    advice="nothing, unless it lasts (B-01)",
    source="KIP-858, Broker registration; R-LIFE-9",
)

CHECKS = (STUCK, RETRY_LOOP, LOST, MIGRATING, UNFENCED)
