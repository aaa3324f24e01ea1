"""The columns of answers about sizes and plans."""

from __future__ import annotations

from pipelines.show.rows import Column, RowTable

SIZES = RowTable(
    "sizes",
    "a directory of a broker that a source describes, or that none of them is known to be",
    (
        Column("broker_id", "int", "id of the broker"),
        Column("path", "string", "its path, null if no path of the sources is known to be it"),
        Column("directory_id", "string", "its id, null if it is unknown"),
        Column("pairing", "string", "certain, likely or unknown: how well it is known that the path has this id"),
        Column("evidence", "string", "why"),
        Column("error", "string", "why its broker cannot read it, else empty"),
        Column("replicas", "int", "replicas in it by the source, without those that a move is copying into it"),
        Column("bytes", "int", "their log segments"),
        Column("future_replicas", "int", "replicas that a move between disks is copying into it"),
        Column("future_bytes", "int", "the log segments of these"),
        Column("tiered_bytes", "int", "the part of bytes that topics with remote storage keep locally"),
        Column("recorded", "int", "replicas in it by the log, null if its id is unknown"),
        Column("time", "time", "when the source said it"),
        Column("growth", "int", "bytes a day that its replicas grow by, null if too little was kept"),
        Column("days_until_full", "int", "whole days until its file system is full at this growth"),
        Column("missing", "int", "those among them that the source does not have there"),
        Column("astray", "int", "replicas that the source has there, and the log elsewhere or nowhere"),
        Column("total_bytes", "int", "size of its file system, null if the source does not say it"),
        Column("free_bytes", "int", "free bytes of its file system"),
        Column("used_percent", "int", "how full the file system is"),
        Column("cordoned", "bool", "true if its broker places no new replica in it, null if its id is unknown"),
    ),
    more=("topics",),
    reasons=("pairing",),
    reason_words=("certain", "likely", "unknown"),
)
PLAN = RowTable(
    "plan check",
    "a partition of the file",
    (
        Column("topic", "string", "name of the topic"),
        Column("partition", "int", "number of the partition"),
        Column("replicas", "ints", "its brokers"),
        Column("target", "ints", "its brokers by the file"),
        Column("adds", "ints", "brokers that have to copy it"),
        Column("removes", "ints", "brokers that lose it"),
        Column("leader", "int", "its leader, -1 for none"),
        Column("leader_after", "int", "its leader when all that can have joined, -1 for none"),
        Column("in_sync", "int", "replicas in sync"),
        Column("in_sync_after", "int", "the same when all that can have joined"),
        Column("min_isr_after", "int", "min.insync.replicas with the replicas of the file"),
        Column("racks", "int", "racks that its replicas are in"),
        Column("racks_after", "int", "the same afterwards"),
        Column("disk_moves", "int", "replicas that stay on their broker, and for which the file names a directory"),
        Column("blocks", "bool", "true if the plan must not run as it is"),
        Column(
            "findings", "string", "what is found, separated by commas", lambda partition: ", ".join(partition.findings)
        ),
        Column("reason", "string", "why"),
    ),
    brokers="target",
)
WATCH = RowTable(
    "plan watch",
    "a partition of the files",
    (
        Column("topic", "string", "name of the topic"),
        Column("partition", "int", "number of the partition"),
        Column("replicas", "ints", "its brokers"),
        Column("target", "ints", "its brokers by the file"),
        Column(
            "state",
            "string",
            "stuck, replaced, cancelled, gone, unknown path, not begun, under way or done: the first that applies",
        ),
        Column("since_offset", "int", "offset of the record that made it so, null where no record did"),
        Column("since_time", "time", "when that record was appended"),
        Column("waits_for", "ints", "brokers whose replicas are not yet in sync, or not yet in the directory"),
        Column("reason", "string", "why"),
    ),
    brokers="target",
    reasons=("state",),
    reason_words=("stuck", "replaced", "cancelled", "gone", "unknown path", "not begun", "under way", "done"),
)
STEPS = RowTable(
    "plan drain",
    "a step of a plan; all commands of jbod plan that make one have these rows",
    (
        Column("number", "int", "from 1 on, in order"),
        Column("partitions", "int", "partitions in its file"),
        Column("replicas", "int", "copies that are made"),
        Column("between_disks", "int", "those among them that stay on their broker"),
        Column("bytes", "int", "the bytes of the copies, null without sizes"),
        Column("seconds", "int", "how long they take at the rate, null without sizes"),
        Column("disk", "string", "the disk whose failure would cost most after the step, empty for none", "disk.place"),
        Column("disk_last_replicas", "int", "partitions that would have no replica online", "disk.last_replicas"),
        Column("disk_unclean", "int", "partitions that would elect a replica that lacks writes", "disk.unclean"),
        Column("disk_under_min_isr", "int", "partitions that would be under min.insync.replicas", "disk.under_min_isr"),
        Column("failing_broker", "string", "the same of a broker", "broker.place"),
        Column("broker_last_replicas", "int", "as for the disk", "broker.last_replicas"),
        Column("broker_unclean", "int", "as for the disk", "broker.unclean"),
        Column("broker_under_min_isr", "int", "as for the disk", "broker.under_min_isr"),
    ),
)
UNDO = RowTable(
    "plan undo",
    "a partition as it is now",
    (
        Column("topic", "string", "name of the topic"),
        Column("partition", "int", "number of the partition"),
        Column("replicas", "ints", "its brokers"),
        Column("log_dirs", "strings", "the path of each of these replicas, any where it is not known"),
    ),
    brokers="replicas",
)
