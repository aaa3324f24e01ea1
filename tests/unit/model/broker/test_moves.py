"""Moves between disks: ReplicaAlterLogDirsThreadTest, and the moves of ReplicaManager, as facts."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from jbod_model.broker import replicas
from jbod_model.broker.assignments import AssignmentReason, Replica
from jbod_model.broker.disks import (
    TRANSITIONS,
    Disks,
    Effect,
    IllegalMove,
    MoveEvent,
    MoveState,
    NoDirectoryAvailable,
    ReplicaMove,
    advance,
    create_log,
    fail,
)
from jbod_model.broker.replicas import (
    KAFKA_STORAGE_ERROR,
    LOG_DIR_NOT_FOUND,
    NONE,
    REPLICA_NOT_AVAILABLE,
    Hosted,
    ReplicaChange,
    Replicas,
    Report,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import DRAFT_BROKER, KAFKA_BROKER, KIP858_BROKER, BrokerRules

A, B, C, ELSEWHERE = Uuid(11, 1), Uuid(11, 2), Uuid(11, 3), Uuid(99, 9)
P = Replica(Uuid(1, 1), 0)
Q = Replica(Uuid(1, 1), 1)
MOVE = ReplicaMove(A, B)


def hosting(rules: BrokerRules = KAFKA_BROKER, **changes: Any) -> Replicas:
    """A broker with disks A, B, C that hosts P on A."""
    state = Replicas(disks=Disks(configured=(A, B, C), current={P: A}), hosted={P: Hosted.ONLINE}, rules=rules)
    return replace(state, **changes)


def moving(state: MoveState, rules: BrokerRules = KAFKA_BROKER) -> Replicas:
    """P on its way from A to B."""
    begun, reports, error = replicas.alter_replica_log_dir(hosting(rules), P, B)
    assert (reports, error) == ((), NONE)
    assert begun.disks.future == {P: B}
    return replace(begun, moves={P: replace(MOVE, state=state)})


def test_move_swaps_only_after_the_controller_confirmed() -> None:
    """R-MOVE-1, R-MOVE-2, R-MOVE-3 (R-MOVE-2: no swap before).

    shouldReplaceCurrentLogDirWhenCaughtUpWithAfterAssignmentRequestHasBeenCompleted.
    """
    state = moving(MoveState.NONE)
    state, reports = replicas.catch_up(state, P)
    assert reports == (Report(P, B, AssignmentReason.PROMOTION),)
    state, reports = replicas.catch_up(state, P)
    assert (reports, state.disks.current[P]) == ((), A)
    state = replicas.confirm(state, P, B)
    assert state.disks.current[P] == A
    state, reports = replicas.catch_up(state, P)
    assert (reports, state.disks.current, state.disks.future, state.moves) == ((), {P: B}, {}, {})


# shouldRevertReassignmentsForIncompleteFutureReplicaPromotions (R-MOVE-4, R-MOVE-5)
REVERTS = [
    (MoveState.NONE, False),
    (MoveState.QUEUED, True),
    (MoveState.ACCEPTED, True),
    (MoveState.EFFECTIVE, False),
]


@pytest.mark.parametrize(("state", "reverted"), REVERTS)
def test_move_that_ends_is_reverted_if_the_controller_may_know_of_it(state: MoveState, reverted: bool) -> None:
    _, effects = advance(replace(MOVE, state=state), MoveEvent.ENDED)
    assert (Effect.REPORT_ORIGINAL in effects) == reverted
    assert Effect.FORGET in effects


@pytest.mark.parametrize("state", [MoveState.QUEUED, MoveState.ACCEPTED])
def test_move_cancelled_reports_the_original_directory(state: MoveState) -> None:
    """shouldRevertAnyScheduledAssignmentRequestIfAssignmentIsCancelled: back to its own directory cancels."""
    after, reports, error = replicas.alter_replica_log_dir(moving(state), P, A)
    assert error == NONE
    assert reports == (Report(P, A, AssignmentReason.REVERT),)
    assert (after.moves, after.disks.future, after.disks.current) == ({}, {}, {P: A})


def test_move_to_a_third_directory_ends_the_one_before() -> None:
    after, reports, error = replicas.alter_replica_log_dir(moving(MoveState.QUEUED), P, C)
    assert (error, reports) == (NONE, (Report(P, A, AssignmentReason.REVERT),))
    assert after.moves == {P: ReplicaMove(A, C)}
    assert after.disks.future == {P: C}


def test_move_requested_twice_continues() -> None:
    state = moving(MoveState.QUEUED)
    assert replicas.alter_replica_log_dir(state, P, B) == (state, (), NONE)


def test_move_to_the_directory_it_is_in_does_nothing() -> None:
    state = hosting()
    assert replicas.alter_replica_log_dir(state, P, A) == (state, (), NONE)


@pytest.mark.parametrize("rules", [KAFKA_BROKER, KIP858_BROKER, DRAFT_BROKER])
@pytest.mark.parametrize("failing", ["source", "destination"])
@pytest.mark.parametrize("state", [MoveState.NONE, MoveState.QUEUED, MoveState.ACCEPTED])
def test_move_ends_when_either_disk_fails(rules: BrokerRules, failing: str, state: MoveState) -> None:
    """R-MOVE-4: back to the original directory, online or not; the revision before the current page said "lost"."""
    after, reports = replicas.fail_directory(moving(state, rules), A if failing == "source" else B)
    expected = KAFKA_IDS.lost if failing == "source" and rules is DRAFT_BROKER else A
    assert reports == (() if state is MoveState.NONE else (Report(P, expected, AssignmentReason.REVERT),))
    assert after.moves == {}
    assert after.hosted[P] is (Hosted.OFFLINE if failing == "source" else Hosted.ONLINE)
    assert after.disks.current == ({} if failing == "source" else {P: A})


@pytest.mark.parametrize(
    ("state", "replica", "directory", "error"),
    [
        (hosting(), P, ELSEWHERE, LOG_DIR_NOT_FOUND),
        (replicas.fail_directory(hosting(), B)[0], P, B, KAFKA_STORAGE_ERROR),
        (replicas.fail_directory(hosting(), A)[0], P, B, KAFKA_STORAGE_ERROR),
        (replicas.fail_directory(hosting(), C)[0], P, B, KAFKA_STORAGE_ERROR),
        (hosting(), Q, B, REPLICA_NOT_AVAILABLE),
        (hosting(), P, B, NONE),
    ],
    ids=["unknown directory", "offline directory", "offline replica", "another directory offline", "no replica", "ok"],
)
def test_alter_replica_log_dirs_answers_with_kafkas_errors(
    state: Replicas, replica: Replica, directory: Uuid, error: int
) -> None:
    assert replicas.alter_replica_log_dir(state, replica, directory)[2] == error


def test_alter_replica_log_dirs_of_a_replica_to_come_is_remembered() -> None:
    """R-HOST-5, R-DISK-2: an operator's wish wins over the assigned directory, and what came of it is reported."""
    state, _, error = replicas.alter_replica_log_dir(hosting(), Q, C)
    assert error == REPLICA_NOT_AVAILABLE
    state, reports = replicas.apply_metadata(state, [ReplicaChange(Q, False, B)])
    assert state.disks.current[Q] == C
    assert state.disks.preferred == {}
    assert reports == (Report(Q, C, AssignmentReason.METADATA),)


