"""Checks of replicas that moved, came back or should not have moved."""

from pipelines.check.definition import Check

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
        SELECT b.broker_id, b.source AS directory_id, b.topic_id, b.topic, b.partition,
               max(b.replica_index) AS replica_index, max(b.at_offset) AS from_offset,
               max(b.at_time) AS from_time, max_by(b.target, b.at_offset) AS home
        FROM moves a
        JOIN moves b ON b.topic_id = a.topic_id AND b.partition = a.partition AND b.broker_id = a.broker_id
             AND b.came_offset = a.at_offset AND b.target = a.source
        CROSS JOIN params
        WHERE a.meaning = 'moved' AND b.meaning = 'moved' AND b.at_time >= params.window_time
          AND b.at_time <= a.at_time + INTERVAL '1' SECOND * params.soon
        GROUP BY b.broker_id, b.source, b.topic_id, b.topic, b.partition
    """,
    finding="moved to {directory_id} of broker {broker_id} and back to {home}",
    advice="if the move is still wanted, start it again; the log of broker {broker_id} says what ended it",
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
        SELECT topic_id, topic, partition, adding, removing, from_offset, from_time
        FROM partitions
        WHERE array_length(adding) > 0 OR array_length(removing) > 0
    """,
    finding="adding {adding}, removing {removing}",
    advice="wait, or kafka-reassign-partitions --verify",
    source="KIP-455; KIP-113",
)

CHECKS = (RECREATED, FLAPPING, REVERTED, DIED_AFTER_MOVE, IN_FLIGHT)
