"""Decorators of kernels and of their helper functions, which allocate nothing.

All kernels are plain Python functions underneath. If ``pipelines.start.plain_kernels`` chose so, nothing compiles them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from pipelines.start.plain_kernels import are_plain

_Function = TypeVar("_Function", bound=Callable[..., Any])

if are_plain():

    def njit(*, cache: bool = False, **_: Any) -> Callable[[_Function], _Function]:
        """Returns the function itself. ``cache``: also those that are called from outside kernels, with their types."""
        return _entry if cache else lambda function: function

    def helper(function: _Function) -> _Function:
        """Returns the function itself."""
        return function

    inlined = helper
else:
    from numba import njit  # type: ignore[assignment]
    from numba.core.options import DefaultOptions

    # At each call of a helper, numba counts a reference to each array. This made the fold 1.3 to 1.8 times as slow. Its
    # option ``_nrt`` turns this off for code that allocates nothing. If numba lacks the option, helpers are plain njit.
    _UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

    def helper(function: _Function) -> _Function:
        """Compiles a part of a kernel: it reads and writes the given arrays, and neither allocates nor returns one."""
        compiled: _Function = njit(**_UNCOUNTED)(function)
        return compiled

    def inlined(function: _Function) -> _Function:
        """Compiles a helper that numba inlines into its only caller. LLVM would pass all arrays on the stack."""
        compiled: _Function = njit(inline="always", **_UNCOUNTED)(function)
        return compiled


def _entry(function: _Function) -> _Function:
    """Gives a plain function what compiled code has: rows with attributes, and integers that wrap without a warning."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*map(_with_attributes, arguments))

    return call  # type: ignore[return-value]


class _Row:
    """A row of a structured array: its fields are attributes, as in compiled code."""

    __slots__ = ("_fields",)

    def __init__(self, fields: np.void) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:
        return self._fields[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._fields[name] = value


class _Rows:
    """A structured array of which kernels read and write rows."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: int) -> _Row:
        return _Row(self._rows[at])


def _with_attributes(argument: Any) -> Any:
    structured = isinstance(argument, np.ndarray) and argument.dtype.names is not None
    return _Rows(argument) if structured else argument
