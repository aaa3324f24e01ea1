"""Tables that grow inside a kernel: a full table doubles."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.formats.kernels import njit


@njit(cache=True, nogil=True)
def wider(table: Any, rows: int) -> Any:
    """The same table with room for at least ``rows`` rows."""
    if rows <= len(table):
        return table
    wide = np.empty((max(rows, 2 * len(table)), table.shape[1]), table.dtype)
    wide[: len(table)] = table
    return wide


@njit(cache=True, nogil=True)
def wider_flat(values: Any, rows: int) -> Any:
    """The same column with room for at least ``rows`` values."""
    if rows <= len(values):
        return values
    wide = np.empty(max(rows, 2 * len(values)), values.dtype)
    wide[: len(values)] = values
    return wide
