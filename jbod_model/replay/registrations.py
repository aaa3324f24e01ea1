"""The states of brokers, partitions and the quorum, and how records change them (docs/spec/replay.md).

The quorum is the registrations of controllers, and the nodes in control records. Its states are the rows of the tables
``controllers`` and ``voters`` (docs/spec/changes.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from jbod_model.errors import ReplayViolation
from jbod_model.formats.control_records import ControlRecord, KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from jbod_model.formats.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)
from jbod_model.ids import KAFKA_IDS, ZERO, IdTable, Uuid
from jbod_model.profiles import KAFKA, Profile

T = TypeVar("T")

NO_LEADER_CHANGE = -2
KEEP_RECOVERY_STATE = -1
RECOVERY_STATES = (0, 1)

FENCED_CHANGE = {-1: False, 1: True}
SHUTDOWN_CHANGE = {1: True}


class IllegalRecord(ValueError):
    """A record that cannot be applied to the state before it; the image adds the offset (ReplayViolation)."""


def registered(brokers: Mapping[int, BrokerRegistration], broker_id: int, epoch: int) -> BrokerRegistration:
    """R-BROKER-5: the broker must be registered with this epoch."""
    registration = brokers.get(broker_id)
    if registration is None:
        raise IllegalRecord(f"broker {broker_id} is not registered (R-BROKER-5)")
    if registration.epoch != epoch:
        raise IllegalRecord(f"broker {broker_id} has epoch {registration.epoch}, the record says {epoch} (R-BROKER-5)")
    return registration


def check_directory_owners(brokers: Mapping[int, BrokerRegistration], after: BrokerRegistration) -> None:
    """R-BROKER-8: only one broker has a directory at a time."""
    before = brokers.get(after.broker_id)
    # Those that it has were compared when it registered them. Most records change none.
    directories = set(after.directories).difference(before.directories if before else ())
    for other in brokers.values() if directories else ():
        if other.broker_id != after.broker_id and not directories.isdisjoint(other.directories):
            shared = min(directories & set(other.directories))
            raise IllegalRecord(
                f"broker {after.broker_id} registers directory {shared} of broker {other.broker_id} (R-BROKER-8)"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A broker as the metadata knows it. Source: Kafka's ``metadata.BrokerRegistration``."""

    broker_id: int
    epoch: int
    incarnation_id: Uuid
    fenced: bool = True
    in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False
    rack: str | None = None
    directories: tuple[Uuid, ...] = ()
    """The online directories, ascending. Empty if the broker registered before directories were recorded."""
    cordoned_directories: tuple[Uuid, ...] | None = None
    """The list in the broker's last heartbeat, including offline directories; None before the first list
    (R-CORDON-1)."""
    listeners: tuple[BrokerEndpoint, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    has_offline_directories: bool = False
    """The flag of the drafts. No record carries it: a change that removes directories sets it (R-DRAFT-6)."""

    @property
    def is_active(self) -> bool:
        """Whether it is neither fenced nor shutting down. Source: ``ClusterControlManager.isActive``."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def takes_replicas(self) -> bool:
        """Whether some online directory is not cordoned, or no directories are known (R-CORDON-4)."""
        if not self.directories or self.cordoned_directories is None:
            return True
        return not set(self.directories) <= set(self.cordoned_directories)

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        """A registration replaces an earlier one with its directories (R-BROKER-1)."""
        return cls(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            rack=record.rack,
            directories=tuple(sorted(record.log_dirs)),
            cordoned_directories=record.cordoned_log_dirs,
            listeners=record.end_points,
            features=record.features,
        )

    def merge(self, change: BrokerRegistrationChangeRecord, profile: Profile = KAFKA) -> BrokerRegistration:
        """The registration after a change of the same broker and epoch (R-BROKER-4, R-BROKER-6, R-BROKER-7)."""
        # VALIDATE
        if change.fenced != 0 and change.fenced not in FENCED_CHANGE:
            raise IllegalRecord(f"broker {self.broker_id}: fenced is {change.fenced}, not -1, 0 or 1")
        if change.in_controlled_shutdown not in (0, 1):
            raise IllegalRecord(
                f"broker {self.broker_id}: inControlledShutdown is {change.in_controlled_shutdown}, "
                "not 0 or 1 (R-BROKER-7)"
            )
        # APPLY
        directories = tuple(sorted(change.log_dirs))
        says_more = change.fenced != 0 or change.in_controlled_shutdown != 0
        if not directories and (says_more or profile.empty_log_dirs_change == "ignore"):
            directories = self.directories  # R-BROKER-6: a change cannot express "all offline"
        flagged = profile.derives_offline_flag and not set(self.directories) <= set(directories)
        return replace(
            self,
            has_offline_directories=self.has_offline_directories or flagged,
            fenced=FENCED_CHANGE.get(change.fenced, self.fenced),
            in_controlled_shutdown=SHUTDOWN_CHANGE.get(change.in_controlled_shutdown, self.in_controlled_shutdown),
            directories=directories,
            cordoned_directories=_or(change.cordoned_log_dirs, self.cordoned_directories),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The draft's rewrite of the directories of a broker's replicas after a registration. No record carries it."""

    broker_id: int
    all_in: Uuid | None
    """The directory of all replicas (R-DRAFT-1); None if they keep their directories."""
    lost: frozenset[Uuid]
    """The directories whose replicas become LOST (R-DRAFT-2)."""

    def directory(self, directory: Uuid, ids: IdTable) -> Uuid:
        """The new directory of a replica that was in ``directory``."""
        if self.all_in is not None:
            return self.all_in
        return ids.lost if directory in self.lost else directory


def rewrite_of(before: BrokerRegistration, after: BrokerRegistration) -> Rewrite | None:
    """The rewrite after the registration ``after``; None if it rewrites nothing (R-DRAFT-1, R-DRAFT-2)."""
    gone = frozenset(before.directories) - frozenset(after.directories)
    only = before.directories[0] if len(before.directories) == 1 and not before.has_offline_directories else None
    if only in after.directories and len(after.directories) > 1:
        return Rewrite(broker_id=after.broker_id, all_in=only, lost=frozenset())
    # No record says that a registration has offline directories, so it has none.
    return Rewrite(broker_id=after.broker_id, all_in=None, lost=gone) if gone else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The state of a partition; ``directories`` is parallel to ``replicas``.

    Source: Kafka's ``metadata.PartitionRegistration``.
    """

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader: int = -1
    leader_recovery_state: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1

    @classmethod
    def from_record(cls, record: PartitionRecord, ids: IdTable = KAFKA_IDS, profile: Profile = KAFKA) -> Partition:
        """The whole state, independent of any state before (R-PART-1, R-PART-2, R-PART-3, R-PART-4)."""
        # VALIDATE
        if record.directories and len(record.directories) != len(record.replicas):
            raise IllegalRecord(f"{len(record.directories)} directories for {len(record.replicas)} replicas")
        if record.leader_recovery_state not in RECOVERY_STATES:
            raise IllegalRecord(f"leaderRecoveryState is {record.leader_recovery_state}, not 0 or 1")
        # APPLY
        return cls(
            replicas=record.replicas,
            directories=_normalised(record.directories, len(record.replicas), ids, profile),
            isr=record.isr,
            removing_replicas=record.removing_replicas,
            adding_replicas=record.adding_replicas,
            eligible_leader_replicas=_or(record.eligible_leader_replicas, ()),
            last_known_elr=_or(record.last_known_elr, ()),
            leader=record.leader,
            leader_recovery_state=record.leader_recovery_state,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def merge(self, change: PartitionChangeRecord, ids: IdTable = KAFKA_IDS, profile: Profile = KAFKA) -> Partition:
        """The state after a change (R-MERGE-1, R-MERGE-2, R-MERGE-3, R-MERGE-4, R-MERGE-5, R-MERGE-6, R-MERGE-7)."""
        # VALIDATE
        if change.replicas is not None and change.directories and len(change.directories) != len(change.replicas):
            raise IllegalRecord(f"{len(change.directories)} directories for {len(change.replicas)} replicas")
        if change.leader_recovery_state not in (KEEP_RECOVERY_STATE, *RECOVERY_STATES):
            raise IllegalRecord(f"leaderRecoveryState is {change.leader_recovery_state}, not -1, 0 or 1")
        replicas = _or(change.replicas, self.replicas)
        directories = _normalised(_or(change.directories, self.directories), len(replicas), ids, profile)
        if len(directories) != len(replicas):  # R-MERGE-4: directories keep their position in the list
            raise IllegalRecord(f"{len(replicas)} replicas keep {len(directories)} directories")
        # APPLY
        led = change.leader != NO_LEADER_CHANGE
        recovery = change.leader_recovery_state
        return Partition(
            replicas=replicas,
            directories=directories,
            isr=_or(change.isr, self.isr),
            removing_replicas=_or(change.removing_replicas, self.removing_replicas),
            adding_replicas=_or(change.adding_replicas, self.adding_replicas),
            eligible_leader_replicas=_or(change.eligible_leader_replicas, self.eligible_leader_replicas),
            last_known_elr=_or(change.last_known_elr, self.last_known_elr),
            leader=change.leader if led else self.leader,
            leader_recovery_state=self.leader_recovery_state if recovery == KEEP_RECOVERY_STATE else recovery,
            leader_epoch=self.leader_epoch + 1 if led else self.leader_epoch,
            partition_epoch=self.partition_epoch + 1,
        )

    @property
    def named(self) -> frozenset[int]:
        """The replicas that are in sync or eligible."""
        return frozenset((*self.isr, *self.eligible_leader_replicas))

    def directory(self, broker_id: int) -> Uuid:
        """The directory of the broker's replica; KeyError if it has none."""
        if broker_id not in self.replicas:
            raise KeyError(broker_id)
        return self.directories[self.replicas.index(broker_id)]


def _normalised(directories: tuple[Uuid, ...], replica_count: int, ids: IdTable, profile: Profile) -> tuple[Uuid, ...]:
    """No directories, or only absent ones, are the absent id for each replica (R-PART-3)."""
    absent = ids.migrating if profile.absent_directories == "migrating" else ids.unassigned
    if all(directory == absent for directory in directories):
        return (absent,) * replica_count
    return directories


def _or(new: T | None, old: T) -> T:
    return old if new is None else new


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
        """The state after a record of the log; ReplayViolation for an unknown controller that is unregistered."""
        match record:
            case RegisterControllerRecord():  # R-VOTER-1
                node = _registered(record, now)
                return replace(self, controllers={**self.controllers, node.controller_id: node})
            case UnregisterControllerRecord():  # R-CONTROLLER-2
                if record.controller_id not in self.controllers:
                    problem = f"controller {record.controller_id} is not registered (R-CONTROLLER-2)"
                    raise ReplayViolation(now.offset, f"UnregisterControllerRecord: {problem}")
                left = {
                    controller_id: node
                    for controller_id, node in self.controllers.items()
                    if controller_id != record.controller_id
                }
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
        kept = {
            controller_id: _same_or(self.controllers.get(controller_id), node)
            for controller_id, node in loading.controllers.items()
        }
        return replace(loading, controllers=kept)

    def _led(self, record: LeaderChangeMessage, now: RecordMoment) -> QuorumState:
        """A new epoch: the leader, the nodes that voted for it, and the voters (R-VOTER-2)."""
        named = {voter.voter_id: voter for voter in record.voters}
        granted = {record.leader_id, *(voter.voter_id for voter in record.granting_voters)}
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
            node_id: replace(member, voter=False, since=now) if member.voter else member
            for node_id, member in self.members.items()
        }
        for voter in record.voters:
            before, directory = self.members.get(voter.voter_id), str(voter.voter_directory_id)
            levels = voter.k_raft_version_feature
            stayed = before if before and before.voter and before.directory_id in (None, directory) else None
            members[voter.voter_id] = Member(
                node_id=voter.voter_id,
                directory_id=directory,
                endpoints=tuple(f"{end.name}://{end.host}:{end.port}" for end in voter.endpoints),
                kraft=(levels.min_supported_version, levels.max_supported_version),
                voter=True,
                since=stayed.since if stayed else now,
                heard=stayed.heard if stayed else now,
            )
        return replace(self, members=members)


def _registered(record: RegisterControllerRecord, now: RecordMoment) -> RegisteredController:
    features = [
        (feature.name, feature.min_supported_version, feature.max_supported_version) for feature in record.features
    ]
    return RegisteredController(
        controller_id=record.controller_id,
        incarnation_id=str(record.incarnation_id),
        zk_migration_ready=record.zk_migration_ready,
        endpoints=tuple(f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in record.end_points),
        features=tuple(sorted(features)),
        registered=now,
    )


def _same_or(before: RegisteredController | None, now: RegisteredController) -> RegisteredController:
    return before if before is not None and replace(now, registered=before.registered) == before else now
