"""Progress of long work on standard error: on a terminal one line that is replaced, otherwise a line every 10 s."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 10.0
"""Seconds between two lines if standard error is not a terminal."""


class _Work:
    """The current work: a line, empty for none."""

    line = ""


_work = _Work()


def say(line: str) -> None:
    """Sets the line that describes the current work. An empty line means none, and nothing is printed."""
    _work.line = line
    clear(line)


def clear(line: str = "") -> None:
    """Replaces the line on the terminal by ``line``. The current work does not change."""
    if sys.stderr.isatty():
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
            if _work.line:
                line = f"jbod {command}: {_work.line}, {time.monotonic() - began:.0f} s"
                print(line, file=sys.stderr, flush=True)  # noqa: T201

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
