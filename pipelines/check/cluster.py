"""Checks of the cluster as a whole: its registrations, what blocks an upgrade, and its log.

An upgrade is blocked as ``jbod upgrade-check`` says. The log is checked as far as its records show it.
"""

from __future__ import annotations

from pipelines.check.definition import Check

WITHOUT_DIRECTORIES = Check(
    id="B-08",
    name="dirless-registration",
    severity="critical",
    title="Brokers are registered without directories",
    why="Every directory of such a broker counts as online: a dead disk is not noticed.",
    sql="""
        SELECT b.broker_id, b.from_offset, b.from_time,
               coalesce(coalesce(k.keep, k.before_restart) || '; then ', '') AS first
        FROM brokers b CROSS JOIN params LEFT JOIN last_copies k ON k.broker_id = b.broker_id
        WHERE array_length(b.log_dirs) = 0 AND params.metadata_version >= 17
    """,
    finding="registered without directories, though metadata.version records them",
    advice="{first}restart broker {broker_id}; if this does not help, its Kafka is older than 3.7",
    source="R-IDENT-3; KAFKA-16162",
)

CHURN = Check(
    id="B-09",
    name="re-registration-churn",
    severity="warning",
    title="Running brokers were fenced or given a new epoch by registering again",
    why="An amended registration should change nothing else; Kafka 3.7.0 fenced the broker, and its partitions moved.",
    sql="""
        SELECT b.broker_id, count(*) AS times, max(n.from_offset) AS from_offset, max(n.from_time) AS from_time
        FROM brokers_history b
        JOIN brokers_history n ON n.broker_id = b.broker_id AND n.from_offset = b.to_offset
        CROSS JOIN params
        WHERE b.ended_by = 'registered' AND n.incarnation_id = b.incarnation_id
          AND (n.broker_epoch <> b.broker_epoch OR (n.fenced AND NOT b.fenced)) AND n.from_time >= params.window_time
        GROUP BY b.broker_id
    """,
    finding="the same process registered again and lost its epoch or was fenced; times: {times}",
    advice="upgrade broker {broker_id} and the controllers to 3.7.1 or later",
    source="KAFKA-16757, KAFKA-16952; ClusterControlManager.registerBroker",
)

BELOW_VERSION = Check(
    id="B-12",
    name="jbod-below-mv",
    severity="critical",
    title="Brokers have several disks while metadata.version does not record directories",
    why="A failed disk is not reported: its partitions keep a leader that cannot answer.",
    sql="""
        SELECT b.broker_id, b.from_offset, b.from_time,
               array_length(b.log_dirs) AS directories, params.metadata_release
        FROM brokers b CROSS JOIN params
        WHERE array_length(b.log_dirs) > 1 AND params.metadata_version < 17
    """,
    finding="directories: {directories}; metadata.version {metadata_release}; 17 (3.7-IV2) is the first to record them",
    advice="kafka-features upgrade --metadata 3.9, or one disk for each broker until then",
    source="KAFKA-16606",
)

GHOST = Check(
    id="B-34",
    name="ghost-registration",
    severity="warning",
    title="Registrations of nodes that no longer exist block a feature level",
    why="Kafka asks every registration whether it supports a level, also that of a controller which was replaced and "
    "of a broker that never came back, and refuses the upgrade. Below metadata.version 4.4-IV2 no command unregisters "
    "a controller.",
    sql="""
        SELECT broker_id, from_offset, from_time, finding, advice FROM held_back WHERE ghost
    """,
    finding="{finding}",
    source="KIP-1312; FeatureControlManager.reasonNotSupported",
)

BEHIND = Check(
    id="B-35",
    name="feature-held-back",
    severity="info",
    title="Nodes support lower feature levels than others, and block raising them",
    why="Normal while a cluster is upgraded node by node. Afterwards it is a node that was left out.",
    sql="""
        SELECT broker_id, from_offset, from_time, finding, advice FROM held_back WHERE NOT ghost
    """,
    finding="{finding}",
    source="KIP-584; FeatureControlManager.reasonNotSupported",
)

