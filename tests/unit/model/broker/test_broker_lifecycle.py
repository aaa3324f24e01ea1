"""A broker's life (docs/spec/broker.md): BrokerLifecycleManagerTest, BrokerRegistrationTrackerTest as facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jbod_model.broker import lifecycle
from jbod_model.broker.lifecycle import BrokerSurroundings, Lifecycle, LifecycleState, Shutdown
from jbod_model.errors import UsageError
from jbod_model.formats.requests import BrokerHeartbeatRequest, BrokerRegistrationRequest
from jbod_model.formats.responses import BrokerHeartbeatResponse
from jbod_model.ids import Uuid
from jbod_model.profiles import DRAFT_BROKER, KAFKA_BROKER, KIP858_BROKER, BrokerRules

A, B, C = Uuid(11, 1), Uuid(11, 2), Uuid(-11, 3)
AROUND = BrokerSurroundings()
LIFE = Lifecycle(node_id=1, cluster_id="x", incarnation_id=Uuid(7, 7), log_dirs=(A, B), heartbeat_interval=100)
FINE = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, in_controlled_shutdown=False, should_shut_down=False)
FENCED = replace(FINE, is_fenced=True)


def registered(life: Lifecycle = LIFE, epoch: int = 1000) -> Lifecycle:
    """Started at 0, registered at 1, with a heartbeat due at once."""
    life, _ = lifecycle.start(life, 0)
    return lifecycle.answer_registration(life, epoch, 1)


def beat(
    life: Lifecycle, now: int, response: BrokerHeartbeatResponse | None = FINE, around: BrokerSurroundings = AROUND
) -> tuple[Lifecycle, BrokerHeartbeatRequest]:
    """Send the heartbeat that is due at ``now`` and answer it at once."""
    life, (request,) = lifecycle.tick(life, around, now)
    assert isinstance(request, BrokerHeartbeatRequest)
    life, _ = lifecycle.answer_heartbeat(life, response, now)
    return life, request


def running(life: Lifecycle = LIFE) -> Lifecycle:
    life = lifecycle.become_ready(registered(life), 1)
    life, _ = beat(life, 1)
    life, _ = beat(life, 11)
    assert life.state is LifecycleState.RUNNING
    return life


def test_broker_that_was_created_does_nothing_until_it_starts() -> None:
    """testCreateAndClose, testCreateStartAndClose."""
    assert lifecycle.tick(LIFE, AROUND, 10**9) == (LIFE, ())
    life, (request,) = lifecycle.start(LIFE, 0)
    assert life.state is LifecycleState.STARTING
    assert isinstance(request, BrokerRegistrationRequest)
    life, actions = lifecycle.begin_shutdown(life, 1)
    assert life.state is LifecycleState.SHUTTING_DOWN
    assert actions == (Shutdown("stopped while STARTING"),)
    assert life.timers == ()


def test_new_process_knows_of_no_epoch_directory_or_timer() -> None:
    """The first registration and heartbeat say so (R-LIFE-1, R-LIFE-5)."""
    _, (request,) = lifecycle.start(LIFE, 0)
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.previous_broker_epoch, request.is_migrating_zk_broker) == (-1, False)
    assert (LIFE.timers, LIFE.in_flight, LIFE.next_at_once, LIFE.shutdown_answered) == ((), False, False, False)
    assert lifecycle.heartbeat_request(LIFE, BrokerSurroundings()) == BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=-1, current_metadata_offset=-1, want_fence=True
    )
    assert lifecycle.heartbeat_request(running(), BrokerSurroundings()).cordoned_log_dirs is None


def test_registration_in_flight_is_not_sent_twice() -> None:
    """R-LIFE-2: what is due while a request is in flight follows its answer."""
    life, _ = lifecycle.start(LIFE, 0)
    life, actions = lifecycle.tick(lifecycle.become_ready(life, 1), AROUND, 1)
    assert (actions, life.next_at_once) == ((), True)


def test_cordon_before_the_registration_is_reported_by_the_first_heartbeat_after_it() -> None:
    """R-LIFE-11."""
    life, _ = lifecycle.start(LIFE, 0)
    life = lifecycle.cordon(life, (A,), 1)
    assert (life.cordoned, life.timers) == ((A,), (lifecycle.REGISTRATION_TIMEOUT_MS,))
    assert 20 in lifecycle.cordon(running(), (A,), 20).timers


def test_timers_are_in_the_order_of_their_times() -> None:
    life, _ = lifecycle.start(replace(LIFE, registration_timeout=50), 0)
    life = lifecycle.answer_registration(life, None, 5)
    assert life.timers == (50, 105)


def test_heartbeat_that_was_due_at_once_is_followed_by_one_after_the_interval() -> None:
    """R-LIFE-7: the haste ends with the heartbeat that reports the failure."""
    life, _ = lifecycle.tick(running(), AROUND, 111)
    life, _ = lifecycle.tick(lifecycle.fail_directory(life, A, 112), AROUND, 112)
    life, _ = lifecycle.answer_heartbeat(life, FINE, 113)
    assert life.next_communication == 113
    life, _ = beat(life, 113)
    assert life.next_communication == 213


@pytest.mark.parametrize("life", [LIFE, lifecycle.begin_shutdown(lifecycle.start(LIFE, 0)[0], 1)[0]])
def test_answer_to_a_process_that_does_not_run_schedules_nothing(life: Lifecycle) -> None:
    assert lifecycle.answer_registration(life, None, 5).timers == ()
    assert lifecycle.become_ready(life, 5).timers == ()


def test_directory_that_fails_twice_is_reported_once() -> None:
    """R-LIFE-7."""
    life = lifecycle.fail_directory(lifecycle.fail_directory(running(), A, 20), A, 30)
    assert lifecycle.heartbeat_request(life, AROUND).offline_log_dirs == (A,)


def test_registration_names_directories_sorted_and_the_previous_epoch() -> None:
    """testSuccessfulRegistration, testRegistrationIncludesDirs (R-IDENT-2)."""
    _, (request,) = lifecycle.start(replace(LIFE, log_dirs=(B, A, C), previous_epoch=10), 0)
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.log_dirs, request.previous_broker_epoch) == ((C, A, B), 10)
    assert registered().epoch == 1000


def test_registration_refused_is_sent_again_until_the_limit() -> None:
    """R-LIFE-1, R-LIFE-2, testRegistrationTimeout."""
    life, _ = lifecycle.start(replace(LIFE, registration_timeout=300_000), 0)
    life = lifecycle.answer_registration(life, None, 5)
    life, actions = lifecycle.tick(life, AROUND, 104)
    assert actions == ()
    life, (request,) = lifecycle.tick(life, AROUND, 105)
    assert isinstance(request, BrokerRegistrationRequest)
    life = lifecycle.answer_registration(life, None, 106)
    life, actions = lifecycle.tick(life, AROUND, 300_000)
    assert actions == (Shutdown("no registration was accepted in time"),)
    assert (life.state, life.epoch) == (LifecycleState.SHUTTING_DOWN, -1)


def test_registration_accepted_lifts_the_limit() -> None:
    life = registered()
    life, actions = lifecycle.tick(life, AROUND, 10**6)
    assert [type(action) for action in actions] == [BrokerHeartbeatRequest]


def test_controlled_shutdown_waits_for_the_controller() -> None:
    """testControlledShutdown."""
    life = registered()
    life, request = beat(life, 1, FENCED)
    assert (life.state, request.want_fence) == (LifecycleState.RECOVERY, True)
    life = lifecycle.become_ready(life, 5)
    life, request = beat(life, 5)
    assert (life.state, request.want_fence) == (LifecycleState.RUNNING, False)
    life, _ = lifecycle.begin_shutdown(life, 20)
    assert life.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN
    assert lifecycle.begin_shutdown(life, 20) == (life, ())
    life, request = beat(life, 20)
    assert request.want_shut_down
    assert life.next_communication == 70
    life, request = beat(life, 70)
    assert life.next_communication == 170
    life, _ = lifecycle.tick(life, AROUND, 170)
    life, actions = lifecycle.answer_heartbeat(life, replace(FINE, should_shut_down=True), 171)
    assert life.state is LifecycleState.SHUTTING_DOWN
    assert actions == (Shutdown("the controller allowed it", allowed=True),)
    assert lifecycle.answer_heartbeat(life, FINE, 172) == (life, ())


def test_heartbeats_always_list_the_directories_that_failed_since_the_start() -> None:
    """testAlwaysSendsAccumulatedOfflineDirs (R-LIFE-5)."""
    life = registered()
    life, request = beat(life, 1)
    seen = [request.offline_log_dirs]
    now = 2
    for directory in (A, B, C):
        life = lifecycle.fail_directory(life, directory, now)
        life, request = beat(life, now)
        seen.append(request.offline_log_dirs)
        now += 1
    assert seen == [(), (A,), (A, B), (A, B, C)]


def test_new_metadata_version_makes_a_broker_register_again() -> None:
    """testKraftJBODMetadataVersionUpdateEvent (R-IDENT-3): the same process, directories of the start, a new epoch."""
    life = registered(replace(LIFE, previous_epoch=10))
    life, _ = beat(life, 1)
    life = lifecycle.fail_directory(life, A, 20)
    life = lifecycle.resend_registration(life, 20)
    life, (request,) = lifecycle.tick(life, AROUND, 20)
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.incarnation_id, request.log_dirs) == (Uuid(7, 7), (A, B))
    life = lifecycle.answer_registration(life, 1200, 21)
    life, heartbeat = beat(life, 21)
    assert (heartbeat.broker_epoch, heartbeat.offline_log_dirs) == (1200, (A,))


# BrokerRegistrationTrackerTest: directories in the metadata, whether the version has directories, register again?
TRACKER = [(None, True, False), ((), False, False), ((), True, True), ((A,), True, False), ((A,), False, False)]


@pytest.mark.parametrize(("directories", "supported", "expected"), TRACKER)
def test_registration_without_directories_is_repeated_once_they_are_supported(
    directories: tuple[Uuid, ...] | None, supported: bool, expected: bool
) -> None:
    assert lifecycle.needs_registration(directories, supported) is expected


def test_one_request_is_out_at_a_time_and_what_came_up_goes_at_once() -> None:
    life, _ = lifecycle.tick(running(), AROUND, 111)
    life = lifecycle.fail_directory(life, A, 112)
    life, actions = lifecycle.tick(life, AROUND, 112)
    assert actions == ()
    life, _ = lifecycle.answer_heartbeat(life, FINE, 120)
    assert life.next_communication == 120


def test_failed_communication_waits_the_usual_interval_whatever_was_urgent() -> None:
    """R-LIFE-10."""
    life, _ = lifecycle.tick(running(), AROUND, 111)
    life = lifecycle.fail_directory(life, A, 112)
    life, _ = lifecycle.tick(life, AROUND, 112)
    life, _ = lifecycle.answer_heartbeat(life, None, 120)
    assert life.next_communication == 220
    assert life.offline == ((A, False),)


def test_answer_to_a_heartbeat_that_did_not_list_a_directory_counts_as_its_report() -> None:
    """R-LIFE-6: a directory fails while a heartbeat is out; the answer is taken for it too."""
    life, (request,) = lifecycle.tick(running(), AROUND, 111)
    assert isinstance(request, BrokerHeartbeatRequest)
    life = lifecycle.fail_directory(life, A, 112)
    life, _ = lifecycle.answer_heartbeat(life, FINE, 120)
    assert request.offline_log_dirs == ()
    assert life.offline == ((A, True),)


# log.dir.failure.timeout.ms (LogDirFailureTest.testLogDirNotificationTimeout): profile, leads there, reported; ends?
TIMEOUTS = [
    (KAFKA_BROKER, False, False, True),
    (KAFKA_BROKER, True, False, True),
    (KAFKA_BROKER, True, True, False),
    (KIP858_BROKER, False, False, False),
    (KIP858_BROKER, True, False, True),
    (KIP858_BROKER, True, True, False),
]


@pytest.mark.parametrize(("rules", "leads", "reported", "ends"), TIMEOUTS)
def test_directory_failure_that_is_not_reported_in_time_ends_the_broker(
    rules: BrokerRules, leads: bool, reported: bool, ends: bool
) -> None:
    """R-LIFE-8: Kafka's broker always ends, by the KIP only one that leads a partition in the directory."""
    life = lifecycle.fail_directory(running(replace(LIFE, rules=rules)), A, 200)
    around = BrokerSurroundings(leading_in=frozenset({A} if leads else {B}))
    life, _ = beat(life, 200, FINE if reported else None, around)
    life, actions = lifecycle.tick(life, around, 30_199)
    assert not any(isinstance(action, Shutdown) for action in actions)
    life, _ = lifecycle.answer_heartbeat(life, None, 30_199)
    life, actions = lifecycle.tick(life, around, 30_200)
    assert any(isinstance(action, Shutdown) for action in actions) is ends
    assert (life.state is LifecycleState.SHUTTING_DOWN) is ends


