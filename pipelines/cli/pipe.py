"""Standard output and error into a pipe whose reader may go away, as ``head`` does."""

from __future__ import annotations

import array
import fcntl
import io
import os
import select
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

READER_GONE = 141
"""128 and the number of SIGPIPE: how a shell reports a program that SIGPIPE ended."""

_WHOLE = 1 << 16
"""Bytes that a pipe holds: an answer that fits in is written at once, and does not depend on how fast it is read."""

_PATIENCE = 0.05
"""Seconds."""


class _Pipe(io.FileIO):
    """A file that ends the program once nobody reads it, and takes what is still flushed.

    SIGPIPE itself stays ignored: it would also end the program over a socket. A BrokenPipeError would not do, for Typer
    and Rich both leave with 1 for it, which means that something was found.
    """

    _gone = False

    def write(self, data: Any, /) -> int:
        if not self._gone:
            try:
                return super().write(data)
            except BrokenPipeError:
                self._gone = True
                raise SystemExit(READER_GONE) from None
        return memoryview(data).nbytes


def output(stream: TextIO | None) -> TextIO:
    """``stream``, or, where it is no terminal, one into the same file that leaves with `READER_GONE`.

    None, as Python has it for a file that was closed from the start, goes nowhere.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper) or stream.isatty():
        return stream
    stream.flush()
    pipe = io.BufferedWriter(_Pipe(stream.fileno(), "wb", closefd=False), _WHOLE)
    return io.TextIOWrapper(pipe, encoding=stream.encoding, errors=stream.errors, line_buffering=stream.line_buffering)


def reader_gone(stream: TextIO) -> bool:
    """Whether ``stream`` is a pipe that nobody reads any more. One who is still reading is given `_PATIENCE`.

    Without it, the exit code under ``head`` would depend on which of the two programs is faster.
    """
    pipe = stream.fileno()
    poll = select.poll()
    poll.register(pipe, 0)
    until = time.monotonic() + _PATIENCE
    while not any(event & select.POLLERR for _, event in poll.poll(1)):
        if time.monotonic() > until or not _unread(pipe):
            return False
    return True


def _unread(pipe: int) -> int:
    """Bytes in the pipe; 0 for what is none."""
    count = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
