"""One writer at a time: whoever changes a lake holds its lock while it looks at what is there and commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from jbod_model.errors import UsageError

LOCK = "_lock"
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
    path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path / LOCK, thread_local=False, is_singleton=True)
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise UsageError(f"{lake}: another process has been writing for {PATIENCE:.0f} s: try again later") from None
    try:
        yield
    finally:
        lock.release()
