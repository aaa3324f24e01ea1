"""Settings of a Python process: garbage collection, threads of OpenBLAS, and freed memory."""

from __future__ import annotations

import gc
import os

from pipelines.start.switch import is_on

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
