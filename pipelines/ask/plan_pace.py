"""How long the rest of a plan takes, at the pace so far: in bytes if a source says them, else in copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pipelines.ask.log_dirs import BrokerLogDir

DONE, UNDER_WAY, NOT_BEGUN = "done", "under way", "not begun"
PAUSE = timedelta(hours=1)
"""Moves between disks that are further apart than this are not counted as one execution."""


@dataclass(frozen=True)
class Work:
    """A reassignment of a partition, or the move of one of its replicas between the disks of a broker."""

    state: str
    offset: int | None = None
    time: datetime | None = None
    """Of the record that made it so."""
    waits_for: Sequence[int] = ()
    reason: str = ""
    begun: datetime | None = None
    """When a reassignment began that is done or under way."""
    copied: bool = True
    """Whether something was, or is, to be copied. A partition that was where it should be says nothing of the pace."""
    bytes: int | None = None
    """Of its copies when they are complete. None if no source says it."""
    left: int = 0
    """The part of ``bytes`` that is not copied yet."""


@dataclass(frozen=True)
class Copies:
    """The sizes of replicas by sources."""

    replicas: Mapping[tuple[str, int], int]
    """(``topic-0``, broker) -> its bytes."""
    future: Mapping[tuple[str, int], int]
    """The same of the copy that a move between disks makes."""
    largest: Mapping[str, int]
    """``topic-0`` -> the bytes of its largest replica."""

    @classmethod
    def of(cls, log_dirs: Iterable[BrokerLogDir]) -> Copies:
        """What the sources say."""
        replicas, future, largest = dict[tuple[str, int], int](), dict[tuple[str, int], int](), dict[str, int]()
        for one in log_dirs:
            for each in one.replicas if one.broker_id is not None else ():
                (future if each.future else replicas)[each.partition, one.broker_id or 0] = each.bytes
                if not each.future:
                    largest[each.partition] = max(largest.get(each.partition, 0), each.bytes)
        return cls(replicas, future, largest)

    def across(self, name: str, brokers: Iterable[int], late: Iterable[int]) -> tuple[int | None, int]:
        """The bytes of new replicas on ``brokers``, and what those on ``late`` lack."""
        if name not in self.largest:
            return None, 0
        whole = self.largest[name]
        lacks = sum(max(0, whole - self.replicas.get((name, broker), 0)) for broker in late)
        return whole * len([*brokers]), lacks

    def inside(self, name: str, broker: int, *, done: bool) -> tuple[int | None, int]:
        """The bytes of a move between disks, and what the copy lacks."""
        whole = self.replicas.get((name, broker))
        if whole is None or done:
            return whole, 0
        return whole, max(0, whole - self.future.get((name, broker), 0))


def time_left(works: Sequence[Work], now: datetime) -> timedelta | None:
    """Until the rest is done, at the pace so far. None if there is no rest, or no pace.

    The pace counts from the beginning of the oldest reassignment that is under way. If only moves between disks are
    left, whose beginning no record has, it counts from the first of the last ones that are less than PAUSE apart. If
    the bytes of all of them are known, bytes count, also those of copies that are not complete.
    """
    rest = [one for one in works if one.state in (UNDER_WAY, NOT_BEGUN)]
    done = sorted((one for one in works if one.state == DONE and one.copied and one.time is not None), key=_end)
    if not rest:
        return None
    weighed = all(one.bytes is not None for one in [*rest, *done])
    since = min((one.begun for one in rest if one.begun is not None), default=None)
    counted = [] if since is None else [one for one in done if _end(one) > since]
    part = sum((one.bytes or 0) - one.left for one in rest) if weighed and since is not None else 0
    if since is None or not (counted or part):
        since, counted = _last_run(done)
    amount = part + sum(one.bytes or 0 for one in counted) if weighed else len(counted)
    if not amount or since is None or now <= since:
        return None
    return (now - since) / amount * (sum(one.left for one in rest) if weighed else len(rest))


def _last_run(done: Sequence[Work]) -> tuple[datetime | None, list[Work]]:
    """When the last ones that are less than PAUSE apart began, and those of which it is known that they began then."""
    if not done:
        return None, []
    run = [done[-1]]
    for one in reversed(done[:-1]):
        if _end(run[-1]) - _end(one) > PAUSE:
            break
        run.append(one)
    first = _end(run[-1])
    begun = [one.begun for one in done if one.time == first and one.begun is not None]
    return min(begun, default=first), run if begun else run[:-1]


def _end(one: Work) -> datetime:
    assert one.time is not None
    return one.time
