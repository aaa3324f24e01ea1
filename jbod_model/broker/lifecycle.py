"""A broker's life as the controller sees it: registration, heartbeats, shutdown (docs/spec/broker.md).

Theory of operation. One request to the controller is in flight at a time. Until the registration is accepted the broker
registers, then it sends heartbeats; each lists every directory that failed since the process started. :data:`ANSWERS`
says what the answer to a heartbeat does in each state. There are three kinds of timers: the next communication, the
limit for the first registration, and the checks that failed directories were reported.

Source: KIP-858 "Broker lifecycle management", "Handling log directory failures"; Kafka's ``BrokerLifecycleManager``,
``BrokerRegistrationTracker``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from jbod_model.errors import UsageError
from jbod_model.formats.requests import BrokerHeartbeatRequest, BrokerRegistrationRequest
from jbod_model.formats.responses import BrokerHeartbeatResponse
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA_BROKER, BrokerRules

HEARTBEAT_INTERVAL_MS = 2_000
REGISTRATION_TIMEOUT_MS = 60_000
LOG_DIR_FAILURE_TIMEOUT_MS = 30_000
LEAST_FAILURE_TIMEOUT_MS = 1
"""Default and minimum of log.dir.failure.timeout.ms (R-LIFE-12)."""

# While the broker starts, the next heartbeat follows soon: there may be nothing to recover.
STARTING_INTERVAL_MS = 10
# If the first heartbeat of a shutdown is not granted, the next one follows a little sooner than usual.
SHUTDOWN_INTERVAL_MS = 50


class LifecycleState(Enum):
    """Kafka's broker states, with the numbers of its metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The broker ends: with the controller's permission (``allowed``), without it, or immediately (``halt``)."""

    reason: str
    halt: bool = False
    allowed: bool = False


Action = BrokerRegistrationRequest | BrokerHeartbeatRequest | Shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSurroundings:
    """What the lifecycle reads from the rest of the broker: its metadata, its queue, and where it leads."""

    metadata_offset: int = -1
    pending_assignments: int = 0
    leading_in: frozenset[Uuid] = frozenset()
    cordons_supported: bool = False
    """Whether the metadata has metadata.version 4.3-IV0 or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """One process of a broker. Times are milliseconds; ``offline`` maps a failed directory to "reported".

    ``zookeeper``: the process runs in ZooKeeper mode, before its migration (R-ZK-1).
    """

    node_id: int
    cluster_id: str
    incarnation_id: Uuid
    log_dirs: tuple[Uuid, ...]
    previous_epoch: int = -1
    zookeeper: bool = False
    rules: BrokerRules = KAFKA_BROKER
    state: LifecycleState = LifecycleState.NOT_RUNNING
    epoch: int = -1
    ready_to_unfence: bool = False
    unfence_asked: bool = False
    registered: bool = False
    ever_registered: bool = False
    in_flight: bool = False
    next_at_once: bool = False
    shutdown_answered: bool = False
    offline: tuple[tuple[Uuid, bool], ...] = ()
    cordoned: tuple[Uuid, ...] = ()
    """The directories of the start that the configuration cordons."""
    next_communication: int | None = None
    registration_limit: int | None = None
    failure_checks: tuple[tuple[int, Uuid], ...] = ()
    overdue: frozenset[Uuid] = frozenset()
    heartbeat_interval: int = HEARTBEAT_INTERVAL_MS
    registration_timeout: int = REGISTRATION_TIMEOUT_MS
    failure_timeout: int = LOG_DIR_FAILURE_TIMEOUT_MS

    def __post_init__(self) -> None:
        if self.failure_timeout < LEAST_FAILURE_TIMEOUT_MS:
            raise UsageError(f"log.dir.failure.timeout.ms is {self.failure_timeout}: set it to 1 or more (R-LIFE-12)")

    @property
    def timers(self) -> tuple[int, ...]:
        """The times at which something is due, ascending."""
        due = (self.next_communication, self.registration_limit, *(time for time, _ in self.failure_checks))
        return tuple(sorted(time for time in due if time is not None))


def start(life: Lifecycle, now: int) -> tuple[Lifecycle, tuple[Action, ...]]:
    """Start: register at once, and give up if no registration is accepted in time (R-LIFE-1)."""
    life = replace(
        life, state=LifecycleState.STARTING, registration_limit=now + life.registration_timeout, in_flight=True
    )
    return life, (registration_request(life),)


