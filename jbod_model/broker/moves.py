"""Moving a replica between the disks of a broker (docs/spec/broker.md).

Theory of operation. AlterReplicaLogDirs creates a *future* replica in the other directory, which copies from the
current one. Once it has caught up, the broker tells the controller (QUEUED) and goes on copying. Once the controller
has accepted (ACCEPTED) and the future replica has caught up again, it replaces the current one (EFFECTIVE). If a move
ends before that, because it was cancelled or either disk failed, and the controller may know of the new directory, the
broker reports the original one.

:data:`TRANSITIONS` has every transition.

Source: KIP-858 "Intra-broker replica movement"; Kafka's ``ReplicaAlterLogDirsThread``, ``ReplicaManager``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from jbod_model.errors import JbodError
from jbod_model.ids import Uuid


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
class Move:
    """A move of one replica: from ``original`` to ``target``, both directory ids."""

    original: Uuid
    target: Uuid
    state: MoveState = MoveState.NONE


def advance(move: Move, event: MoveEvent) -> tuple[Move, tuple[Effect, ...]]:
    """The move after the event, and what the broker has to do. Raises :class:`IllegalMove`."""
    found = TRANSITIONS.get((move.state, event))
    if found is None:
        raise IllegalMove(move.state, event)
    state, effects = found
    return replace(move, state=state), effects
