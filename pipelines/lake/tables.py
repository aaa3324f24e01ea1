"""The tables of a lake: columns, keys and constraints, declared once.

Ids are 22-character base64 strings, as in Kafka. ``*_offset`` is a log offset, ``*_time`` the append time of its batch
(UTC). History rows are half-open: true for every offset N with ``from_offset <= N < to_offset``. ``to_offset`` is null
while the row is true. ``from_snapshot`` marks a row that began at or before ``from_offset``: the log no longer reaches
back that far, and the row is known from a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote

import pyarrow as pa

from pipelines.lake.uris import LakeUri

TIME = pa.timestamp("us", tz="UTC")
INTS = pa.list_(pa.field("element", pa.int32(), nullable=False))
IDS = TEXTS = pa.list_(pa.field("element", pa.string(), nullable=False))
SQL_TYPES: Mapping[object, str] = {
    str: "VARCHAR",
    int: "BIGINT",
    float: "DOUBLE",
    datetime: "TIMESTAMPTZ",
    pa.string(): "VARCHAR",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
    TIME: "TIMESTAMPTZ",
}
"""DuckDB's names of Python's and Arrow's types."""


OPEN_SHARD = "open_shard"


@dataclass(frozen=True)
class Table:
    """One Delta table: the Arrow schema of its files (column comments in the field metadata), key and constraints."""

    name: str
    comment: str
    schema: pa.Schema
    key: Sequence[str]
    checks: Mapping[str, str] = field(default_factory=dict)
    has_open_rows: bool = False
    """Whether later batches may change some rows. If so, the table is partitioned by the shard of these rows."""

    @property
    def history(self) -> bool:
        """Whether rows are intervals that a later batch may close."""
        return "to_offset" in self.schema.names

    @property
    def partition_by(self) -> list[str]:
        """Partition columns. Delta keeps their values in its log, not in the files."""
        return [OPEN_SHARD] if self.has_open_rows else []

    @property
    def delta_schema(self) -> pa.Schema:
        """The schema in Delta's log, with the partition columns."""
        return self.schema.append(_OPEN_SHARD) if self.has_open_rows else self.schema


def column(name: str, kind: pa.DataType, comment: str, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"comment": comment})


_OPEN_SHARD = column(
    OPEN_SHARD, pa.int32(), "shard that replaces the row with a later batch, while it is open; else null", null=True
)
_INTERVAL = [
    column("from_offset", pa.int64(), "offset of the record that made the row true"),
    column("from_time", TIME, "append time of that record"),
    column("to_offset", pa.int64(), "offset of the record that ended it; null while true", null=True),
    column("to_time", TIME, "append time of that record; null while true", null=True),
    column("from_snapshot", pa.bool_(), "known from a snapshot: it began at or before from_offset"),
]
_TOPIC = [
    column("topic_id", pa.string(), "id of the topic"),
    column("topic", pa.string(), "name of the topic"),
    column("partition", pa.int32(), "index of the partition"),
]
_REPLICA = [
    *_TOPIC,
    column("replica_index", pa.int32(), "position in the partition's replicas"),
    column("broker_id", pa.int32(), "broker of the replica"),
    column("directory_id", pa.string(), "directory of the replica"),
]


def _history(
    name: str, comment: str, columns: Sequence[pa.Field], key: Sequence[str], ended_by: str = "", **checks: str
) -> Table:
    """A table whose rows are intervals. ``ended_by``: why one ends, where a column says it."""
    last = [column("ended_by", pa.string(), ended_by, null=True)] if ended_by else []
    return Table(
        name,
        f"{comment} Open rows are replaced: to follow what happens, stream from the table changes.",
        pa.schema([*columns, *_INTERVAL, *last]),
        key=(*key, "from_offset"),
        checks={"interval_is_ordered": "to_offset IS NULL OR to_offset > from_offset", **checks},
        has_open_rows=True,
    )


RECORDS = Table(
    "records",
    "Every record read, in log order; what a rebuild starts from. Aborted transactions are left out.",
    pa.schema(
        [
            column("log_offset", pa.int64(), "offset of the record; for a record of a snapshot, the last offset in it"),
            column("epoch", pa.int32(), "raft epoch of the batch"),
            column("append_time", TIME, "append time of the batch"),
            column("batch_offset", pa.int64(), "base offset of the batch; in a snapshot, its offset there"),
            column("record_type", pa.string(), "Kafka's name of the type, control records included"),
            column("record_version", pa.int16(), "version of the record's schema"),
            column("snapshot", pa.bool_(), "whether it was read from a snapshot"),
            column(
                "snapshot_index", pa.int64(), "position within the snapshot; null for records of the log", null=True
            ),
            column("topic_id", pa.string(), "id of the topic it names", null=True),
            column("partition", pa.int32(), "partition it names", null=True),
            column("broker_id", pa.int32(), "broker it names", null=True),
            column("value", pa.binary(), "the record value as it is in the log", null=True),
        ]
    ),
    key=("log_offset", "snapshot_index"),
)

