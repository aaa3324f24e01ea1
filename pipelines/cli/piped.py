"""A log that a command reads from standard input: ``-`` in place of a path stands for it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

import typer

from jbod_model.errors import UsageError
from pipelines.cli.process import Stopped

PIPE = "-"
_NAME = "stdin"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
Given = TypeVar("Given", str, list[str] | None)


def take_pipe(context: typer.Context, given: Given) -> Given:
    """Replaces ``-`` by the folder with the log of standard input, which is removed when the command ends."""
    if context.resilient_parsing or given is None or PIPE not in ([given] if isinstance(given, str) else given):
        return given
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "-: standard input is a terminal: tar cf - -C METADATA_LOG_DIR __cluster_metadata-0 | jbod COMMAND -"
        )
    folder: str = context.with_resource(_piped())
    return folder if isinstance(given, str) else [folder if one == PIPE else one for one in given]


def is_piped(log_dir: str) -> bool:
    """Whether a path is one that stands for standard input."""
    path = Path(log_dir)
    return path.name == _NAME and path.parent.name.startswith("jbod-pipe-")


@contextmanager
def _piped() -> Iterator[str]:
    """The unpacked log. A signal that would end the process at once ends it after the removal."""
    from pipelines.source.piped_log import unpacked

    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, _end) for number in _SIGNALS} if main else {}
    try:
        with unpacked(sys.stdin.buffer) as folder:
            yield folder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    raise Stopped(128 + number)