STALE = Check(
    id="B-28",
    name="stale-copy",
    severity="warning",
    title="The log was old when it was read",
    why="A controller writes a record twice a second. A log that ends earlier is an old copy, or its node is cut off: "
    "all answers are about that time.",
    sql="""
        SELECT at_offset AS from_offset, at_time AS from_time,
               CASE WHEN late >= 172800 THEN concat(CAST(CAST(floor(late / 86400) AS BIGINT) AS VARCHAR), ' days')
                    WHEN late >= 7200 THEN concat(CAST(CAST(floor(late / 3600) AS BIGINT) AS VARCHAR), ' hours')
                    WHEN late >= 120 THEN concat(CAST(CAST(floor(late / 60) AS BIGINT) AS VARCHAR), ' minutes')
                    ELSE concat(CAST(late AS VARCHAR), ' seconds') END AS age
        FROM params WHERE late > stale
    """,
    finding="the newest record was {age} old when it was read",
    advice="read the log where it is written: the metadata directory of a running controller or broker",
    source="metadata.max.idle.interval.ms",
)

LEADERLESS = Check(
    id="B-41",
    name="quorum-without-leader",
    severity="critical",
    title="No leader of the quorum answers",
    why="Without a leader nothing is committed: no partition gets another leader, no broker registers, no replica "
    "changes its directory.",
    sql="""
        SELECT at_offset AS from_offset, at_time AS from_time, leaderless FROM params WHERE leaderless > stale
    """,
    finding="no leader has answered for {leaderless} seconds; what is known ends at offset {from_offset}",
    advice="start controllers until a majority runs; if they run, jbod quorum --live says why none is reached",
    source="KIP-595",
)

WITHOUT_VERSION = Check(
    id="B-29",
    name="mv-missing",
    severity="warning",
    title="The log has no metadata.version",
    why="Kafka then uses its oldest version, and records no directories.",
    sql="SELECT at_offset AS from_offset, at_time AS from_time FROM params WHERE metadata_version < 0",
    finding="no FeatureLevelRecord sets metadata.version",
    advice="kafka-features describe says what the controllers believe; upgrade --metadata sets it",
    source="KAFKA-20839",
)

REWRITTEN = Check(
    id="B-30",
    name="epoch-fork",
    severity="warning",
    title="The log was rewritten after it had been read",
    why="Earlier answers about these offsets were wrong. After an election the end of a log may be cut off and "
    "rewritten; without an election, two copies differ.",
    sql="""
        SELECT rewritten_offset AS from_offset, rewritten_time AS from_time, rewritten_offset,
               rewritten_from - 1 AS last
        FROM params WHERE rewritten_from >= 0 AND rewritten_time >= window_time
    """,
    finding="the published offsets {rewritten_offset} to {last} were rolled back",
    advice="if no controller was elected then, compare the log directories of the controllers",
    source="Raft log matching",
)

UNKNOWN = Check(
    id="B-36",
    name="unknown-record",
    severity="critical",
    title="The log has records that this jbod does not know",
    why="Kafka was upgraded and jbod was not. The records are kept as they are, but no table has what they say: every "
    "answer about a later offset may lack it.",
    sql="""
        SELECT unknown_offset AS from_offset, unknown_time AS from_time, unknown_kinds AS kinds
        FROM params WHERE unknown_offset >= 0
    """,
    finding="not known: {kinds}",
    advice="upgrade jbod to one that knows it, then jbod rebuild",
    source="R-REC-4",
)

CHECKS = (
    WITHOUT_DIRECTORIES,
    CHURN,
    BELOW_VERSION,
    GHOST,
    BEHIND,
    STALE,
    LEADERLESS,
    WITHOUT_VERSION,
    REWRITTEN,
    UNKNOWN,
)
