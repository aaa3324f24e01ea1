"""The process as a shell sees it: signals that stop it, output whose reader may be gone, and standard error.

The first Ctrl-C, SIGTERM or SIGHUP asks a command to stop cleanly, the second one ends it at once. A reader may close
standard output and error, as ``head`` does.

Standard error has progress, notices and decisions. Progress of long work is on a terminal one line that is replaced,
otherwise a line every 10 s. Every command takes ``-q``, which prints neither progress nor notices, and ``-v``, which
also prints decisions: after its name or before it.
"""

from __future__ import annotations

import array
import fcntl
import inspect
import io
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Self, TextIO

import typer

from jbod_model.errors import UsageError

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
def heartbeat(command: str) -> Iterator[None]:
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

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(1)  # no line follows the block, unless nobody reads standard error


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no notices, only errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print what the command decides, and why.")]


def add_volume(app: typer.Typer) -> None:
    """Gives ``-q`` and ``-v`` to every command of ``app`` and of its groups."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _with_volume(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_volume(group.typer_instance)


def _with_volume(command: Callable[..., None]) -> Callable[..., None]:
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=False)
        for name, kind in (("quiet", Quiet), ("verbose", Verbose))
    ]
    parameters = [*inspect.signature(command, eval_str=True).parameters.values(), *added]

    @wraps(command)
    def run(*, quiet: bool, verbose: bool, **values: Any) -> None:
        set_volume(quiet=quiet or _work.quiet, verbose=verbose or _work.verbose)
        if _work.quiet and _work.verbose:
            raise UsageError("--quiet and --verbose: give one of them")
        if _work.verbose:
            _tell_settings()
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


def _tell_settings() -> None:
    from pipelines.settings import existing_files, named_files

    files = [str(file) for file in existing_files(named_files())]
    decision(f"settings of {', '.join(files)}" if files else "no file of settings")


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, an order, and a terminal that is closed."""


def listened() -> dict[signal.Signals, object]:
    """SIGNALS with their handlers. Under nohup, SIGHUP is ignored and is not among them."""
    handlers: dict[signal.Signals, object] = {number: signal.getsignal(number) for number in SIGNALS}
    if handlers[signal.SIGHUP] is signal.SIG_IGN:
        del handlers[signal.SIGHUP]
    return handlers


def interrupt_by_exception() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt, if it ended the process before."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt_by_signal() -> None:
    """Makes Ctrl-C end the process, if it raised KeyboardInterrupt before: nothing is left to clean up."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises KeyboardInterrupt if a signal ends a query within the block: DuckDB raises an error of its own then."""
    try:
        yield
    except RuntimeError as problem:
        if str(problem) != "Query interrupted":
            raise
        raise KeyboardInterrupt from None


class Stopped(SystemExit):
    """A signal ended the command, which reported it: exit code 129 for SIGHUP, 130 for Ctrl-C, 143 for SIGTERM."""


class Interrupts:
    """The signals during the block. The first one raises KeyboardInterrupt, unless ``stop`` takes it."""

    def __init__(self) -> None:
        self.signal = 0
        """The first signal, 0 for none."""
        self.stop: Callable[[], None] | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = listened()
            self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def listen(self) -> None:
        """Installs the handlers again: a new Spark session replaces that of Ctrl-C, and its own breaks JVM calls."""
        for number in self._before:
            signal.signal(number, self._handle_signal)

    @property
    def exit_code(self) -> int:
        """The exit code that shells report for a process that the signal ended."""
        return 128 + self.signal

    def _handle_signal(self, number: int, _frame: FrameType | None) -> None:
        is_first, self.signal = not self.signal, self.signal or number
        if is_first and self.stop is not None:
            self.stop()
        else:
            raise KeyboardInterrupt


READER_GONE = 141
"""128 plus the number of SIGPIPE, as shells report for a program that SIGPIPE ended."""

_WHOLE = 1 << 16
"""The capacity of a pipe in bytes. A shorter answer is written at once, even if the reader is slow."""

_PATIENCE = 1.0
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

    For None, which Python uses if the file was closed at the start, the output is discarded. A character that the
    encoding of the stream lacks is written as an escape: names of topics and disks may have any.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    if stream.errors in ("strict", "surrogateescape"):  # the latter in the locale C
        stream.reconfigure(errors="backslashreplace")
    if stream.isatty():
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
