"""Checks of directories: gone, shared, too few, too many, and how full the disks are.

How full they are, ``jbod sizes --keep`` keeps. Without it these checks find nothing. Their subject is the directory, or
the path if its id is not known. Sizes older than ``check.window_hours`` do not count.
"""

from __future__ import annotations

from pipelines.check.definition import Check

# A directory that a fenced broker never registered may be a disk that its next process has found (R-PROC-4).
UNKNOWN_DIRECTORY = Check(
    id="B-03",
    name="replica-in-unknown-dir",
    severity="critical",
    title="Replicas are assigned to a directory that their broker does not have",
    why="They are offline until the disk is back or they are recreated elsewhere; until then another copy must hold.",
    sql="""
        WITH owners AS (SELECT directory_id, max(broker_id) AS owner FROM directories GROUP BY directory_id)
        SELECT a.broker_id, a.directory_id, a.topic_id, a.topic, a.partition, a.replica_index,
               greatest(coalesce(y.from_offset, a.from_offset), coalesce(w.to_offset, y.from_offset, a.from_offset))
                   AS from_offset,
               greatest(coalesce(y.from_time, a.from_time), coalesce(w.to_time, y.from_time, a.from_time)) AS from_time,
               CASE WHEN o.owner IS NOT NULL THEN concat('is on broker ', CAST(o.owner AS VARCHAR),
                    CASE WHEN w.ended_by IS NULL THEN ', and no record has it on this one' ELSE '' END)
                    WHEN w.ended_by = 'failed' THEN 'failed while the broker ran'
                    WHEN w.ended_by IS NULL THEN 'is in no registration of the broker that is known'
                    ELSE 'is gone since the broker registered again' END AS what,
               coalesce(k.keep, concat(coalesce(k.before_restart || '; then ', ''), CASE
                   WHEN o.owner IS NOT NULL AND w.ended_by IS NULL THEN concat('leave the disk of broker ',
                       CAST(o.owner AS VARCHAR), ' where it is; if this broker has a copy of it in log.dirs, put back ',
                       'the disk that was there before, else reassign the replicas')
                   WHEN o.owner IS NOT NULL THEN 'put the disk back into its broker, or reassign the replicas'
                   WHEN w.ended_by = 'failed' THEN 'repair or replace the disk, and restart the broker'
                   WHEN w.ended_by IS NULL THEN 'compare the id with the meta.properties of the disks (jbod disks)'
                   ELSE 'mount the disk again and restart the broker, or reassign the replicas' END)) AS advice
        FROM assignments a
        JOIN brokers b ON b.broker_id = a.broker_id
        LEFT JOIN stays y ON y.topic_id = a.topic_id AND y.partition = a.partition AND y.broker_id = a.broker_id
             AND y.directory_id = a.directory_id
        LEFT JOIN directories d ON d.broker_id = a.broker_id AND d.directory_id = a.directory_id
        LEFT JOIN away w ON w.broker_id = a.broker_id AND w.directory_id = a.directory_id
        LEFT JOIN owners o ON o.directory_id = a.directory_id
        LEFT JOIN last_copies k ON k.broker_id = a.broker_id
        WHERE a.kind = 'assigned' AND d.directory_id IS NULL AND array_length(b.log_dirs) > 0
          AND NOT (b.fenced AND w.ended_by IS NULL AND o.owner IS NULL)
    """,
    finding="directory {directory_id} of broker {broker_id} {what}",
    source="KIP-858, Metadata caching; KRaftMetadataCache.getOfflineReplicas",
)

SHARED = Check(
    id="B-10",
    name="shared-dir-id",
    severity="critical",
    title="A directory id is registered twice, or is a reserved one",
    why="No record can say where its replicas are. Copied disks do this; Kafka refuses such registrations.",
    sql="""
        SELECT d.broker_id, d.directory_id, d.from_offset, d.from_time,
               concat('is registered by broker ', CAST(max(o.broker_id) AS VARCHAR), ' too') AS what
        FROM directories d
        JOIN directories o ON o.directory_id = d.directory_id AND o.broker_id <> d.broker_id
        GROUP BY d.broker_id, d.directory_id, d.from_offset, d.from_time
        UNION ALL
        SELECT broker_id, directory_id, from_offset, from_time, 'is a reserved id'
        FROM directories
        WHERE directory_id LIKE 'AAAAAAAAAAC%' OR directory_id LIKE 'AAAAAAAAAAD%'
           OR (directory_id LIKE 'AAAAAAAAAAAAAAAAAAAA%' AND substr(directory_id, 21, 1) BETWEEN 'A' AND 'Y')
        UNION ALL
        SELECT broker_id, NULL, from_offset, from_time, 'is listed twice'
        FROM brokers WHERE array_length(array_distinct(log_dirs)) < array_length(log_dirs)
    """,
    finding="a directory id of broker {broker_id} {what}",
    advice="stop broker {broker_id}, give the copied disk's meta.properties an id of its own (jbod disks), start again",
    source="MetaPropertiesEnsemble.verify; ClusterControlManager.registerBroker",
)

