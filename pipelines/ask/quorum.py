"""The quorum according to the log: leader, epoch, voters, registered and unregistered controllers, and the brokers.

The log has the quorum's decisions, not the nodes that fetch now. A controller is seen when it registers, grants a vote
to a new leader, or becomes a voter. A registration whose controller is no longer a voter, or was not
seen since the newest leader was elected, is called a ghost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from jbod_model.formats.codec import decode
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    Record,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from jbod_model.formats.schema import TYPE_NAMES
from pipelines.ask.json_values import DatedAnswer
from pipelines.lake.delta import is_among
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
"""States of controllers (the first four, and ``unknown`` if the log names no voters), and of brokers."""

_TYPES = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
)
GHOST_AFTER = timedelta(hours=1)
"""By default a broker that has been fenced for longer than this counts as a ghost."""


class Levels(NamedTuple):
    """The levels of a feature that a node supports, both inclusive."""

    lowest: int
    highest: int


class Moment(NamedTuple):
    """A record: its offset, and when it was appended."""

    offset: int
    time: datetime
    from_snapshot: bool = False
    """A snapshot says so: it happened at or before this offset."""


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
    """When the state began, as far as the log shows."""
    heard: Moment | None = None
    """The newest record that shows the node alive."""


@dataclass(frozen=True)
class VoterNode:
    """A voter of the quorum."""

    node_id: int
    directory_id: str | None
    """The id of its metadata directory; None if the voters are static."""
    endpoints: tuple[str, ...]
    kraft_versions: Levels | None
    """None if the voters are static."""
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
class QuorumAnswer(DatedAnswer):
    """The quorum at an offset."""

    leader_id: int | None
    """The newest leader change; None if the log has none."""
    epoch: int
    """Of the newest record."""
    leader_since: Moment | None
    kraft_version: int
    """0 if no record sets it: the voters are those of ``controller.quorum.voters``."""
    voters: tuple[VoterNode, ...]
    controllers: tuple[Node, ...]
    gone: tuple[Gone, ...]
    brokers: tuple[Node, ...]
    """Observers of the quorum, all of them."""


@dataclass
class _Voters:
    """The table ``voters`` at an offset."""

    voters: dict[int, VoterNode]
    left: dict[int, Moment]
    """Nodes that were voters and are not, and since when."""
    heard: dict[int, Moment]
    leader_id: int | None
    leader_since: Moment | None
    kraft_version: int


def quorum(lake: Lake, ghost_after: timedelta = GHOST_AFTER) -> QuorumAnswer:
    """The quorum at the lake's offset. A broker that was fenced for ``ghost_after`` is a ghost."""
    known = _voters(lake)
    controllers = [_controller(known, node) for node in _controllers(lake)]
    there = {node.node_id for node in controllers}
    brokers = _brokers(lake)
    ((epoch,),) = lake.query(f"SELECT coalesce(max(epoch), -1) FROM {lake.setting_records()}")
    return QuorumAnswer(
        offset=lake.offset,
        time=lake.time,
        leader_id=known.leader_id,
        epoch=int(epoch),
        leader_since=known.leader_since,
        kraft_version=known.kraft_version,
        voters=tuple(known.voters[node_id] for node_id in sorted(known.voters)),
        controllers=tuple(controllers),
        gone=tuple(controller for controller in _gone(lake) if controller.node_id not in there),
        brokers=tuple(_broker(brokers[broker_id], lake.time - ghost_after) for broker_id in sorted(brokers)),
    )


def _voters(lake: Lake) -> _Voters:
    rows = lake.query(
        f"""
        SELECT node_id, directory_id, endpoints, kraft_lowest, kraft_highest, role, voter, kraft_version,
            role_offset, epoch_us(role_time), elected_offset, epoch_us(elected_time), heard_offset, epoch_us(heard_time)
        FROM {lake.at("voters")} ORDER BY node_id
        """
    )
    known = _Voters({}, {}, {}, None, None, 0)
    for node, directory, endpoints, lowest, highest, role, votes, version, *moments in rows:
        since, elected, heard = (_moment(lake, *moments[at : at + 2]) for at in (0, 2, 4))
        assert since is not None
        known.kraft_version = version
        if role == LEADER:
            known.leader_id, known.leader_since = node, elected
        if heard is not None:
            known.heard[node] = heard
        if votes:
            levels = None if lowest is None else Levels(lowest, highest)
            known.voters[node] = VoterNode(node, directory, tuple(endpoints), levels, since)
        else:
            known.left[node] = since
    return known


def _controllers(lake: Lake) -> Iterable[Node]:
    """The registrations, and the newest registration of each controller that the log itself has."""
    rows = lake.query(
        f"""
        SELECT controller_id, incarnation_id, endpoints, features, lowest_levels, highest_levels,
            from_offset, epoch_us(from_time), from_snapshot, heard.log_offset, epoch_us(heard.time)
        FROM {lake.at("controllers")} LEFT JOIN (
            SELECT controller_id, max(from_offset) AS log_offset, arg_max(from_time, from_offset) AS time
            FROM {lake.until("controllers")} WHERE NOT from_snapshot GROUP BY controller_id
        ) heard USING (controller_id)
        ORDER BY controller_id
        """
    )
    for node, incarnation, endpoints, names, lowest, highest, offset, micros, in_snapshot, *heard in rows:
        # A contract reports lists of different lengths.
        levels = {name: Levels(*pair) for name, *pair in zip(names, lowest, highest, strict=False)}
        registered = Moment(offset, time_of(micros), in_snapshot)
        yield Node(
            node, incarnation, tuple(endpoints), levels, registered, in_snapshot, heard=_moment(lake, *heard)
        )  # fmt: skip


