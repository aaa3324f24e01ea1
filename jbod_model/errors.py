"""The errors of the project: one root and few subclasses. Each message names the place and what to do.

An error crosses to another process as one line of text (``marked``): class, message, fields and the cited rules.
``restored`` makes the error again from that line, whether the line is a row or part of another program's report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

_MARK = "jbod-error "
_MARKED = re.compile(_MARK + r"(\{[^\n]*\})")
_RULE = re.compile(r"R-[A-Z]+-\d+")


class JbodError(Exception):
    """Root of every error that the project raises. The command line prints it as one line and exits with 2."""

    FIELDS: ClassVar[tuple[str, ...]] = ()
    """Names of the constructor's arguments, which are also attributes; empty if the message is the only argument."""

    @property
    def rules(self) -> tuple[str, ...]:
        """Ids of the rules of docs/spec that the message cites."""
        return tuple(_RULE.findall(str(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.FIELDS) or self.args


class UsageError(JbodError):
    """A wrong path, option or lake: the command cannot run. Nothing was read or written."""


class Retriable(JbodError):
    """The operation may succeed if it is repeated: another run was faster. The command line exits with 3."""


class MalformedLog(JbodError):
    """Bytes that are not a metadata log: the file, the offset of the batch or record, and the problem.

    ``file`` names the segment or snapshot as it was given. ``offset`` is the log offset nearest to the damage: of a
    record if one was being read, else of its batch; -1 if there is none, and the message then has none. ``problem`` is
    what is wrong.
    """

    FIELDS = ("file", "offset", "problem")

    def __init__(self, file: str, offset: int, problem: str) -> None:
        self.file = file
        self.offset = offset
        self.problem = problem
        super().__init__(f"{file}: {problem}" if offset < 0 else f"{file}: offset {offset}: {problem}")


class LogChanged(MalformedLog):
    """The log no longer equals what was read of it: it was rewritten after an election, or cut off, or a file is
    missing.

    The reader must compare what it read with the present log. ``offset`` is where it noticed the difference.
    """


class ReplayViolation(JbodError):
    """Legal bytes, illegal history (R-REPLAY-1): no controller could have written this record after the ones before it.

    ``offset`` is the log offset of the offending record, ``problem`` the broken rule with the ids involved.
    """

    FIELDS = ("offset", "problem")

    def __init__(self, offset: int, problem: str) -> None:
        self.offset = offset
        self.problem = problem
        super().__init__(f"offset {offset}: {problem}")


def first_line_of(problem: BaseException) -> str:
    """The first line of a message of another program, to quote in ours; its class if it has no message."""
    return next(iter(str(problem).splitlines()), type(problem).__name__)


def marked(problem: JbodError) -> str:
    """The error as one line of ASCII."""
    kind: type[JbodError] = next(cls for cls in type(problem).__mro__ if _can_cross(cls))
    description = {
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "message": str(problem),
        "fields": {name: getattr(problem, name) for name in kind.FIELDS},
        "rules": problem.rules,
    }
    return _MARK + json.dumps(description)


def restored(text: str) -> JbodError | None:
    """The first error that ``marked`` wrote into a text; None if there is none.

    If this process has not loaded the error's class, or the class takes more than its FIELDS, the result is a
    JbodError or the nearest superclass.
    """
    match = _MARKED.search(text)
    if match is None:
        return None
    description, _ = json.JSONDecoder().raw_decode(match[1])
    kind = _loaded(JbodError).get(description["class"], JbodError)
    return kind(**description["fields"]) if kind.FIELDS else kind(description["message"])


@contextmanager
def crossing() -> Iterator[None]:
    """Add the mark to an error as a note: a report of its traceback then contains the mark."""
    try:
        yield
    except JbodError as problem:
        problem.add_note(marked(problem))
        raise


def _can_cross(kind: Any) -> bool:
    """Whether a class can be made again from its FIELDS, or from its message."""
    if not issubclass(kind, JbodError):
        return False
    made = next(cls for cls in kind.__mro__ if "__init__" in vars(cls))
    declared = next(cls for cls in kind.__mro__ if "FIELDS" in vars(cls))
    return made is declared or (not issubclass(made, JbodError) and not kind.FIELDS)


def _loaded(root: type[JbodError]) -> dict[str, type[JbodError]]:
    classes = {f"{root.__module__}.{root.__qualname__}": root}
    for kind in root.__subclasses__():
        classes |= _loaded(kind)
    return classes
