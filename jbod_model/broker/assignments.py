"""The queue of assignments that a broker reports to the controller (docs/spec/broker.md).

Theory of operation. An assignment says where a replica really is. Only the newest one of a replica counts: it replaces
an older one that waits. Sending moves assignments from ``ready`` to ``in_flight``, and only one request is in flight at
a time. When its answer comes, each assignment in it either succeeded or waits again, unless a newer one waits already.
Requests that fail are sent again after an exponential backoff (R-QUEUE-5).

Source: KIP-858 "Replica management"; Kafka's ``AssignmentsManager``, ``Assignment``, ``ExponentialBackoff``,
``AssignmentsManagerDeadlineFunction``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from jbod_model.ids import Uuid

# The most replicas in one AssignReplicasToDirsRequest.
MAX_ASSIGNMENTS_PER_REQUEST = 2250


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Delays in milliseconds: ``initial * multiplier ** failures``, at most ``maximum``, spread by ``jitter``."""

    initial: int
    multiplier: int
    maximum: int
    jitter: float

    def delay(self, failures: int, spread: float = 0.0) -> int:
        """The delay after ``failures`` in a row; ``spread`` from -1 to 1 chooses the point within the jitter."""
        if self.maximum <= self.initial:
            return self.initial
        steps = min(failures, math.log(self.maximum / max(self.initial, 1)) / math.log(self.multiplier))
        return min(int(self.initial * self.multiplier**steps * (1 + self.jitter * spread)), self.maximum)


STANDARD_BACKOFF = ExponentialBackoff(initial=100, multiplier=2, maximum=10_000, jitter=0.02)


def next_deadline(
    backoff: ExponentialBackoff,
    now: int,
    *,
    failures: int,
    in_flight: bool,
    ready: int,
    previous: int | None,
) -> int:
    """When to send next. An earlier deadline that is already set stays (R-QUEUE-5).

    After failures the delay is the full backoff. There is no delay if more assignments wait than fit into a request
    and none is in flight. Otherwise the initial delay applies, so assignments that are queued together are sent
    together.
    """
    if failures > 0:
        delay = backoff.delay(failures)
    elif ready > MAX_ASSIGNMENTS_PER_REQUEST and not in_flight:
        delay = 0
    else:
        delay = backoff.initial
    deadline = now + delay
    return deadline if previous is None else min(previous, deadline)


class Replica(NamedTuple):
    """A replica of the broker: the partition, by topic id and index."""

    topic_id: Uuid
    partition: int


class AssignmentReason(Enum):
    """Why an assignment is queued."""

    METADATA = "the metadata has the replica elsewhere"
    PROMOTION = "a move has caught up"
    REVERT = "a move has ended before its swap"


@dataclass(frozen=True, slots=True)
class Assignment:
    """A replica's directory as the broker knows it. ``submitted`` is in milliseconds.

    ``untold``: when it was queued, nothing about the replica had been sent or was waiting, so the controller cannot
    know it.
    """

    replica: Replica
    directory: Uuid
    submitted: int
    reason: AssignmentReason
    untold: bool = False


class GlobalFailure(Enum):
    """Errors of the whole request, which say nothing about single assignments: all are sent again (R-QUEUE-6)."""

    TIMEOUT = "Timeout"
    AUTHENTICATION = "AuthenticationException"
    DISCONNECTED_TIMEOUT = "Disconnected[Timeout]"
    DISCONNECTED = "Disconnected"
    UNSUPPORTED_VERSION = "UnsupportedVersionException"
    EMPTY_RESPONSE = "EmptyResponse"
    FOREIGN_RESPONSE = "ClassCastException"


