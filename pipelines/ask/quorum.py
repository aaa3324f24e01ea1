"""The quorum as the log tells it: leader, epoch, voters, controllers registered and gone, and the brokers beside them.

The log has what was decided, not who fetches now: a controller shows itself by its registration, by a vote that it
granted to a new leader, and by becoming a voter. A registration whose controller is no voter any more, or was not heard
of since the newest leader was elected, is called a ghost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from jbod_model.errors import UsageError
from jbod_model.formats.codec import decode, read_struct
from jbod_model.formats.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from jbod_model.formats.records import (
    TYPE_NAMES,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    Struct,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from jbod_model.ids import ZERO
from jbod_model.wire import Undecodable
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake

LEADER, VOTER, OBSERVER, GHOST, ALIVE, FENCED, UNKNOWN = (
    "leader",
    "voter",
    "observer",
    "ghost",
    "alive",
    "fenced",
    "unknown",
)
"""States of controllers (the first four, and ``unknown`` where the log names no voters), and of brokers."""

_CONTROL = {
    "LEADER_CHANGE": LeaderChangeMessage,
    "KRAFT_VERSION": KRaftVersionRecord,
    "KRAFT_VOTERS": VotersRecord,
}
_TYPES = (
    RegisterControllerRecord,
    UnregisterControllerRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
)
GHOST_AFTER = timedelta(hours=1)
"""A broker that has been fenced for longer than this is called a ghost, unless told otherwise."""


class Levels(NamedTuple):
    """The levels of a feature that a node supports, both inclusive."""

    lowest: int
    highest: int


class Moment(NamedTuple):
    """A record: its offset, and when it was appended."""

    offset: int
    time: datetime


@dataclass(frozen=True)
class Node:
    """A controller or broker that is registered."""

    node_id: int
    incarnation_id: str
    endpoints: tuple[str, ...]
    """``LISTENER://HOST:PORT``."""
    features: Mapping[str, Levels]
    registered: Moment
    from_snapshot: bool
    """The registration was read from a snapshot: it is at least that old."""
    state: str = UNKNOWN
    since: Moment | None = None
    """When the state began, as far as the log tells."""
    heard: Moment | None = None
    """The newest record that shows the node alive."""


@dataclass(frozen=True)
class Voter:
    """A voter of the quorum."""

    node_id: int
    directory_id: str | None
    """Of its metadata directory; None where the voters are static."""
    endpoints: tuple[str, ...]
    kraft_versions: Levels | None
    """None where the voters are static."""
    since: Moment
    """The first record that names it a voter."""


@dataclass(frozen=True)
class Gone:
    """A controller that was unregistered."""

    node_id: int
    incarnation_id: str
    registered: Moment
    gone: Moment


@dataclass(frozen=True)
class Quorum:
    """The quorum at an offset."""

    offset: int
    time: datetime
    leader_id: int | None
    """Of the newest leader change; None where the log that was read has none."""
    epoch: int
    """Of the newest record."""
    leader_since: Moment | None
    kraft_version: int
    """0 where no record says otherwise: the voters are those of ``controller.quorum.voters``."""
    voters: tuple[Voter, ...]
    controllers: tuple[Node, ...]
    gone: tuple[Gone, ...]
    brokers: tuple[Node, ...]
    """Observers of the quorum, all of them."""

    @property
    def observers(self) -> tuple[Node, ...]:
        """Registered nodes that are no voters: brokers, and controllers beside the quorum."""
        voters = {voter.node_id for voter in self.voters}
        return tuple(node for node in (*self.controllers, *self.brokers) if node.node_id not in voters)


@dataclass(frozen=True)
class _Known:
    """What the records up to some offset say."""

    controllers: Mapping[int, Node] = field(default_factory=dict)
    brokers: Mapping[int, Node] = field(default_factory=dict)
    voters: Mapping[int, Voter] = field(default_factory=dict)
    removed: Mapping[int, Moment] = field(default_factory=dict)
    """Controllers that were voters and are not, and since when."""
    heard: Mapping[int, Moment] = field(default_factory=dict)
    gone: tuple[Gone, ...] = ()
    leader_id: int | None = None
    leader_since: Moment | None = None
    kraft_version: int = 0


