"""A question on the command line: its options, the lake or log that it asks, and the output of its answer.

A command is a function of `Inquiry` and of its own parameters. It returns a `Reply`. ``question`` gives it the options
of all questions, and prints the reply in the form that was asked for. Commands that are no questions open their lake
and print JSON by the same functions.
"""

from __future__ import annotations

import inspect
import io
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any

import typer

from jbod_model.errors import JbodError, UsageError
from pipelines.cli import options, progress
from pipelines.lake.times import is_exact, parse_span, parse_time
from pipelines.lake.uris import LakeUri
from pipelines.show.columns import DIRECTORIES
from pipelines.show.rows import Chosen, Format, RowTable, Wanted, split, write_rows

if TYPE_CHECKING:
    from pipelines.lake.names import Names
    from pipelines.lake.reader import Lake
    from pipelines.settings import Settings
    from pipelines.show.text import Screen


def open_lake(
    path: str | None,
    at_offset: int | None,
    at_time: str | None,
    *logs: Sequence[str] | None,
    labels: Sequence[str] = (),
) -> tuple[Lake, Settings]:
    """Opens the lake, or a log that answers like a lake. Also returns the settings of this command.

    If a log is damaged, the answer uses the records before the damage. The command then ends with the log's error, like
    a replay (`refuse_damage`). ``labels``: files with names of directories, see ``pipelines.ask.log_dirs``.
    """
    if at_offset is not None and at_time is not None:
        raise UsageError("--at-offset and --at-time: give one of them")
    log_dirs = [log_dir for some in logs for log_dir in some or ()]
    if path is not None and log_dirs:
        raise UsageError("--lake and --log: give one of them")
    if len(log_dirs) > 1:
        raise UsageError(f"{', '.join(log_dirs)}: a question is about one log: give one")
    time = None if at_time is None else parse_time(at_time)
    from pipelines.settings import load

    settings = load(lake=path)
    if not log_dirs:
        from pipelines.lake.reader import Lake

        lake = Lake.open(settings.lake, at_offset, time)
        progress.decision(f"asks the lake {settings.lake} at offset {lake.offset}")
    else:
        from pipelines.start.process import are_plain, choose_kernels

        choose_kernels(log_dirs)
        from pipelines.run.log_lake import LogLake
        from pipelines.source.log_options import LogOptions

        replay = settings.replay
        options = LogOptions(path=log_dirs[0], tail=replay.tail)
        lake = LogLake.of(options, at_offset, time, profile=replay.profile)
        kernels = "plain functions, the log is small" if are_plain() else "numba"
        progress.decision(f"replayed the log {log_dirs[0]} in memory by {kernels}, up to offset {lake.offset}")
        for line in lake.log.notices:
            progress.notice(line)
        if lake.log.refusal is not None:
            progress.notice(f"answered from the records up to offset {lake.published.end_offset - 1}")
    sources = [*(settings.labels.sources if log_dirs else ()), *labels]
    if sources:
        from pipelines.ask.log_dirs import read_sources

        read = read_sources(lake, sources, lake.kept_names())
        for line in read.notes:
            progress.notice(f"labels: {line}")
        lake = replace(lake, named=read.statements)
    if at_offset is not None:
        end, whole = lake.append_end, "an append, which the controller wrote at once"
        if lake.transaction_end is not None:
            end, whole = lake.transaction_end, "a metadata transaction, which counts as a whole"
        if end > lake.offset:
            progress.notice(
                f"offset {at_offset} lies within {whole}: no broker acts on a part of it; --at-offset {end} "
                "has all of it"
            )
    if at_time is not None and time is not None and not is_exact(at_time):
        meant = f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        progress.notice(f"--at-time {at_time} is {meant}: the answer is of offset {lake.offset}")
    return lake, settings


def refuse_damage(lake: Lake) -> None:
    """After an answer: raises the error that ended the reading of a damaged log."""
    if lake.refusal is not None:
        raise lake.refusal


