"""How far long work is, on standard error: on a terminal a line that the next one replaces, else one in ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 10.0
"""Seconds between two lines where nobody watches."""


class _Work:
    """What is being done: a line, empty where nothing is."""

    line = ""


_work = _Work()


def say(line: str) -> None:
    """What is being done now; an empty line where nothing is, so that whoever waits for news says none."""
    _work.line = line
    clear(line)


def clear(line: str = "") -> None:
    """Put ``line`` in place of the one on the terminal; what is being done stays."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


@contextmanager
def told(command: str) -> Iterator[None]:
    """While the block runs, say every EVERY seconds what ``command`` does, where standard error is no terminal.

    Nothing for no command.
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
