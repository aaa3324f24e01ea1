"""Decorators for the helper functions of kernels, which allocate nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numba.core.options import DefaultOptions

_Function = TypeVar("_Function", bound=Callable[..., Any])
# At each call of a helper, numba counts a reference to each array. This made the fold 1.3 to 1.8 times as slow. Its
# option ``_nrt`` turns this off for code that allocates nothing. If numba lacks the option, helpers are plain njit.
_UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}


def helper(function: _Function) -> _Function:
    """Compiles a part of a kernel: it reads and writes the given arrays, and neither allocates nor returns one."""
    compiled: _Function = njit(**_UNCOUNTED)(function)  # type: ignore[call-overload]  # not in its types
    return compiled


def inlined(function: _Function) -> _Function:
    """Compiles a helper that numba inlines into its only caller. LLVM would call it with all arrays on the stack."""
    compiled: _Function = njit(inline="always", **_UNCOUNTED)(function)  # type: ignore[call-overload]
    return compiled
