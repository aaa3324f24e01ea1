"""Checks of the log itself, as far as its records show it."""

from pipelines.check.definition import Check

STALE = Check(
    id="B-28",
    name="stale-copy",
    severity="warning",
    title="The log was old when it was read",
    why="A controller writes a record twice a second. A log that ends earlier is an old copy, or its node is cut off: "
    "all answers are about that time.",
    sql="""
        SELECT at_offset AS since_offset, at_time AS since_time,
               CASE WHEN late >= 172800 THEN concat(CAST(CAST(floor(late / 86400) AS BIGINT) AS VARCHAR), ' days')
                    WHEN late >= 7200 THEN concat(CAST(CAST(floor(late / 3600) AS BIGINT) AS VARCHAR), ' hours')
                    WHEN late >= 120 THEN concat(CAST(CAST(floor(late / 60) AS BIGINT) AS VARCHAR), ' minutes')
                    ELSE concat(CAST(late AS VARCHAR), ' seconds') END AS age
        FROM params WHERE late > stale
    """,
    message="the newest record was {age} old when it was read",
    todo="read the log where it is written: the metadata directory of a running controller or broker",
    source="metadata.max.idle.interval.ms",
)

WITHOUT_VERSION = Check(
    id="B-29",
    name="mv-missing",
    severity="warning",
    title="The log has no metadata.version",
    why="Kafka then uses its oldest version, and records no directories.",
    sql="SELECT at_offset AS since_offset, at_time AS since_time FROM params WHERE metadata_version < 0",
    message="no FeatureLevelRecord sets metadata.version",
    todo="kafka-features describe says what the controllers believe; upgrade --metadata sets it",
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
        SELECT rewritten_offset AS since_offset, rewritten_time AS since_time, rewritten_offset,
               rewritten_from - 1 AS last
        FROM params WHERE rewritten_from >= 0 AND rewritten_time >= window_time
    """,
    message="the published offsets {rewritten_offset} to {last} were rolled back",
    todo="if no controller was elected then, compare the log directories of the controllers",
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
        SELECT unknown_offset AS since_offset, unknown_time AS since_time, unknown_kinds AS kinds
        FROM params WHERE unknown_offset >= 0
    """,
    message="not known: {kinds}",
    todo="upgrade jbod to one that knows it, then jbod rebuild",
    source="R-REC-4",
)

CHECKS = (STALE, WITHOUT_VERSION, REWRITTEN, UNKNOWN)
