"""The plain reference for the history tables: one record at a time, with the rules of jbod_model.

It is slow and simple on purpose: after every record it compares the state with the state before. It skips only objects
that both images share, which a record did not change (R-REPLAY-4). It shares no code with the engine that fills the
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self

from jbod_model.formats.control_records import (
    ControlRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
)
from jbod_model.formats.records import (
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from jbod_model.ids import KAFKA_IDS, IdTable
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.changes import StateChange, changes_between, why_gone
from jbod_model.replay.image import Image
from jbod_model.replay.offline import offline_replicas
from jbod_model.replay.registrations import (
    QUORUM_RECORDS,
    BrokerRegistration,
    Partition,
    QuorumState,
    RecordMoment,
    RegisteredController,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]
RECOVERY = {0: "RECOVERED", 1: "RECOVERING"}


def time_of(micros: int) -> datetime:
    """A time in UTC from microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)


def change_row(change: StateChange, offset: int, batch_offset: int, time: int, *, snapshot: bool) -> Row:
    """A row of ``changes`` for the record at ``offset``, or for a snapshot."""
    return {
        "log_offset": offset,
        "batch_offset": offset if snapshot else batch_offset,
        "append_time": time_of(time),
        "what": change.what,
        "topic_id": None if change.topic_id is None else str(change.topic_id),
        "topic": change.topic,
        "partition": change.partition,
        "broker_id": change.broker_id,
        "directory_id": None if change.directory_id is None else str(change.directory_id),
        "before": change.before,
        "after": change.after,
        "why": change.why,
        "from_snapshot": snapshot,
        "retraction": False,
        "generation": 0,
    }


def controller_row(controller: RegisteredController | None) -> Row | None:
    """A row of ``controllers`` without its interval, None for no controller."""
    if controller is None:
        return None
    return {
        "controller_id": controller.controller_id,
        "incarnation_id": controller.incarnation_id,
        "zk_migration_ready": controller.zk_migration_ready,
        "endpoints": list(controller.endpoints),
        "features": [name for name, *_ in controller.features],
        "lowest_levels": [lowest for _, lowest, _ in controller.features],
        "highest_levels": [highest for *_, highest in controller.features],
    }


def voter_row(quorum: QuorumState, node_id: int) -> Row | None:
    """A row of ``voters`` without its interval, None for a node that no control record named."""
    member = quorum.members.get(node_id)
    if member is None:
        return None
    lowest, highest = member.kraft or (None, None)
    elected = quorum.elected if quorum.leader_id == node_id else None
    row: Row = {
        "node_id": node_id,
        "directory_id": member.directory_id,
        "endpoints": list(member.endpoints),
        "kraft_lowest": lowest,
        "kraft_highest": highest,
        "role": quorum.role(node_id),
        "voter": member.voter,
        "kraft_version": quorum.kraft_version,
    }
    for name, moment in (("role", member.since), ("elected", elected), ("heard", member.heard)):
        row[f"{name}_offset"] = None if moment is None else moment.offset
        row[f"{name}_time"] = None if moment is None else time_of(moment.time)
    return row


def broker_row(broker: BrokerRegistration | None) -> Row | None:
    if broker is None:
        return None
    cordoned = broker.cordoned_directories
    return {
        "broker_id": broker.broker_id,
        "broker_epoch": broker.epoch,
        "incarnation_id": str(broker.incarnation_id),
        "fenced": broker.fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "rack": broker.rack,
        "log_dirs": [str(directory) for directory in broker.directories],
        "cordoned_log_dirs": None if cordoned is None else [*map(str, cordoned)],
    }


def partition_row(
    key: tuple[str, int], topic: str, partition: Partition, before: Partition | None, from_snapshot: bool
) -> Row:
    return {
        "topic_id": key[0],
        "topic": topic,
        "partition": key[1],
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.eligible_leader_replicas),
        "last_known_elr": list(partition.last_known_elr),
        "adding": list(partition.adding_replicas),
        "removing": list(partition.removing_replicas),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "leader_recovery": RECOVERY[partition.leader_recovery_state],
        "directories": [str(directory) for directory in partition.directories],
        "may_follow_loss": may_follow_loss(partition, before, from_snapshot),
    }