def test_later_failure_replaces_the_check_of_the_earlier_one() -> None:
    """R-LIFE-7: one timer. The first failure is then never checked by itself."""
    life = lifecycle.fail_directory(running(), A, 200)
    life = lifecycle.fail_directory(life, B, 20_000)
    assert life.failure_checks == ((50_000, B),)


def unheard(life: Lifecycle, around: BrokerSurroundings, until: int) -> int | None:
    """Let every heartbeat from now on be lost; when the broker ends, None if it runs on ``until`` then."""
    while life.timers and life.timers[0] <= until:
        now = life.timers[0]
        life, actions = lifecycle.tick(life, around, now)
        if life.state is LifecycleState.SHUTTING_DOWN:
            return now
        if actions:
            life, _ = lifecycle.answer_heartbeat(life, None, now)
    return None


@pytest.mark.parametrize(("rules", "ends"), [(KIP858_BROKER, 31_000), (DRAFT_BROKER, 31_000), (KAFKA_BROKER, 50_000)])
def test_first_of_two_failures_that_cannot_be_reported_ends_the_broker(rules: BrokerRules, ends: int) -> None:
    """R-LIFE-7, R-LIFE-8: it leads in A, which fails first, and not in B. Kafka ends by the check of B alone."""
    life = lifecycle.fail_directory(running(replace(LIFE, rules=rules)), A, 1_000)
    life = lifecycle.fail_directory(life, B, 20_000)
    assert unheard(life, BrokerSurroundings(leading_in=frozenset({A})), 200_000) == ends


