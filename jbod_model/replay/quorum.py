"""The quorum according to the records: registrations of controllers, and the nodes in control records.

Its states are the rows of the tables ``controllers`` and ``voters`` (docs/spec/changes.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jbod_model.formats.control_records import ControlRecord, KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from jbod_model.formats.records import Record, RegisterControllerRecord, UnregisterControllerRecord
from jbod_model.ids import ZERO

QUORUM_RECORDS = (
    RegisterControllerRecord,
    UnregisterControllerRecord,
    LeaderChangeMessage,
    KRaftVersionRecord,
    VotersRecord,
)
"""The records that change the quorum. All others do not."""


@dataclass(frozen=True, slots=True)
class RecordMoment:
    """A record: its offset, and its append time in microseconds since 1970."""

    offset: int
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredController:
    """A registered controller."""

    controller_id: int
    incarnation_id: str
    zk_migration_ready: bool
    endpoints: tuple[str, ...]
    """``NAME://HOST:PORT``."""
    features: tuple[tuple[str, int, int], ...]
    """Name, lowest and highest level, by name."""
    registered: RecordMoment
    """The record that registered it. A snapshot with the same registration keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node that a control record named."""

    node_id: int
    directory_id: str | None = None
    """Of its metadata directory; None while voters are static."""
    endpoints: tuple[str, ...] = ()
    kraft: tuple[int, int] | None = None
    """The levels of kraft.version that it supports; None while voters are static."""
    voter: bool
    since: RecordMoment
    """The record by which it became a voter or ceased to be one."""
    heard: RecordMoment | None = None
    """The newest record that shows it alive: it was elected, granted a vote, or became a voter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """The quorum after the records up to an offset."""

    controllers: Mapping[int, RegisteredController] = field(default_factory=dict)
    members: Mapping[int, Member] = field(default_factory=dict)
    leader_id: int | None = None
    elected: RecordMoment | None = None
    kraft_version: int = 0

    def role(self, node_id: int) -> str:
        """leader, voter or observer (R-VOTER-4)."""
        if node_id == self.leader_id:
            return "leader"
        return "voter" if self.members[node_id].voter else "observer"

    def follow(self, record: Record | ControlRecord, now: RecordMoment) -> QuorumState:
        """The state after a record of the log."""
        match record:
            case RegisterControllerRecord():  # R-VOTER-1
                node = _registered(record, now)
                return replace(self, controllers={**self.controllers, node.controller_id: node})
            case UnregisterControllerRecord():
                left = {one: node for one, node in self.controllers.items() if one != record.controller_id}
                return replace(self, controllers=left)
            case LeaderChangeMessage():
                return self._led(record, now)
            case KRaftVersionRecord():
                return replace(self, kraft_version=record.k_raft_version)
            case VotersRecord():
                return self._voted(record, now)
        return self

    def load(self, records: Iterable[Record | ControlRecord], now: RecordMoment) -> QuorumState:
        """The state after a whole snapshot: its controllers, and its voters if it names any."""
        loading = replace(self, controllers={})
        for record in records:
            loading = loading.follow(record, now)
        kept = {one: _same_or(self.controllers.get(one), node) for one, node in loading.controllers.items()}
        return replace(loading, controllers=kept)

    def _led(self, record: LeaderChangeMessage, now: RecordMoment) -> QuorumState:
        """A new epoch: the leader, the nodes that voted for it, and the voters (R-VOTER-2)."""
        named = {one.voter_id: one for one in record.voters}
        granted = {record.leader_id, *(one.voter_id for one in record.granting_voters)}
        members = {}
        for node_id in sorted({*self.members, *named, record.leader_id}):
            member = self.members.get(node_id)
            if member is None or member.voter != (node_id in named):
                directory = named[node_id].voter_directory_id if node_id in named else ZERO
                before = member or Member(node_id=node_id, voter=False, since=now)
                known = before.directory_id if directory == ZERO else str(directory)
                member = replace(before, directory_id=known, voter=node_id in named, since=now)
            members[node_id] = replace(member, heard=now) if node_id in granted else member
        return replace(self, members=members, leader_id=record.leader_id, elected=now)

    def _voted(self, record: VotersRecord, now: RecordMoment) -> QuorumState:
        """The voters of a dynamic quorum, all of them (R-VOTER-3)."""
        members = {
            one: replace(member, voter=False, since=now) if member.voter else member
            for one, member in self.members.items()
        }
        for one in record.voters:
            before, directory = self.members.get(one.voter_id), str(one.voter_directory_id)
            levels = one.k_raft_version_feature
            stayed = before if before and before.voter and before.directory_id in (None, directory) else None
            members[one.voter_id] = Member(
                node_id=one.voter_id,
                directory_id=directory,
                endpoints=tuple(f"{end.name}://{end.host}:{end.port}" for end in one.endpoints),
                kraft=(levels.min_supported_version, levels.max_supported_version),
                voter=True,
                since=stayed.since if stayed else now,
                heard=stayed.heard if stayed else now,
            )
        return replace(self, members=members)


def _registered(record: RegisterControllerRecord, now: RecordMoment) -> RegisteredController:
    told = [(one.name, one.min_supported_version, one.max_supported_version) for one in record.features]
    return RegisteredController(
        controller_id=record.controller_id,
        incarnation_id=str(record.incarnation_id),
        zk_migration_ready=record.zk_migration_ready,
        endpoints=tuple(f"{one.name}://{one.host}:{one.port}" for one in record.end_points),
        features=tuple(sorted(told)),
        registered=now,
    )


def _same_or(before: RegisteredController | None, now: RegisteredController) -> RegisteredController:
    return before if before is not None and replace(now, registered=before.registered) == before else now
