"""Checks of how full disks are, by the sizes that ``jbod sizes --keep`` kept. Without them they find nothing.

The subject is the directory, or the path if its id is not known. Sizes older than ``check.window_hours`` do not count.
"""

from pipelines.check.definition import Check

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
    advice="move replicas to other disks (jbod plan balance {broker_id}), or shorten the retention of what fills it "
    "(jbod sizes names the topics)",
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
    advice="move replicas to other disks while there is room (jbod plan balance {broker_id}), or shorten the retention "
    "of what fills it (jbod sizes names the topics)",
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
    advice="jbod plan balance {broker_id} evens the disks out",
    source="KIP-178",
)

CHECKS = (FULL, FILLING, UNEVEN_BYTES)
