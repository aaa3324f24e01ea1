"""Checks of the directories of replicas: unknown to the controller, requested, changed, or changed back."""

from __future__ import annotations

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
               coalesce(CASE WHEN joined AND NOT asked THEN k.before_restart
                             ELSE coalesce(k.keep, k.before_restart) END || '; then ', '') AS first,
               CASE WHEN z.id IS NULL THEN '' ELSE ' under KRaft' END AS mode
        FROM told LEFT JOIN last_copies k USING (broker_id) LEFT JOIN zookeeper_brokers z ON z.id = broker_id
    """,
    finding="broker {broker_id} {what}",
    advice="{first}{ask}{broker_id}{mode}",
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
               CASE WHEN count(h.topic_id) = count(h.to_offset)
                         AND l.refusal IN ('UNKNOWN_TOPIC_ID', 'UNKNOWN_TOPIC_OR_PARTITION')
                    THEN coalesce(coalesce(max(k.keep), max(k.before_restart)) || '; then ', '')
                         || 'the topic or partition is gone: the loop ends with a restart of broker '
                    WHEN count(h.topic_id) = count(h.to_offset) AND l.refusal = 'NOT_LEADER_OR_FOLLOWER'
                    THEN coalesce(coalesce(max(k.keep), max(k.before_restart)) || '; then ', '')
                         || 'the replica is on other brokers now: the loop ends with a restart of broker '
                    ELSE 'see what is asked and answered (jbod assignments), and the log of broker ' END AS advice
        FROM loops l
        LEFT JOIN last_copies k ON k.broker_id = l.broker_id
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
               coalesce(coalesce(c.keep, c.before_restart) || '; then ', '') AS first,
               CASE WHEN z.id IS NULL THEN '' ELSE ' under KRaft' END AS mode
        FROM assignments a
        LEFT JOIN last_copies c ON c.broker_id = a.broker_id
        LEFT JOIN zookeeper_brokers z ON z.id = a.broker_id
        JOIN brokers b ON b.broker_id = a.broker_id
        JOIN processes r ON r.broker_id = a.broker_id
        JOIN known k ON k.broker_id = a.broker_id
        CROSS JOIN params
        WHERE a.kind = 'migrating' AND NOT b.fenced AND params.metadata_version >= 17
          AND greatest(a.from_offset, k.from_offset, coalesce(r.unfenced_offset, k.from_offset)) <= params.stuck_offset
          AND greatest(a.from_time, k.from_time, coalesce(r.unfenced_time, k.from_time)) <= params.stuck_time
    """,
    finding="broker {broker_id} has directories, but has not reported which one the replica is in",
    advice="{first}restart broker {broker_id}{mode}: it reports the directories of all its replicas then",
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


# A starting process may report directories before it registers, under the registration of its predecessor (R-PROC-4).
# Only the process that saw its disk fail must wait for it.
RECREATED = Check(
    id="B-05",
    name="recreated-after-failure",
    severity="critical",
    title="Replicas were recreated on another disk while their own was offline",
    why="A running broker must wait for its failed disk: to recreate the replica discards what the disk still "
    "holds, and copies everything once more.",
    sql="""
        SELECT m.broker_id, m.source AS directory_id, m.topic_id, m.topic, m.partition,
               max(m.replica_index) AS replica_index, max(m.at_offset) AS from_offset,
               max(m.at_time) AS from_time, max_by(m.target, m.at_offset) AS target,
               coalesce('; ' || max(k.keep), '') AS also
        FROM moves m
        LEFT JOIN last_copies k ON k.broker_id = m.broker_id
        JOIN directories_history d ON d.broker_id = m.broker_id AND d.directory_id = m.source
             AND d.ended_by = 'failed' AND d.to_offset <= m.at_offset
        JOIN brokers_history f ON f.broker_id = m.broker_id AND f.from_offset <= d.to_offset
             AND (f.to_offset IS NULL OR f.to_offset > d.to_offset)
        JOIN brokers_history n ON n.broker_id = m.broker_id AND n.from_offset <= m.at_offset
             AND (n.to_offset IS NULL OR n.to_offset > m.at_offset)
        LEFT JOIN directories_history s ON s.broker_id = m.broker_id AND s.directory_id = m.source
             AND s.from_offset >= d.to_offset AND s.from_offset <= m.at_offset
        CROSS JOIN params
        WHERE m.meaning = 'recreated' AND NOT m.undecided AND f.incarnation_id = n.incarnation_id
          AND s.directory_id IS NULL AND m.at_time >= params.window_time
        GROUP BY m.broker_id, m.source, m.topic_id, m.topic, m.partition
    """,
    finding="directory {directory_id} of broker {broker_id} had failed, and the replica was recreated in {target}",
    advice="upgrade broker {broker_id} to 3.7.1 or later; keep the failed disk until every copy is in sync{also}",
    source="KAFKA-16234; R-HOST-3",
)

FLAPPING = Check(
    id="B-13",
    name="dir-flapping",
    severity="warning",
    title="The recorded directory of a replica keeps changing",
    why="A move that is confirmed, undone and confirmed again means that broker and controller do not agree.",
    sql="""
        SELECT c.broker_id, c.topic_id, c.topic, c.partition, c.replica_index, c.from_offset, c.from_time, c.times
        FROM (
            SELECT m.broker_id, m.topic_id, m.topic, m.partition, max(m.replica_index) AS replica_index,
                   max(m.at_offset) AS from_offset, max(m.at_time) AS from_time, count(*) AS times
            FROM moves m CROSS JOIN params
            WHERE m.at_time >= params.flap_time
            GROUP BY m.broker_id, m.topic_id, m.topic, m.partition
        ) c
        CROSS JOIN params
        WHERE c.times >= params.flaps
    """,
    finding="the replica on broker {broker_id} changed its directory {times} times",
    advice="see what moves replicas on broker {broker_id} (kafka-reassign-partitions, Cruise Control), and its log",
    source="KAFKA-16365; R-MOVE-7",
)

