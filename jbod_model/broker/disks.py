"""The directories of a running broker, the logs in them, and moves between them (docs/spec/broker.md).

Theory of operation. AlterReplicaLogDirs creates a *future* replica in the other directory, which copies from the
current one. Once it has caught up, the broker tells the controller (QUEUED) and goes on copying. Once the controller
has accepted (ACCEPTED) and the future replica has caught up again, it replaces the current one (EFFECTIVE). If a move
ends before that, because it was cancelled or either disk failed, and the controller may know of the new directory, the
broker reports the original one.

:data:`TRANSITIONS` has every transition.

Source: KIP-858 "Intra-broker replica movement"; Kafka's ``LogManager``, ``ReplicaAlterLogDirsThread``,
``ReplicaManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from jbod_model.broker.assignments import Replica
from jbod_model.errors import JbodError
from jbod_model.ids import Uuid


class NoDirectoryAvailable(JbodError):
    """The log could not be created in any of the directories that were tried (R-DISK-3)."""

    def __init__(self, replica: Replica, tried: tuple[Uuid, ...]) -> None:
        self.replica = replica
        self.tried = tried
        super().__init__(f"no directory for {replica}: tried {', '.join(map(str, tried)) or 'none'}")

    def __reduce__(self) -> tuple[type, tuple[Replica, tuple[Uuid, ...]]]:
        return type(self), (self.replica, self.tried)


class OfflineDirectories(JbodError):
    """The log of a replica that is not new is not created while a directory is offline: it may lie there (R-DISK-4)."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        super().__init__(f"the log of {replica} is not created: a directory is offline")

    def __reduce__(self) -> tuple[type, tuple[Replica]]:
        return type(self), (self.replica,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """``configured`` are the directories that were readable at start, ``unreadable`` counts the others.

    ``current`` and ``future`` give the directory of a replica's log; they leave out logs in failed directories.
    ``preferred`` are the directories that AlterReplicaLogDirs requested for replicas that do not exist yet.
    """

    configured: tuple[Uuid, ...]
    unreadable: int = 0
    failed: frozenset[Uuid] = frozenset()
    cordoned: frozenset[Uuid] = frozenset()
    """The directories in the broker's ``cordoned.log.dirs`` (R-DISK-7)."""
    metadata_dir: Uuid | None = None
    current: Mapping[Replica, Uuid] = field(default_factory=dict)
    future: Mapping[Replica, Uuid] = field(default_factory=dict)
    preferred: Mapping[Replica, Uuid] = field(default_factory=dict)

    @property
    def online(self) -> tuple[Uuid, ...]:
        """The directories that work, in the order of the configuration."""
        return tuple(directory for directory in self.configured if directory not in self.failed)

    @property
    def has_offline(self) -> bool:
        """Whether any configured directory does not work, since the start or later."""
        return self.unreadable > 0 or bool(self.failed)


def candidates(disks: Disks, replica: Replica, target: Uuid | None) -> tuple[Uuid, ...]:
    """Where a new log may go, best first (R-DISK-1, R-DISK-2, R-DISK-7).

    The directory that an operator requested comes first, then ``target`` if it is an online directory; each of them is
    the only candidate. Otherwise the candidates are all directories, the one with the fewest logs first, counting
    future logs. Cordoned directories are left out, except that the first takes the log if all are cordoned.
    """
    wish = disks.preferred.get(replica)
    if wish is None and target in disks.online:
        wish = target
    if wish is not None:
        return (wish,)
    logs = [*disks.current.values(), *disks.future.values()]
    free = [directory for directory in disks.online if directory not in disks.cordoned]
    return tuple(sorted(free or disks.online[:1], key=logs.count))


def create_log(
    disks: Disks,
    replica: Replica,
    target: Uuid | None,
    *,
    is_new: bool,
    can_create: Callable[[Uuid], bool] = lambda _: True,
) -> Disks:
    """The disks with a log for ``replica``; an existing log stays where it is (R-DISK-3, R-DISK-4, R-DISK-5).

    ``is_new`` says that this process did not host the replica before. Raises :class:`OfflineDirectories` and
    :class:`NoDirectoryAvailable`.
    """
    if replica in disks.current:
        return disks
    if not is_new and disks.has_offline:
        raise OfflineDirectories(replica)
    tried = candidates(disks, replica, target)
    for directory in tried:
        if directory not in disks.failed and can_create(directory):
            return replace(
                disks,
                current={**disks.current, replica: directory},
                preferred=_without(disks.preferred, replica),
            )
    raise NoDirectoryAvailable(replica, tried)


def create_future_log(disks: Disks, replica: Replica, directory: Uuid) -> Disks:
    """The disks with a future log of ``replica``. Raises :class:`OfflineDirectories` (R-DISK-4) while a directory is
    offline: a future log of the replica may lie there, and there must not be two."""
    if disks.has_offline:
        raise OfflineDirectories(replica)
    return replace(disks, future={**disks.future, replica: directory}, preferred=_without(disks.preferred, replica))


def promote_future_log(disks: Disks, replica: Replica) -> Disks:
    """The disks after the future log became the current one; the log that it replaces is deleted."""
    directory = disks.future[replica]
    return replace(disks, current={**disks.current, replica: directory}, future=_without(disks.future, replica))


def drop_future_log(disks: Disks, replica: Replica) -> Disks:
    """The disks without the future log."""
    return replace(disks, future=_without(disks.future, replica))


def delete_logs(disks: Disks, replica: Replica) -> Disks:
    """The disks without any log of ``replica``."""
    return replace(disks, current=_without(disks.current, replica), future=_without(disks.future, replica))


def fail(disks: Disks, directory: Uuid) -> Disks:
    """The disks after a directory failed: its current and future logs are no longer accessible (R-DISK-6)."""
    return replace(
        disks,
        failed=disks.failed | {directory},
        current={replica: where for replica, where in disks.current.items() if where != directory},
        future={replica: where for replica, where in disks.future.items() if where != directory},
    )


def _without(entries: Mapping[Replica, Uuid], replica: Replica) -> Mapping[Replica, Uuid]:
    if replica not in entries:
        return entries
    return {key: value for key, value in entries.items() if key != replica}


class MoveState(Enum):
    """The state of a move. None, Queued, Accepted and Effective are Kafka's names."""

    NONE = "none"
    QUEUED = "queued"
    ACCEPTED = "accepted"
    EFFECTIVE = "effective"


class MoveEvent(Enum):
    """What can happen to a move."""

    CAUGHT_UP = "the future replica has caught up with the current one"
    CONFIRMED = "the controller accepted the assignment to the new directory"
    ENDED = "the move is taken away: cancelled, or a disk of it failed"


class Effect(Enum):
    """What a transition asks of the broker."""

    REPORT_TARGET = "queue the new directory for the controller"
    SWAP = "put the future replica in the place of the current one, then take the move away"
    REPORT_ORIGINAL = "queue the original directory for the controller"
    FORGET = "take the move away"


TRANSITIONS: dict[tuple[MoveState, MoveEvent], tuple[MoveState, tuple[Effect, ...]]] = {
    # R-MOVE-1: the broker reports the new directory once the future replica has caught up, not before.
    (MoveState.NONE, MoveEvent.CAUGHT_UP): (MoveState.QUEUED, (Effect.REPORT_TARGET,)),
    # R-MOVE-8: an acceptance of an earlier move of the replica counts for this move.
    (MoveState.NONE, MoveEvent.CONFIRMED): (MoveState.ACCEPTED, ()),
    (MoveState.NONE, MoveEvent.ENDED): (MoveState.NONE, (Effect.FORGET,)),
    # R-MOVE-2: copying continues until the controller has confirmed.
    (MoveState.QUEUED, MoveEvent.CAUGHT_UP): (MoveState.QUEUED, ()),
    (MoveState.QUEUED, MoveEvent.CONFIRMED): (MoveState.ACCEPTED, ()),
    # R-MOVE-4: the controller may know of the new directory: report the old one.
    (MoveState.QUEUED, MoveEvent.ENDED): (MoveState.NONE, (Effect.REPORT_ORIGINAL, Effect.FORGET)),
    # R-MOVE-3: confirmed and caught up once more: swap.
    (MoveState.ACCEPTED, MoveEvent.CAUGHT_UP): (MoveState.EFFECTIVE, (Effect.SWAP,)),
    (MoveState.ACCEPTED, MoveEvent.CONFIRMED): (MoveState.ACCEPTED, ()),
    (MoveState.ACCEPTED, MoveEvent.ENDED): (MoveState.NONE, (Effect.REPORT_ORIGINAL, Effect.FORGET)),
    # R-MOVE-5: a move that took effect is not reverted.
    (MoveState.EFFECTIVE, MoveEvent.ENDED): (MoveState.EFFECTIVE, (Effect.FORGET,)),
}


class IllegalMove(JbodError):
    """An event that cannot happen in the move's state (R-MOVE-6): a future replica is promoted once."""

    def __init__(self, state: MoveState, event: MoveEvent) -> None:
        self.state = state
        self.event = event
        super().__init__(f"move in state {state.value}: {event.value}, which cannot happen")

    def __reduce__(self) -> tuple[type, tuple[MoveState, MoveEvent]]:
        return type(self), (self.state, self.event)


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """A move of one replica: from ``original`` to ``target``, both directory ids."""

    original: Uuid
    target: Uuid
    state: MoveState = MoveState.NONE


def advance(move: ReplicaMove, event: MoveEvent) -> tuple[ReplicaMove, tuple[Effect, ...]]:
    """The move after the event, and what the broker has to do. Raises :class:`IllegalMove`."""
    transition = TRANSITIONS.get((move.state, event))
    if transition is None:
        raise IllegalMove(move.state, event)
    state, effects = transition
    return replace(move, state=state), effects