def print_json(answer: Any, lake: Lake | None = None) -> None:
    """One JSON document on standard output.

    An object says where its lake is incomplete (``incomplete_since``), and where its history begins if that is a
    snapshot (``first_offset``).
    """
    from pipelines.ask.json_values import jsonable
    from pipelines.show.text import with_names

    document = jsonable(answer)
    if lake is not None:
        document = with_names(document, lake.names)
    if lake is not None and isinstance(document, dict):
        if lake.first:
            document["first_offset"] = lake.first
        if lake.incomplete_since is not None:
            document["incomplete_since"] = lake.incomplete_since.as_json()
    sys.stdout.write(json.dumps(document) + "\n")


@dataclass(frozen=True)
class Given:
    """The values of the options of all questions."""

    lake: LakeUri | None
    logs: Sequence[str]
    labels: Sequence[str]
    at_offset: int | None
    at_time: str | None
    wanted: Wanted
    form: Format
    every: bool
    """Whether everything is to be listed, however long."""


@dataclass(frozen=True)
class Inquiry:
    """What a question is about. The lake or log is opened at the first use."""

    given: Given

    @cached_property
    def _opened(self) -> tuple[Lake, Settings]:
        from pipelines.lake.delta import NoLake

        given = self.given
        try:
            return open_lake(given.lake, given.at_offset, given.at_time, given.logs, labels=given.labels)
        except NoLake as problem:
            raise problem if given.lake is not None else UsageError(f"{problem}, or ask a log: --log DIR") from None

    @property
    def lake(self) -> Lake:
        """The lake, or the log that answers like a lake."""
        return self._opened[0]

    @property
    def settings(self) -> Settings:
        """The settings of this command."""
        return self._opened[1]

    @property
    def every(self) -> bool:
        """Whether everything is to be listed, however long."""
        return self.given.every

    @property
    def wanted(self) -> Wanted:
        """The filters, the order and the limit."""
        return replace(self.given.wanted, names=self.lake.names)

    @property
    def is_log(self) -> bool:
        """Whether a log is asked in place of a lake."""
        return bool(self.given.logs)

    @property
    def is_past(self) -> bool:
        """Whether an offset or a time is named."""
        return self.given.at_offset is not None or self.given.at_time is not None

    @property
    def min_isr(self) -> int:
        """The default of min.insync.replicas."""
        return self.settings.ask.min_insync_replicas

    @property
    def accepted_until(self) -> int:
        """The offset up to which lost data is accepted."""
        return self.settings.check.losses_accepted_until

    @property
    def position(self) -> dict[str, Any]:
        """Offset and time of the answer, for a JSON object."""
        return {"offset": self.lake.offset, "time": self.lake.time}

    def objects(self, chosen: Chosen, rows: Sequence[Any] | None = None) -> list[dict[str, Any]]:
        """The chosen rows as JSON objects, with the keys that CSV has as columns. ``rows``: these in place of them."""
        return chosen.table.objects(chosen.rows if rows is None else rows, self.lake.names)

    def choose(self, table: RowTable, rows: Sequence[Any]) -> Chosen:
        """The rows that the filters of the command line choose."""
        return self.wanted.choose(table, rows, self.lake)

    def listing(self, table: RowTable, rows: Sequence[Any], key: str, show: Callable[[Screen, Chosen], None]) -> Reply:
        """The reply that has nothing but rows: in its JSON they are at ``key``, after the position."""
        chosen = self.choose(table, rows)
        return Reply(chosen, lambda: {**self.position, key: self.objects(chosen)}, lambda out: show(out, chosen))

    def reply(self, table: RowTable, answer: Any, rows: str, show: Callable[..., None], exit_code: int = 0) -> Reply:
        """The reply whose rows are the attribute ``rows`` of the answer, and a key of its JSON."""
        chosen = self.choose(table, getattr(answer, rows))
        as_json = getattr(answer, "as_json", partial(_object, answer))
        return Reply(
            chosen,
            lambda: {**as_json(), rows: self.objects(chosen)},
            lambda out: show(out, answer, chosen, self.every),
            exit_code,
        )


@dataclass(frozen=True)
class Reply:
    """The answer to a question in every form."""

    chosen: Chosen
    as_json: Callable[[], Any]
    show: Callable[[Screen], None]
    """Prints the answer as text."""
    exit_code: int = 0
    rest: Callable[[], None] | None = field(default=None)
    """Runs after the answer was printed."""
    of_losses: bool = False
    """Whether it is about failures and losses, which a history that begins with a snapshot has from there on only."""