BROKERS = _history(
    "brokers",
    "A broker's registration over time.",
    [
        column("broker_id", pa.int32(), "id of the broker"),
        column("broker_epoch", pa.int64(), "epoch of the registration"),
        column("incarnation_id", pa.string(), "id of the broker process"),
        column("fenced", pa.bool_(), "whether it is fenced"),
        column("in_controlled_shutdown", pa.bool_(), "whether it is shutting down"),
        column("rack", pa.string(), "its rack", null=True),
        column("log_dirs", IDS, "ids of its online directories, in Kafka's order"),
        column("cordoned_log_dirs", IDS, "ids of its cordoned directories (4.3 and later)", null=True),
    ],
    key=("broker_id",),
    ended_by="why the row ended: registered, changed, unregistered, resync",
)

DIRECTORIES = _history(
    "directories",
    "A directory online on a broker.",
    [
        column("broker_id", pa.int32(), "id of the broker"),
        column("directory_id", pa.string(), "id of the directory"),
        column("broker_epoch", pa.int64(), "epoch of the registration that first listed it"),
    ],
    key=("broker_id", "directory_id"),
    ended_by="failed, deregistered, moved, unregistered or resync",
)

PARTITIONS = _history(
    "partitions",
    "A partition's state between two records that touch it.",
    [
        *_TOPIC,
        column("replicas", INTS, "brokers that hold a replica"),
        column("isr", INTS, "in-sync replicas"),
        column("elr", INTS, "eligible leader replicas"),
        column("last_known_elr", INTS, "last known eligible leader replicas"),
        column("adding", INTS, "replicas being added by a reassignment"),
        column("removing", INTS, "replicas being removed by a reassignment"),
        column("leader", pa.int32(), "leader, -1 when there is none"),
        column("leader_epoch", pa.int32(), "leader epoch"),
        column("partition_epoch", pa.int32(), "partition epoch"),
        column("leader_recovery", pa.string(), "RECOVERED, or RECOVERING after an unclean election"),
        column("directories", IDS, "directory of each replica, parallel to replicas"),
        column(
            "may_follow_loss",
            pa.bool_(),
            "a leader, or a replica in sync or eligible, that the state before did not name: it can follow a loss",
        ),
    ],
    key=("topic_id", "partition"),
    a_directory_per_replica="cardinality(directories) = cardinality(replicas)",
)

ASSIGNMENTS = _history(
    "assignments",
    "A replica in a directory.",
    [
        *_REPLICA,
        column("kind", pa.string(), "assigned, unassigned, lost or migrating"),
    ],
    key=("topic_id", "partition", "replica_index"),
    ended_by="assigned, moved, unassigned, lost, reassigned, reordered, removed, resync",
    kind_is_known="kind IN ('assigned', 'unassigned', 'lost', 'migrating')",
    reserved_ids_have_their_kind="kind <> 'assigned' OR directory_id NOT IN ('AAAAAAAAAAAAAAAAAAAAAA', "
    "'AAAAAAAAAAAAAAAAAAAAAQ', 'AAAAAAAAAAAAAAAAAAAAAg')",
)

OFFLINE_REPLICAS = _history(
    "offline_replicas",
    "A replica that is offline, and why.",
    [
        *_REPLICA,
        column("reason", pa.string(), "broker missing, broker fenced, directory offline or directory lost"),
    ],
    key=("topic_id", "partition", "replica_index"),
    reason_is_known="reason IN ('broker missing', 'broker fenced', 'directory offline', 'directory lost')",
)

CONTROLLERS = _history(
    "controllers",
    "A controller's registration over time.",
    [
        column("controller_id", pa.int32(), "id of the controller"),
        column("incarnation_id", pa.string(), "id of the controller process"),
        column("zk_migration_ready", pa.bool_(), "whether it is ready for a migration from ZooKeeper"),
        column("endpoints", TEXTS, "its listeners, NAME://HOST:PORT"),
        column("features", TEXTS, "names of the features that it supports, ascending"),
        column("lowest_levels", INTS, "lowest supported level of each feature, parallel to features"),
        column("highest_levels", INTS, "highest supported level of each feature, parallel to features"),
    ],
    key=("controller_id",),
    ended_by="why the row ended: registered, unregistered, resync",
)