@pytest.mark.parametrize(("rules", "after"), [(KAFKA_BROKER, MoveState.ACCEPTED), (KIP858_BROKER, MoveState.NONE)])
def test_confirmation_that_comes_late_is_taken_for_the_next_move_by_kafka_only(
    rules: BrokerRules, after: MoveState
) -> None:
    """R-MOVE-8: cancelled while the request was out, another move asked for, then confirmed."""
    state, _, _ = replicas.alter_replica_log_dir(moving(MoveState.QUEUED, rules), P, A)
    state, _, _ = replicas.alter_replica_log_dir(state, P, C)
    state = replicas.confirm(state, P, B)
    assert state.moves == {P: ReplicaMove(A, C, after)}


def test_error_codes_are_kafkas() -> None:
    """Source: ``org.apache.kafka.common.protocol.Errors``."""
    assert (NONE, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, LOG_DIR_NOT_FOUND) == (0, 9, 56, 57)
    assert replicas.INVALID_REPLICA_ASSIGNMENT == 39


def test_future_log_in_the_assigned_directory_is_promoted_by_the_page_once_it_has_caught_up() -> None:
    """R-DECIDE-4: the controller has assigned the directory already, so nothing is reported."""
    state = hosting(KIP858_BROKER, disks=Disks(configured=(A, B, C), current={P: A}, future={P: B}))
    state, reports = replicas.apply_metadata(state, iter([ReplicaChange(P, True, B)]))
    assert (state.moves, reports) == ({P: ReplicaMove(A, B, MoveState.ACCEPTED)}, ())
    state, reports = replicas.catch_up(state, P)
    assert (state.disks.current, state.moves, reports) == ({P: B}, {}, ())


