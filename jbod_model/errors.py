"""The errors of the project: one root, few subclasses, each message names the place and what to do."""

from __future__ import annotations


class JbodError(Exception):
    """Root of every error that the project raises on purpose. The command line prints it as one line, exit code 2."""


class UsageError(JbodError):
    """What was asked for cannot be done: a wrong path, option or lake. Nothing was read or written."""


class Retriable(JbodError):
    """What failed may go well when it is tried again: another run was faster. The command line leaves with 3."""


class MalformedLog(JbodError):
    """Bytes that are no metadata log: the file, the offset of the batch or record, and what is wrong.

    ``file`` names the segment or snapshot as it was given, ``offset`` the log offset nearest to the damage
    (of a record where one was being read, else of its batch; -1 where there is none, and none is said), ``problem``
    what is wrong.
    """

    def __init__(self, file: str, offset: int, problem: str) -> None:
        self.file = file
        self.offset = offset
        self.problem = problem
        super().__init__(f"{file}: {problem}" if offset < 0 else f"{file}: offset {offset}: {problem}")

    def __reduce__(self) -> tuple[type, tuple[str, int, str]]:
        return type(self), (self.file, self.offset, self.problem)


class LogChanged(MalformedLog):
    """The log is not what was read of it: rewritten after an election, cut off, or a file of it is gone.

    What was read is to be compared with what is there now; ``offset`` is where the difference was noticed.
    """


class ReplayViolation(JbodError):
    """Legal bytes, illegal history (R-REPLAY-1): a record that no controller could have written after the ones before.

    ``offset`` is the log offset of the offending record, ``problem`` the broken rule with the ids involved.
    """

    def __init__(self, offset: int, problem: str) -> None:
        self.offset = offset
        self.problem = problem
        super().__init__(f"offset {offset}: {problem}")

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return type(self), (self.offset, self.problem)
