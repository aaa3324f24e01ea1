"""Computes the steps of a reassignment (docs/spec/controller.md).

Source: Kafka's ``PartitionReassignmentReplicas`` and ``PartitionReassignmentRevert``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jbod_model.formats.kafka_errors import InvalidReplicaAssignment


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
        ``added_suffice`` only the added replicas must be in sync, unless more are removed than added (R-RELEASE-4).
        """
        if not self.in_progress:
            return None
        staying = tuple(replica for replica in self.replicas if replica not in self.removing)
        in_sync = tuple(replica for replica in isr if replica not in self.removing)
        if not staying:
            return None
        enough = added_suffice and len(self.adding) >= len(self.removing)
        if not set(self.adding if enough else staying) <= set(in_sync):
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
