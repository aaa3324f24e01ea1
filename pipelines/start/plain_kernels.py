"""Runs kernels as the Python functions that they are: for a small log, numba takes longer to load than they to run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines.start.process import PLAIN, is_on

MOST_BYTES = 1 << 20
MOST_RECORDS = 4_000
"""Up to about this number of records, plain functions take less time than the import of numba and its cache."""
MOST_OF_REPLAY = 1_500
"""The same for a replay: its workers share what their parent has loaded. Without a cache, MOST_RECORDS holds."""
_HEADER_BYTES = 61
_KERNELS = "pipelines.formats.kernels"


def choose_kernels(logs: Sequence[str], most: int = MOST_RECORDS) -> None:
    """Decides for this process, before a module with kernels is imported, by the size of the logs in local folders.

    Kernels are plain up to ``most`` records. If such a module is imported already, or a log is not in a local folder,
    kernels are compiled.
    """
    if is_on("plain") and _KERNELS not in sys.modules and _are_small(logs, most):
        os.environ[PLAIN] = "1"
    else:
        os.environ.pop(PLAIN, None)


def choose_kernels_of_replay(logs: Sequence[str]) -> None:
    """Decides for a replay, whose workers follow (pipelines.spark.session): compiling takes half a minute."""
    choose_kernels(logs, MOST_OF_REPLAY if _are_kept() else MOST_RECORDS)


def are_plain() -> bool:
    """Whether kernels are plain functions in this process and in those that it starts, as Spark's workers."""
    return os.environ.get(PLAIN) == "1"


def _are_kept() -> bool:
    """Whether numba has kept compiled kernels beside the modules."""
    return any(Path(__file__).parents[1].glob("fold/__pycache__/*.nbi"))


def _are_small(logs: Sequence[str], most: int) -> bool:
    try:
        files = [path for log in logs for path in log_files(Path(log))]
        if sum(path.stat().st_size for path in files) > MOST_BYTES:
            return False
        return bool(files) and sum(_records(path.read_bytes()) for path in files) <= most
    except OSError:
        return False  # the planner reports it


def log_files(log: Path) -> list[Path]:
    """Segments and snapshots of a metadata.log.dir or its log (R-LOG-1)."""
    return [
        path
        for pattern in ("*.log", "*.checkpoint")
        for folder in (".", "*")
        for path in log.glob(f"{folder}/{pattern}")
    ]


def _records(data: bytes) -> int:
    """Records that the headers of the batches declare."""
    at = count = 0
    while len(data) - at >= _HEADER_BYTES:
        size = 12 + int.from_bytes(data[at + 8 : at + 12])
        count += int.from_bytes(data[at + 57 : at + 61])
        at += max(size, _HEADER_BYTES)
    return count
