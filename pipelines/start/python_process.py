"""What a Python process of a command does without: frequent garbage collection, and threads of OpenBLAS.

Call both functions before NumPy is imported.
"""

from __future__ import annotations

import gc
import os

from pipelines.start.switch import is_on

_THREADS = "OPENBLAS_NUM_THREADS"


def collect_rarely() -> None:
    """Lets more objects pile up between two collections: most of a command's objects stay alive until its end.

    Imports alone make enough of them for dozens of collections.
    """
    if is_on("garbage"):
        gc.set_threshold(100_000, 50, 100)


def freeze_objects() -> None:
    """Hides all objects so far from the collector. Spark collects garbage in each worker after each of its tasks."""
    if is_on("garbage"):
        gc.collect()
        gc.freeze()


def without_blas_threads() -> None:
    """Keeps OpenBLAS, which NumPy loads, from starting threads in this process and its child processes.

    They wait for work by spinning, and jbod has none for them. A value that the user set stays.
    """
    if is_on("blas"):
        os.environ.setdefault(_THREADS, "1")
