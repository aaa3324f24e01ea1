"""The rows of every question: their columns, which are stable, and the columns that a filter compares.

CSV, ND-JSON and Parquet have these columns in this order. docs/spec/columns.md is generated from them. A name never
changes its meaning; new columns come at the end of a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.show.rows import Column, RowTable


def _shown_events(incident: Any) -> list[str]:
    return [f"{event.offset} {event.what}" for event in incident.events]


def _last_request_field(name: str) -> Callable[[Any], Any]:
    return lambda replica: replica.last_request and getattr(replica.last_request, name)


_TOPIC = Column("topic", "string", "name of the topic")
_TOPIC_ID = Column("topic_id", "string", "id of the topic")
_PARTITION = Column("partition", "int", "number of the partition")
_BROKER = Column("broker_id", "int", "id of the broker")
_DIRECTORY = Column("directory_id", "string", "id of the directory")
_HERE = {"directory_id": "directory"}
_EXPOSED = (
    Column("without_leader", "int", "partitions that would have no leader"),
    Column("last_replicas", "int", "partitions without any other replica online"),
    Column("unclean", "int", "partitions that would elect a replica that was not in sync"),
    Column("under_min_isr", "int", "partitions that would fall below min.insync.replicas"),
    Column("moved", "int", "partitions that another replica would lead"),
)

OFFLINE = RowTable(
    "offline",
    "a replica that is offline",
    (
        _TOPIC,
        _TOPIC_ID,
        _PARTITION,
        Column("replica_index", "int", "position in the partition's replicas"),
        _BROKER,
        _DIRECTORY,
        Column("reason", "string", "broker missing, broker fenced, directory offline or directory lost"),
        Column("from_offset", "int", "offset of the record that took it offline"),
        Column("from_time", "time", "append time of that record"),
        Column("from_snapshot", "bool", "known from a snapshot: it began at or before that offset"),
    ),
    reasons=("reason",),
    reason_words=("broker missing", "broker fenced", "directory offline", "directory lost"),
    directories=_HERE,
)


def _words_of_checks() -> list[str]:
    """The ids, names and severities of all checks."""
    from pipelines.check.catalogue import CHECKS
    from pipelines.check.definition import SEVERITIES

    return [*SEVERITIES, *(word for check in CHECKS for word in (check.id, check.name))]


def _words_of_incidents() -> list[str]:
    """The kinds of incidents, and how they end."""
    from pipelines.ask.incidents_failures import CAUSES

    ends = ("not back", "came back", "moved to broker", "blank disk", "unregistered", "not registered yet")
    return [*CAUSES, *ends, "the broker registered with it"]


def _with_errors(*words: str) -> Callable[[], list[str]]:
    """These words, and Kafka's names of a controller's errors."""

    def words_and_errors() -> list[str]:
        from jbod_model.formats.responses import KafkaError

        return [*words, *(error.name for error in KafkaError if error.value)]

    return words_and_errors


STATUS = RowTable(
    "status",
    "a figure or a fact",
    (
        Column("name", "string", "the name that --json has", lambda row: row[0]),
        Column("value", "string", "the value as text", lambda row: row[1]),
    ),
)
_DIRECTORY_STATES = "online, failed, deregistered, moved, unregistered, unknown, unassigned, lost, migrating"
DIRECTORIES = RowTable(
    "directories",
    "a directory of a broker, or the replicas of a broker whose directory is not known",
    (
        _BROKER,
        Column("broker", "string", "online, fenced or missing"),
        _DIRECTORY,
        Column("state", "string", _DIRECTORY_STATES),
        Column("from_offset", "int", "offset of the record since when it is in this state"),
        Column("from_time", "time", "append time of that record"),
        Column("from_snapshot", "bool", "known from a snapshot: it began at or before that offset"),
        Column("replicas", "int", "replicas in it"),
        Column("leaders", "int", "replicas in it that lead their partition"),
        Column("cordoned_from_offset", "int", "offset of the record that cordoned it, null if it is not cordoned"),
        Column("cordoned_from_time", "time", "append time of that record"),
        Column("cordoned_from_snapshot", "bool", "known from a snapshot: it was cordoned at or before that offset"),
    ),
    reasons=("state", "broker"),
    reason_words=(*_DIRECTORY_STATES.split(", "), "fenced", "missing"),
    directories=_HERE,
)
HISTORY = RowTable(
    "history",
    "an effect of a record on the partition",
    (
        _TOPIC,
        _PARTITION,
        Column("offset", "int", "offset of the record"),
        Column("time", "time", "append time of the record"),
        Column("what", "string", "the effect in words"),
    ),
    reasons=("what",),
    reason_words=(
        "created",
        "added",
        "moved",
        "recreated",
        "removed",
        "leader",
        "isr",
        "elr",
        "adding",
        "removing",
        "offline",
        "broker missing",
        "broker fenced",
        "directory offline",
        "directory lost",
        "lost",
        "unreachable",
        "may lack writes",
        "snapshot",
    ),
)
RISK = RowTable(
    "risk",
    "a broker or a directory that could fail",
    (
        _BROKER,
        Column("directory_id", "string", "id of the directory, null for the whole broker"),
        *_EXPOSED,
        Column("stalled", "int", "partitions whose leader would wait for a dead in-sync replica, without a quorum"),
        Column("perhaps_unserved", "int", "partitions that would need a replica which may be offline (R-RESTART-4)"),
        Column("no_quorum", "string", "why no majority of controllers would be left, empty if one is"),
        Column("replicas_held", "int", "replicas in it that are online", "replicas"),
        Column("leaders", "int", "partitions that it leads"),
        Column("unplaced", "int", "replicas of the broker whose directory is not known"),
        Column("unplaced_at_risk", "int", "partitions of these that would be harmed if they are in it"),
        Column(
            "stops_broker",
            "bool",
            "true if it is its broker's last directory, that of the metadata log, or one of a broker in ZooKeeper mode",
        ),
        Column("bytes", "int", "log segments in it, null if no size is known"),
        Column("last_bytes", "int", "data of partitions with no other replica online, null without --sizes"),
        Column("copy_seconds", "int", "seconds to copy bytes again at 50 MB/s"),
    ),
    directories=_HERE,
)
WHATIF = RowTable(
    "whatif",
    "a partition that would get another leader, or lose something",
    (
        _TOPIC,
        _PARTITION,
        Column("replicas", "ints", "its brokers"),
        Column("leader", "int", "its leader, -1 for none"),
        Column("leader_after", "int", "its leader after the failure, -1 for none"),
        Column("in_sync", "int", "replicas in sync and online"),
        Column("in_sync_after", "int", "the same after the failure"),
        Column("min_isr", "int", "min.insync.replicas"),
        Column("online_after", "int", "replicas surely online after the failure"),
        Column("without_leader", "bool", "true if it would lose its leader"),
        Column("all_offline", "bool", "true if its last replica surely online would fail"),
        Column("last_complete", "bool", "true if the last complete copy online would fail"),
        Column("unclean", "bool", "true if the new leader was not in sync"),
        Column("under_min_isr", "bool", "true if it would fall below min.insync.replicas"),
        Column("tiered", "bool", "true if only the local part of its data is at stake"),
        Column("stalled", "bool", "true if its leader would wait for a dead in-sync replica, without a quorum"),
        Column("perhaps_unserved", "bool", "true if it would need a replica which may be offline (R-RESTART-4)"),
    ),
    brokers="replicas",
)
CONFIG = RowTable(
    "whatif --config",
    "a partition that a change of a configuration matters to",
    (
        _TOPIC,
        _PARTITION,
        Column("replicas", "ints", "its brokers"),
        Column("leader", "int", "its leader, -1 for none"),
        Column("leader_after", "int", "its leader after the change, -1 for none"),
        Column("isr", "ints", "the in-sync set"),
        Column("isr_after", "ints", "the same after the change"),
        Column("eligible", "ints", "the eligible leaders; without any and without an in-sync set, the last known one"),
        Column("eligible_after", "ints", "the same after the change"),
        Column("min_isr", "int", "min.insync.replicas"),
        Column("min_isr_after", "int", "the same after the change"),
        Column("refuses_writes", "bool", "true if writes with acks=all would be refused, and are not now"),
        Column("accepts_writes", "bool", "true if writes with acks=all would be accepted, and are refused now"),
        Column("loses_eligible", "bool", "true if it would lose eligible leaders"),
        Column("stranded", "bool", "true if it has no leader, and none could be elected but uncleanly"),
        Column("elects", "bool", "true if it would elect a leader at once"),
        Column("lacks_writes", "bool", "true if that leader lacks acknowledged writes"),
        Column("tiered", "bool", "true if only the local part of its data is at stake"),
    ),
    brokers="replicas",
)
REMOVAL = RowTable(
    "safe-to-remove",
    "a replica that is in the directory, or may be in it",
    (
        _TOPIC,
        _PARTITION,
        Column("replicas", "ints", "the partition's brokers"),
        Column("kind", "string", "assigned, or unassigned, migrating, lost: the log does not know its directory"),
        Column("leads", "bool", "true if it leads"),
        Column("only_online", "bool", "true if no other replica is online"),
        Column("last_complete", "bool", "true if no other replica online is complete"),
        Column("arriving", "bool", "true if a reassignment adds it to the broker"),
        Column("leaving", "bool", "true if a reassignment removes it from the broker"),
        Column("tiered", "bool", "true if only the local part of its data is at stake"),
    ),
    reasons=("kind",),
    reason_words=("assigned", "unassigned", "migrating", "lost"),
    brokers="replicas",
)
RESTART = RowTable(
    "safe-to-restart",
    "a partition that the restart harms, or that is harmed already",
    (
        _TOPIC,
        _TOPIC_ID,
        _PARTITION,
        Column("harms", "strings", "what the restart causes"),
        Column("already", "strings", "what is so without it, and stays so"),
        Column("reason", "string", "why it cannot spare the brokers, empty if nothing is caused that decides"),
        Column("waits_for", "ints", "the brokers whose replicas would make the difference"),
        Column("replicas", "ints", "its brokers"),
        Column("leader", "int", "its leader, -1 for none"),
        Column("leader_down", "int", "its leader while the brokers are down, -1 for none"),
        Column("in_sync", "int", "replicas in sync and online"),
        Column("in_sync_down", "int", "the same while the brokers are down"),
        Column("min_isr", "int", "min.insync.replicas, at most the number of replicas"),
        Column("online_down", "int", "replicas online while the brokers are down"),
    ),
    reasons=("reason",),
    brokers="replicas",
)
RESTART_PLAN = RowTable(
    "restart-plan",
    "a node that is to be restarted",
    (
        Column("batch", "int", "number of its batch, from 1; null if no batch can have it"),
        Column("node_id", "int", "id of the node"),
        Column("role", "string", "broker, controller or both"),
        Column("active", "bool", "true if it is the active controller"),
        Column("rack", "string", "its rack"),
        Column("replicas", "int", "replicas on it"),
        Column("leaders", "int", "partitions that it leads"),
        Column("reason", "string", "the smallest reason why no batch can have it, empty if one has"),
        Column("finding", "string", "the same as a sentence"),
    ),
    reasons=("reason",),
    brokers="node_id",
)
INCIDENTS = RowTable(
    "incidents",
    "a failed directory or a lost broker",
    (
        Column("number", "int", "counts from 1, in the order in which incidents began"),
        Column("kind", "string", "directory failed, broker lost and so on"),
        _BROKER,
        Column("directory_id", "string", "id of the directory, null if it is about a broker"),
        Column("from_offset", "int", "offset of its first record"),
        Column("from_time", "time", "append time of that record"),
        Column("to_offset", "int", "offset of its last record, null while it lasts"),
        Column("to_time", "time", "append time of that record"),
        Column("ending", "string", "how it came back, or what is missing"),
        Column("replicas_taken", "int", "replicas that went offline"),
        Column("replicas_offline", "int", "those that are still offline"),
        Column("longest_offline", "seconds", "the longest time that one of them was offline, in seconds"),
        Column("leaders", "int", "partitions that lost their leader"),
        Column("without_leader", "int", "those without a new leader at once"),
        Column("without_leader_now", "int", "those that still have none"),
        Column("longest_without_leader", "seconds", "the longest time without a leader, in seconds"),
        Column("data_lost", "strings", "partitions whose last complete copy was given up"),
        Column("data_unreachable", "strings", "partitions whose last complete copy was on an unregistered broker"),
        Column("may_lack_writes", "strings", "partitions that went on without a complete copy"),
        Column("events", "strings", "offset and what happened, oldest first", _shown_events),
        Column("from_snapshot", "bool", "known from a snapshot: it began at or before from_offset"),
        Column("already_offline", "int", "replicas_taken that were offline before, for another reason"),
        Column("going_on", "bool", "true while it lasts"),
        Column("cause", "string", "the cause according to the records"),
        Column("advice", "string", "what to do while it lasts"),
    ),
    more=("successors", "events", "steps"),
    reasons=("kind", "ending"),
    reason_words=_words_of_incidents,
    directories=_HERE,
)
OUTAGES = RowTable(
    "incidents NO",
    "a replica that the incident took offline",
    (
        _TOPIC,
        _PARTITION,
        _BROKER,
        _DIRECTORY,
        Column("from_offset", "int", "offset where it went offline"),
        Column("from_time", "time", "append time of that record"),
        Column("to_offset", "int", "offset where it came back, null while it is offline"),
        Column("to_time", "time", "append time of that record"),
        Column("already", "bool", "true if it was offline before, for another reason"),
    ),
    directories=_HERE,
)
CHECK = RowTable(
    "check",
    "a finding",
    (
        Column("check_id", "string", "id of the check, B-01 and so on", "check.id"),
        Column("name", "string", "name of the check", "check.name"),
        Column("severity", "string", "critical, warning or info"),
        Column("subject", "string", "what it is about, in words"),
        _BROKER,
        _DIRECTORY,
        _TOPIC,
        _TOPIC_ID,
        _PARTITION,
        Column("replica_index", "int", "position in the partition's replicas"),
        Column("from_offset", "int", "offset of the record that caused it"),
        Column("from_time", "time", "append time of that record"),
        Column("from_snapshot", "bool", "known from a snapshot: it began at or before that offset"),
        Column("finding", "string", "what is wrong"),
        Column("advice", "string", "what to do next"),
        Column("key", "string", "check and subject: the same while the same subject has this problem"),
    ),
    reasons=("check_id", "name", "severity"),
    reason_words=_words_of_checks,
    directories=_HERE,
)
MOVES = RowTable(
    "moves",
    "a replica that moved between two directories of its broker",
    (
        _TOPIC,
        _TOPIC_ID,
        _PARTITION,
        _BROKER,
        Column("source_id", "string", "id of the directory that it left", "source"),
        Column("target_id", "string", "id of the directory that it moved to", "target"),
        Column("first_requested_time", "time", "when the broker first requested it, null without a request log"),
        Column("requests", "int", "how often it was requested"),
        Column("refused", "int", "how often it was refused"),
        Column("accepted_offset", "int", "offset of the record that accepted it"),
        Column("accepted_time", "time", "append time of that record"),
        Column("outcome", "string", "promoted, accepted, reverted, recreated, returned or undecided"),
        Column("reverted_offset", "int", "offset of the record that reverted it"),
        Column("reverted_time", "time", "append time of that record"),
        Column("flips", "int", "how often it went back and came again"),
        Column("duration", "seconds", "from the first request to the outcome, in seconds"),
    ),
    reasons=("outcome",),
    reason_words=("promoted", "accepted", "reverted", "recreated", "returned", "undecided"),
    directories={"source_id": "source", "target_id": "target"},
)
ASSIGNMENTS = RowTable(
    "assignments",
    "a replica whose directory the controller does not know",
    (
        _TOPIC,
        _TOPIC_ID,
        _PARTITION,
        _BROKER,
        Column("broker", "string", "online, fenced or missing"),
        Column("from_offset", "int", "offset since when the directory is not known"),
        Column("from_time", "time", "append time of that record"),
        Column("state", "string", "not requested; refused; or requested, not yet recorded"),
        Column(
            "directory_id", "string", "directory that the broker last requested", _last_request_field("directory_id")
        ),
        Column("requested_time", "time", "when it did", _last_request_field("requested_time")),
        Column("attempt", "int", "how often it did", _last_request_field("attempt")),
        Column("error", "string", "the controller's error, empty for none", _last_request_field("error")),
        Column("from_snapshot", "bool", "known from a snapshot: it began at or before from_offset"),
    ),
    reasons=("state", "error"),
    reason_words=_with_errors("not requested", "refused", "not yet recorded"),
    more=("last_request",),
    directories=_HERE,
)
REQUESTS = RowTable(
    "assignments TOPIC-PARTITION",
    "an assignment that a broker requested",
    (
        Column("requested_time", "time", "when it was requested", "last_request.requested_time"),
        _BROKER,
        Column("directory_id", "string", "id of the directory", "last_request.directory_id"),
        Column("attempt", "int", "how often it was requested", "last_request.attempt"),
        Column(
            "outcome", "string", "refused, recorded, already true, pending or not in the log", "last_request.outcome"
        ),
        Column("error", "string", "the controller's error, empty for none", "last_request.error"),
        Column("realised_offset", "int", "offset of the record that carried it out", "last_request.realised_offset"),
        Column("latency_ms", "int", "milliseconds from the request to that record", "last_request.latency_ms"),
    ),
    reasons=("outcome", "error"),
    reason_words=_with_errors("refused", "recorded", "already true", "pending", "not in the log"),
    directories=_HERE,
)
QUEUE = RowTable(
    "assignments --queue",
    "a broker in a step of time",
    (
        Column("start", "time", "beginning of the step"),
        _BROKER,
        Column("requests", "int", "requests that it sent"),
        Column("entries", "int", "assignments in them"),
        Column("largest", "int", "assignments in the largest of them"),
        Column("retries", "int", "assignments that were requested before"),
        Column("refused", "int", "assignments that were refused"),
        Column("answer_ms", "int", "milliseconds to the controller's answer"),
        Column("latency_ms", "int", "milliseconds to the record"),
        Column("waiting", "int", "replicas that wait at the end of the step"),
    ),
)
QUORUM = RowTable(
    "quorum",
    "a controller or a broker",
    (
        Column("kind", "string", "controller or broker"),
        Column("node_id", "int", "id of the node"),
        Column("state", "string", "its state in words: leader, voter, observer, ghost, fenced"),
        Column("from_offset", "int", "offset since when, as far as the log shows"),
        Column("heard_offset", "int", "offset of the newest record that shows it alive"),
        Column("directory_id", "string", "id of its metadata directory"),
        Column("endpoints", "strings", "LISTENER://HOST:PORT"),
        Column("from_snapshot", "bool", "known from a snapshot: it began at or before from_offset"),
        Column("heard_from_snapshot", "bool", "known from a snapshot: it was alive at or before heard_offset"),
    ),
    reasons=("kind", "state"),
    reason_words=("controller", "broker", "leader", "voter", "observer", "ghost", "alive", "fenced", "unknown"),
    brokers="node_id",
)
UPGRADE = RowTable(
    "upgrade-check",
    "a feature",
    (
        Column("feature", "string", "name of the feature"),
        Column("finalized", "int", "its level"),
        Column("supported_by_all", "int", "the level that all nodes support"),
        Column("wanted", "int", "the level asked for, or the next one"),
        Column("blocked_by", "strings", "nodes that do not support it"),
    ),
    reasons=("feature",),
)