def _gone(lake: Lake) -> Iterable[Gone]:
    rows = lake.query(
        f"""
        SELECT controller_id, incarnation_id, from_offset, epoch_us(from_time), from_snapshot,
            to_offset, epoch_us(to_time)
        FROM {lake.until("controllers")} WHERE ended_by = 'unregistered' ORDER BY to_offset
        """
    )
    for node, incarnation, offset, micros, in_snapshot, end, end_micros in rows:
        yield Gone(
            node, incarnation, Moment(offset, time_of(micros), in_snapshot), Moment(end, time_of(end_micros))
        )  # fmt: skip


def _moment(lake: Lake, offset: int | None, micros: int | None) -> Moment | None:
    return None if offset is None or micros is None else Moment(offset, time_of(micros), offset in lake.snapshots)


def _brokers(lake: Lake) -> dict[int, Node]:
    """Registrations of brokers from their records: the table ``brokers`` has neither endpoints nor features."""
    known: dict[int, Node] = {}
    for moment, name, value in _records(lake):
        if name is None:
            known = {}
        else:
            known = _follow(known, moment, decode(value, file=lake.path, offset=moment.offset).record)
    return known


def _records(lake: Lake) -> Iterable[tuple[Moment, str | None, bytes]]:
    """The records of registrations, in order. A row without a name marks the beginning of a snapshot."""
    rows = lake.query(
        f"""
        SELECT log_offset, epoch_us(append_time), snapshot, record_type, value, snapshot_index
        FROM {lake.setting_records()} WHERE {is_among("record_type", [TYPE_NAMES[kind] for kind in _TYPES])}
        UNION ALL
        SELECT log_offset, epoch_us(min(append_time)), TRUE, NULL, NULL, -1
        FROM {lake.setting_records()} WHERE snapshot GROUP BY log_offset
        ORDER BY log_offset, snapshot_index NULLS FIRST
        """
    )
    for offset, micros, in_snapshot, name, value, _ in rows:
        yield Moment(offset, time_of(micros), in_snapshot), name, bytes(value or b"")


def _follow(known: dict[int, Node], now: Moment, record: Record) -> dict[int, Node]:
    match record:
        case RegisterBrokerRecord():
            node = _registered(record, now)
            node = replace(node, state=FENCED if record.fenced else ALIVE, since=now)
            return {**known, node.node_id: node}
        case UnregisterBrokerRecord():
            return {broker_id: node for broker_id, node in known.items() if broker_id != record.broker_id}
        case BrokerRegistrationChangeRecord() if record.fenced:
            return _fenced(known, now, record.broker_id, record.fenced > 0)
        case FenceBrokerRecord() | UnfenceBrokerRecord():
            return _fenced(known, now, record.id, isinstance(record, FenceBrokerRecord))
    return known


def _registered(record: RegisterBrokerRecord, now: Moment) -> Node:
    features = [
        (feature.name, feature.min_supported_version, feature.max_supported_version) for feature in record.features
    ]
    return Node(
        node_id=record.broker_id,
        incarnation_id=str(record.incarnation_id),
        endpoints=tuple(f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in record.end_points),
        features={name: Levels(lowest, highest) for name, lowest, highest in sorted(features)},
        registered=now,
        from_snapshot=now.from_snapshot,
        heard=now,
    )


def _fenced(known: dict[int, Node], now: Moment, broker_id: int, fenced: bool) -> dict[int, Node]:
    broker = known.get(broker_id)
    if broker is None or (broker.state == FENCED) == fenced:
        return known
    heard = broker.heard if fenced else now
    return {**known, broker_id: replace(broker, state=FENCED if fenced else ALIVE, since=now, heard=heard)}


def _controller(known: _Voters, node: Node) -> Node:
    """The registration with its state."""
    heard = max(filter(None, (node.heard, known.heard.get(node.node_id))), default=None)
    node = replace(node, heard=heard)
    if node.node_id == known.leader_id:
        return replace(node, state=LEADER, since=known.leader_since)
    if node.node_id in known.voters:
        return replace(node, state=VOTER, since=known.voters[node.node_id].since)
    if not known.voters:
        return replace(node, state=UNKNOWN, since=node.registered)
    last = -1 if heard is None else heard.offset
    for left in (known.left.get(node.node_id), known.leader_since):
        if left is not None and left.offset > last:
            return replace(node, state=GHOST, since=left)
    return replace(node, state=OBSERVER, since=heard or node.registered)


def _broker(node: Node, ghost_before: datetime) -> Node:
    old = node.state == FENCED and node.since is not None and node.since.time <= ghost_before
    return replace(node, state=GHOST) if old else node
