"""Schedules every event of a simulation: one queue, one clock, one source of randomness (R-SIM-1).

Two runs with the same seed do the same in the same order. Events that are due at the same time are ordered by a random
number that is drawn when they are scheduled, then by the order of scheduling.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count

Event = Callable[[], None]


class Scheduler:
    """Events by time, in milliseconds from the start of the simulation."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self._queue: list[tuple[int, float, int, Event]] = []
        self._order = count()

    def at(self, time: int, event: Event) -> None:
        """Schedule ``event`` for ``time``, or for now if that time has passed."""
        heapq.heappush(self._queue, (max(time, self.now), self.random.random(), next(self._order), event))

    def after(self, delay: int, event: Event) -> None:
        """Schedule ``event`` for ``delay`` milliseconds from now."""
        self.at(self.now + delay, event)

    def soon(self, least: int, most: int, event: Event) -> None:
        """Schedule ``event`` after a random delay between ``least`` and ``most`` milliseconds."""
        self.after(self.random.randint(least, most), event)

    def every(self, interval: int, event: Event) -> None:
        """Schedule ``event`` periodically, first after a random part of ``interval``."""

        def again() -> None:
            event()
            self.after(interval, again)

        self.soon(0, interval, again)

    def run(self, duration: int) -> None:
        """Let ``duration`` milliseconds pass."""
        end = self.now + duration
        while self._queue and self._queue[0][0] <= end:
            self.now, _, _, event = heapq.heappop(self._queue)
            event()
        self.now = end