LAST_STANDING = Check(
    id="B-16",
    name="last-dir-standing",
    severity="critical",
    title="Brokers have lost all disks but one, or all of them",
    why="With the last disk the broker halts, and everything on it is offline at once. A report that the last one "
    "failed cannot be recorded: an empty list means no change.",
    sql="""
        WITH failed AS (
            SELECT w.broker_id, count(*) AS gone, max(w.to_offset) AS to_offset, max(w.to_time) AS to_time
            FROM away w
            JOIN processes r ON r.broker_id = w.broker_id AND w.to_offset >= r.from_offset
            WHERE w.ended_by = 'failed'
            GROUP BY w.broker_id
        ), silent AS (
            SELECT e.broker_id, min(e.log_offset) AS log_offset, min(e.append_time) AS append_time
            FROM records e
            JOIN processes r ON r.broker_id = e.broker_id AND e.log_offset >= r.from_offset
            WHERE e.record_type = 'BROKER_REGISTRATION_CHANGE_RECORD' AND e.record_version = 2
              AND octet_length(e.value) = 16
            GROUP BY e.broker_id
        )
        SELECT b.broker_id, coalesce(s.log_offset, f.to_offset) AS from_offset,
               coalesce(s.append_time, f.to_time) AS from_time,
               CASE WHEN s.log_offset IS NOT NULL THEN 'reported that its last directory failed'
                    ELSE concat('one directory left, failed since it started: ', CAST(f.gone AS VARCHAR)) END AS what,
               coalesce(k.keep, concat(coalesce(k.before_restart || '; then ', ''),
                                       'move what broker ', CAST(b.broker_id AS VARCHAR),
                                       ' leads to others, then replace the disks that failed and restart it')) AS advice
        FROM brokers b
        LEFT JOIN last_copies k ON k.broker_id = b.broker_id
        LEFT JOIN failed f ON f.broker_id = b.broker_id
        LEFT JOIN silent s ON s.broker_id = b.broker_id
        WHERE s.broker_id IS NOT NULL OR (f.broker_id IS NOT NULL AND array_length(b.log_dirs) = 1)
    """,
    finding="{what}",
    source="KIP-858, Handling log directory failures; BrokerRegistration.cloneWith",
)

STRAYS = Check(
    id="B-20",
    name="expected-strays",
    severity="info",
    title="Disks that are away still hold replicas of topics that were deleted",
    why="When such a disk or broker comes back, these logs are strays: they take room until Kafka or somebody deletes "
    "them, and versions before 3.7 may refuse to start.",
    sql="""
        SELECT broker_id, directory_id, topic_id, topic, partition, replica_index, reason,
               removed_offset AS from_offset, removed_time AS from_time
        FROM strays
    """,
    finding="deleted while its replica in directory {directory_id} of broker {broker_id} was offline ({reason})",
    advice="expect strays in the log of broker {broker_id} when the disk is back",
    source="KAFKA-14616, KAFKA-16814",
)

RECREATED_TOPIC = Check(
    id="B-21",
    name="recreated-topic-over-offline",
    severity="warning",
    title="A topic was recreated while a disk with its old replicas is away",
    why="The disk returns with a log of the same name and another topic id. Some Kafka versions then fail to start.",
    sql="""
        SELECT s.broker_id, s.directory_id, s.topic_id, s.topic, s.partition, s.replica_index,
               s.removed_offset AS from_offset, s.removed_time AS from_time, max(p.topic_id) AS topic_id_now,
               concat('before the disk goes back into broker ', CAST(s.broker_id AS VARCHAR),
                      ', see that its Kafka is 3.7.1 or later',
                      CASE WHEN max(k.keep) IS NULL THEN ', or start it blank'
                           ELSE concat('; ', max(k.keep)) END) AS advice
        FROM strays s
        LEFT JOIN last_copies k ON k.broker_id = s.broker_id
        JOIN partitions p ON p.topic = s.topic
        GROUP BY s.broker_id, s.directory_id, s.topic_id, s.topic, s.partition, s.replica_index, s.removed_offset,
                 s.removed_time
    """,
    finding="recreated as {topic_id_now}; directory {directory_id} of broker {broker_id} holds {topic_id}",
    source="KAFKA-16157",
)

AGE = Check(
    id="B-23",
    name="offline-dir-age",
    severity="warning",
    title="Directories have been away for too long",
    why="As long as a disk is away every partition on it has one copy less.",
    sql="""
        WITH held AS (
            SELECT broker_id, directory_id, count(*) AS replicas
            FROM assignments GROUP BY broker_id, directory_id
        )
        SELECT w.broker_id, w.directory_id, w.to_offset AS from_offset, w.to_time AS from_time, w.ended_by,
               coalesce(h.replicas, 0) AS replicas,
               coalesce(k.keep, concat(coalesce(k.before_restart || '; then ', ''),
                                       'replace the disk and restart broker ', CAST(w.broker_id AS VARCHAR),
                                       ', or reassign its replicas')) AS advice
        FROM away w
        LEFT JOIN last_copies k ON k.broker_id = w.broker_id
        CROSS JOIN params
        LEFT JOIN held h ON h.broker_id = w.broker_id AND h.directory_id = w.directory_id
        LEFT JOIN processes r ON r.broker_id = w.broker_id
        WHERE w.to_time <= params.offline_time
          AND (h.replicas > 0 OR (w.ended_by = 'failed' AND w.to_offset >= r.from_offset))
    """,
    finding="{ended_by}, replicas still assigned to it: {replicas:,}",
    source="KIP-858, Motivation",
)