def test_broker_that_comes_to_lead_in_an_unreported_directory_ends_at_its_next_event() -> None:
    """R-LIFE-7: by the KIP a failure stays overdue until it is reported."""
    life = lifecycle.fail_directory(running(replace(LIFE, rules=KIP858_BROKER)), A, 1_000)
    assert unheard(life, AROUND, 200_000) is None
    while life.timers[0] < 40_000:
        now = life.timers[0]
        life, actions = lifecycle.tick(life, AROUND, now)
        if actions:
            life, _ = lifecycle.answer_heartbeat(life, None, now)
    assert life.overdue == {A}
    life, actions = lifecycle.tick(life, BrokerSurroundings(leading_in=frozenset({A})), 41_000)
    assert actions == (Shutdown(f"the failure of directory {A} could not be reported in time"),)


def test_failure_that_was_reported_late_is_no_longer_overdue() -> None:
    """R-LIFE-7, R-LIFE-6."""
    life = lifecycle.fail_directory(running(replace(LIFE, rules=KIP858_BROKER)), A, 1_000)
    life, _ = lifecycle.tick(life, AROUND, 32_000)
    assert life.overdue == {A}
    life, _ = lifecycle.answer_heartbeat(life, FINE, 32_001)
    assert lifecycle.tick(life, AROUND, 32_001)[0].overdue == frozenset()
    assert unheard(life, BrokerSurroundings(leading_in=frozenset({A})), 200_000) is None