_COMMON: tuple[tuple[str, Any, Any], ...] = (
    ("lake", options.LakePath, None),
    ("log", options.Logs, None),
    ("at_offset", options.AtOffset, None),
    ("at_time", options.AtTime, None),
    ("labels", options.LabelFiles, None),
    ("broker", options.Brokers, None),
    ("topic", options.Topics, None),
    ("directory", options.Dirs, None),
    ("reason", options.Reasons, None),
    ("sort", options.Sort, None),
    ("limit", options.Limit, None),
    ("form", options.Form, Format.table),
    ("as_json", options.QuestionAsJson, False),
    ("every", options.All, False),
    ("watch", options.Watch, None),
)
"""Name, type and default of the options of all questions."""
_FILTERS = {"broker": "broker", "topic": "topic", "directory": "dir", "reason": "reason"}
"""Parameter -> filter."""


_Ask = Callable[[Inquiry], Reply | None]
"""Answers a question. None: the command printed something else."""


def question(
    *tables: RowTable, log_argument: bool = False
) -> Callable[[Callable[..., Reply | None]], Callable[..., None]]:
    """Makes a command of a question whose rows are those of ``tables``: it has the filters that apply to one of them.

    ``log_argument``: the command takes the directories of a log as its arguments.
    """
    filters = {name for table in tables for name in table.filters}
    taken = [option for option in _COMMON if option[0] not in _FILTERS or _FILTERS[option[0]] in filters]
    if log_argument:
        taken.insert(0, ("log_dirs", options.LogDirs, None))

    def decorate(ask: Callable[..., Reply | None]) -> Callable[..., None]:
        own = [*inspect.signature(ask, eval_str=True).parameters.values()][1:]
        common = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, kind, default in taken
        ]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]

        @wraps(ask)
        def command(**values: Any) -> None:
            mine = {parameter.name: values.pop(parameter.name) for parameter in own}
            if mine.get("into") and values["watch"] is not None:
                raise UsageError("--into writes the files of one answer: leave out --watch")
            _run(lambda inquiry: ask(inquiry, **mine), values)

        both = [*own, *common]
        command.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in both}
        del command.__wrapped__
        return command

    return decorate


def _run(ask: _Ask, values: dict[str, Any]) -> None:
    watch = values.pop("watch")
    given = _given(values)
    if watch is None:
        if code := _answer(ask, given):
            raise typer.Exit(code)
        return
    if given.form is Format.parquet or given.at_offset is not None:
        raise UsageError("--watch shows the newest offset: leave out --at-offset and --format parquet")
    if any(map(options.is_piped, given.logs)):
        raise UsageError("--watch: a pipe holds the log as it was: leave out --watch, or name a folder")
    _watch(ask, given, parse_span("--watch", watch))


def _given(values: dict[str, Any]) -> Given:
    form: Format = values["form"]
    if values["as_json"]:
        if form not in (Format.table, Format.json):
            raise UsageError(f"--json and --format {form}: give one of them")
        form = Format.json
    if form is Format.parquet and sys.stdout.isatty():
        raise UsageError("--format parquet is not for a terminal: write > FILE.parquet")
    wanted = Wanted(
        brokers=tuple(map(_broker, split(values.get("broker")))),
        topics=split(values.get("topic")),
        directories=split(values.get("directory")),
        reasons=split(values.get("reason")),
        sort=split(values["sort"]),
        limit=values["limit"],
    )
    return Given(
        lake=values["lake"],
        logs=[*(values.get("log_dirs") or ()), *(values["log"] or ())],
        labels=values["labels"] or (),
        at_offset=values["at_offset"],
        at_time=values["at_time"],
        wanted=wanted,
        form=form,
        every=values["every"],
    )


