"""Options that more than one command takes, each defined once; help and errors that name no types of Python.

An option of a log takes one that is no folder yet, too: ``-`` in place of a path is a tar stream on standard input,
``kafka://`` a quorum. Both become a private folder that is removed when the command ends.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from jbod_model.errors import UsageError
from pipelines.cli.progress import Stopped, listened
from pipelines.quorum import KAFKA
from pipelines.show.rows import Format

PIPE = "-"
_NAME = "stdin"
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
    return folder if isinstance(given, str) else [folder if path == PIPE else path for path in given]


def take_log(context: typer.Context, given: Given) -> Given:
    """The same, and replaces the URL of a quorum by the folder with what it has committed."""
    given = take_pipe(context, given)
    if context.resilient_parsing or given is None:
        return given
    logs = [given] if isinstance(given, str) else given
    taken = [context.with_resource(_mirrored(log)) if log.startswith(KAFKA) else log for log in logs]
    return taken[0] if isinstance(given, str) else taken


def is_piped(log_dir: str) -> bool:
    """Whether a path is one that stands for standard input."""
    path = Path(log_dir)
    return path.name == _NAME and path.parent.name.startswith("jbod-pipe-")


_QUORUM = "quorum"
"""The file with the URL of a quorum, in the folder with what it has committed."""


def fetch_again(log_dirs: Iterable[str]) -> None:
    """Adds what a quorum has committed since to the folder that stands for it. Another log grows by itself."""
    from pipelines.cli import progress
    from pipelines.mirror.follow import mirrored
    from pipelines.settings import load

    for folder in log_dirs:
        if (source := Path(folder, _QUORUM)).is_file():
            with mirrored(source.read_text(), folder, load().quorum.command_config, progress.notice):
                pass


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
    before = {number: signal.signal(number, _end) for number in listened() if number != signal.SIGINT} if main else {}
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
            Path(folder, _QUORUM).write_text(url)
            yield folder


def _end(number: int, _frame: FrameType | None) -> None:
    raise Stopped(128 + number)


_what = partial(typer.Option, rich_help_panel="What is asked")
_which = partial(typer.Option, rich_help_panel="Which rows")
_how = partial(typer.Option, rich_help_panel="How it is printed")
"""Options by their panels in the help of a question."""

LakePath = Annotated[str | None, _what("--lake", help="The lake to read. The setting lake changes the default.")]
MaintainedLake = Annotated[
    str | None, typer.Option("--lake", help="The lake to change. The setting lake changes the default.")
]
Logs = Annotated[
    list[str] | None,
    _what(
        "--log",
        metavar="DIR",
        help="Ask this log: a metadata.log.dir, its __cluster_metadata-0, a URI, kafka://HOST:PORT; -: a tar stream.",
        callback=take_log,
    ),
]
LogDirs = Annotated[
    list[str] | None, typer.Argument(metavar="LOG_DIR", help="The same as --log DIR.", callback=take_log)
]
AtOffset = Annotated[int | None, _what("--at-offset", help="The state after the record at this offset.")]
AtTime = Annotated[
    str | None,
    _what(
        "--at-time",
        metavar="TIME",
        help="The state at this time: 2026-11-21T02:21:05Z, -10m, 2h ago, yesterday 14:00 (UTC).",
    ),
]
LabelFiles = Annotated[list[str] | None, _what("--labels", metavar="FILE", help="Names of disks, see jbod label.")]
SizeSources = Annotated[
    list[str] | None,
    _what(
        "--sizes",
        metavar="SOURCE",
        help="Bytes, from a source as for jbod sizes. Without it: those that the lake keeps, if it does.",
    ),
]
CommandConfig = Annotated[
    str | None,
    typer.Option("--command-config", metavar="FILE", help="Properties of Kafka's clients, for TLS and SASL."),
]
MetricsFile = Annotated[
    Path | None,
    typer.Option(help="Write this file in one step instead; node_exporter's textfile collector reads *.prom."),
]
Listen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve the metrics to Prometheus at this address, until interrupted."),
]
Brokers = Annotated[list[str] | None, _which("--broker", metavar="ID", help="Only of this broker.")]
Topics = Annotated[list[str] | None, _which("--topic", metavar="GLOB", help="Only of this topic: orders, or orders*.")]
Dirs = Annotated[
    list[str] | None,
    _which("--dir", metavar="DIR", help="Only of this disk: its id, its path or the end of it (disk7c), or its label."),
]
Reasons = Annotated[list[str] | None, _which("--reason", metavar="TEXT", help="Only for this reason, state or kind.")]
Sort = Annotated[
    list[str] | None, _which("--sort", metavar="COLUMN", help="Sort by this column; -COLUMN: in descending order.")
]
Limit = Annotated[int | None, _which("--limit", metavar="N", min=0, help="At most this number of rows.")]
Form = Annotated[Format, _how("--format", help="Columns: docs/spec/columns.md.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
QuestionAsJson = Annotated[bool, _how("--json", help="The same as --format json.")]
All = Annotated[bool, _how("--all", help="List all rows.")]
Watch = Annotated[str | None, _how("--watch", metavar="5s", help="Repeat at this interval, until Ctrl-C.")]


# Both classes below have these methods; only at run time does a mixin need no base.
if TYPE_CHECKING:
    Base = TyperCommand
else:
    Base = object

_TYPES = {bool: None, int: "INTEGER", float: "NUMBER"}
"""Type of an option's value -> what the help shows. A flag has no value. Every other type is TEXT."""


