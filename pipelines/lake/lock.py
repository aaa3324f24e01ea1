"""One writer at a time: every writer holds the lake's lock while it reads the tables' state and commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from jbod_model.errors import JbodError, UsageError
from pipelines.lake.uris import LakeUri
from pipelines.storage.lease import LEASE, HeldLease, Lease, holder
from pipelines.storage.objects import Tag, fault_of_disk, is_object

LOCK = "_lock"
RUN = "_run"
PATIENCE = 600.0
"""Seconds to wait for another writer: a publication takes seconds, an upkeep of a large lake minutes."""


@contextmanager
def alone(lake: LakeUri) -> Iterator[None]:
    """Holds the lock of a lake. Raises UsageError if another process holds it for more than PATIENCE seconds.

    The lock is reentrant, and excludes the threads of a process, too. On S3 it is an object with a lease
    (pipelines.storage.lease). A lake at another URI has no lock among processes: Delta refuses one of two concurrent
    commits, and readers do not see its other tables, because the ledger does not name them.
    """
    with _alone_here(lake):
        if is_object(lake):
            with _leased(f"{lake}/{LOCK}", PATIENCE):
                yield
        elif "://" in lake:
            yield
        else:
            with _file_lock(lake):
                yield


@contextmanager
def _alone_here(lake: LakeUri) -> Iterator[None]:
    """The same among the threads of this process."""
    with _of_leases:
        lock = _threads.setdefault(lake, threading.RLock())
    if not lock.acquire(timeout=PATIENCE):
        raise UsageError(f"{lake}: this process has been writing for {PATIENCE:.0f} s: try again later")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _file_lock(lake: LakeUri) -> Iterator[None]:
    path = Path(lake)
    with _told(lake):
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / LOCK, thread_local=False, is_singleton=True)
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            raise UsageError(
                f"{lake}: another process has been writing for {PATIENCE:.0f} s: try again later"
            ) from None
        try:
            yield
        finally:
            lock.release()


@contextmanager
def only_run(lake: LakeUri) -> Iterator[str]:
    """Ensures that only one replay runs on a lake. Raises UsageError at once if another one runs.

    Two runs would share a checkpoint. The operating system releases the lock of a process that dies. On S3, such a
    process loses its lease. Yields the run's name for RunWatch.
    """
    if is_object(lake):
        with _leased(f"{lake}/{RUN}", 0) as lease:
            yield lease.name
        return
    if "://" in lake:
        yield ""
        return
    lock = FileLock(Path(lake, RUN))
    with _told(lake):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(f"{lake}: another jbod replay runs on this lake: end it, or use another --lake") from None
    try:
        yield ""
    finally:
        lock.release()


class RunWatch:
    """Tells another process whether the run that ``only_run`` named still holds its lock."""

    def __init__(self, lake: LakeUri, run: str) -> None:
        self._lake = lake
        self._run = run
        self._seen: tuple[Tag, float] | None = None

    def check(self) -> None:
        """Raises JbodError if the run has ended. A lake without a lock is not checked."""
        if not self._lives():
            raise JbodError(f"{self._lake}: the run that started this query has ended: nothing more is published")

    def _lives(self) -> bool:
        if is_object(self._lake):
            found = holder(f"{self._lake}/{RUN}")
            if found is None or found[0] != self._run:
                return False
            now = time.monotonic()
            if self._seen is None or self._seen[0] != found[1]:
                self._seen = found[1], now
            return now - self._seen[1] < LEASE
        if "://" in self._lake:
            return True
        lock = FileLock(Path(self._lake, RUN))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False


def check_held(lake: LakeUri) -> None:
    """Raises Lost if another process may have taken a lock that this process held on a lake on S3."""
    for location, (lease, holders) in _leases.items():
        if holders and location.startswith(f"{lake}/"):
            lease.check()


_leases: dict[str, tuple[Lease, int]] = {}
"""The leases of this process, each with the number of blocks that hold it."""
_threads: dict[str, threading.RLock] = {}
"""The lock of each lake among the threads of this process."""
_of_leases = threading.RLock()


@contextmanager
def _leased(location: str, patience: float) -> Iterator[Lease]:
    with _of_leases:
        lease, holders = _leases.get(location) or (Lease(location), 0)
        if not holders:
            try:
                lease.acquire(patience)
            except HeldLease as held:
                what = f"after {patience:.0f} s" if patience else "a jbod replay runs on this lake"
                raise UsageError(
                    f"{location.rpartition('/')[0]}: {held}, {what}: end it, try again later, or use another --lake"
                ) from None
        _leases[location] = lease, holders + 1
    try:
        yield lease
    finally:
        with _of_leases:
            lease, holders = _leases[location]
            _leases[location] = lease, holders - 1
            if holders == 1:
                lease.release()


@contextmanager
def _told(lake: LakeUri) -> Iterator[None]:
    """Raises UsageError for a disk fault."""
    try:
        yield
    except JbodError:
        raise
    except Exception as problem:
        fault = fault_of_disk(lake, problem)
        if fault is None:
            raise
        raise fault from None