def may_follow_loss(now: Partition, before: Partition | None, from_snapshot: bool) -> bool:
    """Whether a state can follow a loss of data, given the one before. pipelines.fold.shard says what that means."""
    replicas, isr, elr = set(now.replicas), set(now.isr), set(now.eligible_leader_replicas)
    leads = now.leader >= 0
    if RECOVERY[now.leader_recovery_state] != "RECOVERED" or not elr <= replicas:
        return True
    if leads and now.leader not in replicas & (isr | elr):
        return True
    if before is None:
        return not from_snapshot and (not leads or bool(elr))
    named, had = {*before.isr, *before.eligible_leader_replicas}, set(before.replicas)
    led_in_sync = before.leader in isr
    if now.replicas != before.replicas and not replicas & (named | (isr & had if led_in_sync else set())):
        return True
    if from_snapshot:
        return False
    elected_unnamed = leads and now.leader != before.leader and now.leader not in named
    return elected_unnamed or not elr <= named or not isr <= named | (had if led_in_sync else set())


def slots(partition: Partition | None) -> list[tuple[int, Any]]:
    return [] if partition is None else list(zip(partition.replicas, partition.directories, strict=True))


def slot_row(key: tuple[str, int], topic: str, index: int, slot: tuple[int, Any]) -> Row:
    return {
        "topic_id": key[0],
        "topic": topic,
        "partition": key[1],
        "replica_index": index,
        "broker_id": slot[0],
        "directory_id": str(slot[1]),
    }


__all__ = ["Entry", "History", "Row", "time_of"]


class Entry(Protocol):
    """A record of a log or a snapshot. ``time`` is in microseconds since 1970."""

    @property
    def offset(self) -> int:
        """Its offset. For a record of a snapshot, the last offset that the snapshot contains."""

    @property
    def time(self) -> int:
        """When it was appended."""

    @property
    def snapshot_index(self) -> int | None:
        """Its place in the snapshot, None for a record of the log."""

    @property
    def batch_offset(self) -> int:
        """Base offset of its batch."""

    @property
    def record(self) -> Record | None:
        """The decoded record, None for a control record."""

    @property
    def control_record(self) -> ControlRecord | None:
        """The decoded control record, None for a metadata record."""


class _Intervals:
    """The rows of one history table: at most one open row per key."""

    def __init__(self, key: Sequence[str], ended_by: bool = True) -> None:
        self.key = key
        self.ended_by = ended_by
        self.rows: list[Row] = []
        self.open: dict[tuple[Any, ...], Row] = {}

    def start(self, row: Row, at: Entry) -> None:
        row |= {
            "from_offset": at.offset,
            "from_time": time_of(at.time),
            "to_offset": None,
            "to_time": None,
            "from_snapshot": at.snapshot_index is not None,
        }
        if self.ended_by:
            row["ended_by"] = None
        self.rows.append(row)
        self.open[tuple(row[name] for name in self.key)] = row

    def end(self, key: tuple[Any, ...], at: Entry, why: str | None = None) -> None:
        row = self.open.pop(key)
        row |= {"to_offset": at.offset, "to_time": time_of(at.time)}
        if self.ended_by:
            row["ended_by"] = why