@dataclass(frozen=True, slots=True)
class Answer:
    """The controller's response: ``error`` for the whole request, ``results`` the error code per replica."""

    error: int
    results: tuple[tuple[Replica, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentQueue:
    """Waiting assignments, those in flight, the failures in a row, and when the next request is due (milliseconds)."""

    ready: Mapping[Replica, Assignment] = field(default_factory=dict)
    in_flight: Mapping[Replica, Assignment] = field(default_factory=dict)
    failures: int = 0
    deadline: int | None = None
    backoff: ExponentialBackoff = STANDARD_BACKOFF

    @property
    def pending(self) -> int:
        """The gauge QueuedReplicaToDirAssignments: the number of assignments that wait or are in flight (R-QUEUE-8)."""
        return len(self.ready) + len(self.in_flight)


def submit(queue: AssignmentQueue, assignment: Assignment, now: int) -> AssignmentQueue:
    """Queue an assignment; it replaces an older one of the same replica that still waits (R-QUEUE-1)."""
    replica = assignment.replica
    untold = replica not in queue.ready and replica not in queue.in_flight
    ready = {**queue.ready, replica: replace(assignment, untold=untold)}
    return _reschedule(replace(queue, ready=ready), now)


def withdraw(queue: AssignmentQueue, replica: Replica) -> AssignmentQueue | None:
    """Remove the report of a move from the queue (R-MOVE-10); None if the controller may know of it already."""
    waiting = queue.ready.get(replica)
    if waiting is None or waiting.reason is not AssignmentReason.PROMOTION or not waiting.untold:
        return None
    return replace(queue, ready={key: value for key, value in queue.ready.items() if key != replica})


def take_batch(
    queue: AssignmentQueue, is_replica: Callable[[Replica], bool], now: int
) -> tuple[AssignmentQueue, tuple[Assignment, ...]]:
    """What to send at ``now``: nothing before the deadline, or while a request is in flight (R-QUEUE-2, R-QUEUE-3).

    ``is_replica`` says whether the broker hosts a partition according to its metadata. An assignment of a replica that
    it no longer hosts is dropped silently (R-QUEUE-4) and takes no place in the request.
    """
    if queue.deadline is None or now < queue.deadline:
        return queue, ()
    queue = replace(queue, deadline=None)
    if queue.in_flight:
        return queue, ()
    ready = dict(queue.ready)
    batch: dict[Replica, Assignment] = {}
    for replica in queue.ready:
        if len(batch) == MAX_ASSIGNMENTS_PER_REQUEST:
            break
        assignment = ready.pop(replica)
        if is_replica(replica):
            batch[replica] = replace(assignment, untold=False)
    return replace(queue, ready=ready, in_flight=batch), tuple(batch.values())


def take_answer(
    queue: AssignmentQueue, answer: Answer | GlobalFailure, now: int
) -> tuple[AssignmentQueue, tuple[Assignment, ...]]:
    """Take the answer to the request in flight (R-QUEUE-6, R-QUEUE-7). Returns the assignments that it accepts, too.

    After an error of the whole request every assignment in it waits again, except where a newer one has been queued.
    Without such an error, the result of each replica decides; a replica without a result counts as failed.
    """
    sent = dict(queue.in_flight)
    if isinstance(answer, GlobalFailure) or answer.error:
        back = {**sent, **queue.ready}
        failed = replace(queue, ready=back, in_flight={}, failures=queue.failures + 1)
        return _after_answer(failed, now), ()
    accepted = []
    retried = []
    for replica, error in answer.results:
        assignment = sent.pop(replica, None)
        if assignment is None:
            continue
        if error:
            retried.append(assignment)
        else:
            accepted.append(assignment)
    retried += sent.values()
    ready = {**{assignment.replica: assignment for assignment in retried}, **queue.ready}
    after = replace(queue, ready=ready, in_flight={}, failures=0)
    return _after_answer(after, now), tuple(accepted)


def group_by_directory(
    batch: tuple[Assignment, ...],
) -> tuple[tuple[Uuid, tuple[tuple[Uuid, tuple[int, ...]], ...]], ...]:
    """A batch as the request nests it: directory, topic, partitions, each in order of first appearance."""
    nested: dict[Uuid, dict[Uuid, list[int]]] = {}
    for assignment in batch:
        topics = nested.setdefault(assignment.directory, {})
        topics.setdefault(assignment.replica.topic_id, []).append(assignment.replica.partition)
    return tuple(
        (directory, tuple((topic, tuple(partitions)) for topic, partitions in topics.items()))
        for directory, topics in nested.items()
    )


def _after_answer(queue: AssignmentQueue, now: int) -> AssignmentQueue:
    return _reschedule(queue, now) if queue.ready else queue


def _reschedule(queue: AssignmentQueue, now: int) -> AssignmentQueue:
    deadline = next_deadline(
        queue.backoff,
        now,
        failures=queue.failures,
        in_flight=bool(queue.in_flight),
        ready=len(queue.ready),
        previous=queue.deadline,
    )
    return replace(queue, deadline=deadline)
