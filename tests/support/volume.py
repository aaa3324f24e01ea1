"""How much of a large number of cases a run tests: a sample, or everything with ``pytest --exhaustive``.

tests/conftest.py defines the option. ``make exhaustive`` and the nightly workflow use it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest

_exhaustive = False


def set_exhaustive(value: bool) -> None:
    """What the command line says. Called once, before test modules are imported."""
    global _exhaustive
    _exhaustive = value


def exhaustive() -> bool:
    """Whether this run goes through everything."""
    return _exhaustive


def amount(sample: int, full: int) -> int:
    """How many cases a test goes through in this run. ``full`` with ``--exhaustive``, otherwise ``sample``."""
    return full if _exhaustive else sample


def sampled(cases: Iterable[Any], most: int) -> list[Any]:
    """Cases for ``parametrize``. All but ``most`` of them, spread evenly, run with ``--exhaustive`` only."""
    listed = list(cases)
    kept = {at * len(listed) // most for at in range(most)}
    return [case if at in kept else _rare(case) for at, case in enumerate(listed)]


def rare(*case: Any) -> Any:
    """A case for ``parametrize`` that runs with ``--exhaustive`` only."""
    return pytest.param(*case, marks=pytest.mark.exhaustive)


def _rare(case: Any) -> Any:
    """The same of a case as ``parametrize`` takes it: one value, a tuple of several, or what ``pytest.param`` made."""
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.exhaustive], id=case.id)
    return rare(*case) if isinstance(case, tuple) else rare(case)


def lines_run(ask: Callable[[], object], package: str = "pipelines.ask") -> int:
    """How many lines of a package a question runs: its work, on any machine."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal count
        if not frame.f_globals.get("__name__", "").startswith(f"{package}."):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ask()
    finally:
        sys.settrace(before)
    return count