@pytest.mark.parametrize("timeout", [0, -1])
def test_failure_timeout_below_one_is_bad_usage(timeout: int) -> None:
    """R-LIFE-12."""
    with pytest.raises(UsageError, match=rf"log\.dir\.failure\.timeout\.ms is {timeout}: set it to 1 or more"):
        replace(LIFE, failure_timeout=timeout)
    assert replace(LIFE, failure_timeout=1).failure_timeout == 1
    assert LIFE.failure_timeout == 30_000


# R-LIFE-3, R-LIFE-9: profile, directories, ready, assignments that wait, asks to stay fenced
FENCING = [
    (KAFKA_BROKER, (A, B), False, 0, True),
    (KAFKA_BROKER, (A, B), True, 5, False),
    (KIP858_BROKER, (A, B), True, 5, True),
    (KIP858_BROKER, (A, B), True, 0, False),
    (KIP858_BROKER, (A,), True, 5, False),
    (KIP858_BROKER, (A, B), False, 0, True),
]


@pytest.mark.parametrize(("rules", "directories", "ready", "pending", "fence"), FENCING)
def test_broker_asks_to_stay_fenced(
    rules: BrokerRules, directories: tuple[Uuid, ...], ready: bool, pending: int, fence: bool
) -> None:
    life = registered(replace(LIFE, rules=rules, log_dirs=directories))
    if ready:
        life = lifecycle.become_ready(life, 1)
    _, request = beat(life, 1, FENCED, BrokerSurroundings(pending_assignments=pending))
    assert request.want_fence is fence


