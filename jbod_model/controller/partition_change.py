"""Builds the one record that takes a partition from its state to the requested one (docs/spec/controller.md).

It elects the leader and computes the next step of a reassignment. Source: Kafka's ``PartitionChangeBuilder``,
``PartitionReassignmentReplicas``, ``PartitionReassignmentRevert``. The steps are in its order, because each sees the
results of earlier steps.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from jbod_model.formats.metadata_version import (
    directories_supported,
    epoch_bump_on_isr_shrink,
    partition_record_version,
)
from jbod_model.formats.records import PartitionChangeRecord, VersionedRecord
from jbod_model.formats.responses import InvalidReplicaAssignment
from jbod_model.ids import Uuid
from jbod_model.java import hash_order, int_hash, table_for_copy
from jbod_model.replay.image import Partition
from jbod_model.replay.registrations import NO_LEADER_CHANGE

NO_LEADER = -1

Acceptable = Callable[[int], bool]
"""Whether a broker may lead the partition: alive, and with the replica's directory online (R-ELECT-1)."""


class Election(enum.Enum):
    """The kinds of election."""

    ONLINE = "online"
    """Keep the leader if it can lead, else the first in-sync replica that can."""
    PREFERRED = "preferred"
    """Take the first replica if it can lead, else as `ONLINE`."""
    UNCLEAN = "unclean"
    """As `ONLINE`, and as a last resort any replica that can lead, which may lose data."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The input of an election: the partition's leader before the change, and its sets after it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    """Eligible leader replicas. They count only if no replica is in sync."""
    last_known_leader: int | None = None
    """The broker that led when the partition lost its leader, if it may lead again (R-ELECT-4)."""
    last_may_be_fenced: bool = False
    """The last known leader wins even if it cannot lead, as in Kafka 4.0 (R-QUIRK-11)."""


@dataclass(frozen=True, slots=True)
class Elected:
    """The winner, or NO_LEADER."""

    leader: int
    unclean: bool = False


def elect(election: Election, candidates: Candidates, acceptable: Acceptable) -> Elected:
    """Hold an election (R-ELECT-2, R-ELECT-3, R-ELECT-4, R-ELECT-5). The caller writes the result."""

    def valid(replica: int) -> bool:
        in_sync = replica in candidates.isr or (not candidates.isr and replica in candidates.eligible)
        return in_sync and acceptable(replica)

    order = (candidates.leader, *candidates.replicas)
    if election is Election.PREFERRED:
        order = (candidates.replicas[0], *order)
    for replica in order:
        if valid(replica):
            return Elected(replica)
    last = candidates.last_known_leader
    # Kafka 4.0 asks as well, and ignores the answer: a broker that is no replica is a fault there, too (R-QUIRK-3).
    alone = last is not None and not candidates.isr and not candidates.eligible
    if last is not None and alone and (acceptable(last) or candidates.last_may_be_fenced):
        return Elected(last, unclean=True)
    if election is Election.UNCLEAN:
        for replica in candidates.replicas:
            if acceptable(replica):
                return Elected(replica, unclean=True)
    return Elected(NO_LEADER)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas of a partition during a reassignment: the old and the new ones together."""

    replicas: tuple[int, ...]
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()

    @classmethod
    def between(cls, current: Sequence[int], target: Sequence[int]) -> Reassignment:
        """The step from ``current`` to ``target``: the target first, then the replicas to remove, ascending
        (R-REASSIGN-1)."""
        removing = tuple(sorted(set(current) - set(target)))
        adding = tuple(sorted(set(target) - set(current)))
        return cls(replicas=tuple(target) + removing, removing=removing, adding=adding)

    @property
    def in_progress(self) -> bool:
        """Whether a replica still has to be added or removed."""
        return bool(self.removing or self.adding)

    @property
    def original_replicas(self) -> tuple[int, ...]:
        """The replicas without those that were being added."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    def completed_with(
        self, isr: Sequence[int], *, added_suffice: bool = False
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """(replicas, in-sync set) after completion, or None while a replica that stays is not in sync (R-REASSIGN-2).

        The removed replicas leave both sets; if there are any, at least one replica must stay in each set. With
        ``added_suffice`` only the added replicas must be in sync, unless more are removed than added: then also those
        that stay. One that is added and removed never is in sync (R-RELEASE-4).
        """
        if not self.in_progress:
            return None
        staying = tuple(replica for replica in self.replicas if replica not in self.removing)
        in_sync = tuple(replica for replica in isr if replica not in self.removing)
        if not staying:
            return None
        wanted = set(self.adding) if added_suffice else set(staying)
        if len(self.adding) < len(self.removing):
            wanted |= set(staying)
        if not wanted <= set(in_sync):
            return None
        return staying, in_sync


@dataclass(frozen=True, slots=True)
class Revert:
    """The state to which cancelling a reassignment returns."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    unclean: bool
    """Whether no original replica is in sync: the first one then becomes the in-sync set, which may lose data."""

    @classmethod
    def of(cls, reassignment: Reassignment, isr: Sequence[int]) -> Revert:
        """Remove the added replicas (R-REASSIGN-3); InvalidReplicaAssignment if all replicas were added."""
        replicas = reassignment.original_replicas
        in_sync = tuple(replica for replica in isr if replica not in reassignment.adding)
        if in_sync:
            return cls(replicas, in_sync, unclean=False)
        if not replicas:
            raise InvalidReplicaAssignment("every replica is being added, so there is nothing to return to")
        return cls(replicas, replicas[:1], unclean=True)