VOTERS = _history(
    "voters",
    "A node of the KRaft quorum as control records of the log name it. A former voter is an observer.",
    [
        column("node_id", pa.int32(), "id of the node"),
        column("directory_id", pa.string(), "id of its metadata directory; null while voters are static", null=True),
        column("endpoints", TEXTS, "its listeners, NAME://HOST:PORT; none while voters are static"),
        column("kraft_lowest", pa.int16(), "lowest level of kraft.version that it supports", null=True),
        column("kraft_highest", pa.int16(), "highest level of kraft.version that it supports", null=True),
        column("role", pa.string(), "leader, voter or observer"),
        column("voter", pa.bool_(), "whether it votes: a leader that was removed from the voters does not"),
        column("role_offset", pa.int64(), "offset of the record that made it a voter, or (observer) no voter"),
        column("role_time", TIME, "append time of that record"),
        column("elected_offset", pa.int64(), "offset of the record that made it the leader", null=True),
        column("elected_time", TIME, "append time of that record", null=True),
        column("heard_offset", pa.int64(), "newest record that shows it alive: elected, voted or joined", null=True),
        column("heard_time", TIME, "append time of that record", null=True),
        column("kraft_version", pa.int16(), "level of kraft.version of the quorum, 0 where no record says"),
    ],
    key=("node_id",),
    ended_by="why the row ended: election, voters, kraft version, resync",
    role_is_known="role IN ('leader', 'voter', 'observer')",
)

CHANGES = Table(
    "changes",
    "Everything that happened, a row each, in log order. Rows are only appended: stream from this table. Where history "
    "was taken back, rows say so (column retraction).",
    pa.schema(
        [
            column("log_offset", pa.int64(), "offset of the record that made the change"),
            column("batch_offset", pa.int64(), "base offset of the record's batch; for a snapshot, log_offset"),
            column("append_time", TIME, "append time of the batch"),
            column("what", pa.string(), "kind of change, such as assignment or leader (docs/spec/changes.md)"),
            column("topic_id", pa.string(), "id of the topic", null=True),
            column("topic", pa.string(), "name of the topic", null=True),
            column("partition", pa.int32(), "index of the partition", null=True),
            column("broker_id", pa.int32(), "broker that changed, or of the replica", null=True),
            column("directory_id", pa.string(), "directory that changed, or of the offline replica", null=True),
            column("before", pa.string(), "value before, null for none", null=True),
            column("after", pa.string(), "value after, null for none", null=True),
            column("why", pa.string(), "cause, for kinds of change that have several", null=True),
            column("from_snapshot", pa.bool_(), "known from a snapshot: it happened at or before log_offset"),
            column("retraction", pa.bool_(), "takes back the earlier row of its key; before and after are swapped"),
            column("generation", pa.int32(), "how often history was taken back or rebuilt before the row was written"),
        ]
    ),
    key=("log_offset", "what", "topic_id", "partition", "broker_id", "directory_id", "generation", "retraction"),
)

ASSIGNMENT_REQUESTS = Table(
    "assignment_requests",
    "A replica's directory as a broker asked for it (an entry of AssignReplicasToDirs), and what became of that.",
    pa.schema(
        [
            column("broker_id", pa.int32(), "broker that asked"),
            column("broker_epoch", pa.int64(), "broker epoch in the request"),
            column("topic_id", pa.string(), "id of the topic"),
            column("topic", pa.string(), "name of the topic, null where the log does not know it", null=True),
            column("partition", pa.int32(), "index of the partition"),
            column("directory_id", pa.string(), "directory in the request"),
            column("requested_time", TIME, "when the request arrived, by the controller's clock"),
            column("answered_time", TIME, "when it was answered, by the controller's clock"),
            column("attempt", pa.int32(), "1 more than the number of refusals in a row before it"),
            column("first_requested_time", TIME, "requested_time of the first of these attempts"),
            column("error", pa.int32(), "error code of the entry, or of the whole request; 0: accepted"),
            column("outcome", pa.string(), "refused, recorded, already true, pending or not in the log"),
            column("why", pa.string(), "what the log lacks, if it does not show an accepted request", null=True),
            column("realised_offset", pa.int64(), "offset of the record that made it true", null=True),
            column("realised_time", TIME, "append time of that record", null=True),
            column("latency_ms", pa.int64(), "from the first attempt to that record, if it is later", null=True),
            column("controller", pa.string(), "address at which the controller took the request"),
            column("connection", pa.string(), "the connection, as the controller named it"),
            column("correlation_id", pa.int32(), "number of the request on its connection"),
            column("entry", pa.int32(), "position of the entry in its request"),
            column("entries", pa.int32(), "number of entries in its request"),
        ]
    ),
    key=("connection", "correlation_id", "answered_time", "entry"),
    checks={
        "outcome_is_known": "outcome IN ('refused', 'recorded', 'already true', 'pending', 'not in the log')",
        "true_by_a_record": "realised_offset IS NOT NULL OR outcome NOT IN ('recorded', 'already true')",
        "no_record_without_being_true": "realised_offset IS NULL OR outcome IN ('recorded', 'already true')",
    },
    has_open_rows=True,
)

