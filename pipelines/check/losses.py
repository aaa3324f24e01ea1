"""Checks of data: partitions whose last complete copy was given up, or whose leader has no complete copy."""

from pipelines.check.definition import Check

_SQL = """
        SELECT topic_id, topic, partition, since_offset, since_time, finding, advice,
               CASE WHEN accepted THEN 'info' ELSE '{severity}' END AS severity
        FROM losses WHERE kind = '{kind}'
    """

DATA_LOST = Check(
    id="B-32",
    name="data-lost",
    severity="critical",
    title="The last copy with every acknowledged write was given up",
    why="Kafka does not report it: an empty, recreated replica leads like any other while its broker counts as in "
    "sync or eligible. Only the old disk may still have the data, as long as nobody wipes it.",
    sql=_SQL.format(severity="critical", kind="lost"),
    message="{finding}",
    todo="{advice}",
    source="KIP-858; KIP-966; R-LOSS-4, R-LOSS-6",
)

MAY_LACK_WRITES = Check(
    id="B-33",
    name="may-lack-writes",
    severity="warning",
    title="Partitions may lack acknowledged writes: their leader's copy was not complete",
    why="The partition continued without the writes that its leader lacks, and other copies are truncated to the "
    "leader's log. The metadata does not say how many writes are missing.",
    sql=_SQL.format(severity="warning", kind="may lack writes"),
    message="{finding}",
    todo="{advice}",
    source="KIP-704; KIP-966; R-LOSS-5, R-LOSS-6",
)

DATA_UNREACHABLE = Check(
    id="B-37",
    name="data-unreachable",
    severity="critical",
    title="The last copy with every acknowledged write lies on a broker that is not registered",
    why="Nothing is lost while that disk keeps the copy and no other replica leads: the copy is back when the broker "
    "registers with that disk.",
    sql=_SQL.format(severity="critical", kind="unreachable"),
    message="{finding}",
    todo="{advice}",
    source="KIP-858; R-COPY-9, R-LOSS-4",
)

CHECKS = (DATA_LOST, MAY_LACK_WRITES, DATA_UNREACHABLE)
