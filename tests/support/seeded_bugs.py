"""Bugs of the protocol, seeded one at a time into the code of the controller, the broker or the replay.

Each is an edit of a module's source, or another entry of a table. :func:`seeded` applies it for as long as it is open:
the functions get the code of the edited source.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jbod_model.broker import assignments, disks, lifecycle, process, replicas
from jbod_model.broker.disks import Effect, MoveEvent, MoveState
from jbod_model.broker.replicas import Holding, ReplicaDecision, ReplicaStep, Target
from jbod_model.controller import (
    broker_requests,
    cluster,
    context,
    leader_updates,
    partition_change,
    partition_requests,
)
from jbod_model.replay import registrations

Undo = Callable[[], None]


@dataclass(frozen=True)
class Bug:
    """A bug, the property that it breaks (an invariant's number or the name of a leads-to), and where it shows."""

    name: str
    breaks: int | str
    seed: Callable[[], Undo]
    bounds: dict[str, Any] = field(default_factory=dict)


def edit(module: types.ModuleType, old: str, new: str) -> Callable[[], Undo]:
    """Replace the one place in the module's source that says ``old``."""

    def seed() -> Undo:
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        assert source.count(old) == 1, f"{module.__name__} says {source.count(old)} times: {old}"
        namespace: dict[str, Any] = {"__name__": module.__name__}
        exec(compile(source.replace(old, new), str(module.__file__), "exec"), namespace)
        before = [(each, each.__code__) for each, _ in _functions(vars(module), module.__name__)]
        changed = dict(_paths(namespace, module.__name__))
        for path, function in _paths(vars(module), module.__name__):
            function.__code__ = changed[path].__code__

        def undo() -> None:
            for function, code in before:
                function.__code__ = code

        return undo

    return seed


def entry(table: Any, key: Any, value: Any) -> Callable[[], Undo]:
    """Put another entry into a table."""

    def seed() -> Undo:
        known = table[key]
        table[key] = value

        def undo() -> None:
            table[key] = known

        return undo

    return seed


def without_row(row: int) -> Callable[[], Undo]:
    """Take a row out of the controller's table of heartbeats."""

    def seed() -> Undo:
        known = context.TRANSITIONS
        context.TRANSITIONS = (*known[:row], *known[row + 1 :])

        def undo() -> None:
            context.TRANSITIONS = known

        return undo

    return seed


def _paths(namespace: dict[str, Any], module: str) -> Iterator[tuple[str, types.FunctionType]]:
    for function, path in _functions(namespace, module):
        yield path, function


def _functions(namespace: dict[str, Any], module: str, at: str = "") -> Iterator[tuple[types.FunctionType, str]]:
    """The functions that a module defines, methods and properties among them."""
    for name, value in list(namespace.items()):
        each = value.fget if isinstance(value, property) else value
        if isinstance(each, types.FunctionType) and each.__module__ == module and "<" not in each.__code__.co_filename:
            yield each, f"{at}{name}"
        elif isinstance(value, type) and value.__module__ == module:
            yield from _functions(dict(vars(value)), module, f"{at}{name}.")


@contextmanager
def seeded(bug: Bug) -> Iterator[None]:
    """The bug is in the code as long as this is open."""
    undo = bug.seed()
    try:
        yield
    finally:
        undo()


ALIVE = {"crashes": False, "expiry": False}
MOVES = {**ALIVE, "moves": True}
RESTARTS = {"expiry": False}
SESSIONS = {"crashes": False}
CHOOSE = ReplicaDecision(ReplicaStep.CREATE_CHOSEN, True, "R-DECIDE-10")

BUGS = (
    # WHAT A BROKER REPORTS
    Bug(
        "failed directories are never reported",
        "dead leader",
        edit(lifecycle, "offline_log_dirs=tuple(directory for directory, _ in life.offline)", "offline_log_dirs=()"),
        ALIVE,
    ),
    Bug(
        "a process forgets that a directory failed",
        "unreported",
        edit(process, "life=lifecycle.fail_directory(broker.life, directory, now))", "life=broker.life)"),
        ALIVE,
    ),
    Bug(
        "a log is created and not reported",
        "unassigned",
        edit(
            replicas,
            "if change.directory is None or actual is None or",
            "if change.directory is not None or actual is None or",
        ),
        ALIVE,
    ),
    Bug(
        "a registration leaves directories out",
        "leaderless",
        edit(
            lifecycle,
            "log_dirs=tuple(sorted(life.log_dirs)),\n        previous",
            "log_dirs=life.log_dirs[:1],\n        previous",
        ),
        RESTARTS,
    ),
    Bug(
        "a broker asks to stay fenced for ever",
        "fenced",
        edit(lifecycle, "    return waits and not life.unfence_asked", "    return True"),
        {**SESSIONS, "failures": False},
    ),
    Bug(
        "a broker that has caught up is not ready to be unfenced",
        "fenced",
        edit(lifecycle, "replace(life, ready_to_unfence=True)", "life"),
        {**RESTARTS, "failures": False},
    ),
    # MOVES
    Bug(
        "no revert when the source of a move dies",
        "dead leader",
        edit(
            replicas,
            "        reports += reverted\n    hosted =",
            "        reports += () if replica in hit else reverted\n    hosted =",
        ),
        MOVES,
    ),
    Bug(
        "no revert when the target of a move dies",
        31,
        edit(
            replicas,
            "        reports += reverted\n    hosted =",
            "        reports += reverted if replica in hit else ()\n    hosted =",
        ),
        MOVES,
    ),
    Bug(
        "no revert when a move is cancelled",
        31,
        edit(
            replicas,
            "        state, reports = _end_move(state, replica)\n        state = replace(state, disks=storage.drop",
            "        state, _ = _end_move(state, replica)\n        state = replace(state, disks=storage.drop",
        ),
        {**MOVES, "failures": False},
    ),
    Bug(
        "a move is withdrawn though it was told",
        31,
        edit(assignments, " or not waiting.untold", ""),
        {**MOVES, "failures": False},
    ),
    Bug(
        "a replica is promoted without confirmation",
        39,
        entry(disks.TRANSITIONS, (MoveState.QUEUED, MoveEvent.CAUGHT_UP), (MoveState.EFFECTIVE, (Effect.SWAP,))),
        {**MOVES, "failures": False},
    ),
    Bug(
        "a move that has caught up is not reported",
        "move",
        entry(disks.TRANSITIONS, (MoveState.NONE, MoveEvent.CAUGHT_UP), (MoveState.QUEUED, ())),
        {**MOVES, "failures": False},
    ),
    Bug(
        "a confirmation is overheard",
        "move",
        edit(
            process,
            "if assignment.reason is AssignmentReason.PROMOTION:",
            "if assignment.reason is AssignmentReason.REVERT:",
        ),
        {**MOVES, "failures": False},
    ),
    Bug(
        "a move is allowed while a directory is offline",
        40,
        edit(
            disks,
            "    if disks.has_offline:\n        raise",
            "    if disks.has_offline and disks.unreadable > 1:\n        raise",
        ),
        {**ALIVE, "wishes": True, "directories": 3, "states": 300},
    ),
    Bug(
        "a confirmed move never swaps",
        "move",
        entry(disks.TRANSITIONS, (MoveState.ACCEPTED, MoveEvent.CAUGHT_UP), (MoveState.ACCEPTED, ())),
        {**MOVES, "failures": False},
    ),
    Bug(
        "a swap does not end its move",
        "move",
        edit(
            replicas,
            "        return _end_move(state, replica)\n    return state, ()\n\n\ndef confirm",
            "        return state, ()\n    return state, ()\n\n\ndef confirm",
        ),
        {**MOVES, "failures": False},
    ),
    # LOGS
    Bug(
        "LOST is refilled while a disk is offline",
        37,
        entry(replicas.DECISIONS, (Target.UNKNOWN, Holding.NOTHING, True), CHOOSE),
        RESTARTS,
    ),
    Bug(
        "a copy takes the place of a log before it has caught up",
        38,
        edit(replicas, "if state.rules.promote_future_at_start or replica not in state.disks.current:", "if True:"),
        {"expiry": False, "failures": False, "moves": True, "records": 1},
    ),
    Bug(
        "the log of a deleted topic stays",
        31,
        edit(replicas, "    disks = storage.delete_logs(state.disks, replica)\n", "    disks = state.disks\n"),
        {**ALIVE, "failures": False, "delete": True},
    ),
    # THE QUEUE
    Bug(
        "the queue has no timer",
        "queue",
        edit(
            assignments,
            "    return _reschedule(replace(queue, ready=ready), now)",
            "    return replace(queue, ready=ready)",
        ),
        {**ALIVE, "failures": False},
    ),
    Bug(
        "the queue never drains",
        "queue",
        edit(
            assignments,
            "            accepted.append(assignment)\n",
            "            accepted.append(assignment)\n            retried.append(assignment)\n",
        ),
        {**ALIVE, "failures": False},
    ),
    Bug(
        "a request that failed is not sent again",
        "queue",
        edit(assignments, "    return _reschedule(queue, now) if queue.ready else queue", "    return queue"),
        {**ALIVE, "failures": False, "lost": True},
    ),
    Bug(
        "assignments are forgotten when their request fails",
        "unassigned",
        edit(assignments, "        back = {**sent, **queue.ready}", "        back = {**queue.ready}"),
        {**ALIVE, "failures": False, "lost": True},
    ),
    Bug(
        "what is older wins in the queue",
        "misplaced",
        edit(
            assignments,
            "    ready = {**queue.ready, replica: replace(assignment, untold=untold)}",
            "    ready = {replica: replace(assignment, untold=untold), **queue.ready}",
        ),
        MOVES,
    ),
    # TIMERS
    Bug(
        "heartbeats end with the first that fails",
        "unreported",
        edit(
            lifecycle,
            "    return _communicate(replace(life, next_at_once=False), now, life.heartbeat_interval)",
            "    return replace(life, next_at_once=False)",
        ),
        {**ALIVE, "lost": True},
    ),
    Bug(
        "heartbeats end once the broker runs",
        "fenced",
        edit(
            lifecycle,
            "        return _communicate(life, now, life.heartbeat_interval if delay is None else delay), ()",
            "        return life, ()",
        ),
        {**SESSIONS, "failures": False},
    ),
    Bug(
        "no check that a failure was reported",
        "undelivered",
        edit(lifecycle, "    checks = (*others, (now + life.failure_timeout, directory))", "    checks = others"),
        {**ALIVE, "timeouts": True, "cut": True},
    ),
    Bug(
        "a failure that could not be reported ends nobody",
        "undelivered",
        edit(
            lifecycle,
            "    return directory in around.leading_in or not life.rules.shut_down_only_if_leading",
            "    return False",
        ),
        {**ALIVE, "timeouts": True, "cut": True},
    ),
    # THE CONTROLLER
    Bug(
        "a heartbeat that reports a failure leaves the leaders",
        9,
        edit(
            leader_updates,
            "leader_and_isr_updates(cluster, cluster.partitions_in(directory), remove=broker_id)\n    left",
            "()\n    left",
        ),
        ALIVE,
    ),
    Bug(
        "a failed directory stays registered",
        "unreported",
        edit(
            leader_updates,
            "tuple(directory for directory in registration.directories if directory not in failed)",
            "registration.directories",
        ),
        ALIVE,
    ),
    Bug(
        "fencing leaves the leaders",
        9,
        edit(
            leader_updates,
            "    return [*records, fencing_change(registration, FENCE)]",
            "    return [fencing_change(registration, FENCE)]",
        ),
        {**SESSIONS, "failures": False},
    ),
    Bug(
        "unfencing elects nobody",
        "leaderless",
        edit(
            leader_updates,
            "    return [fencing_change(registration, UNFENCE), *updates]",
            "    return [fencing_change(registration, UNFENCE)]",
        ),
        {**SESSIONS, "failures": False},
    ),
    Bug(
        "a broker is never unfenced",
        "fenced",
        without_row(1),
        {**SESSIONS, "failures": False},
    ),
    Bug(
        "a broker is unfenced before its assignments are known",
        29,
        edit(
            broker_requests,
            "    if upcoming is BrokerControlState.UNFENCED is not current and _assignments_missing",
            "    if False and _assignments_missing",
        ),
        SESSIONS,
    ),
    Bug(
        "a session that expires fences nobody",
        "gone leader",
        edit(
            broker_requests,
            "    return Result(records=tuple(broker_fenced(cluster, registration)))",
            "    return Result()",
        ),
        {**RESTARTS, "failures": False},
    ),
    Bug(
        "an assignment into an offline directory leaves the leader",
        15,
        edit(partition_requests, "        if not online:\n            wish", "        if False:\n            wish"),
        {**ALIVE, "brokers": 2},
    ),
    Bug(
        "an assignment is confirmed and not written",
        13,
        edit(partition_requests, "                    if record is not None:", "                    if False:"),
        {**ALIVE, "failures": False},
    ),
    Bug(
        "an election asks nothing of the directory",
        9,
        edit(
            cluster,
            "            return directory not in failing and self.has_online_dir(broker_id, directory)",
            "            return True",
        ),
        SESSIONS,
    ),
    Bug(
        "an election asks nothing of the broker",
        9,
        edit(cluster, "            if not base(broker_id):\n                return False\n", ""),
        {**SESSIONS, "failures": False},
    ),
    Bug(
        "a replica outside the in-sync set is elected as if it were in it",
        2,
        edit(partition_change, "        return in_sync and acceptable(replica)", "        return acceptable(replica)"),
        {"brokers": 2, "directories": 1, "failures": False},
    ),
    Bug(
        "a new controller refuses what it does not know",
        "fenced",
        edit(
            broker_requests,
            '"ignore" or registered is None:\n        return',
            '"ignore":\n        return\n    registered = registered or frozenset()\n    if False:\n        return',
        ),
        {**SESSIONS, "failover": True},
    ),
    Bug(
        "a broker that is stopped keeps its leaders",
        "stopping",
        edit(
            leader_updates,
            "remove=broker_id)\n    return records\n\n\ndef broker_unreg",
            "remove=NO_LEADER)\n    return records\n\n\ndef broker_unreg",
        ),
        {**ALIVE, "failures": False, "shutdown": True},
    ),
    # THE REPLAY
    Bug(
        "a change of a registration leaves its directories",
        "unreported",
        edit(
            registrations,
            "        directories = tuple(sorted(change.log_dirs))\n",
            "        directories = self.directories\n",
        ),
        ALIVE,
    ),
    Bug(
        "a change of a partition leaves its directories",
        13,
        edit(registrations, "_normalised(_or(change.directories, self.directories)", "_normalised(self.directories"),
        {**ALIVE, "failures": False},
    ),
)
