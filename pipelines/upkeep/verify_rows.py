"""Rows of ``changes``, ``controllers`` and ``voters`` from the model, for the plain reference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from jbod_model.replay.changes import Change
from jbod_model.replay.quorum import Controller, QuorumState

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


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
