"""Progress, notices and decisions on standard error.

Progress of long work is on a terminal one line that is replaced, otherwise a line every 10 s. ``-q`` prints neither
progress nor notices, ``-v`` also decisions.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 10.0
"""Seconds between two lines if standard error is not a terminal."""


class _Work:
    """The current work: a line, empty for none; and how much is printed about it."""

    line = ""
    quiet = False
    verbose = False


_work = _Work()


def set_volume(*, quiet: bool, verbose: bool) -> None:
    """Sets what the command prints beside errors."""
    _work.quiet, _work.verbose = quiet, verbose


def is_quiet() -> bool:
    """Whether neither progress nor notices are printed."""
    return _work.quiet


def notice(line: str, prefix: str = "jbod: ") -> None:
    """Prints a line beside the answer, unless the command is quiet."""
    if not _work.quiet:
        clear()
        print(f"{prefix}{line}", file=sys.stderr, flush=True)  # noqa: T201


def decision(line: str) -> None:
    """Prints what the command decided, if it is verbose."""
    if _work.verbose:
        notice(line)


def say(line: str) -> None:
    """Sets the line that describes the current work. An empty line means none, and nothing is printed."""
    _work.line = line
    clear(line)


def clear(line: str = "") -> None:
    """Replaces the line on the terminal by ``line``. The current work does not change."""
    if sys.stderr.isatty() and not _work.quiet:
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


@contextmanager
def told(command: str) -> Iterator[None]:
    """During the block, prints every EVERY seconds what ``command`` does, if standard error is not a terminal.

    Prints nothing if ``command`` is empty.
    """
    if not command or sys.stderr.isatty():
        yield
        return
    began, ended = time.monotonic(), threading.Event()
    _work.line = "at work"

    def beat() -> None:
        while not ended.wait(EVERY):
            if _work.line and not _work.quiet:
                line = f"jbod {command}: {_work.line}, {time.monotonic() - began:.0f} s"
                print(line, file=sys.stderr, flush=True)  # noqa: T201

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
