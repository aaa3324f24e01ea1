"""Which start-up tricks are on, those that set up a Python process (garbage collection, plain kernels), and its cores.

The setting ``spark.fast_start`` is true, false, or a list of names. Plain kernels run as the Python functions that they
are: for a small log, numba takes longer to load than they to run.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Trick = Literal["plain", "process", "home", "archive", "workers", "jvm"]
TRICKS: tuple[Trick, ...] = get_args(Trick)
VARIABLE = "JBOD_SPARK__FAST_START"
"""The setting as a variable, for worker processes and for modules that are imported before the settings."""
PRELOAD = "_JBOD_PRELOAD"
"""The variable of workers that names the module whose ``warm()`` their parent calls."""
PLAIN = "_JBOD_PLAIN"
"""The variable of workers that says, if it is 1, that their kernels are plain functions."""


def choose(fast_start: bool | Sequence[Trick]) -> None:
    """Uses these tricks in this process and its child processes: all, none, or the named ones."""
    os.environ[VARIABLE] = json.dumps(fast_start if isinstance(fast_start, bool) else list(fast_start))


def is_on(trick: Trick) -> bool:
    """Whether a trick may be used. A value that is not JSON counts as true, because the settings refuse it later."""
    try:
        chosen = json.loads(os.environ.get(VARIABLE, "true").lower())
    except ValueError:
        return True
    return trick in chosen if isinstance(chosen, list) else bool(chosen)


_THREADS = "OPENBLAS_NUM_THREADS"
# Numbers of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


@cache
def cores() -> int:
    """The cores that this process may use. A pod with a limit has fewer than its node, which Python counts."""
    import duckdb

    with duckdb.connect() as connection:  # it knows the limit of a cgroup
        threads = int(connection.execute("SELECT current_setting('threads')").fetchall()[0][0])
    return min(threads, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else threads


def collect_rarely() -> None:
    """Lets more objects pile up between two collections: most of a command's objects stay alive until its end.

    Imports alone make enough of them for dozens of collections.
    """
    if is_on("process"):
        gc.set_threshold(100_000, 50, 100)


def freeze_objects() -> None:
    """Hides all objects so far from the collector. Spark collects garbage in each worker after each of its tasks."""
    if is_on("process"):
        gc.collect()
        gc.freeze()


def without_blas_threads() -> None:
    """Keeps OpenBLAS, which NumPy loads, from starting threads in this process and its child processes.

    They wait for work by spinning, and jbod has none for them. Call it before NumPy is imported. A value that the user
    set stays.
    """
    if is_on("process"):
        os.environ.setdefault(_THREADS, "1")


def keep_memory() -> None:
    """Makes this process reuse freed memory, as fresh pages cost a tenth of a fold. Only glibc supports this."""
    import pyarrow as pa

    if _mallopt(_M_MMAP_MAX, 0) and _mallopt(_M_TRIM_THRESHOLD, 1 << 30):
        pa.set_memory_pool(pa.system_memory_pool())


def share_heaps() -> None:
    """Lets the threads of this process, and of its child processes, share heaps that keep little of what is free.

    By default, glibc gives each of many threads a heap, and a run of days holds what is free in all of them. So does
    jemalloc, the allocator of delta-rs: it is set to return freed memory at once. Call it before deltalake is imported.
    """
    _mallopt(_M_ARENA_MAX, 2)
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1,tcache:false,dirty_decay_ms:0")


def return_memory() -> None:
    """Collects garbage, and gives memory that is free in all heaps back to the system."""
    gc.collect()
    _glibc("malloc_trim", 0)


def _mallopt(parameter: int, value: int) -> bool:
    """Sets a parameter of glibc's allocator. False if there is none."""
    return _glibc("mallopt", parameter, value)


def _glibc(function: str, *arguments: int) -> bool:
    """Calls a function of glibc, and says whether it succeeded. False if there is none."""
    import ctypes  # commands that do not need it start sooner

    try:
        return bool(getattr(ctypes.CDLL(None), function)(*arguments))
    except (OSError, AttributeError):
        return False


MOST_BYTES = 1 << 20
MOST_RECORDS = 4_000
"""Up to about this number of records, plain functions take less time than the import of numba and its cache."""
_HEADER_BYTES = 61
_KERNELS = "pipelines.formats.kernels"


def choose_kernels(logs: Sequence[str]) -> None:
    """Decides for this process, before a module with kernels is imported, by the size of the logs in local folders.

    Kernels are plain up to MOST_RECORDS. If such a module is imported already, or a log is not in a local folder,
    kernels are compiled. The workers of a replay follow (pipelines.spark.session).
    """
    if is_on("plain") and _KERNELS not in sys.modules and _are_small(logs):
        os.environ[PLAIN] = "1"
    else:
        os.environ.pop(PLAIN, None)


def are_plain() -> bool:
    """Whether kernels are plain functions in this process and in those that it starts, as Spark's workers."""
    return os.environ.get(PLAIN) == "1"


def _are_small(logs: Sequence[str]) -> bool:
    try:
        files = [path for log in logs for path in log_files(Path(log))]
        if sum(path.stat().st_size for path in files) > MOST_BYTES:
            return False
        return bool(files) and sum(_records(path.read_bytes()) for path in files) <= MOST_RECORDS
    except OSError:
        return False  # the planner reports it


def log_files(log: Path) -> list[Path]:
    """Segments and snapshots of a metadata.log.dir or its log (R-LOG-1). What is no file is refused by who lists it."""
    return [
        path
        for pattern in ("*.log", "*.checkpoint")
        for folder in (".", "*")
        for path in log.glob(f"{folder}/{pattern}")
        if path.is_file()
    ]


def _records(data: bytes) -> int:
    """Records that the headers of the batches declare."""
    at = count = 0
    while len(data) - at >= _HEADER_BYTES:
        size = 12 + int.from_bytes(data[at + 8 : at + 12])
        count += int.from_bytes(data[at + 57 : at + 61])
        at += max(size, _HEADER_BYTES)
    return count
