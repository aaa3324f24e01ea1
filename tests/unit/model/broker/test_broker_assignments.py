"""The queue of assignments, and the broker's decisions and states as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jbod_model.broker.assignments import (
    STANDARD_BACKOFF,
    Assignment,
    AssignmentQueue,
    AssignmentReason,
    Replica,
    submit,
    withdraw,
)
from jbod_model.broker.lifecycle import LifecycleState
from jbod_model.broker.replicas import Holding, ReplicaStep, Target, decide
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA_BROKER, KIP858_BROKER

P = Replica(Uuid(1, 1), 0)
A = Uuid(11, 1)


@pytest.mark.parametrize("reason", AssignmentReason)
def test_only_the_report_of_a_finished_move_can_be_withdrawn(reason: AssignmentReason) -> None:
    """R-MOVE-10."""
    queue = submit(AssignmentQueue(), Assignment(P, A, 0, reason), 0)
    after = withdraw(queue, P)
    assert (after is not None and not after.ready) is (reason is AssignmentReason.PROMOTION)


def test_report_that_replaced_another_cannot_be_withdrawn() -> None:
    """R-MOVE-10: the controller may know of the first."""
    queue = submit(AssignmentQueue(), Assignment(P, A, 0, AssignmentReason.METADATA), 0)
    assert withdraw(submit(queue, Assignment(P, A, 1, AssignmentReason.PROMOTION), 1), P) is None


REPORTED = {
    (Target.ONLINE, Holding.NOTHING): False,
    (Target.ONLINE, Holding.IN_TARGET): False,
    (Target.ONLINE, Holding.ELSEWHERE): True,
    (Target.UNASSIGNED, Holding.NOTHING): True,
    (Target.UNASSIGNED, Holding.ELSEWHERE): True,
    (Target.MIGRATING, Holding.ELSEWHERE): True,
    (Target.UNKNOWN, Holding.ELSEWHERE): True,
    (Target.SAME, Holding.NOTHING): False,
    (Target.SAME, Holding.ELSEWHERE): False,
    (Target.ONLINE, Holding.FUTURE_IN_TARGET): True,
}


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize(("target", "holding"), REPORTED)
def test_broker_reports_a_log_that_is_not_where_the_metadata_has_it(
    target: Target, holding: Holding, offline: bool
) -> None:
    """R-DECIDE-1 to R-DECIDE-7, R-DECIDE-9, R-DECIDE-11, R-DECIDE-12, whether or not a directory is offline."""
    assert decide(target, holding, offline, KAFKA_BROKER).report is REPORTED[target, holding]


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("target", [Target.MIGRATING, Target.UNKNOWN])
def test_broker_reports_a_log_that_it_had_to_create_unless_it_may_lie_in_an_offline_directory(
    target: Target, offline: bool
) -> None:
    """R-DECIDE-8, R-DECIDE-10."""
    decision = decide(target, Holding.NOTHING, offline, KAFKA_BROKER)
    assert (decision.step, decision.report) == (
        (ReplicaStep.SKIP, False) if offline else (ReplicaStep.CREATE_CHOSEN, True)
    )


@pytest.mark.parametrize("offline", [False, True])
def test_future_log_in_the_assigned_directory_is_reported_by_kafka_and_promoted_by_the_page(offline: bool) -> None:
    """R-DECIDE-4."""
    decision = decide(Target.ONLINE, Holding.FUTURE_IN_TARGET, offline, KIP858_BROKER)
    assert (decision.step, decision.report) == (ReplicaStep.PROMOTE, False)


def test_states_have_the_numbers_of_kafkas_metric() -> None:
    """Source: ``org.apache.kafka.metadata.BrokerState``."""
    assert {state.name: state.value for state in LifecycleState} == {
        "NOT_RUNNING": 0,
        "STARTING": 1,
        "RECOVERY": 2,
        "RUNNING": 3,
        "PENDING_CONTROLLED_SHUTDOWN": 6,
        "SHUTTING_DOWN": 7,
    }


@pytest.mark.parametrize(
    ("initial", "failures", "spread", "delay"),
    [
        (100, 0, 0, 100),
        (100, 3, 0, 800),
        (100, 3, -1, 784),
        (100, 3, 1, 816),
        (100, 7, 0, 10_000),  # 12,800 otherwise
        (100, 50, -1, 9_800),  # the jitter is below the maximum, too
        (100, 50, 1, 10_000),
        (0, 50, 0, 0),
        (10_000, 5, -1, 10_000),
        (20_000, 5, 0, 20_000),
    ],
)
def test_backoff_doubles_up_to_its_maximum_with_jitter(initial: int, failures: int, spread: int, delay: int) -> None:
    """R-QUEUE-5, ExponentialBackoffTest."""
    assert replace(STANDARD_BACKOFF, initial=initial).delay(failures, spread) == delay
