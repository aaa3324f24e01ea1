"""Exponential backoff for assignment requests (R-QUEUE-5).

Source: Kafka's ``ExponentialBackoff`` and ``AssignmentsManagerDeadlineFunction``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    spread: float = 0.0,
) -> int:
    """When to send next. An earlier deadline that is already set stays (R-QUEUE-5).

    After failures the delay is the full backoff. There is no delay if more assignments wait than fit into a request
    and none is in flight. Otherwise the initial delay applies, so assignments that are queued together are sent
    together.
    """
    if failures > 0:
        delay = backoff.delay(failures, spread)
    elif ready > MAX_ASSIGNMENTS_PER_REQUEST and not in_flight:
        delay = 0
    else:
        delay = backoff.initial
    deadline = now + delay
    return deadline if previous is None else min(previous, deadline)