def make_readable(app: typer.Typer) -> None:
    """Gives readable help and errors to every command of ``app`` and of its groups."""
    if not (isinstance(app.info.cls, type) and issubclass(app.info.cls, Group)):
        app.info.cls = Group
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            make_readable(group.typer_instance)


class _Readable(Base):
    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, which show their types in the words of a shell."""
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            parameter.display_type_rich = partial(_type, parameter)
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the words of the command line. The error about a wrong value is one sentence."""
        _refuse_missing(self.get_params(ctx), args)
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except typer.BadParameter as problem:
            if hasattr(problem.__cause__, "errors"):
                problem.message = _sentence(problem.__cause__)
            raise
        return rest


class Command(_Readable, TyperCommand):
    """A command with readable help and errors."""


class Group(_Readable, TyperGroup):
    """A group of commands with readable help and errors."""


def _refuse_missing(parameters: Iterable[Any], words: list[str]) -> None:
    """Raises UsageError for an empty value, and for an option in place of one: ``--lake $LAKE --json`` without LAKE.

    jbod would read the current directory, or write a lake into a folder ``--json``.
    """
    options = {name: each.is_flag for each in parameters if each.param_type_name == "option" for name in each.opts}
    for before, word in pairwise(["jbod", *words]):
        if word == "" or (word.endswith("=") and options.get(word[:-1]) is False):
            raise UsageError(f"{word[:-1] or before}: the value is empty")
        if options.get(before) is False and word in options:
            raise UsageError(f"{before}: its value is missing: {word} is an option")


def _type(parameter: Any, ctx: Any) -> str | None:  # noqa: ARG001
    """What the help shows as the type of a parameter's value; None for an argument, whose name says it."""
    if parameter.metavar is not None and parameter.param_type_name == "option":
        return str(parameter.metavar)
    kind = parameter.type_descriptor
    if kind.choices is not None:
        return f"[{'|'.join(str(getattr(choice, 'value', choice)) for choice in kind.choices)}]"
    return None if parameter.param_type_name == "argument" else _TYPES.get(kind.annotation, "TEXT")


def _sentence(problem: Any) -> str:
    """``'x' is not a valid integer.``: the first error, of a ``pydantic.ValidationError``, in the words of Click."""
    first = problem.errors()[0]
    value, kind, details = first["input"], first["type"], first.get("ctx", {})
    if hasattr(error := details.get("error"), "errors"):  # of one value of several
        return _sentence(error)
    if error is not None:
        return str(error)
    if kind.startswith("int_"):
        return f"{value!r} is not a valid integer."
    if kind.startswith("float_"):
        return f"{value!r} is not a valid number."
    if kind == "greater_than_equal":
        return f"{value} is less than {details['ge']}."
    if kind == "less_than_equal":
        return f"{value} is more than {details['le']}."
    return f"{value!r}: {first['msg']}."
