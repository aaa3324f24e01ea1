"""Memory of the processes that decode and fold."""

from __future__ import annotations

import ctypes

import pyarrow as pa

# Numbers of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_memory() -> None:
    """Let a process reuse the memory it got: fresh pages cost a tenth of a fold. What glibc alone can do."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    pa.set_memory_pool(pa.system_memory_pool())