def quorum(lake: Lake, ghost_after: timedelta = GHOST_AFTER) -> Quorum:
    """The quorum at the lake's offset. A broker that was fenced for ``ghost_after`` is a ghost.

    UsageError where a control record of the lake cannot be read.
    """
    known = _Known()
    for moment, in_snapshot, name, value in _records(lake):
        if name is None:
            known = replace(known, controllers={}, brokers={})
        else:
            known = _follow(known, moment, in_snapshot, _read(lake, moment.offset, name, value))
    ((epoch,),) = lake.query(f"SELECT coalesce(max(epoch), -1) FROM {lake.setting_records()}")
    return Quorum(
        offset=lake.offset,
        time=lake.time,
        leader_id=known.leader_id,
        epoch=int(epoch),
        leader_since=known.leader_since,
        kraft_version=known.kraft_version,
        voters=tuple(known.voters[one] for one in sorted(known.voters)),
        controllers=tuple(_controller(known, known.controllers[one]) for one in sorted(known.controllers)),
        gone=tuple(one for one in known.gone if one.node_id not in known.controllers),
        brokers=tuple(_broker(known.brokers[one], lake.time - ghost_after) for one in sorted(known.brokers)),
    )


def _records(lake: Lake) -> Iterable[tuple[Moment, bool, str | None, bytes]]:
    """The records of the quorum and of registrations, in order; a row without a name where a snapshot begins."""
    rows = lake.query(
        f"""
        SELECT log_offset, epoch_us(append_time), snapshot, record_type, value, snapshot_index
        FROM {lake.setting_records()} WHERE list_contains($1, record_type)
        UNION ALL
        SELECT log_offset, epoch_us(min(append_time)), TRUE, NULL, NULL, -1
        FROM {lake.setting_records()} WHERE snapshot GROUP BY log_offset
        ORDER BY log_offset, snapshot_index NULLS FIRST
        """,
        [[*_CONTROL, *(TYPE_NAMES[one] for one in _TYPES)]],
    )
    for offset, micros, in_snapshot, name, value, _ in rows:
        yield Moment(offset, time_of(micros)), in_snapshot, name, bytes(value or b"")


def _read(lake: Lake, offset: int, name: str, value: bytes) -> Struct:
    if name not in _CONTROL:
        return decode(value, file=lake.path, offset=offset).record
    try:
        return read_struct(_CONTROL[name].__name__, int.from_bytes(value[:2], "big"), value, 0)[0]
    except (Undecodable, IndexError, KeyError) as problem:
        raise UsageError(f"{lake.path}: the {name} record at offset {offset} cannot be read: {problem}") from None


def _follow(known: _Known, now: Moment, in_snapshot: bool, record: Record | Struct) -> _Known:
    match record:
        case LeaderChangeMessage():
            return _led(known, now, record)
        case KRaftVersionRecord():
            return replace(known, kraft_version=record.k_raft_version)
        case VotersRecord():
            return _voted(known, now, record)
        case RegisterControllerRecord():
            node = _registered(record.controller_id, record, now, in_snapshot)
            heard = known.heard if in_snapshot else {**known.heard, node.node_id: now}
            return replace(known, controllers={**known.controllers, node.node_id: node}, heard=heard)
        case UnregisterControllerRecord():
            left = known.controllers.get(record.controller_id)
            if left is None:
                return known
            gone = Gone(left.node_id, left.incarnation_id, left.registered, now)
            return replace(known, controllers=_without(known.controllers, left.node_id), gone=(*known.gone, gone))
        case RegisterBrokerRecord():
            node = _registered(record.broker_id, record, now, in_snapshot)
            node = replace(node, state=FENCED if record.fenced else ALIVE, since=now)
            return replace(known, brokers={**known.brokers, node.node_id: node})
        case UnregisterBrokerRecord():
            return replace(known, brokers=_without(known.brokers, record.broker_id))
        case BrokerRegistrationChangeRecord() if record.fenced:
            return _fenced(known, now, record.broker_id, record.fenced > 0)
        case FenceBrokerRecord() | UnfenceBrokerRecord():
            return _fenced(known, now, record.id, isinstance(record, FenceBrokerRecord))
    return known


