"""What an operator's action gives up: the last copies with every acknowledged write (docs/spec/loss.md, Actions).

An action *gives up a last copy* if no other copy that holds everything is in use, and if the rules of the broker and
of the controller then recreate its replica, truncate it, or take it off the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jbod_model.ids import Uuid
from jbod_model.loss.copies import Copy, may_serve
from jbod_model.loss.fate import Fate

Kind = Literal["restart", "bring back", "replace", "unregister", "elect", "reassign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAction:
    """An action of an operator."""

    kind: Kind
    """``restart``: start the broker, or start it again, with the same log.dirs; a disk that failed stays among them.
    ``bring back``: the same after the disk of ``directory`` was repaired or mounted again, with its id. ``replace``:
    restart after the directory was taken out of log.dirs, or a blank disk took its place. ``unregister``: the broker.
    ``elect``: an unclean election. ``reassign``: the replicas to other brokers."""
    broker_id: int | None = None
    directory: Uuid | None = None
    """The directory of ``bring back`` and ``replace``."""


def last_copies(fate: Fate) -> tuple[Copy, ...]:
    """The copies to save: those that hold everything, if none of them is in use (R-ACT-1)."""
    state = fate.state
    if not fate.led or state is None:
        return ()
    named = {*state.isr, *state.eligible_leader_replicas}
    if any(copy.broker_id in named and is_online(fate, copy) for copy in fate.complete):
        return ()
    pending = fate.losses and fate.losses[-1].went_on is None and fate.losses[-1].until is None
    return fate.last if pending or fate.complete else ()


def is_online(fate: Fate, copy: Copy) -> bool:
    """Whether a broker serves the copy. If no record has placed it, all its possible places have to be listed; if a
    process reported it that has not registered, it may have been recreated empty."""
    broker = fate.brokers.get(copy.broker_id)
    placed = broker is not None and all(map(broker.lists, copy.places)) and not copy.left
    return placed and may_be_online(fate, copy)


def may_be_online(fate: Fate, copy: Copy) -> bool:
    """Whether a broker may serve the copy: it lists at least one of its possible places."""
    broker = fate.brokers.get(copy.broker_id)
    return broker is not None and not broker.fenced and copy.given_up is None and may_serve(copy, broker)


def given_up_by(action: OperatorAction, fate: Fate) -> tuple[Copy, ...]:
    """The last copies that the action gives up."""
    return tuple(copy for copy in last_copies(fate) if _gives_up(action, fate, copy))


def _gives_up(action: OperatorAction, fate: Fate, copy: Copy) -> bool:
    if action.kind in ("elect", "reassign"):  # R-ACT-5, R-ACT-6
        return True
    if copy.broker_id != action.broker_id:
        return False
    if action.kind == "unregister":  # R-ACT-4
        return True
    broker = fate.brokers.get(copy.broker_id)
    listed = frozenset[Uuid]() if broker is None else broker.directories
    places = copy.places if copy.directory is None else frozenset({copy.directory})
    if action.kind == "replace" and any(action.directory in left.directories for left in copy.left):  # R-COPY-12
        return True
    if action.kind == "replace":  # R-ACT-3
        if copy.given_up is not None:
            return action.directory in places if places else action.directory not in listed
        others = action.directory not in listed and not places <= listed
        return not places or action.directory in places or others
    # R-ACT-2
    state = fate.state
    if copy.given_up is not None or state is None or copy.broker_id not in state.replicas:
        return False
    back = listed if action.directory is None else listed | {action.directory}
    return state.directory(copy.broker_id) == fate.ids.unassigned and not places <= back
