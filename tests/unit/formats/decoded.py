"""Both readers' records in one plain form, to be compared record for record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jbod_model.errors import JbodError
from jbod_model.formats import records as r
from jbod_model.formats.codec import decode
from jbod_model.formats.control_records import CONTROL_TYPE_NAMES, CONTROL_TYPE_OF, ControlRecord
from jbod_model.formats.json_values import record_as_json
from jbod_model.formats.log import LogEntry, LogReader, MetadataLog
from jbod_model.formats.records import UnknownRecord, VersionedRecord
from jbod_model.formats.schema import API_KEY_OF, API_KEYS, TYPE_NAMES
from jbod_model.replay.transactions import committed
from pipelines.fold.events import Events, events_of, rows_of_events
from pipelines.fold.rows import record_rows
from pipelines.source.slices import read_slice
from pipelines.source.typed import TYPED_SCHEMA, typed_batches
from tests.support import engine

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LISTS = ("replicas", "isr", "removing_replicas", "adding_replicas", "eligible_leader_replicas", "last_known_elr")
SCALARS = ("leader", "leader_epoch", "partition_epoch", "leader_recovery_state")
TOPIC_RECORDS = (r.TopicRecord, r.PartitionRecord, r.PartitionChangeRecord, r.RemoveTopicRecord, r.ClearElrRecord)
Row = dict[str, Any]


def fast(log_dir: Path, *, keep_unknown: bool = False, **options: Any) -> Iterator[Row]:
    """Every record by the columnar reader: what it says, its columns for people, its event for the fold."""
    for piece in engine.slices(log_dir, **options):
        records, kept = read_slice(piece, keep_unknown=keep_unknown)
        snapshot = piece.snapshot - 1 if piece.snapshot >= 0 else None
        typed = [row for batch in typed_batches(records, kept, snapshot) for row in batch.to_pylist()]
        events = event_rows(events_of(records, rows_of_events(records, kept), snapshot=snapshot))
        for row, columns in zip(record_rows(records, kept, snapshot).to_pylist(), typed, strict=True):
            assert {name: row[name] for name in columns if name in row} == {
                name: columns[name] for name in columns if name in row
            }
            control = row["record_type"] in CONTROL_TYPE_NAMES.values()
            read = None if control else decode(row["value"], keep_unknown=keep_unknown)
            event = read is not None and isinstance(read.record, TOPIC_RECORDS)
            del columns["snapshot"]
            yield {
                **columns,
                "snapshot_index": row["snapshot_index"],
                "read": read,
                "event": next(events) if event else None,
            }
        assert next(events, None) is None


def plain(log_dir: Path, *, keep_unknown: bool = False, start: str = "auto") -> Iterator[Row]:
    """The same by the plain reader."""
    reader = LogReader(
        MetadataLog.open(log_dir), start="snapshot" if start == "snapshot" else "earliest", keep_unknown=keep_unknown
    )
    index = 0
    for entry in committed(reader):
        index = index + 1 if entry.in_snapshot else 0
        if entry.offset >= 0:  # the empty snapshot of a formatted quorum holds no record of the log
            yield _row(entry, index - 1 if entry.in_snapshot else None)


def _row(entry: LogEntry, index: int | None) -> Row:
    row: Row = dict.fromkeys(TYPED_SCHEMA.names)
    del row["snapshot"]
    row |= {
        "log_offset": entry.offset,
        "epoch": entry.epoch,
        "append_time": EPOCH + timedelta(milliseconds=entry.timestamp),
        "batch_offset": entry.header.base_offset,
        "snapshot_index": index,
        "read": None,
        "event": None,
    }
    if isinstance(entry.record, ControlRecord):
        return row | {
            "record_type": CONTROL_TYPE_NAMES[CONTROL_TYPE_OF[type(entry.record)]],
            "record_version": entry.record.version,
        }
    record = entry.record.record
    row |= {"read": entry.record, "record_version": entry.record.version}
    if isinstance(record, UnknownRecord):
        known = API_KEYS.get(record.api_key)
        row["record_type"] = TYPE_NAMES[known] if known else f"UNKNOWN_{record.api_key}"
    else:
        row["record_type"] = TYPE_NAMES[type(record)]
        topic_id = getattr(record, "topic_id", None)
        broker = record.id if isinstance(record, r.FenceBrokerRecord | r.UnfenceBrokerRecord) else None
        broker = getattr(record, "broker_id", broker)
        row["topic"] = getattr(record, "name", None) if isinstance(record, r.TopicRecord) else None
        if isinstance(record, r.ClearElrRecord):
            row["topic"] = record.topic_name
        row["topic_id"] = None if topic_id is None else str(topic_id)
        row["partition"] = getattr(record, "partition_id", None)
        row["broker_id"] = None if broker is None or broker < 0 else broker
        if isinstance(record, TOPIC_RECORDS):
            row["event"] = _event(entry)
    if isinstance(record, r.PartitionRecord | r.PartitionChangeRecord):
        row |= _partition(entry.record)
    elif not isinstance(record, r.NoOpRecord | r.TopicRecord | r.RemoveTopicRecord | r.ClearElrRecord):
        row["fields"] = json.dumps(record_as_json(entry.record)["data"])
    return row


def _partition(versioned: VersionedRecord) -> Row:
    record: Any = versioned.record
    lists = {name: None if getattr(record, name) is None else list(getattr(record, name)) for name in LISTS}
    directories = None if record.directories is None else [str(directory) for directory in record.directories]
    if isinstance(record, r.PartitionRecord):
        scalars = {name: getattr(record, name) for name in SCALARS}
        return {**lists, **scalars, "directories": directories if versioned.version else None}
    leader = None if record.leader == -2 else record.leader
    recovery = None if record.leader_recovery_state == -1 else record.leader_recovery_state
    return {**lists, "directories": directories, "leader": leader, "leader_recovery_state": recovery}


def _event(entry: LogEntry) -> Row:
    assert isinstance(entry.record, VersionedRecord)
    record: Any = entry.record.record
    event: Row = {
        "offset": entry.offset,
        "time": entry.timestamp * 1000,
        "kind": API_KEY_OF[type(record)],
        "snapshot": entry.in_snapshot,
        "topic": record.topic_id.bytes if hasattr(record, "topic_id") else bytes(16),
        "name": getattr(record, "name", getattr(record, "topic_name", "")),
        "partition": getattr(record, "partition_id", -1),
        "scalars": None,
        "lists": None,
        "directories": None,
    }
    if hasattr(record, "partition_id"):
        partition_row = _partition(entry.record)
        whole = isinstance(record, r.PartitionRecord)
        event["scalars"] = [
            record.leader,
            record.leader_epoch if whole else 0,
            record.partition_epoch if whole else 0,
            record.leader_recovery_state,
        ]
        event["lists"] = [partition_row[name] for name in LISTS]
        event["directories"] = (
            None if partition_row["directories"] is None else [directory.bytes for directory in record.directories]
        )
    return event


def event_rows(events: Events) -> Iterator[Row]:
    """Of the columns, packed and unpacked as they travel."""
    if len(events):
        events = Events.from_bytes(events.to_bytes())
    for row in range(len(events)):
        change = events.partitions[row] != -1 or events.kinds[row] in (3, 5)
        yield {
            "offset": int(events.offsets[row]),
            "time": int(events.times[row]),
            "kind": int(events.kinds[row]),
            "snapshot": bool(events.snapshot[row]),
            "topic": events.topic_bytes(row),
            "name": events.name(row),
            "partition": int(events.partitions[row]),
            "scalars": events.scalars[:, row].tolist() if change else None,
            "lists": [_ints(events, slot, row) for slot in range(len(LISTS))] if change else None,
            "directories": _directories(events, row) if change else None,
        }


def _ints(events: Events, slot: int, row: int) -> list[int] | None:
    return _taken(events.int_values, events.int_starts[slot, row], events.int_sizes[slot, row])


def _taken(values: Any, start: int, size: int) -> list[Any] | None:
    return None if size < 0 else values[start : start + size].tolist()


def _directories(events: Events, row: int) -> list[bytes] | None:
    numbers = _taken(events.directories, events.directory_starts[row], events.directory_sizes[row])
    return None if numbers is None else [events.directory_ids[number].tobytes() for number in numbers]


def outcome(read: Callable[[], Iterator[Row]]) -> list[Row] | str:
    """All rows, or the class of the refusal; any other error is the caller's."""
    try:
        return list(read())
    except JbodError as problem:
        return type(problem).__name__
