"""Which start-up tricks are on, and those that set up a Python process: garbage collection, threads, freed memory.

The setting ``spark.fast_start`` is true, false, or a list of names.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Sequence
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
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


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
    import ctypes  # commands that do not need it start sooner

    import pyarrow as pa

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    pa.set_memory_pool(pa.system_memory_pool())