def _broker(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 11:
        return int(text)
    raise UsageError(f"--broker {text}: not the id of a broker, which is a number")


def _answer(ask: _Ask, given: Given, *, heading: bool = True, watched: bool = False) -> int:
    """Asks, prints the reply, and returns the exit code. Raises the error of a damaged log, if it is not watched."""
    inquiry = Inquiry(given)
    reply = ask(inquiry)
    if reply is None:
        return 0
    lake = inquiry.lake
    if lake.names.conflicts and reply.chosen.table is DIRECTORIES:  # the list of names; other answers only use them
        progress.notice(f"sources of names disagree about {_directories(lake.names)}: see jbod label")
    if given.form is Format.json:
        document = reply.as_json()
        print_json(
            document if not reply.chosen.line else {**_object(document), "selection": reply.chosen.as_json}, lake
        )
    elif given.form is Format.table:
        _show(lake, reply)
    else:
        write_rows(reply.chosen, given.form, lake.names, heading=heading)
        if lake.incomplete_since is not None:
            typer.echo(f"jbod: {lake.incomplete_since}", err=True)
        if reply.of_losses and lake.first:
            from pipelines.show.text import not_known

            progress.notice(not_known(lake.first))
        if reply.chosen.line:
            progress.notice(reply.chosen.line)
    if reply.rest is not None:
        reply.rest()
    if not watched:
        refuse_damage(lake)
    return reply.exit_code


def _directories(names: Names) -> str:
    """``directory A and 2 more``"""
    first, *others = names.conflicting
    return f"directory {first}" + (f" and {len(others)} more" if others else "")


def _object(content: Any) -> dict[str, Any]:
    from pipelines.ask.json_values import jsonable

    fields: dict[str, Any] = jsonable(content)
    return fields


def _show(lake: Lake, reply: Reply) -> None:
    """Prints an answer. If it is longer than the terminal, its first line is repeated at the end."""
    from pipelines.show.text import Screen, not_known, say, show_incomplete

    def show() -> None:
        out = Screen(lake.names)
        show_incomplete(out, lake)
        reply.show(out)
        if reply.of_losses and lake.first:
            say(out, f"{not_known(lake.first).capitalize()}.", "yellow")

    if not sys.stdout.isatty():
        show()
        return
    text = _rendered(show)
    lines = text.splitlines()
    sys.stdout.write(text)
    if len(lines) >= shutil.get_terminal_size().lines and lines:
        sys.stdout.write("\n" + "\n".join(_first_sentence(lines)) + "\n")


def _first_sentence(lines: Sequence[str]) -> Sequence[str]:
    """The first line, with the lines to which it was wrapped: up to the first that ends a sentence."""
    for number, line in enumerate(lines[:4], 1):
        if line.rstrip().removesuffix("\x1b[0m").endswith("."):
            return lines[:number]
    return lines[:1]


class _Terminal(io.StringIO):
    """Collects what is printed as on a terminal."""

    def isatty(self) -> bool:
        return True


def _rendered(show: Callable[[], None]) -> str:
    text = _Terminal()
    with redirect_stdout(text):
        show()
    return text.getvalue()


def _watch(ask: _Ask, given: Given, seconds: float) -> None:
    """Asks every so many seconds, until Ctrl-C. On a terminal, each answer replaces the one before."""
    redraws = sys.stdout.isatty() and given.form is Format.table
    first = True
    try:
        while True:
            began = time.monotonic()
            try:
                if not first:
                    options.fetch_again(given.logs)
                with progress.interruptible():
                    if redraws:
                        _redraw(ask, given, seconds)
                    else:
                        _answer(ask, given, heading=first, watched=True)
                        sys.stdout.flush()
            except JbodError as problem:
                if first:
                    raise
                typer.echo(f"jbod: {problem}", err=True)
            first = False
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    except KeyboardInterrupt:
        if first:
            raise


def _redraw(ask: _Ask, given: Given, seconds: float) -> None:
    text = _Terminal()
    with redirect_stdout(text), redirect_stderr(text):
        _answer(ask, given, watched=True)
    height = shutil.get_terminal_size().lines - 1
    lines = text.getvalue().splitlines()
    more = len(lines) - height
    footer = f"{datetime.now(UTC):%H:%M:%S}Z, every {seconds:g} s, Ctrl-C ends"
    shown = lines if more <= 0 else lines[:height]
    if more > 0:
        footer = f"{more} lines more do not fit. {footer}"
    erased = "".join(f"{line}\x1b[K\n" for line in shown)
    sys.stdout.write(f"\x1b[H{erased}\x1b[2m{footer}\x1b[0m\x1b[K\x1b[J")
    sys.stdout.flush()