@pytest.mark.parametrize(("unreadable", "reported"), [(0, False), (1, True)])
def test_unassigned_replica_is_reported_by_the_drafts_if_the_broker_has_another_directory(
    unreadable: int, reported: bool
) -> None:
    """R-DRAFT-4: a directory that was unreadable at start counts."""
    state = Replicas(disks=Disks(configured=(A,), unreadable=unreadable), rules=DRAFT_BROKER)
    state, reports = replicas.apply_metadata(state, iter([ReplicaChange(P, True, KAFKA_IDS.unassigned)]))
    assert state.disks.current == {P: A}
    assert reports == ((Report(P, A, AssignmentReason.METADATA),) if reported else ())


def test_confirmation_of_a_move_that_is_gone_changes_nothing() -> None:
    assert replicas.confirm(hosting(), P, B) == hosting()


@pytest.mark.parametrize("event", [MoveEvent.CAUGHT_UP, MoveEvent.CONFIRMED])
def test_move_that_took_effect_cannot_go_on(event: MoveEvent) -> None:
    """R-MOVE-6."""
    with pytest.raises(IllegalMove) as raised:
        advance(replace(MOVE, state=MoveState.EFFECTIVE), event)
    assert pickle.loads(pickle.dumps(raised.value)).state is MoveState.EFFECTIVE


def test_transitions_cover_every_state_and_event_but_the_illegal_ones() -> None:
    every = {(state, event) for state in MoveState for event in MoveEvent}
    illegal = {(MoveState.EFFECTIVE, MoveEvent.CAUGHT_UP), (MoveState.EFFECTIVE, MoveEvent.CONFIRMED)}
    assert set(TRANSITIONS) == every - illegal


@pytest.mark.parametrize(("rules", "state"), [(KAFKA_BROKER, MoveState.NONE), (KIP858_BROKER, MoveState.ACCEPTED)])
def test_change_of_a_moving_partition_puts_kafkas_move_back_to_the_beginning(
    rules: BrokerRules, state: MoveState
) -> None:
    """R-MOVE-7: Kafka then reports the source once more; by the KIP's text the metadata is right already."""
    after, reports = replicas.apply_metadata(moving(MoveState.ACCEPTED, rules), [ReplicaChange(P, True, B)])
    assert after.moves[P].state is state
    assert reports == ((Report(P, A, AssignmentReason.METADATA),) if rules is KAFKA_BROKER else ())


@pytest.mark.parametrize("rules", [KAFKA_BROKER, KIP858_BROKER])
def test_future_log_in_the_assigned_directory_at_start(rules: BrokerRules) -> None:
    """R-MOVE-9, KRaftClusterTest.testAbandonedFutureReplicaRecovered_mainReplicaInOnlineLogDir."""
    state = Replicas(disks=Disks(configured=(A, B), current={P: A}, future={P: B}), rules=rules)
    state = replicas.recover_future_logs(state, {P: B})
    state, reports = replicas.apply_metadata(state, [ReplicaChange(P, False, B)])
    assert reports == ()
    if rules is KIP858_BROKER:
        assert (state.disks.current[P], state.moves[P]) == (A, ReplicaMove(A, B, MoveState.ACCEPTED))
        state, reports = replicas.catch_up(state, P)
    assert (state.disks.current, state.disks.future, state.moves, reports) == ({P: B}, {}, {}, ())