RECOVERED = 0
RECOVERING = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The input of a change besides the partition itself."""

    acceptable: Acceptable
    metadata_version: int
    elr_enabled: bool
    min_isr: int
    default_dir: Callable[[int], Uuid]
    keep_stale_elr: bool = True
    """A replica that leaves the partition stays among the eligible ones, as in Kafka (R-QUIRK-3)."""
    fenced_last_leader: bool = False
    """The last known leader is elected even if it cannot lead, as in Kafka 4.0 (R-QUIRK-11)."""
    last_leader_of_empty_isr: bool = False
    """The last known leader is recorded when the in-sync set empties, not when the leader goes (R-RELEASE-5)."""
    added_suffice: bool = False
    """A reassignment is complete once the added replicas are in sync, unless it removes more than it adds
    (R-RELEASE-4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The requested state of a partition; None keeps the present value."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    election: Election = Election.ONLINE
    unclean_shutdown: frozenset[int] = frozenset()
    """Brokers whose replicas may have lost acknowledged writes: they are not eligible to lead."""
    directories: Mapping[int, Uuid] = field(default_factory=dict)
    """Broker -> new directory of its replica."""


class _Fields(TypedDict, total=False):
    isr: tuple[int, ...]
    leader: int
    replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader_recovery_state: int
    directories: tuple[Uuid, ...]
    eligible_leader_replicas: tuple[int, ...]
    last_known_elr: tuple[int, ...]


@dataclass(slots=True)
class _Target:
    """The partition between two steps."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    eligible: tuple[int, ...]


def partition_change(
    topic_id: Uuid, partition_id: int, before: Partition, wish: Wish, surroundings: Surroundings
) -> VersionedRecord | None:
    """The record that makes the requested change, or None if nothing would change (R-CHANGE-1)."""
    target = _Target(
        isr=before.isr if wish.isr is None else wish.isr,
        replicas=before.replicas if wish.replicas is None else wish.replicas,
        removing=before.removing_replicas if wish.removing is None else wish.removing,
        adding=before.adding_replicas if wish.adding is None else wish.adding,
        eligible=before.eligible_leader_replicas,
    )
    fields: _Fields = {}

    _complete_reassignment(target, surroundings)
    _find_eligible(before, wish, target, surroundings)
    _hold_election(before, wish, target, surroundings, fields)
    _bump_epoch_when_a_replica_left(before, target, fields)
    _set_eligible(before, target, surroundings, fields)
    _set_isr(before, target, surroundings, fields)
    _bump_epoch_when_isr_shrank(before, surroundings, fields)
    _set_last_known_leader(before, target, surroundings, fields)
    _set_assignment(before, wish, target, surroundings, fields)
    recovery = before.leader_recovery_state if wish.leader_recovery_state is None else wish.leader_recovery_state
    if recovery != before.leader_recovery_state:
        fields["leader_recovery_state"] = recovery

    if not fields:
        return None
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id, **fields)
    return VersionedRecord(record, partition_record_version(surroundings.metadata_version))


def _complete_reassignment(target: _Target, surroundings: Surroundings) -> None:
    """Any change completes a reassignment that has become possible (R-REASSIGN-4)."""
    under_way = Reassignment(target.replicas, target.removing, target.adding)
    moved = under_way.completed_with(target.isr, added_suffice=surroundings.added_suffice)
    if moved is not None:
        target.replicas, target.isr = moved
        target.removing = target.adding = ()


def _find_eligible(before: Partition, wish: Wish, target: _Target, surroundings: Surroundings) -> None:
    """Below the minimum in-sync size, replicas that were in sync stay eligible unless they shut down uncleanly
    (R-ELIG-2)."""
    if not surroundings.elr_enabled:
        return
    if len(target.isr) >= surroundings.min_isr:
        target.eligible = ()
        return
    # The order of the field is that of a Java hash set to which the old eligible ones, then the old in-sync set were
    # added.
    candidates = hash_order(target.eligible + before.isr, int_hash, table_for_copy(len(target.eligible)))
    target.eligible = tuple(
        replica for replica in candidates if replica not in target.isr and replica not in wish.unclean_shutdown
    )
    if not surroundings.keep_stale_elr:
        target.eligible = tuple(replica for replica in target.eligible if replica in target.replicas)


def _hold_election(before: Partition, wish: Wish, target: _Target, surroundings: Surroundings, fields: _Fields) -> None:
    """Every change holds an election; an eligible winner becomes the in-sync set (R-ELECT-6, R-ELECT-7)."""
    last_known = before.last_known_elr
    if not surroundings.keep_stale_elr:
        last_known = tuple(replica for replica in last_known if replica in target.replicas)
    candidates = Candidates(
        leader=before.leader,
        replicas=target.replicas,
        isr=target.isr,
        eligible=target.eligible,
        last_known_leader=last_known[0] if surroundings.elr_enabled and len(last_known) == 1 else None,
        last_may_be_fenced=surroundings.fenced_last_leader,
    )
    elected: Elected = elect(wish.election, candidates, surroundings.acceptable)
    if elected.leader == before.leader:
        return
    fields["leader"] = elected.leader
    if elected.leader in target.eligible:
        target.isr = (elected.leader,)
        target.eligible = tuple(replica for replica in target.eligible if replica != elected.leader)
    if elected.unclean:
        fields["isr"] = (elected.leader,)
        if before.leader_recovery_state != RECOVERING:
            fields["leader_recovery_state"] = RECOVERING


def _bump_epoch_when_a_replica_left(before: Partition, target: _Target, fields: _Fields) -> None:
    """Naming the same leader again raises the leader epoch (R-CHANGE-2)."""
    if "leader" not in fields and not set(before.replicas) <= set(target.replicas):
        fields["leader"] = before.leader


def _set_eligible(before: Partition, target: _Target, surroundings: Surroundings, fields: _Fields) -> None:
    """An unclean election, or a controller without the feature, empties the eligible leaders (R-ELIG-3)."""
    if "isr" in fields or not surroundings.elr_enabled:
        target.eligible = ()
    if target.eligible != before.eligible_leader_replicas:
        fields["eligible_leader_replicas"] = target.eligible


def _set_isr(before: Partition, target: _Target, surroundings: Surroundings, fields: _Fields) -> None:
    """An empty in-sync set is written only if there are eligible replicas (R-ELIG-4)."""
    if "isr" not in fields and (target.isr or surroundings.elr_enabled) and target.isr != before.isr:
        fields["isr"] = target.isr


def _bump_epoch_when_isr_shrank(before: Partition, surroundings: Surroundings, fields: _Fields) -> None:
    """Brokers before 3.6 need a leader epoch for a smaller in-sync set (R-CHANGE-3)."""
    if not epoch_bump_on_isr_shrink(surroundings.metadata_version) or "leader" in fields or "isr" not in fields:
        return
    if not set(before.isr) <= set(fields["isr"]):
        fields["leader"] = before.leader


def _set_last_known_leader(before: Partition, target: _Target, surroundings: Surroundings, fields: _Fields) -> None:
    """The last leader is recorded when the partition loses it, and cleared when there is a leader again (R-ELIG-5).

    Before 4.1.1 it is recorded when the in-sync set empties, even if there is no leader then (R-RELEASE-5).
    """
    if not surroundings.elr_enabled:
        return
    leader = fields.get("leader", NO_LEADER_CHANGE)
    if surroundings.last_leader_of_empty_isr:
        if fields.get("isr") == () and before.last_known_elr != (before.leader,):
            fields["last_known_elr"] = (before.leader,)
        elif before.last_known_elr and (leader >= 0 or NO_LEADER not in (before.leader, leader)):
            fields["last_known_elr"] = ()
    elif leader == NO_LEADER and not before.last_known_elr:
        fields["last_known_elr"] = (before.leader,)
    elif leader >= 0 and before.last_known_elr:
        fields["last_known_elr"] = ()
    elif not surroundings.keep_stale_elr:
        kept = tuple(replica for replica in before.last_known_elr if replica in target.replicas)
        if kept != before.last_known_elr:
            fields["last_known_elr"] = kept


def _set_assignment(
    before: Partition, wish: Wish, target: _Target, surroundings: Surroundings, fields: _Fields
) -> None:
    """Directories follow their replicas and are written whole when the list differs (R-CHANGE-4)."""
    if target.replicas:
        if directories_supported(surroundings.metadata_version):
            known = dict(zip(before.replicas, before.directories, strict=True)) | dict(wish.directories)
            directories = tuple(
                known[replica] if replica in known else surroundings.default_dir(replica) for replica in target.replicas
            )
            if directories != before.directories:
                fields["directories"] = directories
        if target.replicas != before.replicas:
            fields["replicas"] = target.replicas
    if target.removing != before.removing_replicas:
        fields["removing_replicas"] = target.removing
    if target.adding != before.adding_replicas:
        fields["adding_replicas"] = target.adding
