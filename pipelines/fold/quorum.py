"""Rows of ``controllers`` and ``voters``: the broker shard follows the quorum record by record (docs/spec/changes.md).

Controllers and their records are few, so this module uses plain objects, and the model's own rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from jbod_model.formats.control_records import (
    CONTROL_TYPE_OF,
    ControlRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
)
from jbod_model.formats.records import API_KEY_OF, Record, RegisterControllerRecord, UnregisterControllerRecord
from jbod_model.replay.quorum import Member, QuorumState, RecordMoment, RegisteredController
from pipelines.fold.rows import TableRows, row_table
from pipelines.formats.records import CONTROL_BASE
from pipelines.lake import tables

QUORUM_TYPES = np.array(
    [API_KEY_OF[kind] for kind in (RegisterControllerRecord, UnregisterControllerRecord)]
    + [CONTROL_BASE + CONTROL_TYPE_OF[kind] for kind in (LeaderChangeMessage, KRaftVersionRecord, VotersRecord)],
    np.int32,
)
Row = dict[str, Any]
_BEGINS = "registered"
"""Not a column: a registration begins a row, even if it equals the one before."""


@dataclass(frozen=True)
class QuorumEvent:
    """A record that the quorum follows from. ``record`` None: the end of a snapshot."""

    offset: int
    time: int
    snapshot: bool
    record: Record | ControlRecord | None


@dataclass
class Quorum:
    """The state of the quorum, and its open rows by node."""

    state: QuorumState = field(default_factory=QuorumState)
    controllers: dict[int, Row] = field(default_factory=dict)
    voters: dict[int, Row] = field(default_factory=dict)

    def follow(self, events: Iterable[QuorumEvent]) -> dict[str, TableRows]:
        """Applies events in log order. Returns the rows of both tables: closed ones, and those open afterwards."""
        closed: dict[str, list[Row]] = {"controllers": [], "voters": []}
        for event, records in _steps(events):
            now = RecordMoment(event.offset, event.time)
            self.state = self.state.load(records, now) if event.snapshot else self.state.follow(records[0], now)
            for name, held, wanted in (
                ("controllers", self.controllers, controller_rows(self.state)),
                ("voters", self.voters, voter_rows(self.state)),
            ):
                closed[name] += _replaced(held, wanted, event, why_ended(name, None if event.snapshot else records[0]))
        return {
            table.name: TableRows(
                row_table(table, closed[table.name]), row_table(table, [held[one] for one in sorted(held)])
            )
            for table, held in ((tables.CONTROLLERS, self.controllers), (tables.VOTERS, self.voters))
        }

    def dump(self) -> dict[str, Any]:
        """The state as JSON can hold it."""
        state = asdict(self.state)
        state["controllers"], state["members"] = ([*state[name].values()] for name in ("controllers", "members"))
        return {"state": state, "controllers": [*self.controllers.values()], "voters": [*self.voters.values()]}

    @classmethod
    def load(cls, raw: Mapping[str, Any]) -> Quorum:
        """Undo ``dump``."""
        state = raw["state"]
        return cls(
            QuorumState(
                controllers={one["controller_id"]: _controller(one) for one in state["controllers"]},
                members={one["node_id"]: _member(one) for one in state["members"]},
                leader_id=state["leader_id"],
                elected=_moment(state["elected"]),
                kraft_version=state["kraft_version"],
            ),
            {row["controller_id"]: row for row in raw["controllers"]},
            {row["node_id"]: row for row in raw["voters"]},
        )


def _steps(events: Iterable[QuorumEvent]) -> Iterator[tuple[QuorumEvent, list[Record | ControlRecord]]]:
    """Each record of the log alone, and each snapshot as a whole (R-REPLAY-2)."""
    loading: list[Record | ControlRecord] = []
    for event in events:
        if event.record is None:
            yield event, loading
            loading = []
        elif event.snapshot:
            loading.append(event.record)
        else:
            yield event, [event.record]


def _replaced(held: dict[int, Row], wanted: Mapping[int, Row], event: QuorumEvent, why: str) -> Iterator[Row]:
    """Makes ``held`` the wanted rows; those that are not wanted any more, closed."""
    for node in sorted({*held, *wanted}):
        row, new = held.get(node), wanted.get(node)
        if row is not None and new is not None and all(row[name] == value for name, value in new.items()):
            continue
        if row is not None:
            yield {**held.pop(node), "to_offset": event.offset, "to_time": event.time, "ended_by": why}
        if new is not None:
            held[node] = {
                **new,
                "from_offset": event.offset,
                "from_time": event.time,
                "to_offset": None,
                "to_time": None,
                "from_snapshot": event.snapshot,
                "ended_by": None,
            }


def controller_rows(state: QuorumState) -> dict[int, Row]:
    """The row of ``controllers`` for each registered controller, without the interval."""
    return {
        one.controller_id: {
            "controller_id": one.controller_id,
            "incarnation_id": one.incarnation_id,
            "zk_migration_ready": one.zk_migration_ready,
            "endpoints": list(one.endpoints),
            "features": [name for name, _, _ in one.features],
            "lowest_levels": [lowest for _, lowest, _ in one.features],
            "highest_levels": [highest for *_, highest in one.features],
            _BEGINS: one.registered.offset,
        }
        for one in state.controllers.values()
    }


def voter_rows(state: QuorumState) -> dict[int, Row]:
    """The row of ``voters`` for each node that a control record named, without the interval."""
    return {
        one.node_id: {
            "node_id": one.node_id,
            "directory_id": one.directory_id,
            "endpoints": list(one.endpoints),
            "kraft_lowest": one.kraft and one.kraft[0],
            "kraft_highest": one.kraft and one.kraft[1],
            "role": state.role(one.node_id),
            "voter": one.voter,
            "role_offset": one.since.offset,
            "role_time": one.since.time,
            **_of("elected", state.elected if one.node_id == state.leader_id else None),
            **_of("heard", one.heard),
            "kraft_version": state.kraft_version,
        }
        for one in state.members.values()
    }


def why_ended(table: str, record: Record | ControlRecord | None) -> str:
    """Why rows of a table ended at a record, or (None) at a snapshot."""
    if record is None:
        return "resync"
    if table == "controllers":
        return "registered" if isinstance(record, RegisterControllerRecord) else "unregistered"
    if isinstance(record, LeaderChangeMessage):
        return "election"
    return "voters" if isinstance(record, VotersRecord) else "kraft version"


def _of(name: str, moment: RecordMoment | None) -> Row:
    return {f"{name}_offset": moment and moment.offset, f"{name}_time": moment and moment.time}


def _moment(raw: Mapping[str, int] | None) -> RecordMoment | None:
    return None if raw is None else RecordMoment(**raw)


def _controller(raw: Mapping[str, Any]) -> RegisteredController:
    features = tuple((name, lowest, highest) for name, lowest, highest in raw["features"])
    return RegisteredController(
        **{
            **raw,
            "endpoints": tuple(raw["endpoints"]),
            "features": features,
            "registered": RecordMoment(**raw["registered"]),
        }
    )


def _member(raw: Mapping[str, Any]) -> Member:
    return Member(
        **{
            **raw,
            "endpoints": tuple(raw["endpoints"]),
            "kraft": raw["kraft"] and (raw["kraft"][0], raw["kraft"][1]),
            "since": RecordMoment(**raw["since"]),
            "heard": _moment(raw["heard"]),
        }
    )