@pytest.mark.parametrize("rules", [KAFKA_BROKER, KIP858_BROKER])
def test_future_log_alone_at_start_becomes_the_current_one(rules: BrokerRules) -> None:
    """testAbandonedFutureReplicaRecovered_mainReplicaInOfflineLogDir: the current log lies on a disk that is out."""
    state = Replicas(disks=Disks(configured=(B,), unreadable=1, future={P: B}), rules=rules)
    state = replicas.recover_future_logs(state, {P: B})
    state, reports = replicas.apply_metadata(state, [ReplicaChange(P, False, B)])
    assert (state.disks.current, state.disks.future, reports) == ({P: B}, {}, ())


def test_future_log_in_another_directory_continues_to_copy_at_start() -> None:
    """The KIP: online directory, the log there, and a future log in another one."""
    state = Replicas(disks=Disks(configured=(A, B), current={P: A}, future={P: B}))
    state = replicas.recover_future_logs(state, {P: A})
    state, reports = replicas.apply_metadata(state, [ReplicaChange(P, False, A)])
    assert (state.moves, reports) == ({P: ReplicaMove(A, B)}, ())


def test_deletion_of_a_replica_that_moves_reports_where_it_was() -> None:
    """R-MOVE-4: the controller may know the new directory already; and the broker no longer leads it."""
    state = replace(moving(MoveState.QUEUED), leading=frozenset({P, Q}))
    state, reports = replicas.apply_metadata(state, (), [P])
    assert reports == (Report(P, A, AssignmentReason.REVERT),)
    assert state.leading == {Q}


def test_request_for_a_replica_that_is_not_hosted_keeps_its_future_log() -> None:
    """R-HOST-5: before the first image nothing is known of the replica; the start decides about the future log."""
    state = Replicas(disks=Disks(configured=(A, B, C), current={P: A}, future={P: C}))
    after, _, error = replicas.alter_replica_log_dir(state, P, B)
    assert (after.disks.future, after.disks.preferred, error) == ({P: C}, {P: B}, REPLICA_NOT_AVAILABLE)


def test_log_that_exists_is_not_created_again() -> None:
    """R-DISK-5."""
    disks = Disks(configured=(A, B), current={P: A})
    assert create_log(disks, P, B, is_new=True) is disks


def test_directory_that_fails_takes_the_logs_in_it_and_no_others() -> None:
    """R-DISK-6: current and future ones."""
    disks = Disks(configured=(A, B, C), failed=frozenset({C}), current={P: A, Q: B}, future={P: B, Q: A})
    after = fail(disks, B)
    assert (after.current, after.future, after.failed) == ({P: A}, {Q: A}, frozenset({B, C}))


def test_failed_directory_ends_only_the_moves_into_it() -> None:
    """R-HOST-4: a move elsewhere goes on."""
    state, reports = replicas.fail_directory(moving(MoveState.QUEUED), C)
    assert (state.moves, reports) == ({P: ReplicaMove(A, B, MoveState.QUEUED)}, ())


def test_log_is_not_created_in_a_failed_directory() -> None:
    """R-DISK-3: not even where an operator asked for it."""
    disks = Disks(configured=(A, B), failed=frozenset({B}), preferred={P: B})
    with pytest.raises(NoDirectoryAvailable):
        create_log(disks, P, None, is_new=True)


def test_log_of_a_replica_that_is_not_hosted_yet_fails_with_its_directory() -> None:
    """R-HOST-4: it is no hosted replica that goes offline."""
    state = Replicas(disks=Disks(configured=(A, B), current={P: A}))
    assert replicas.fail_directory(state, A)[0].hosted == {}


def test_replica_without_a_log_continues_no_copy() -> None:
    """R-HOST-7, R-MOVE-7: its log may lie in the failed directory; the future log has nothing to copy from."""
    state = Replicas(disks=Disks(configured=(A, B), failed=frozenset({A}), future={P: B}))
    state, reports = replicas.apply_metadata(state, [ReplicaChange(P, False, ELSEWHERE)])
    assert (state.hosted, state.moves, reports) == ({P: Hosted.WITHOUT_LOG}, {}, ())


def test_move_that_is_cancelled_loses_nothing_even_where_a_failed_source_does() -> None:
    """R-MOVE-4: the replica is where it was."""
    rules = replace(DRAFT_BROKER, source_failure_assigns_lost=True)
    _, reports, _ = replicas.alter_replica_log_dir(moving(MoveState.QUEUED, rules), P, A)
    assert reports == (Report(P, A, AssignmentReason.REVERT),)
