"""The table of a broker's states and the transitions by heartbeats (docs/spec/controller.md).

Source: Kafka's ``BrokerHeartbeatManager#calculateNextBrokerState``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from jbod_model.formats.requests import BrokerHeartbeatRequest


class BrokerControlState(enum.Enum):
    """The state of a broker."""

    FENCED = "FENCED"
    UNFENCED = "UNFENCED"
    CONTROLLED_SHUTDOWN = "CONTROLLED_SHUTDOWN"
    SHUTDOWN_NOW = "SHUTDOWN_NOW"

    @property
    def fenced(self) -> bool:
        """Whether the broker is fenced: clients do not see it."""
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)

    @property
    def in_controlled_shutdown(self) -> bool:
        """Whether its leaderships are being moved away."""
        return self is BrokerControlState.CONTROLLED_SHUTDOWN

    @property
    def should_shut_down(self) -> bool:
        """Whether it may stop."""
        return self is BrokerControlState.SHUTDOWN_NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The facts that decide the next state; each is computed only if it matters."""

    wants_fence: bool
    wants_shut_down: bool
    caught_up: bool
    """The broker has read the log up to its own registration."""
    leads: Callable[[], bool]
    """Whether it leads a partition."""
    shutdown_offset_passed: Callable[[], bool]
    """Whether every active broker has read the records that moved its leaderships away."""


_FENCED, _UNFENCED = BrokerControlState.FENCED, BrokerControlState.UNFENCED
_LEAVING, _STOP = BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.SHUTDOWN_NOW

Condition = Callable[[Situation], bool]

TRANSITIONS: tuple[tuple[BrokerControlState, Condition, BrokerControlState], ...] = (
    (_FENCED, lambda now: now.wants_shut_down, _STOP),
    (_FENCED, lambda now: not now.wants_fence and now.caught_up, _UNFENCED),
    (_UNFENCED, lambda now: now.wants_fence and now.wants_shut_down, _STOP),
    (_UNFENCED, lambda now: now.wants_fence, _FENCED),
    (_UNFENCED, lambda now: now.wants_shut_down and now.leads(), _LEAVING),
    (_UNFENCED, lambda now: now.wants_shut_down, _STOP),
    (_LEAVING, lambda now: not now.leads() and now.shutdown_offset_passed(), _STOP),
)
"""(state, condition, next state): the first row whose condition holds decides; otherwise the state stays (R-HB-2)."""


def next_state(current: BrokerControlState, situation: Situation) -> BrokerControlState:
    """The state after a heartbeat (R-HB-2)."""
    for state, condition, following in TRANSITIONS:
        if state is current and condition(situation):
            return following
    return current


def situation(
    request: BrokerHeartbeatRequest,
    register_offset: int,
    leads: Callable[[], bool],
    shutdown_offset: int,
    lowest_active_offset: int,
) -> Situation:
    """The situation of a broker that sent ``request``."""
    return Situation(
        wants_fence=request.want_fence,
        wants_shut_down=request.want_shut_down,
        caught_up=request.current_metadata_offset >= register_offset,
        leads=leads,
        shutdown_offset_passed=lambda: shutdown_offset <= lowest_active_offset,
    )
