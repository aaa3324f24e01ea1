"""Checks of directories, and of the replicas that need one."""

from pipelines.check.definition import Check

UNKNOWN_DIRECTORY = Check(
    id="B-03",
    name="replica-in-unknown-dir",
    severity="critical",
    title="Replicas are assigned to a directory that their broker does not have",
    why="They are offline until the disk is back or they are made anew elsewhere; until then another copy must hold.",
    sql="""
        WITH ends AS (
            SELECT broker_id, directory_id, ended_by, to_offset, to_time,
                   row_number() OVER (PARTITION BY broker_id, directory_id ORDER BY from_offset DESC) AS newest
            FROM directories_history
        ), owners AS (
            SELECT directory_id, max(broker_id) AS owner FROM directories GROUP BY directory_id
        )
        SELECT a.broker_id, a.directory_id, a.topic_id, a.topic, a.partition, a.replica_index,
               greatest(a.from_offset, coalesce(e.to_offset, a.from_offset)) AS since_offset,
               greatest(a.from_time, coalesce(e.to_time, a.from_time)) AS since_time,
               CASE WHEN o.owner IS NOT NULL THEN concat('is on broker ', CAST(o.owner AS VARCHAR))
                    WHEN e.ended_by = 'failed' THEN 'failed while the broker ran'
                    WHEN e.ended_by IS NULL THEN 'was never registered by the broker'
                    ELSE 'is gone since the broker registered again' END AS what,
               CASE WHEN o.owner IS NOT NULL THEN 'put the disk back into its broker, or reassign the replicas'
                    WHEN e.ended_by = 'failed' THEN 'repair or replace the disk, then restart the broker'
                    WHEN e.ended_by IS NULL THEN 'compare the id with the meta.properties of the disks (jbod disks)'
                    ELSE 'mount the disk again and restart the broker, or reassign the replicas' END AS advice
        FROM assignments a
        JOIN brokers b ON b.broker_id = a.broker_id
        LEFT JOIN directories d ON d.broker_id = a.broker_id AND d.directory_id = a.directory_id
        LEFT JOIN ends e ON e.broker_id = a.broker_id AND e.directory_id = a.directory_id AND e.newest = 1
        LEFT JOIN owners o ON o.directory_id = a.directory_id
        WHERE a.kind = 'assigned' AND d.directory_id IS NULL AND array_length(b.log_dirs) > 0
    """,
    message="directory {directory_id} of broker {broker_id} {what}",
    todo="{advice}",
    source="KIP-858, Metadata caching; R-DIR-1",
)

CHECKS = (UNKNOWN_DIRECTORY,)
