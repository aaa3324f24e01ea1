"""Checks of registrations."""

from pipelines.check.definition import Check

WITHOUT_DIRECTORIES = Check(
    id="B-08",
    name="dirless-registration",
    severity="critical",
    title="Brokers are registered without directories",
    why="Every directory of such a broker counts as online: a dead disk is not noticed.",
    sql="""
        SELECT b.broker_id, b.from_offset AS since_offset, b.from_time AS since_time,
               coalesce(k.before_restart || '; then ', '') AS first
        FROM brokers b CROSS JOIN params LEFT JOIN last_copies k ON k.broker_id = b.broker_id
        WHERE array_length(b.log_dirs) = 0 AND params.metadata_version >= 17
    """,
    message="registered without directories, though metadata.version records them",
    todo="{first}restart broker {broker_id}; if this does not help, its Kafka is older than 3.7",
    source="R-IDENT-3; KAFKA-16162",
)

CHURN = Check(
    id="B-09",
    name="re-registration-churn",
    severity="warning",
    title="Running brokers were fenced or given a new epoch by registering again",
    why="An amended registration should change nothing else; Kafka 3.7.0 fenced the broker, and its partitions moved.",
    sql="""
        SELECT b.broker_id, count(*) AS times, max(n.from_offset) AS since_offset, max(n.from_time) AS since_time
        FROM brokers_history b
        JOIN brokers_history n ON n.broker_id = b.broker_id AND n.from_offset = b.to_offset
        CROSS JOIN params
        WHERE b.ended_by = 'registered' AND n.incarnation_id = b.incarnation_id
          AND (n.broker_epoch <> b.broker_epoch OR (n.fenced AND NOT b.fenced)) AND n.from_time >= params.window_time
        GROUP BY b.broker_id
    """,
    message="the same process registered again and lost its epoch or was fenced; times: {times}",
    todo="upgrade broker {broker_id} and the controllers to 3.7.1 or later",
    source="KAFKA-16757, KAFKA-16952; ClusterControlManager.registerBroker",
)

BELOW_VERSION = Check(
    id="B-12",
    name="jbod-below-mv",
    severity="critical",
    title="Brokers have several disks while metadata.version does not record directories",
    why="A failed disk is not reported: its partitions keep a leader that cannot answer.",
    sql="""
        SELECT b.broker_id, b.from_offset AS since_offset, b.from_time AS since_time,
               array_length(b.log_dirs) AS directories, params.metadata_release
        FROM brokers b CROSS JOIN params
        WHERE array_length(b.log_dirs) > 1 AND params.metadata_version < 17
    """,
    message="directories: {directories}; metadata.version {metadata_release}; 17 (3.7-IV2) is the first to record them",
    todo="kafka-features upgrade --metadata 3.9, or one disk for each broker until then",
    source="KAFKA-16606",
)

CHECKS = (WITHOUT_DIRECTORIES, CHURN, BELOW_VERSION)
