"""Progress, notices and decisions on standard error.

Progress of long work is on a terminal one line that is replaced, otherwise a line every 10 s. Every command takes
``-q``, which prints neither progress nor notices, and ``-v``, which also prints decisions: after its name or before it.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any

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

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


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
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    del run.__wrapped__
    return run


def _tell_settings() -> None:
    from pipelines.settings import existing_files, named_files

    files = [str(file) for file in existing_files(named_files())]
    decision(f"settings of {', '.join(files)}" if files else "no file of settings")
