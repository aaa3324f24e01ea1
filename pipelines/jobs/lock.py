"""Limits the runs of a job on a lake to its ``max_concurrent_runs``, across processes."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from jbod_model.errors import UsageError
from pipelines.storage.lease import Held, Lease
from pipelines.storage.objects import is_object


class Busy(UsageError):
    """The job already has as many runs as it may have."""


def lock_folder(lake: str | None) -> Path:
    """The folder for the locks of a lake's jobs: in the lake, or on this machine for a lake at a URI or for none."""
    if lake and "://" not in lake:
        return Path(lake, "_jobs")
    name = hashlib.sha256((lake or "").encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"jbod-jobs-{getpass.getuser()}", name)


@contextmanager
def held(job: str, lake: str | None, most: int) -> Iterator[None]:
    """Holds one of the ``most`` places of a job. Raises Busy, which names the holders, if none is free.

    The operating system frees the place of a process that dies; on S3, its lease ends.
    """
    if lake and is_object(lake):
        with _leased(job, lake, most):
            yield
        return
    folder = lock_folder(lake)
    folder.mkdir(parents=True, exist_ok=True)
    holders = []
    for place in range(most):
        owner = folder / f"{job}-{place}.json"
        lock = FileLock(folder / f"{job}-{place}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            holders.append(_holder(owner))
            continue
        try:
            owner.write_text(
                json.dumps(
                    {
                        "pid": os.getpid(),
                        "host": socket.gethostname(),
                        "user": getpass.getuser(),
                        "since": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ}",
                    }
                )
            )
            yield
        finally:
            owner.unlink(missing_ok=True)
            lock.release()
        return
    raise Busy(f"job {job} is running on {lake or 'this machine'}: {'; '.join(holders)}: wait for it, or end it")


@contextmanager
def _leased(job: str, lake: str, most: int) -> Iterator[None]:
    """The same on S3: a process that dies loses its lease."""
    holders = []
    for place in range(most):
        lease = Lease(f"{lake}/_jobs/{job}-{place}")
        try:
            lease.acquire(0)
        except Held as busy:
            holders.append(str(busy))
            continue
        try:
            yield
        finally:
            lease.release()
        return
    raise Busy(f"job {job} is running on {lake}: {'; '.join(holders)}: wait for it, or end it")


def _holder(owner: Path) -> str:
    with suppress(OSError, ValueError, KeyError):
        said = json.loads(owner.read_text())
        return f"process {said['pid']} of {said['user']} on {said['host']} since {said['since']}"
    return "another process"