def _registered(
    node_id: int, record: RegisterControllerRecord | RegisterBrokerRecord, now: Moment, in_snapshot: bool
) -> Node:
    return Node(
        node_id=node_id,
        incarnation_id=str(record.incarnation_id),
        endpoints=tuple(f"{one.name}://{one.host}:{one.port}" for one in record.end_points),
        features=_supported(record),
        registered=now,
        from_snapshot=in_snapshot,
        heard=now,
    )


def _supported(record: RegisterControllerRecord | RegisterBrokerRecord) -> dict[str, Levels]:
    """Feature -> levels, by name."""
    if isinstance(record, RegisterControllerRecord):
        told = [(one.name, one.min_supported_version, one.max_supported_version) for one in record.features]
    else:
        told = [(one.name, one.min_supported_version, one.max_supported_version) for one in record.features]
    return {name: Levels(lowest, highest) for name, lowest, highest in sorted(told)}


def _led(known: _Known, now: Moment, record: LeaderChangeMessage) -> _Known:
    """A new epoch: who leads, who voted for it, and which voters it names."""
    voters = {
        one.voter_id: known.voters.get(one.voter_id)
        or Voter(one.voter_id, None if one.voter_directory_id == ZERO else str(one.voter_directory_id), (), None, now)
        for one in record.voters
    }
    granted = {record.leader_id, *(one.voter_id for one in record.granting_voters)}
    return replace(
        _with_voters(known, now, voters),
        leader_id=record.leader_id,
        leader_since=now,
        heard={**known.heard, **dict.fromkeys(granted, now)},
    )


def _voted(known: _Known, now: Moment, record: VotersRecord) -> _Known:
    """The voters of a dynamic quorum, all of them."""
    voters = {}
    heard = dict(known.heard)
    for one in record.voters:
        before = known.voters.get(one.voter_id)
        same = before is not None and before.directory_id in (None, str(one.voter_directory_id))
        if not same:
            heard[one.voter_id] = now
        levels = one.k_raft_version_feature
        voters[one.voter_id] = Voter(
            one.voter_id,
            str(one.voter_directory_id),
            tuple(f"{end.name}://{end.host}:{end.port}" for end in one.endpoints),
            Levels(levels.min_supported_version, levels.max_supported_version),
            before.since if before is not None and same else now,
        )
    return replace(_with_voters(known, now, voters), heard=heard)


def _with_voters(known: _Known, now: Moment, voters: Mapping[int, Voter]) -> _Known:
    removed = {one: when for one, when in known.removed.items() if one not in voters}
    removed |= {one: now for one in known.voters if one not in voters}
    return replace(known, voters=voters, removed=removed)


def _fenced(known: _Known, now: Moment, broker_id: int, fenced: bool) -> _Known:
    broker = known.brokers.get(broker_id)
    if broker is None or (broker.state == FENCED) == fenced:
        return known
    heard = broker.heard if fenced else now
    changed = replace(broker, state=FENCED if fenced else ALIVE, since=now, heard=heard)
    return replace(known, brokers={**known.brokers, broker_id: changed})


def _controller(known: _Known, node: Node) -> Node:
    """The registration with its state."""
    heard = known.heard.get(node.node_id)
    node = replace(node, heard=heard)
    if node.node_id == known.leader_id:
        return replace(node, state=LEADER, since=known.leader_since)
    if node.node_id in known.voters:
        return replace(node, state=VOTER, since=known.voters[node.node_id].since)
    if not known.voters:
        return replace(node, state=UNKNOWN, since=node.registered)
    last = -1 if heard is None else heard.offset
    for left in (known.removed.get(node.node_id), known.leader_since):
        if left is not None and left.offset > last:
            return replace(node, state=GHOST, since=left)
    return replace(node, state=OBSERVER, since=heard or node.registered)


def _broker(node: Node, ghost_before: datetime) -> Node:
    old = node.state == FENCED and node.since is not None and node.since.time <= ghost_before
    return replace(node, state=GHOST) if old else node


def _without(nodes: Mapping[int, Node], node_id: int) -> dict[int, Node]:
    return {one: node for one, node in nodes.items() if one != node_id}
