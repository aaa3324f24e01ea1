"""One writer at a time: whoever changes a lake holds its lock while it looks at what is there and commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from jbod_model.errors import JbodError, UsageError
from pipelines.lake.faults import fault_of_disk

LOCK = "_lock"
RUN = "_run"
PATIENCE = 600.0
"""Seconds to wait for another writer: a publication takes seconds, an upkeep of a large lake minutes."""


@contextmanager
def alone(lake: str) -> Iterator[None]:
    """Hold the lock of a lake; UsageError where another process holds it for too long.

    A process that holds it may take it again. A lake on object storage has no lock: there Delta refuses one of two
    commits, and the ledger hides the rest.
    """
    if "://" in lake:
        yield
        return
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
def only_run(lake: str) -> Iterator[None]:
    """Be the one replay of a lake; UsageError at once where there is another.

    Two would share a checkpoint. The system frees the place of a process that dies, however it dies.
    """
    if "://" in lake:
        yield
        return
    lock = FileLock(Path(lake, RUN))
    with _told(lake):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(f"{lake}: another jbod replay runs on this lake: end it, or use another --lake") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _told(lake: str) -> Iterator[None]:
    """UsageError for what a disk refuses."""
    try:
        yield
    except JbodError:
        raise
    except Exception as problem:
        fault = fault_of_disk(lake, problem)
        if fault is None:
            raise
        raise fault from None
