"""The queue of assignments: AssignmentsManagerTest, AssignmentsManagerDeadlineFunctionTest as facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jbod_model.broker.assignments import (
    MAX_ASSIGNMENTS_PER_REQUEST,
    STANDARD_BACKOFF,
    Answer,
    Assignment,
    AssignmentQueue,
    AssignmentReason,
    ExponentialBackoff,
    GlobalFailure,
    Replica,
    group_by_directory,
    next_deadline,
    submit,
    take_answer,
    take_batch,
)
from jbod_model.ids import Uuid
from tests.support.volume import amount

TOPIC_1, TOPIC_2 = Uuid(1, 1), Uuid(2, 2)
DIR_1, DIR_2, DIR_3 = Uuid(11, 1), Uuid(11, 2), Uuid(11, 3)
FAST = AssignmentQueue(backoff=ExponentialBackoff(1, 2, 4, 0))
P0, P1 = Replica(TOPIC_1, 0), Replica(TOPIC_1, 1)


def assignment(replica: Replica, directory: Uuid = DIR_1, submitted: int = 0) -> Assignment:
    return Assignment(replica, directory, submitted, AssignmentReason.METADATA)


def queued(*replicas: Replica) -> AssignmentQueue:
    queue = FAST
    for replica in replicas:
        queue = submit(queue, assignment(replica), 0)
    return queue


def sent(*replicas: Replica) -> AssignmentQueue:
    queue, batch = take_batch(queued(*replicas), lambda _: True, 1)
    assert [item.replica for item in batch] == list(replicas)
    return queue


def test_assignment_accepted_leaves_the_queue() -> None:
    """testSuccessfulAssignment; the gauge counts what waits and what is out (R-QUEUE-8)."""
    queue = queued(P0)
    assert (queue.pending, len(queue.in_flight)) == (1, 0)
    queue = sent(P0)
    assert (queue.pending, len(queue.in_flight), queue.failures) == (1, 1, 0)
    queue, accepted = take_answer(queue, Answer(0, ((P0, 0),)), 2)
    assert (queue.pending, queue.failures, queue.deadline) == (0, 0, None)
    assert [item.replica for item in accepted] == [P0]


@pytest.mark.parametrize("failure", [Answer(42), *GlobalFailure])
def test_request_that_fails_as_a_whole_is_sent_again_after_a_backoff(failure: Answer | GlobalFailure) -> None:
    """testUnSuccessfulRequestCausesRetransmission, testGlobalResponseError* (seven kinds and the response's own)."""
    queue, accepted = take_answer(sent(P0), failure, 10)
    assert (accepted, queue.pending, queue.failures, queue.deadline) == ((), 1, 1, 12)
    queue, batch = take_batch(queue, lambda _: True, 12)
    assert [item.replica for item in batch] == [P0]
    queue, _ = take_answer(queue, Answer(0, ((P0, 0),)), 13)
    assert (queue.pending, queue.failures) == (0, 0)


def test_failures_in_a_row_double_the_wait_up_to_a_limit() -> None:
    queue = sent(P0)
    waits = []
    now = 10
    for _ in range(5):
        queue, _ = take_answer(queue, GlobalFailure.TIMEOUT, now)
        assert queue.deadline is not None
        waits.append(queue.deadline - now)
        now = queue.deadline
        queue, _ = take_batch(queue, lambda _: True, now)
    assert waits == [2, 4, 4, 4, 4]


@pytest.mark.parametrize("mismatch", ["missing topic", "missing partition", "not a replica"])
def test_assignment_that_the_metadata_does_not_know_is_dropped_before_sending(mismatch: str) -> None:
    """R-QUEUE-4, testMismatchedInputDoesNotTriggerCompletion, AssignmentTest: one question to the metadata."""
    queue, batch = take_batch(queued(P0), lambda _: False, 1)
    assert (batch, queue.pending, queue.in_flight) == ((), 0, {})


@pytest.mark.parametrize("results", [((P0, 0),), ((P0, 0), (P1, 6))])
def test_assignment_refused_or_unanswered_is_sent_again_alone(results: tuple[tuple[Replica, int], ...]) -> None:
    """R-QUEUE-7, testOneAssignmentFailsOneSucceeds: missingResult, errorResult."""
    queue, accepted = take_answer(sent(P0, P1), Answer(0, results), 2)
    assert [item.replica for item in accepted] == [P0]
    assert [*queue.ready] == [P1]
    assert queue.failures == 0
    queue, batch = take_batch(queue, lambda _: True, 3)
    assert ([item.replica for item in batch], queue.pending, len(queue.in_flight)) == ([P1], 1, 1)


def test_results_for_replicas_that_were_not_sent_change_nothing() -> None:
    queue, accepted = take_answer(sent(P0), Answer(0, ((P0, 0), (P0, 0), (P1, 0))), 2)
    assert [item.replica for item in accepted] == [P0]
    assert queue.pending == 0


def test_newer_assignment_replaces_one_that_waits() -> None:
    """R-QUEUE-1."""
    queue = submit(queued(P0), assignment(P0, DIR_2), 0)
    _, batch = take_batch(queue, lambda _: True, 1)
    assert [item.directory for item in batch] == [DIR_2]


@pytest.mark.parametrize("answer", [GlobalFailure.TIMEOUT, Answer(0), Answer(0, ((P0, 6),))])
def test_newer_assignment_wins_over_one_that_comes_back(answer: Answer | GlobalFailure) -> None:
    """R-QUEUE-6: what failed is put back only where nothing newer waits."""
    queue = submit(sent(P0), assignment(P0, DIR_2), 1)
    assert queue.pending == 2
    queue, _ = take_answer(queue, answer, 2)
    assert [item.directory for item in queue.ready.values()] == [DIR_2]


def test_one_request_is_out_at_a_time() -> None:
    """R-QUEUE-2."""
    queue = submit(sent(P0), assignment(P1), 1)
    queue, batch = take_batch(queue, lambda _: True, 100)
    assert batch == ()
    assert queue.deadline is None
    queue, _ = take_answer(queue, Answer(0, ((P0, 0),)), 101)
    assert queue.deadline == 102


def test_request_holds_at_most_2250_assignments_and_dropped_ones_take_no_place() -> None:
    """R-QUEUE-3."""
    replicas = [Replica(TOPIC_1, i) for i in range(MAX_ASSIGNMENTS_PER_REQUEST + 20)]
    queue, batch = take_batch(queued(*replicas), lambda replica: replica.partition >= 10, 1)
    assert len(batch) == MAX_ASSIGNMENTS_PER_REQUEST == 2250
    assert len(queue.ready) == 10
    queue, _ = take_answer(queue, Answer(0, tuple((item.replica, 0) for item in batch)), 2)
    assert queue.pending == 10


def test_request_groups_a_batch_by_directory_and_topic() -> None:
    """testBuildRequestData."""
    batch = (
        assignment(Replica(TOPIC_1, 1), DIR_1),
        assignment(Replica(TOPIC_1, 2), DIR_2),
        assignment(Replica(TOPIC_1, 3), DIR_3),
        assignment(Replica(TOPIC_1, 4), DIR_1),
        assignment(Replica(TOPIC_2, 5), DIR_2),
    )
    assert group_by_directory(batch) == (
        (DIR_1, ((TOPIC_1, (1, 4)),)),
        (DIR_2, ((TOPIC_1, (2,)), (TOPIC_2, (5,)))),
        (DIR_3, ((TOPIC_1, (3,)),)),
    )


# AssignmentsManagerDeadlineFunctionTest (R-QUEUE-5): failures, request out, how many wait, earlier deadline, result.
MANY = MAX_ASSIGNMENTS_PER_REQUEST + 1
DEADLINES = [
    ("applyAfterDispatchInterval", 0, False, 12, None, 100),
    ("applyAfterDispatchIntervalWithExistingEarlierDeadline", 0, False, 12, 50, 50),
    ("applyBackoffInterval", 1, False, 12, None, 200),
    ("applyBackoffIntervalWithExistingEarlierDeadline", 1, False, 12, 50, 50),
    ("scheduleImmediatelyWhenOverloaded", 0, False, MANY, 50, 0),
    ("doNotScheduleImmediatelyWhenOverloadedIfThereAreInFlightRequests", 0, True, MANY, None, 100),
    ("doNotScheduleImmediatelyWhenOverloadedIfThereArePreviousGlobalFailures", 1, False, MANY, None, 200),
    ("exactly full is not overloaded", 0, False, MANY - 1, None, 100),
    ("a later deadline is brought forward", 0, False, 12, 1000, 100),
]


@pytest.mark.parametrize(("case", "failures", "in_flight", "ready", "previous", "expected"), DEADLINES)
def test_deadline_of_the_next_request(
    case: str, failures: int, in_flight: bool, ready: int, previous: int | None, expected: int
) -> None:
    assert expected == next_deadline(
        STANDARD_BACKOFF, 0, failures=failures, in_flight=in_flight, ready=ready, previous=previous
    )


@pytest.mark.parametrize(
    ("failures", "spread", "expected"),
    [(0, 0, 100), (1, 0, 200), (1, 1, 204), (1, -1, 196), (6, 0, 6400), (7, 0, 10_000), (70, 1, 10_000)],
)
def test_backoff_grows_within_its_jitter_up_to_ten_seconds(failures: int, spread: float, expected: int) -> None:
    assert STANDARD_BACKOFF.delay(failures, spread) == expected


REPLICAS = st.builds(Replica, st.just(TOPIC_1), st.integers(0, 3))


class QueueMachine(RuleBasedStateMachine):
    """Against a plain account: the newest directory per replica that the controller has not accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FAST
        self.now = 0
        self.unsettled: dict[Replica, Uuid] = {}

    @rule(replica=REPLICAS, directory=st.sampled_from([DIR_1, DIR_2]))
    def submit(self, replica: Replica, directory: Uuid) -> None:
        self.queue = submit(self.queue, assignment(replica, directory, self.now), self.now)
        self.unsettled[replica] = directory

    @rule(wait=st.integers(0, 5))
    def send(self, wait: int) -> None:
        self.now += wait
        self.queue, _ = take_batch(self.queue, lambda _: True, self.now)

    @rule(refused=st.sets(REPLICAS), unanswered=st.sets(REPLICAS))
    def answer(self, refused: set[Replica], unanswered: set[Replica]) -> None:
        if not self.queue.in_flight:
            return
        results = tuple((r, 6 if r in refused else 0) for r in self.queue.in_flight if r not in unanswered)
        self.queue, accepted = take_answer(self.queue, Answer(0, results), self.now)
        for item in accepted:
            if item.replica not in self.queue.ready:
                del self.unsettled[item.replica]

    @rule(failure=st.sampled_from(list(GlobalFailure)))
    def fail(self, failure: GlobalFailure) -> None:
        if self.queue.in_flight:
            self.queue, _ = take_answer(self.queue, failure, self.now)

    @invariant()
    def nothing_is_forgotten_and_the_newest_counts(self) -> None:
        merged = {**self.queue.in_flight, **self.queue.ready}
        assert {replica: item.directory for replica, item in merged.items()} == self.unsettled

    @invariant()
    def what_waits_has_a_deadline_or_a_request_is_out(self) -> None:
        if self.queue.ready:
            assert self.queue.deadline is not None or self.queue.in_flight


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=amount(13, 80), stateful_step_count=25, deadline=None)


def test_queue_is_not_changed_by_what_is_done_to_its_successor() -> None:
    queue = queued(P0)
    before = replace(queue)
    take_batch(submit(queue, assignment(P1), 5), lambda _: True, 10)
    assert queue == before
