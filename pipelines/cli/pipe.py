"""Standard output and error as a pipe whose reader may close it, as ``head`` does."""

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
"""128 plus the number of SIGPIPE, as shells report for a program that SIGPIPE ended."""

_WHOLE = 1 << 16
"""The capacity of a pipe in bytes. A shorter answer is written at once, even if the reader is slow."""

_PATIENCE = 0.05
"""Seconds."""


class _Pipe(io.FileIO):
    """A file that ends the program when its reader is gone, and accepts flushes after any error silently.

    SIGPIPE itself stays ignored, because it would also end the program for a socket. A BrokenPipeError is no
    alternative: Typer and Rich exit with 1 for it, which means that something was found.
    """

    _gone = False

    def write(self, data: Any, /) -> int:
        if not self._gone:
            try:
                return super().write(data)
            except BrokenPipeError:
                self._gone = True
                raise SystemExit(READER_GONE) from None
            except OSError:
                # The command reports it; Python's own flush at exit would report it again.
                self._gone = True
                raise
        return memoryview(data).nbytes


def output(stream: TextIO | None) -> TextIO:
    """Returns ``stream`` if it is a terminal, otherwise a stream to the same file that exits with `READER_GONE`.

    For None, which Python uses if the file was closed at the start, the output is discarded.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper) or stream.isatty():
        return stream
    stream.flush()
    pipe = io.BufferedWriter(_Pipe(stream.fileno(), "wb", closefd=False), _WHOLE)
    return io.TextIOWrapper(pipe, encoding=stream.encoding, errors=stream.errors, line_buffering=stream.line_buffering)


def reader_gone(stream: TextIO) -> bool:
    """Whether ``stream`` is a pipe without a reader. Waits up to `_PATIENCE` for a reader that is still reading.

    Without the wait, the exit code under ``head`` would depend on which of the two programs is faster.
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
    """Bytes in the pipe, 0 if it is not a pipe."""
    count = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