def registration_request(life: Lifecycle) -> BrokerRegistrationRequest:
    """The directories of the start, sorted, including those that failed since (R-IDENT-2)."""
    return BrokerRegistrationRequest(
        broker_id=life.node_id,
        cluster_id=life.cluster_id,
        incarnation_id=life.incarnation_id,
        log_dirs=tuple(sorted(life.log_dirs)),
        previous_broker_epoch=life.previous_epoch,
        is_migrating_zk_broker=life.zookeeper,
    )


def heartbeat_request(life: Lifecycle, around: BrokerSurroundings) -> BrokerHeartbeatRequest:
    """The heartbeat, with all directories that failed since the start and, after recovery, those that are cordoned
    (R-LIFE-5, R-LIFE-11)."""
    tells_cordons = around.cordons_supported and life.state not in (LifecycleState.NOT_RUNNING, LifecycleState.STARTING)
    return BrokerHeartbeatRequest(
        broker_id=life.node_id,
        broker_epoch=life.epoch,
        current_metadata_offset=around.metadata_offset,
        want_fence=_wants_fence(life, around),
        want_shut_down=life.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN,
        offline_log_dirs=tuple(directory for directory, _ in life.offline),
        cordoned_log_dirs=life.cordoned if tells_cordons else None,
    )


def answer_registration(life: Lifecycle, epoch: int | None, now: int) -> Lifecycle:
    """``epoch`` of the accepted registration, or None for any error, timeout or lost connection (R-LIFE-2)."""
    life = replace(life, in_flight=False)
    if epoch is None:
        return _after_failure(life, now)
    return _communicate(replace(life, epoch=epoch, registered=True, ever_registered=True), now, 0)


# By state: the field of the heartbeat's answer that decides and its value, the next state, and the delay of the next
# heartbeat (None: the usual interval). With another value the state stays, and the last column is its delay (R-LIFE-4).
ANSWERS: dict[LifecycleState, tuple[str, bool, LifecycleState, int | None, int | None]] = {
    LifecycleState.STARTING: (
        "is_caught_up",
        True,
        LifecycleState.RECOVERY,
        STARTING_INTERVAL_MS,
        STARTING_INTERVAL_MS,
    ),
    LifecycleState.RECOVERY: ("is_fenced", False, LifecycleState.RUNNING, None, None),
    LifecycleState.RUNNING: ("is_fenced", False, LifecycleState.RUNNING, None, None),
}


def answer_heartbeat(
    life: Lifecycle, response: BrokerHeartbeatResponse | None, now: int
) -> tuple[Lifecycle, tuple[Action, ...]]:
    """The answer to a heartbeat; None for any error, timeout or lost connection.

    An answer without an error confirms the report of every directory that is known to be offline now, including one
    that failed while the heartbeat was in flight (R-LIFE-6). The next heartbeat lists that one.
    """
    life = replace(life, in_flight=False)
    if response is None:
        return _after_failure(life, now), ()
    life = replace(life, offline=tuple((directory, True) for directory, _ in life.offline))
    if life.state in ANSWERS:
        field, wanted, next_state, delay, other_delay = ANSWERS[life.state]
        if getattr(response, field) == wanted:
            life = replace(life, state=next_state)
        else:
            delay = other_delay
        return _communicate(life, now, life.heartbeat_interval if delay is None else delay), ()
    if life.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
        first = not life.shutdown_answered
        life = replace(life, shutdown_answered=True)
        if response.should_shut_down:
            return _end(life, "the controller allowed it", allowed=True)
        return _communicate(life, now, SHUTDOWN_INTERVAL_MS if first else life.heartbeat_interval), ()
    return life, ()


def fail_directory(life: Lifecycle, directory: Uuid, now: int) -> Lifecycle:
    """A directory failed: report it at once if the broker is registered, and check later that it was reported
    (R-LIFE-7).

    Kafka has one check: a later failure replaces that of an earlier one. By the KIP each directory has its own.
    """
    known = tuple((known, reported) for known, reported in life.offline if known != directory)
    others = () if life.rules.one_failure_check else life.failure_checks
    checks = (*others, (now + life.failure_timeout, directory))
    life = replace(life, offline=(*known, (directory, False)), failure_checks=checks)
    return _communicate(life, now, 0) if life.registered else life


def cordon(life: Lifecycle, directories: tuple[Uuid, ...], now: int) -> Lifecycle:
    """Other directories are cordoned: if the broker is registered, the next heartbeat reports this at once
    (R-LIFE-11)."""
    life = replace(life, cordoned=directories)
    return _communicate(life, now, 0) if life.registered else life


def become_ready(life: Lifecycle, now: int) -> Lifecycle:
    """The broker has caught up with the metadata and applied its first image: it may be unfenced (R-LIFE-3)."""
    return _communicate(replace(life, ready_to_unfence=True), now, 0)


