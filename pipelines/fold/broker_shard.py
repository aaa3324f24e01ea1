"""The broker shard: tables of brokers, directories and the quorum, features, checks that need the whole cluster.

It sees every broker record, feature level and topic name. By the names it refuses a topic that is created twice and a
ClearElrRecord of a topic that does not exist. A shard of topics cannot detect either.

It follows the quorum record by record, for the rows of ``controllers`` and ``voters`` (docs/spec/changes.md).
Controllers and their records are few, so this is by plain objects, and the model's own rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from jbod_model.errors import ReplayViolation
from jbod_model.formats.control_records import (
    CONTROL_TYPE_OF,
    ControlRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
)
from jbod_model.formats.records import Record, RegisterControllerRecord, UnregisterControllerRecord
from jbod_model.formats.schema import API_KEY_OF
from jbod_model.ids import Uuid
from jbod_model.replay.registrations import BrokerRegistration, Member, QuorumState, RecordMoment, RegisteredController
from pipelines.fold.brokers import BrokerChange, BrokerEvent, broker_states, brokers_of
from pipelines.fold.events import CLEAR_ELR, REMOVE_TOPIC, SNAPSHOT_END, TOPIC, Events
from pipelines.fold.rows import TableRows, row_table
from pipelines.formats.arrow_arrays import id_texts
from pipelines.formats.records import CONTROL_BASE
from pipelines.lake import tables
from pipelines.lake.tables import CHANGES

Row = dict[str, Any]
QUORUM_TYPES = np.array(
    [API_KEY_OF[kind] for kind in (RegisterControllerRecord, UnregisterControllerRecord)]
    + [CONTROL_BASE + CONTROL_TYPE_OF[kind] for kind in (LeaderChangeMessage, KRaftVersionRecord, VotersRecord)],
    np.int32,
)
_BEGINS = "registered"
"""Not a column: a registration begins a row, even if it equals the one before."""


@dataclass
class Quorum:
    """The state of the quorum, and its open rows by node."""

    state: QuorumState = field(default_factory=QuorumState)
    controllers: dict[int, Row] = field(default_factory=dict)
    voters: dict[int, Row] = field(default_factory=dict)

    def follow(self, events: Iterable[BrokerEvent]) -> dict[str, TableRows]:
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
                row_table(table, closed[table.name]), row_table(table, [held[node_id] for node_id in sorted(held)])
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
                controllers={
                    controller["controller_id"]: _controller(controller) for controller in state["controllers"]
                },
                members={member["node_id"]: _member(member) for member in state["members"]},
                leader_id=state["leader_id"],
                elected=_moment(state["elected"]),
                kraft_version=state["kraft_version"],
            ),
            {row["controller_id"]: row for row in raw["controllers"]},
            {row["node_id"]: row for row in raw["voters"]},
        )


def _steps(events: Iterable[BrokerEvent]) -> Iterator[tuple[BrokerEvent, list[Record | ControlRecord]]]:
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


def _replaced(held: dict[int, Row], wanted: Mapping[int, Row], event: BrokerEvent, why: str) -> Iterator[Row]:
    """Makes ``held`` the wanted rows; those that are not wanted any more, closed."""
    at = RowStart(event.offset, event.time, event.snapshot)
    for node in sorted({*held, *wanted}):
        row, new = held.get(node), wanted.get(node)
        if row is not None and new is not None and all(row[name] == value for name, value in new.items()):
            continue
        if row is not None:
            yield {**held.pop(node), **_end(at), "ended_by": why}
        if new is not None:
            held[node] = {**new, **_start(at)}


def controller_rows(state: QuorumState) -> dict[int, Row]:
    """The row of ``controllers`` for each registered controller, without the interval."""
    return {
        controller.controller_id: {
            "controller_id": controller.controller_id,
            "incarnation_id": controller.incarnation_id,
            "zk_migration_ready": controller.zk_migration_ready,
            "endpoints": list(controller.endpoints),
            "features": [name for name, _, _ in controller.features],
            "lowest_levels": [lowest for _, lowest, _ in controller.features],
            "highest_levels": [highest for *_, highest in controller.features],
            _BEGINS: controller.registered.offset,
        }
        for controller in state.controllers.values()
    }


def voter_rows(state: QuorumState) -> dict[int, Row]:
    """The row of ``voters`` for each node that a control record named, without the interval."""
    return {
        member.node_id: {
            "node_id": member.node_id,
            "directory_id": member.directory_id,
            "endpoints": list(member.endpoints),
            "kraft_lowest": member.kraft and member.kraft[0],
            "kraft_highest": member.kraft and member.kraft[1],
            "role": state.role(member.node_id),
            "voter": member.voter,
            "role_offset": member.since.offset,
            "role_time": member.since.time,
            **_of("elected", state.elected if member.node_id == state.leader_id else None),
            **_of("heard", member.heard),
            "kraft_version": state.kraft_version,
        }
        for member in state.members.values()
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


def broker_changes(change: BrokerChange, gone: Mapping[str, str], generation: int) -> Iterator[Row]:
    """Rows for the change of a broker (R-EVENT-5, R-EVENT-6). ``gone``: directories that left, and why."""
    old, new = change.before, change.after
    place = dict.fromkeys(CHANGES.schema.names) | {
        "log_offset": change.offset,
        "batch_offset": change.batch,
        "append_time": change.time,
        "broker_id": change.broker_id,
        "from_snapshot": change.snapshot,
        "retraction": False,
        "generation": generation,
        "why": change.cause,
    }
    for what, before, after in (
        ("registration", old and str(old.epoch), new and str(new.epoch)),
        ("fencing", old and _fencing(old), new and _fencing(new)),
        ("controlled shutdown", old and _shutdown(old), new and _shutdown(new)),
    ):
        if before != after:
            yield {**place, "what": what, "before": before, "after": after}
    for what, state, listed in (
        ("directory", "online", (old and old.directories, new and new.directories)),
        ("cordon", "cordoned", (old and old.cordoned_directories, new and new.cordoned_directories)),
    ):
        before_set, after_set = (set(map(str, directories or ())) for directories in listed)
        for directory in sorted(before_set ^ after_set):
            came = directory in after_set
            yield {
                **place,
                "what": what,
                "directory_id": directory,
                "before": None if came else state,
                "after": state if came else None,
                "why": gone.get(directory, change.cause) if what == "directory" else change.cause,
            }


def _fencing(broker: BrokerRegistration) -> str:
    return "fenced" if broker.fenced else "unfenced"


def _shutdown(broker: BrokerRegistration) -> str | None:
    return "shutting down" if broker.in_controlled_shutdown else None


METADATA_VERSION = "metadata.version"


@dataclass
class RowStart:
    """Where a row of history began."""

    offset: int
    time: int
    snapshot: bool


@dataclass
class BrokerShardState:
    """Registrations, the start of each open row, online directories, feature levels, topic ids by name, the quorum."""

    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    broker_since: dict[int, RowStart] = field(default_factory=dict)
    directory_since: dict[tuple[int, str], tuple[int, RowStart]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    quorum: Quorum = field(default_factory=Quorum)

    def dump(self) -> bytes:
        """Returns the state as JSON, for the state store."""
        return json.dumps(
            {
                "brokers": broker_states(self.brokers),
                "broker_since": [[broker, asdict(since)] for broker, since in self.broker_since.items()],
                "directory_since": [[*key, epoch, asdict(at)] for key, (epoch, at) in self.directory_since.items()],
                "features": self.features,
                "topics": self.topics,
                "quorum": self.quorum.dump(),
            }
        ).encode()

    @classmethod
    def load(cls, data: bytes) -> BrokerShardState:
        """Undo ``dump``."""
        raw: dict[str, Any] = json.loads(data)
        return cls(
            brokers=brokers_of(raw["brokers"]),
            broker_since={broker: RowStart(**since) for broker, since in raw["broker_since"]},
            directory_since={(b, d): (epoch, RowStart(**at)) for b, d, epoch, at in raw["directory_since"]},
            features=raw["features"],
            topics=raw["topics"],
            quorum=Quorum.load(raw["quorum"]),
        )

    @property
    def metadata_version(self) -> int:
        """Feature level of metadata.version, -1 if no record gave it."""
        return self.features.get(METADATA_VERSION, -1)


def check_topics(topics: dict[str, str], events: Events) -> dict[str, str]:
    """Returns the topic ids by name after the events. A snapshot replaces all of them at its end (R-REPLAY-2).

    Raises ReplayViolation if a new name is taken (R-TOPIC-1) or a cleared name is unknown (R-CLEAR-1).
    """
    now = dict(topics)
    loading: dict[str, str] = {}
    name_of = {topic: name for name, topic in topics.items()}
    # The appended id is for events that name no topic.
    ids = [*id_texts(events.topics).to_pylist(), str(Uuid(0, 0))]
    columns = (column.tolist() for column in (events.kinds, events.offsets, events.topic_of, events.snapshot))
    for row, (kind, offset, number, from_snapshot) in enumerate(zip(*columns, strict=True)):
        topic = ids[number]
        known = loading if from_snapshot else now
        if kind == TOPIC:
            name = events.name(row)
            if known.get(name, topic) != topic:
                raise ReplayViolation(offset, f"TopicRecord of {name!r}, a name that is taken (R-TOPIC-1)")
            known[name] = topic
            name_of[topic] = name
        elif kind == REMOVE_TOPIC:
            name = name_of.get(topic, "")
            if known.get(name) == topic:
                del known[name]
        elif kind == CLEAR_ELR:
            name = events.name(row)
            if name and name not in known:
                raise ReplayViolation(offset, f"ClearElrRecord of {name!r}, a topic that does not exist (R-CLEAR-1)")
        elif kind == SNAPSHOT_END:
            now, loading = loading, {}
    return now


def broker_rows(
    state: BrokerShardState, changes: Sequence[BrokerChange], generation: int | None = None
) -> dict[str, TableRows]:
    """Rows of ``brokers`` and ``directories`` for the changes, and of ``changes``. Updates ``state``."""
    closed: list[dict[str, Any]] = []
    closed_dirs: list[dict[str, Any]] = []
    happened: list[dict[str, Any]] = []
    for change in changes:
        at = RowStart(change.offset, change.time, change.snapshot)
        if change.before is not None:
            row = _broker_row(change.before, state.broker_since.pop(change.broker_id))
            closed.append({**row, **_end(at), "ended_by": change.cause})
        before = set(map(str, change.before.directories)) if change.before else set()
        after = set(map(str, change.after.directories)) if change.after else set()
        gone = {directory: _why_gone(state, change, directory) for directory in sorted(before - after)}
        for directory, why in gone.items():
            epoch, since = state.directory_since.pop((change.broker_id, directory))
            closed_dirs.append(
                {**_directory_row(change.broker_id, directory, epoch, since), **_end(at), "ended_by": why}
            )
        if generation is not None:
            happened += broker_changes(change, gone, generation)
        if change.after is None:
            state.brokers.pop(change.broker_id, None)
            continue
        state.brokers[change.broker_id] = change.after
        state.broker_since[change.broker_id] = at
        for directory in after - before:
            state.directory_since[(change.broker_id, directory)] = (change.after.epoch, at)
    open_rows = [_broker_row(state.brokers[b], state.broker_since[b]) for b in sorted(state.brokers)]
    open_dirs = [
        _directory_row(broker, directory, epoch, since)
        for (broker, directory), (epoch, since) in sorted(state.directory_since.items(), key=lambda item: item[0])
    ]
    change_table = row_table(tables.CHANGES, happened)
    return {
        **({} if generation is None else {"changes": TableRows(change_table, change_table.slice(0, 0))}),
        "brokers": TableRows(row_table(tables.BROKERS, closed), row_table(tables.BROKERS, open_rows)),
        "directories": TableRows(row_table(tables.DIRECTORIES, closed_dirs), row_table(tables.DIRECTORIES, open_dirs)),
    }


def _why_gone(state: BrokerShardState, change: BrokerChange, directory: str) -> str:
    if change.cause == "changed":
        return "failed"
    if change.cause in ("unregistered", "resync"):
        return change.cause
    elsewhere = any(
        directory in map(str, broker.directories)
        for broker in state.brokers.values()
        if broker.broker_id != change.broker_id
    )
    return "moved" if elsewhere else "deregistered"


def _end(at: RowStart) -> dict[str, Any]:
    return {"to_offset": at.offset, "to_time": at.time}


def _start(at: RowStart) -> dict[str, Any]:
    return {
        "from_offset": at.offset,
        "from_time": at.time,
        "to_offset": None,
        "to_time": None,
        "from_snapshot": at.snapshot,
        "ended_by": None,
    }


def _broker_row(broker: BrokerRegistration, since: RowStart) -> dict[str, Any]:
    cordoned = broker.cordoned_directories
    return {
        "broker_id": broker.broker_id,
        "broker_epoch": broker.epoch,
        "incarnation_id": str(broker.incarnation_id),
        "fenced": broker.fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "rack": broker.rack,
        "log_dirs": [*map(str, broker.directories)],
        "cordoned_log_dirs": None if cordoned is None else [*map(str, cordoned)],
        **_start(since),
    }


def _directory_row(broker_id: int, directory: str, epoch: int, since: RowStart) -> dict[str, Any]:
    return {"broker_id": broker_id, "directory_id": directory, "broker_epoch": epoch, **_start(since)}
