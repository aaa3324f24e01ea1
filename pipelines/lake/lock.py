"""One writer at a time: every writer holds the lake's lock while it reads the tables' state and commits.

On object storage the lock is an object that names its owner, taken and renewed by conditional puts. The owner renews
its lease while it holds it. An owner that dies loses it: whoever waits sees the same object for the whole length of the
lease, by its own clock, and takes it. No two clocks are compared. On the machine of the owner, a process that is gone
loses the lease at once. An owner that could not renew in time stops before its next commit; and if it stops too late,
Delta's conditional commit of the ledger refuses it.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from jbod_model.errors import JbodError, Retriable, UsageError
from pipelines.lake.uris import LakeUri
from pipelines.storage import objects
from pipelines.storage.objects import Tag, fault_of_disk, is_object

LOCK = "_lock"
RUN = "_run"
PATIENCE = 600.0
"""Seconds to wait for another writer: a publication takes seconds, an upkeep of a large lake minutes."""


@contextmanager
def alone(lake: LakeUri) -> Iterator[None]:
    """Holds the lock of a lake. Raises UsageError if another process holds it for more than PATIENCE seconds.

    The lock is reentrant, and excludes the threads of a process, too. On S3 it is an object with a lease
    (``Lease``). A lake at another URI has no lock among processes: Delta refuses one of two concurrent commits, and
    readers do not see its other tables, because the ledger does not name them.
    """
    with _alone_here(lake):
        if is_object(lake):
            with _leased(f"{lake}/{LOCK}", PATIENCE):
                yield
        elif "://" in lake:
            yield
        else:
            busy = f"{lake}: another process has been writing for {PATIENCE:.0f} s: try again later"
            with _disk_faults(lake):
                Path(lake).mkdir(parents=True, exist_ok=True)
                with _held(FileLock(Path(lake, LOCK), thread_local=False, is_singleton=True), PATIENCE, busy):
                    yield


@contextmanager
def _alone_here(lake: LakeUri) -> Iterator[None]:
    """The same among the threads of this process."""
    with _of_leases:
        place = lake if "://" in lake else str(Path(lake).resolve())
        lock = _threads.setdefault(place, threading.RLock())
    if not lock.acquire(timeout=PATIENCE):
        raise UsageError(f"{lake}: this process has been writing for {PATIENCE:.0f} s: try again later")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _held(lock: FileLock, patience: float, busy: str) -> Iterator[None]:
    """Holds the lock. Raises UsageError, which says ``busy``, if another process has it for ``patience`` seconds."""
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise UsageError(busy) from None
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
    busy = f"{lake}: another jbod replay runs on this lake: end it, or use another --lake"
    with ExitStack() as held:
        with _disk_faults(lake):
            held.enter_context(_held(FileLock(Path(lake, RUN)), 0, busy))
        yield ""


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
            lease = holder(f"{self._lake}/{RUN}")
            if lease is None or lease[0] != self._run:
                return False
            now = time.monotonic()
            if self._seen is None or self._seen[0] != lease[1]:
                self._seen = lease[1], now
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
def _disk_faults(lake: LakeUri) -> Iterator[None]:
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


LEASE = 60.0
"""Seconds after which a lease is lost if it is not renewed."""
BEAT = 20.0
"""Seconds between two renewals."""
POLL = 2.0
"""Seconds between two looks at a lease that another process holds."""


class HeldLease(JbodError):
    """Another process holds the lease. The message names it."""


class Lost(Retriable):
    """This process could not renew its lease in time."""


class Lease:
    """The lock at a location. Not reentrant; one at a time in a process."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._tag: Tag | None = None
        """The version of the object that this process wrote last."""
        self._renewed = 0.0
        self._taken_by_other = False
        self._end: threading.Event | None = None
        self.name = uuid.uuid4().hex
        """What ``holder`` says while this lease is held."""
        self._writing = threading.Lock()

    def acquire(self, patience: float) -> None:
        """Takes the lease. Raises Held when its owner lives and ``patience`` seconds are over."""
        if self._tag is not None and self._try(self._tag):
            return
        began = time.monotonic()
        seen: tuple[Tag, float] | None = None
        lives = False
        while True:
            try:
                content, tag = objects.get_tagged(self.location)
            except FileNotFoundError:
                if self._create():
                    return
                continue
            owner = _parsed(content)
            now = time.monotonic()
            if seen is None or seen[0] != tag:
                lives = seen is not None
                seen = tag, now
            free = owner is None or not owner.get("held") or _is_dead_here(owner) or now - seen[1] >= LEASE
            if free and self._try(tag):
                return
            if lives and now - began >= patience:
                pid, user, host, renewed = ((owner or {}).get(name) for name in ("pid", "user", "host", "renewed"))
                raise HeldLease(f"process {pid} of {user} on {host} (renewed {renewed}) holds {self.location}")
            time.sleep(min(POLL, BEAT / 4))

    def release(self) -> None:
        """Gives the lease back. One that was lost stays with its owner."""
        if self._end is not None:
            self._end.set()
            self._end = None
        with self._writing:
            tag, self._tag = self._tag, None
            if tag is None or self._taken_by_other:
                return
            # Without this, waiting processes find out when the lease expires.
            with suppress(Exception):
                self._tag = objects.put(self.location, self._content(held=False), only=tag)

    def check(self) -> None:
        """Raises Lost if another process may have taken the lease."""
        if self._taken_by_other or time.monotonic() - self._renewed >= LEASE:
            raise Lost(
                f"{self.location}: this process could not renew its lease for {LEASE:.0f} s, and another one may write "
                "now: nothing more is written; run again"
            )

    def _create(self) -> bool:
        from obstore.exceptions import AlreadyExistsError

        content = self._content(held=True)
        try:
            tag = objects.put(self.location, content, only="new")
        except AlreadyExistsError:
            return False
        try:
            objects.put(self.location, content, only="new")
        except AlreadyExistsError:
            self._begin(tag)
            return True
        raise UsageError(
            f"{self.location}: this storage overwrites an object that a conditional put (If-None-Match: *) must keep: "
            "neither a lock nor Delta's commits are safe on it; use one with conditional puts"
        )

    def _try(self, tag: Tag) -> bool:
        from obstore.exceptions import PreconditionError

        try:
            written = objects.put(self.location, self._content(held=True), only=tag)
        except (PreconditionError, FileNotFoundError):
            self._tag = None
            return False
        self._begin(written)
        return True

    def _begin(self, tag: Tag) -> None:
        self._tag, self._renewed, self._taken_by_other = tag, time.monotonic(), False
        self._end = threading.Event()
        threading.Thread(target=self._renew, args=(self._end,), name="jbod-lease", daemon=True).start()

    def _renew(self, end: threading.Event) -> None:
        from obstore.exceptions import PreconditionError

        while not end.wait(BEAT):
            began = time.monotonic()
            with self._writing:
                if end.is_set():
                    return
                try:
                    written = objects.put(self.location, self._content(held=True), only=self._tag)
                except (PreconditionError, FileNotFoundError):
                    self._taken_by_other = True
                    return
                except Exception:  # noqa: S112  the next attempt, or check, decides
                    continue
                self._tag, self._renewed = written, began

    def _content(self, *, held: bool) -> bytes:
        now = datetime.now(UTC)
        return json.dumps(
            {
                "held": held,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "user": _user(),
                "renewed": f"{now:%Y-%m-%d %H:%M:%SZ}",
                "machine": _machine(),
                "process": _started(os.getpid()),
                # No two contents are the same, so no two versions have the same tag.
                "id": f"{self.name} {now.timestamp()}",
            }
        ).encode()


def holder(location: str) -> tuple[str, Tag] | None:
    """The name of the lease that is held at a location, and the version of its object, which every renewal changes."""
    try:
        content, tag = objects.get_tagged(location)
    except FileNotFoundError:
        return None
    owner = _parsed(content)
    if owner is None or not owner.get("held") or _is_dead_here(owner):
        return None
    return str(owner.get("id")).partition(" ")[0], tag


def _parsed(content: bytes) -> dict[str, Any] | None:
    try:
        owner = json.loads(content)
    except ValueError:
        return None
    return owner if isinstance(owner, dict) else None


def _is_dead_here(owner: dict[str, Any]) -> bool:
    """Whether the owner was a process of this machine that is gone."""
    machine, pid = owner.get("machine"), owner.get("pid")
    return bool(machine) and machine == _machine() and isinstance(pid, int) and _started(pid) != owner.get("process")


def _machine() -> str:
    """The boot of this machine and the name space of its process ids; empty if they are unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process of this machine began, empty if there is none. A zombie has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