REVERTED = Check(
    id="B-14",
    name="move-reverted",
    severity="warning",
    title="Moves between disks were undone soon after they were recorded",
    why="The controller had accepted the new directory, its disk is well, and the broker went back: the move did not "
    "take place.",
    sql="""
        WITH turns AS (
            SELECT m.*, params.window_time, coalesce(
                       m.meaning = 'moved' AND lag(m.meaning) OVER replica = 'moved'
                       AND m.came_offset = lag(m.at_offset) OVER replica AND m.target = lag(m.source) OVER replica
                       AND m.at_time <= lag(m.at_time) OVER replica + INTERVAL '1' SECOND * params.soon, false
                   ) AS back
            FROM moves m CROSS JOIN params
            WINDOW replica AS (PARTITION BY m.topic_id, m.partition, m.broker_id ORDER BY m.at_offset)
        ),
        runs AS (
            SELECT *, count(*) FILTER (NOT back) OVER (
                       PARTITION BY topic_id, partition, broker_id ORDER BY at_offset ROWS UNBOUNDED PRECEDING
                   ) AS run
            FROM turns
        ),
        ends AS (
            SELECT broker_id, max_by(source, at_offset) AS directory_id, topic_id, topic, partition,
                   max_by(replica_index, at_offset) AS replica_index, max(at_offset) AS from_offset,
                   max(at_time) AS from_time, max_by(target, at_offset) AS home
            FROM runs GROUP BY broker_id, topic_id, topic, partition, run
            HAVING count(*) % 2 = 0 AND max(at_time) >= max(window_time)
        )
        SELECT broker_id, directory_id, topic_id, topic, partition, max(replica_index) AS replica_index,
               max(from_offset) AS from_offset, max(from_time) AS from_time, max_by(home, from_offset) AS home
        FROM ends GROUP BY broker_id, directory_id, topic_id, topic, partition
    """,
    finding="moved to {directory_id} of broker {broker_id} and back to {home}",
    advice="see whether the copy still goes on (isFuture in what kafka-log-dirs --describe prints): the broker may "
    "bring the move again by itself; if not, and it is still wanted, start it again; the log of broker {broker_id} "
    "says what ended it",
    source="KAFKA-16297; R-MOVE-4, R-MOVE-7",
)

DIED_AFTER_MOVE = Check(
    id="B-15",
    name="dir-died-after-move",
    severity="info",
    title="Directories failed soon after replicas were moved into them, recreated in them or deleted from them",
    why="Such a failure may be Kafka's own and the disk sound: races of moves and deletions have taken directories "
    "offline.",
    sql="""
        WITH died AS (
            SELECT d.broker_id, d.directory_id, d.to_offset, d.to_time
            FROM directories_history d CROSS JOIN params
            WHERE d.ended_by = 'failed' AND d.to_time >= params.window_time
        ), touched AS (
            SELECT broker_id, target AS directory_id, at_offset, at_time,
                   CASE WHEN meaning = 'recreated' THEN 'recreated' ELSE 'moved' END AS how
            FROM moves WHERE meaning <> 'returned'
            UNION ALL
            SELECT broker_id, directory_id, to_offset, to_time, 'deleted'
            FROM assignments_history WHERE ended_by = 'removed' AND kind = 'assigned'
        )
        SELECT d.broker_id, d.directory_id, max(d.to_offset) AS from_offset, max(d.to_time) AS from_time,
               count(CASE WHEN t.how = 'moved' THEN 1 END) AS moved,
               count(CASE WHEN t.how = 'recreated' THEN 1 END) AS recreated,
               count(CASE WHEN t.how = 'deleted' THEN 1 END) AS deleted
        FROM died d
        JOIN touched t ON t.broker_id = d.broker_id AND t.directory_id = d.directory_id AND t.at_offset <= d.to_offset
        CROSS JOIN params
        WHERE d.to_time <= t.at_time + INTERVAL '1' SECOND * params.soon
        GROUP BY d.broker_id, d.directory_id
    """,
    finding="failed soon after replicas were moved in ({moved}), recreated ({recreated}) or deleted ({deleted})",
    advice="look at the log of broker {broker_id} before the disk is replaced: it names the file that could not be "
    "used",
    source="KAFKA-16082, KAFKA-15391",
)

IN_FLIGHT = Check(
    id="B-31",
    name="move-in-flight",
    severity="info",
    title="Reassignments are in progress",
    why="Replicas that are being added are not complete copies yet: do not count on them.",
    sql="""
        SELECT topic_id, topic, partition, adding, removing, from_offset, from_time,
               CASE WHEN array_length(array_intersect(isr, adding)) = array_length(isr)
                    THEN 'do not cancel it while no old replica is in sync: one that lacks writes may be elected'
                    WHEN array_length(array_intersect(adding, removing)) > 0
                    THEN 'kafka-reassign-partitions --cancel: from 4.3 on nothing ends what removes the replica it adds'
                    ELSE 'wait, or kafka-reassign-partitions --verify' END AS next
        FROM partitions
        WHERE array_length(adding) > 0 OR array_length(removing) > 0
    """,
    finding="adding {adding}, removing {removing}",
    advice="{next}",
    source="KIP-455; KIP-113; R-REASSIGN-3; R-RELEASE-4",
)


CHECKS = (STUCK, RETRY_LOOP, LOST, MIGRATING, UNFENCED, RECREATED, FLAPPING, REVERTED, DIED_AFTER_MOVE, IN_FLIGHT)
