"""A log that is no folder yet: ``-`` in place of a path is a tar stream on standard input, ``kafka://`` a quorum.

Both become a private folder that is removed when the command ends.
"""

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
from pipelines.quorum import KAFKA

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


def take_log(context: typer.Context, given: Given) -> Given:
    """The same, and replaces the URL of a quorum by the folder with what it has committed."""
    given = take_pipe(context, given)
    if context.resilient_parsing or given is None:
        return given
    logs = [given] if isinstance(given, str) else given
    taken = [context.with_resource(_mirrored(one)) if one.startswith(KAFKA) else one for one in logs]
    return taken[0] if isinstance(given, str) else taken


def is_piped(log_dir: str) -> bool:
    """Whether a path is one that stands for standard input."""
    path = Path(log_dir)
    return path.name == _NAME and path.parent.name.startswith("jbod-pipe-")


def is_copied(log_dir: str) -> bool:
    """Whether a path stands for standard input or for a quorum: it does not grow."""
    from pipelines.mirror.follow import PREFIX

    return is_piped(log_dir) or Path(log_dir).name.startswith(PREFIX)


@contextmanager
def _piped() -> Iterator[str]:
    """The unpacked log."""
    from pipelines.source.piped_log import unpacked

    with _ending_by_exception(), unpacked(sys.stdin.buffer) as folder:
        yield folder


@contextmanager
def _ending_by_exception() -> Iterator[None]:
    """A signal that would end the process at once ends it after the block's own end."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, _end) for number in _SIGNALS} if main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _mirrored(url: str) -> Iterator[str]:
    """A folder with all that a quorum has committed."""
    from pipelines.cli import progress
    from pipelines.mirror.follow import committed
    from pipelines.settings import load

    with _ending_by_exception():
        copy, begins = committed(url, load().quorum.command_config, progress.notice)
        with copy as folder:
            progress.decision(f"{url}: {begins}")
            yield folder


def _end(number: int, _frame: FrameType | None) -> None:
    raise Stopped(128 + number)