def begin_shutdown(life: Lifecycle, now: int) -> tuple[Lifecycle, tuple[Action, ...]]:
    """An operator stops the broker: a running broker hands over its leaderships first, any other ends at once."""
    if life.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
        return life, ()
    if life.state is LifecycleState.RUNNING:
        return _communicate(replace(life, state=LifecycleState.PENDING_CONTROLLED_SHUTDOWN), now, 0), ()
    return _end(life, f"stopped while {life.state.name}")


def resend_registration(life: Lifecycle, now: int) -> Lifecycle:
    """Register again as the same process (R-IDENT-3)."""
    return _communicate(replace(life, registered=False), now, 0)


def needs_registration(registered_directories: tuple[Uuid, ...] | None, directories_supported: bool) -> bool:
    """Whether a broker must register again: its directories can be recorded now, and none is recorded (R-IDENT-3).

    ``registered_directories`` are those of its registration in the metadata, None if there is none.
    """
    return registered_directories == () and directories_supported


def upgrade_warning(life: Lifecycle, directories_supported: bool) -> str | None:
    """The warning of a broker with several directories while the metadata.version cannot record them (R-LIFE-13)."""
    if directories_supported or len(life.log_dirs) < 2:
        return None
    return (
        f"broker {life.node_id} has {len(life.log_dirs)} log directories, and the metadata.version records none: "
        "raise it to 3.7-IV2 or higher first, no controller hears of a failed directory until then"
    )


def tick(life: Lifecycle, around: BrokerSurroundings, now: int) -> tuple[Lifecycle, tuple[Action, ...]]:
    """Advance the clock to ``now``: everything that is due by then happens, in order."""
    if life.state in (LifecycleState.SHUTTING_DOWN, LifecycleState.NOT_RUNNING):
        return life, ()
    if life.registration_limit is not None and now >= life.registration_limit:
        life = replace(life, registration_limit=None)
        if not life.ever_registered:
            return _end(life, "no registration was accepted in time")
    life = _due_checks(life, now)
    for directory in sorted(life.overdue):
        if _must_end(life, directory, around):
            return _end(life, f"the failure of directory {directory} could not be reported in time")
    if life.next_communication is None or now < life.next_communication:
        return life, ()
    life = replace(life, next_communication=None)
    if life.in_flight:
        return replace(life, next_at_once=True), ()
    life = replace(life, in_flight=True)
    if not life.registered:
        return life, (registration_request(life),)
    request = heartbeat_request(life, around)
    return replace(life, unfence_asked=not request.want_fence), (request,)


def _wants_fence(life: Lifecycle, around: BrokerSurroundings) -> bool:
    """Whether the broker asks to stay fenced: R-LIFE-3, and by the KIP also while assignments of several directories
    wait (R-LIFE-9).

    A broker that has asked to be unfenced does not fence itself for later assignments.
    """
    if not life.ready_to_unfence:
        return True
    waits = life.rules.fence_until_assigned and len(life.log_dirs) > 1 and around.pending_assignments > 0
    return waits and not life.unfence_asked


def _due_checks(life: Lifecycle, now: int) -> Lifecycle:
    """The directories whose failure should have been reported by ``now`` and is not (R-LIFE-7)."""
    reported = {directory for directory, reported in life.offline if reported}
    due = {directory for time, directory in life.failure_checks if time <= now}
    ahead = tuple(check for check in life.failure_checks if check[0] > now)
    return replace(life, failure_checks=ahead, overdue=(life.overdue | due) - reported)


def _must_end(life: Lifecycle, directory: Uuid, around: BrokerSurroundings) -> bool:
    """R-LIFE-8: Kafka's broker ends for every unreported failure, the KIP's only if it leads a partition there."""
    return directory in around.leading_in or not life.rules.shut_down_only_if_leading


def _end(life: Lifecycle, reason: str, *, allowed: bool = False) -> tuple[Lifecycle, tuple[Action, ...]]:
    life = replace(
        life,
        state=LifecycleState.SHUTTING_DOWN,
        next_communication=None,
        registration_limit=None,
        failure_checks=(),
    )
    return life, (Shutdown(reason, allowed=allowed),)


def _after_failure(life: Lifecycle, now: int) -> Lifecycle:
    """R-LIFE-10: after a failure the usual interval passes, even for what should be sent at once."""
    return _communicate(replace(life, next_at_once=False), now, life.heartbeat_interval)


def _communicate(life: Lifecycle, now: int, delay: int) -> Lifecycle:
    if life.state in (LifecycleState.SHUTTING_DOWN, LifecycleState.NOT_RUNNING):
        return life
    due = now if life.next_at_once else now + delay
    return replace(life, next_at_once=False, next_communication=due)