def test_broker_that_asked_to_be_unfenced_does_not_fence_itself_for_later_assignments() -> None:
    life = running(replace(LIFE, rules=KIP858_BROKER))
    _, request = beat(life, 111, FINE, BrokerSurroundings(pending_assignments=3))
    assert not request.want_fence


def test_states_without_progress_stay_and_keep_their_pace() -> None:
    """R-LIFE-4."""
    life = registered()
    life, _ = beat(life, 1, replace(FENCED, is_caught_up=False))
    assert (life.state, life.next_communication) == (LifecycleState.STARTING, 11)
    life, _ = beat(life, 11, FENCED)
    assert (life.state, life.next_communication) == (LifecycleState.RECOVERY, 21)
    life, _ = beat(life, 21, FENCED)
    assert (life.state, life.next_communication) == (LifecycleState.RECOVERY, 121)


def test_process_that_has_ended_says_nothing_more() -> None:
    """One Shutdown, whatever arrives later: an answer, or the time of a failure that was not reported."""
    life = replace(running(), in_flight=True)
    life = lifecycle.fail_directory(lifecycle.fail_directory(life, A, 20), B, 20)
    life, (ended,) = lifecycle.tick(life, AROUND, 100_000)
    assert isinstance(ended, Shutdown)
    assert lifecycle.tick(life, AROUND, 200_000)[1] == ()
    assert lifecycle.answer_heartbeat(life, replace(FINE, should_shut_down=True), 200_000)[1] == ()


def test_directory_that_fails_before_the_registration_waits_for_it() -> None:
    """R-LIFE-7: the first heartbeat reports it."""
    life = lifecycle.fail_directory(lifecycle.start(LIFE, 0)[0], A, 5)
    assert life.timers == (30_005, 60_000)


def test_process_that_ends_names_the_first_directory_that_it_could_not_report() -> None:
    """R-LIFE-8: by id, so that runs say the same."""
    directories = tuple(Uuid(50 - number, 7) for number in range(20))
    life = running(replace(LIFE, log_dirs=directories, rules=replace(KIP858_BROKER, shut_down_only_if_leading=False)))
    life = replace(life, in_flight=True)
    for directory in directories:
        life = lifecycle.fail_directory(life, directory, 20)
    _, (ended,) = lifecycle.tick(life, AROUND, 100_000)
    assert ended == Shutdown(f"the failure of directory {min(directories)} could not be reported in time")


def test_intervals_are_kafkas_defaults() -> None:
    """broker.heartbeat.interval.ms, initial.broker.registration.timeout.ms, log.dir.failure.timeout.ms."""
    life = Lifecycle(node_id=1, cluster_id="x", incarnation_id=Uuid(7, 7), log_dirs=(A,))
    assert (life.heartbeat_interval, life.registration_timeout, life.failure_timeout) == (2_000, 60_000, 30_000)


def test_process_that_ends_before_it_is_registered_has_no_timers_left() -> None:
    life = lifecycle.answer_registration(lifecycle.start(LIFE, 0)[0], None, 5)
    assert life.timers == (105, 60_000)
    life, _ = lifecycle.begin_shutdown(life, 6)
    assert life.timers == ()


def test_process_that_is_stopped_checks_no_reports_any_more() -> None:
    life = lifecycle.fail_directory(lifecycle.start(LIFE, 0)[0], A, 5)
    life, _ = lifecycle.begin_shutdown(life, 6)
    assert (life.timers, life.failure_checks) == ((), ())
