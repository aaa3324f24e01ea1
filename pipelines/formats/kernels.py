"""What kernels of several functions are made of: helpers, which allocate nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numba.core.options import DefaultOptions

_Function = TypeVar("_Function", bound=Callable[..., Any])
# numba counts a reference to each array at each call of a helper, which made the fold 1.3 to 1.8 times as slow. Its
# option ``_nrt`` turns that off for code that allocates nothing. Without that option, helpers are plain njit.
_UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}


def helper(function: _Function) -> _Function:
    """A part of a kernel: it reads and writes the arrays that it is given, allocates none and returns none."""
    compiled: _Function = njit(**_UNCOUNTED)(function)  # type: ignore[call-overload]  # not in its types
    return compiled


def inlined(function: _Function) -> _Function:
    """A helper that numba puts into its one caller, where LLVM would call it with all arrays on the stack."""
    compiled: _Function = njit(inline="always", **_UNCOUNTED)(function)  # type: ignore[call-overload]
    return compiled