REQUEST_REJECTS = Table(
    "request_rejects",
    "Lines of request logs that could not be read: where, how many and why. Their text is not kept.",
    pa.schema(
        [
            column("file", pa.string(), "path of the file when it was read"),
            column("file_id", pa.string(), "hash of the first bytes of the file; a renamed file keeps it"),
            column("position", pa.int64(), "position of the first line in the uncompressed file, in bytes"),
            column("last_position", pa.int64(), "position of the last line, in bytes"),
            column("lines", pa.int64(), "number of lines"),
            column("bytes", pa.int64(), "bytes of these lines that were read"),
            column("reason", pa.string(), "what is wrong; never contains text of the line"),
            column("api", pa.string(), "Kafka's name of the request, if it can be read", null=True),
            column("first_time", TIME, "time of the first line, if it has one", null=True),
        ]
    ),
    key=("file_id", "position", "reason", "api"),
)

LEDGER = Table(
    "ledger",
    "A published batch: readers open every other table at the version its newest row names.",
    pa.schema(
        [
            column("start_offset", pa.int64(), "first offset of the batch"),
            column("end_offset", pa.int64(), "offset after the last record of the batch"),
            column("epoch", pa.int32(), "raft epoch of the last batch"),
            column("fingerprint", pa.int64(), "CRC-32C of the last batch, to detect a rewritten log"),
            column("end_time", TIME, "append time of the last record"),
            column("published_time", TIME, "when the row was written"),
            column("profile", pa.string(), "rules: kafka or kip858"),
            column("ids", pa.string(), "reserved ids that the log was written with: kafka or kip858"),
            column("cluster_id", pa.string(), "cluster.id of the metadata directory, empty if unknown"),
            column("metadata_version", pa.int32(), "feature level of metadata.version, -1 before the first"),
            column("from_snapshot", pa.int64(), "end offset of the snapshot that the batch began with", null=True),
            column("dropped", pa.int64(), "records of aborted transactions left out"),
            column(
                "rolled_back_from",
                pa.int64(),
                "end offset of the lake before it was taken back to end_offset, because the log had been rewritten",
                null=True,
            ),
            column("log_end", pa.int64(), "end offset of the log, if the log ended before the lake did", null=True),
            column("unknown_from", pa.int64(), "offset of the first record that jbod did not know", null=True),
            column(
                "unknown_types",
                pa.map_(pa.string(), pa.int64()),
                "types of records that jbod did not know, each with the offset of the first",
                null=True,
            ),
            column("versions", pa.map_(pa.string(), pa.int64()), "version of each table"),
            column("rows", pa.map_(pa.string(), pa.int64()), "rows written to each table"),
        ]
    ),
    key=("end_offset",),
)

OF_REPLICAS = (BROKERS, DIRECTORIES, PARTITIONS, ASSIGNMENTS, OFFLINE_REPLICAS)
"""Where replicas are, and what is offline: the tables that checks and contracts read."""
HISTORY = (*OF_REPLICAS, CONTROLLERS, VOTERS)
DERIVED = (*HISTORY, CHANGES)  # what follows from the records
TABLES = (RECORDS, *DERIVED, LEDGER)
REQUESTS = (ASSIGNMENT_REQUESTS, REQUEST_REJECTS)
"""The tables of the request stream. The first ``jbod replay --requests`` creates them."""
BY_NAME: Mapping[str, Table] = {table.name: table for table in (*TABLES, *REQUESTS)}


def way_back(lake: LakeUri, table: str) -> str:
    """What to do about a damaged table. ``table``: empty if it is not known which one."""
    folder = quote(f"{lake}/{table}")
    if BY_NAME.get(table) in DERIVED:
        return f"jbod rebuild recreates the tables from the records, once {folder} is moved away"
    if table and table not in BY_NAME:
        return f"restore it from a backup, or move {folder} away: no other table needs it"
    return "restore it from a backup, or replay the log into another --lake"