class History:
    """The contents of the history tables after a number of entries of a log."""

    def __init__(self, profile: Profile = KAFKA, ids: IdTable = KAFKA_IDS) -> None:
        self.profile = profile
        self.image = Image(ids=ids)
        self.brokers = _Intervals(["broker_id"])
        self.directories = _Intervals(["broker_id", "directory_id"])
        self.partitions = _Intervals(["topic_id", "partition"], ended_by=False)
        self.assignments = _Intervals(["topic_id", "partition", "replica_index"])
        self.offline = _Intervals(["topic_id", "partition", "replica_index"], ended_by=False)
        self.controllers = _Intervals(["controller_id"])
        self.voters = _Intervals(["node_id"])
        self.changes: list[Row] = []
        self.quorum = QuorumState()
        self._states: dict[tuple[str, int], Partition] = {}
        self._registrations: dict[int, BrokerRegistration] = {}

    def add(self, entries: Iterable[Entry]) -> Self:
        """Replays entries. The entries of a snapshot are one step that replaces everything."""
        loading: Image | None = None
        last: Entry | None = None
        snapshot_records: list[Record | ControlRecord] = []
        for entry in entries:
            if loading is not None and entry.snapshot_index is None:
                assert last is not None
                self._add_state(loading, last)
                self._quorum(snapshot_records, last)
                loading, snapshot_records = None, []
            if entry.snapshot_index is not None:
                if loading is None:
                    loading = self.image.emptied()
                loading = self._applied(loading, entry)
                snapshot_records += [record for record in (entry.record, entry.control_record) if record is not None]
                last = entry
            else:
                self._add_state(self._applied(self.image, entry), entry)
                self._quorum([record for record in (entry.record, entry.control_record) if record is not None], entry)
        if loading is not None:
            assert last is not None
            self._add_state(loading, last)
            self._quorum(snapshot_records, last)
        return self

    @property
    def tables(self) -> Mapping[str, list[Row]]:
        """Rows of the history tables."""
        return {
            "brokers": self.brokers.rows,
            "directories": self.directories.rows,
            "partitions": self.partitions.rows,
            "assignments": self.assignments.rows,
            "offline_replicas": self.offline.rows,
            "controllers": self.controllers.rows,
            "voters": self.voters.rows,
            "changes": self.changes,
        }

    def _applied(self, image: Image, entry: Entry) -> Image:
        return image if entry.record is None else image.apply(entry.record, entry.offset, profile=self.profile)

    def _add_state(self, image: Image, at: Entry) -> None:
        before, self.image = self.image, image
        if before is image:
            return
        snapshot = at.snapshot_index is not None
        for change in changes_between(before, image, None if snapshot else at.record, profile=self.profile):
            self.changes.append(change_row(change, at.offset, at.batch_offset, at.time, snapshot=snapshot))
        if image.brokers is not before.brokers:
            self._brokers(image, at)
        if image.topics is not before.topics:
            self._partitions(image, at)
        self._offline(before, image, at)

    def _quorum(self, records: Sequence[Record | ControlRecord], at: Entry) -> None:
        """Follows the quorum, and ends and starts the rows of nodes that changed."""
        if not any(isinstance(record, QUORUM_RECORDS) for record in records):
            return
        resync = at.snapshot_index is not None
        now = RecordMoment(at.offset, at.time)
        before, record = self.quorum, records[0]
        self.quorum = before.load(records, now) if resync else before.follow(record, now)
        why = (
            "resync"
            if resync
            else {
                RegisterControllerRecord: "registered",
                UnregisterControllerRecord: "unregistered",
                LeaderChangeMessage: "election",
                VotersRecord: "voters",
                KRaftVersionRecord: "kraft version",
            }[type(record)]
        )
        for node_id in sorted({*before.controllers, *self.quorum.controllers}):
            was, will = before.controllers.get(node_id), self.quorum.controllers.get(node_id)
            if was != will:
                _exchange(self.controllers, node_id, controller_row(was), controller_row(will), at, why)
        for node_id in sorted({*before.members, *self.quorum.members}):
            old, new = voter_row(before, node_id), voter_row(self.quorum, node_id)
            if old != new:
                _exchange(self.voters, node_id, old, new, at, why)

    def _brokers(self, image: Image, at: Entry) -> None:
        why = {RegisterBrokerRecord: "registered", UnregisterBrokerRecord: "unregistered"}.get(
            type(at.record), "changed"
        )
        for broker_id in sorted({*self._registrations, *image.brokers}):
            old, new = self._registrations.get(broker_id), image.brokers.get(broker_id)
            if old is new:
                continue
            old_row, new_row = broker_row(old), broker_row(new)
            if old_row != new_row:
                ended_by = why if at.snapshot_index is None else "resync"
                _exchange(self.brokers, broker_id, old_row, new_row, at, ended_by)
            listed_before = set(old.directories) if old else set()
            listed = set(new.directories) if new else set()
            for directory in sorted(listed_before - listed):
                self.directories.end(
                    (broker_id, str(directory)),
                    at,
                    why_gone(None if at.snapshot_index is not None else at.record, image, directory),
                )
            for directory in sorted(listed - listed_before):
                assert new is not None
                row = {"broker_id": broker_id, "directory_id": str(directory), "broker_epoch": new.epoch}
                self.directories.start(row, at)
        self._registrations = dict(image.brokers)

    def _partitions(self, image: Image, at: Entry) -> None:
        resync = at.snapshot_index is not None
        names = {str(topic_id): topic.name for topic_id, topic in image.topics.items()}
        now = {
            (str(topic_id), number): partition
            for topic_id, topic in image.topics.items()
            for number, partition in topic.partitions.items()
        }
        for key in sorted({*self._states, *now}):
            old, new = self._states.get(key), now.get(key)
            # Every record that touches a partition creates a new object. A snapshot creates all of them again.
            if old is new or (resync and old == new):
                continue
            if old is not None:
                self.partitions.end(key, at)
            if new is not None:
                self.partitions.start(partition_row(key, names[key[0]], new, old, resync), at)
            self._assignments(image, key, names.get(key[0], ""), old, new, at)
        self._states = now

    def _assignments(
        self, image: Image, key: tuple[str, int], topic: str, old: Partition | None, new: Partition | None, at: Entry
    ) -> None:
        before = slots(old)
        after = slots(new)
        kind = image.ids.kind
        for index in range(max(len(before), len(after))):
            was = before[index] if index < len(before) else None
            will = after[index] if index < len(after) else None
            if was == will:
                continue
            if was is not None:
                if at.snapshot_index is not None:
                    why = "resync"
                elif new is None:
                    why = "removed"
                elif was[0] not in new.replicas:
                    why = "reassigned"
                elif will is None or will[0] != was[0]:
                    why = "reordered"
                elif kind(will[1]) == "assigned":
                    why = "moved" if kind(was[1]) == "assigned" else "assigned"
                else:
                    why = "lost" if kind(will[1]) == "lost" else "unassigned"
                self.assignments.end((*key, index), at, why)
            if will is not None:
                row = slot_row(key, topic, index, will) | {"kind": kind(will[1])}
                self.assignments.start(row, at)

    def _offline(self, before: Image, image: Image, at: Entry) -> None:
        same_brokers = image.brokers is before.brokers
        kept: set[str] = set()
        wanted: dict[tuple[str, int, int], tuple[str, int, str, str]] = {}
        for topic_id, topic in image.topics.items():
            if same_brokers and topic is before.topics.get(topic_id):
                kept.add(str(topic_id))
                continue
            for number, partition in topic.partitions.items():
                reasons = offline_replicas(image, partition, profile=self.profile)
                for index, (broker, directory) in enumerate(slots(partition)):
                    if broker in reasons:
                        wanted[str(topic_id), number, index] = (topic.name, broker, str(directory), reasons[broker])
        for key, row in list(self.offline.open.items()):
            known = (row["topic"], row["broker_id"], row["directory_id"], row["reason"])
            if key[0] in kept:
                continue
            if wanted.get(key) == known:
                del wanted[key]
            else:
                self.offline.end(key, at)
        for (owner, number, index), (topic_name, broker, directory_id, reason) in wanted.items():
            row = {
                "topic_id": owner,
                "topic": topic_name,
                "partition": number,
                "replica_index": index,
                "broker_id": broker,
                "directory_id": directory_id,
                "reason": reason,
            }
            self.offline.start(row, at)


def _exchange(rows: _Intervals, key: int, old: Row | None, new: Row | None, at: Entry, why: str) -> None:
    if old is not None:
        rows.end((key,), at, why)
    if new is not None:
        rows.start(new, at)