FULL = Check(
    id="B-38",
    name="disk-full",
    severity="warning",
    title="Disks are nearly full",
    why="A disk without room fails as a broken one does: the broker takes it offline with all its replicas.",
    sql="""
        SELECT s.broker_id, s.directory_id, s.from_offset, s.from_time, s.path,
               CAST(floor(100 * CAST(s.total_bytes - s.free_bytes AS DOUBLE) / s.total_bytes) AS BIGINT) AS used,
               CAST(s.free_bytes AS DOUBLE) / 1073741824 AS free_gib,
               CASE WHEN 100 * CAST(s.free_bytes AS DOUBLE) / s.total_bytes <= (100 - params.full_percent) / 2.0
                    THEN 'critical' ELSE 'warning' END AS severity
        FROM disk_sizes s CROSS JOIN params
        WHERE s.total_bytes > 0 AND s.from_time >= params.window_time
          AND 100 * CAST(s.total_bytes - s.free_bytes AS DOUBLE) / s.total_bytes >= params.full_percent
    """,
    finding="{path} is {used} % full, {free_gib:,.1f} GiB are free",
    advice="move replicas to other disks (jbod plan balance {broker_id}; after the loss of a disk to other brokers: "
    "jbod plan balance), or shorten the retention of what fills it (jbod sizes names the topics)",
    source="LogDirFailureChannel; KIP-827",
)

FILLING = Check(
    id="B-39",
    name="disk-filling",
    severity="warning",
    title="Disks will be full in a few days",
    why="A move of replicas takes hours to days, and needs room while both copies exist.",
    sql="""
        SELECT s.broker_id, s.directory_id, s.from_offset, s.from_time, s.path,
               CAST(s.growth AS DOUBLE) / 1073741824 AS growth_gib,
               CAST(s.free_bytes AS DOUBLE) / 1073741824 AS free_gib,
               CAST(floor(CAST(s.free_bytes AS DOUBLE) / s.growth) AS BIGINT) AS days
        FROM disk_sizes s CROSS JOIN params
        WHERE s.growth > 0 AND s.from_time >= params.window_time
          AND s.free_bytes < CAST(s.growth AS DOUBLE) * params.full_days
    """,
    finding="{path} grows by {growth_gib:,.1f} GiB a day, and {free_gib:,.1f} GiB are free: full in {days} days",
    advice="while there is room, move replicas to other disks (jbod plan balance {broker_id}; after the loss of a disk "
    "to other brokers: jbod plan balance), or shorten the retention of what fills it (jbod sizes names the topics)",
    source="KIP-827",
)

UNEVEN_BYTES = Check(
    id="B-40",
    name="byte-skew",
    severity="info",
    title="Disks hold far more bytes than others of the same broker",
    why="Kafka places replicas by count, never by bytes, so the fullest disk fills while others have room.",
    sql="""
        WITH means AS (
            SELECT broker_id, sum(bytes) AS bytes, sum(total_bytes) AS total_bytes, count(*) AS disks,
                   count(total_bytes) AS known
            FROM disk_sizes WHERE bytes IS NOT NULL GROUP BY broker_id
        ), shares AS (
            SELECT s.broker_id, s.directory_id, s.from_offset, s.from_time, s.path, s.bytes,
                   CASE WHEN m.known = m.disks THEN CAST(m.bytes AS DOUBLE) * s.total_bytes / m.total_bytes
                        ELSE CAST(m.bytes AS DOUBLE) / m.disks END AS share
            FROM disk_sizes s JOIN means m ON m.broker_id = s.broker_id
        )
        SELECT s.broker_id, s.directory_id, s.from_offset, s.from_time, s.path,
               CAST(s.bytes AS DOUBLE) / 1073741824 AS gib,
               CAST(s.share AS DOUBLE) / 1073741824 AS share_gib
        FROM shares s CROSS JOIN params
        WHERE s.from_time >= params.window_time AND s.bytes > params.skew_factor * s.share
          AND s.bytes >= s.share + params.skew_bytes
    """,
    finding="{path} holds {gib:,.1f} GiB, its share of what the broker holds is {share_gib:,.1f} GiB",
    advice="jbod plan balance {broker_id} evens the disks out, or says why the broker moves nothing",
    source="KIP-178",
)


CHECKS = (UNKNOWN_DIRECTORY, SHARED, LAST_STANDING, STRAYS, RECREATED_TOPIC, AGE, FULL, FILLING, UNEVEN_BYTES)
