"""Rows of the history tables from the model's objects, for the plain reference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from jbod_model.replay.changes import Change
from jbod_model.replay.quorum import Controller, QuorumState
from jbod_model.replay.registrations import BrokerRegistration, Partition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]
RECOVERY = {0: "RECOVERED", 1: "RECOVERING"}


def time_of(micros: int) -> datetime:
    """A time in UTC from microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)


def change_row(change: Change, offset: int, batch_offset: int, time: int, *, snapshot: bool) -> Row:
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


def controller_row(controller: Controller | None) -> Row | None:
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
        "cordoned_log_dirs": None if cordoned is None else [str(directory) for directory in sorted(cordoned)],
    }


def partition_row(key: tuple[str, int], topic: str, partition: Partition) -> Row:
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
    }


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
