"""The first line of every answer if the log has unknown records (R-REC-4). Every command imports this module."""

from __future__ import annotations

from pipelines.lake.incomplete import TODO, Incomplete

answered: list[Incomplete] = []
"""The marks of the lake or log that is asked: none or one."""
_unsaid: list[str] = []


def about(missing: Incomplete | None) -> None:
    """The answers that follow are about a lake that is ``missing`` something, or nothing."""
    answered[:] = [] if missing is None else [missing]
    _unsaid[:] = [f"{one}: {TODO}" for one in answered]


def first_line() -> str | None:
    """The first line of an answer in text form. None if it was printed already, or if the answer is complete."""
    return _unsaid.pop() if _unsaid else None
