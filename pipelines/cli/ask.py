"""``jbod image | offline | status | history | directories | dump | version``: the commands that only read."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbod_model.errors import UsageError
from pipelines.cli.afterwards import refusals
from pipelines.cli.options import All, AsJson, AtOffset, AtTime, LakePath, LogDirs, Logs
from pipelines.show.incomplete import about, answered

if TYPE_CHECKING:
    from pipelines.lake.reader import Lake
    from pipelines.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    panel = "Questions, answered without a JVM"
    for command in (offline, status, directories, history, image, dump):
        app.command(command.__name__, rich_help_panel=panel)(command)
    app.command("version")(show_version)


def offline(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
    every: All = False,
) -> None:
    """Which replicas are offline, why, since when, and what to do. Exit code 0 whatever the answer is."""
    from pipelines.ask.offline import offline as ask

    opened, settings = open_lake(lake, at_offset, at_time, log_dirs, log)
    answer = ask(opened, settings.ask.min_insync_replicas, settings.check.losses_accepted_until)
    if as_json:
        print_json(answer.as_json())
        return
    from pipelines.show.answers import show_offline

    show_offline(answer, every)


def status(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
) -> None:
    """The lake and its cluster on one screen."""
    from pipelines.ask.status import status as ask

    opened, settings = open_lake(lake, at_offset, at_time, log_dirs, log)
    answer = ask(opened, settings.ask.min_insync_replicas, settings.check.losses_accepted_until)
    if as_json:
        print_json(answer)
        return
    from pipelines.show.answers import show_status

    show_status(answer)


def directories(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
) -> None:
    """Every directory of every broker: whether it is online, since when, and what it holds."""
    from pipelines.ask.directories import directories as ask

    opened, _ = open_lake(lake, at_offset, at_time, log_dirs, log)
    answer = ask(opened)
    if as_json:
        print_json({"offset": opened.offset, "time": opened.time, "directories": answer})
        return
    from pipelines.show.answers import show_directories

    show_directories(opened.offset, opened.time, answer)


def history(
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="For instance orders-3.")],
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
) -> None:
    """The history of one partition, record by record."""
    from pipelines.ask.history import history as ask

    opened, settings = open_lake(lake, at_offset, at_time, log)
    answer = ask(opened, partition, settings.ask.min_insync_replicas)
    if as_json:
        print_json({"offset": opened.offset, "time": opened.time, "history": answer})
        return
    from pipelines.show.answers import show_history

    show_history(opened.offset, answer)


def image(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: Annotated[bool, typer.Option("--json", help="The only form there is; may be left out.")] = True,  # noqa: ARG001
) -> None:
    """The whole state as one JSON object, in the shape of a Kafka metadata image."""
    from pipelines.ask.image import image_text

    opened, _ = open_lake(lake, at_offset, at_time, log_dirs, log)
    sys.stdout.writelines(image_text(opened))
    sys.stdout.write("\n")


def dump(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Segments (.log) or snapshots (.checkpoint).")],
    keep_unknown: Annotated[
        bool, typer.Option("--keep-unknown", help="Print versions raw, too, that a replay would stop at.")
    ] = False,
) -> None:
    """Every record of log segments or snapshots as a line of JSON, control records included."""
    from jbod_model.formats.text import dump_lines

    for file in files:
        for line in dump_lines(Path(file), keep_unknown=keep_unknown):
            sys.stdout.write(json.dumps(line) + "\n")


def show_version(as_json: AsJson = False) -> None:
    """The versions of jbod and of its main dependencies."""
    packages = ("jbod", "pyspark", "delta-spark", "deltalake", "duckdb", "pyarrow", "numba")
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    found["python"] = sys.version.split()[0]
    if as_json:
        print_json(found)
        return
    for name, number in found.items():
        typer.echo(f"{name:<12} {number or 'not installed'}")


def parse_time(text: str) -> datetime:
    """Parses an ISO 8601 time (UTC by default) or milliseconds since 1970. Raises UsageError for anything else."""
    if text.isascii() and text.isdigit():
        try:
            time = datetime.fromtimestamp(int(text) / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            raise UsageError(f"--at-time {text}: too many milliseconds since 1970") from None
        if time >= _OLDEST:
            return time
        raise UsageError(
            f"--at-time {text}: as milliseconds since 1970 that is {time:%Y-%m-%dT%H:%M:%SZ}, before there was a Kafka"
            + _as_seconds(int(text))
        )
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--at-time {text}: not a time: write 2026-11-21T02:21:05Z, or milliseconds since 1970"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


_OLDEST = datetime(2011, 1, 1, tzinfo=UTC)
"""No Kafka log is older, so a smaller number is probably not in milliseconds."""


def _as_seconds(number: int) -> str:
    """The advice if ``number`` seems to be in seconds."""
    time = datetime.fromtimestamp(number, UTC)
    if time < _OLDEST:
        return ": write 2026-11-21T02:21:05Z, or milliseconds since 1970"
    return f"; if seconds are meant, write {number}000 or {time:%Y-%m-%dT%H:%M:%SZ}"


def open_lake(
    path: str | None, at_offset: int | None, at_time: str | None, *logs: Sequence[str] | None
) -> tuple[Lake, Settings]:
    """Opens the lake, or a log that answers like a lake. Also returns the settings of this command.

    If a log is damaged, the answer uses the records before the damage. The command then ends with the log's error, like
    a replay.
    """
    if at_offset is not None and at_time is not None:
        raise UsageError("--at-offset and --at-time: give one of them")
    log_dirs = [one for some in logs for one in some or ()]
    if path is not None and log_dirs:
        raise UsageError("--lake and --log: give one of them")
    time = None if at_time is None else parse_time(at_time)
    from pipelines.settings import load

    settings = load(lake=path)
    # An answer has many small objects that all stay alive: garbage collection took a third of the time.
    gc.set_threshold(100_000, 50, 100)
    if not log_dirs:
        from pipelines.lake.reader import Lake

        return _told(Lake.open(settings.lake, at_offset, time)), settings
    from pipelines.start.pandas_import import without_pandas

    without_pandas()
    from pipelines.replay.log_lake import LogLake
    from pipelines.source.log_options import Options

    replay = settings.replay
    options = Options(
        path=log_dirs[0],
        more_dirs=tuple(log_dirs[1:]),
        cut_tail=replay.tail,
    )
    found = LogLake.of(options, at_offset, time, profile=replay.profile)
    if found.log.refusal is not None:
        typer.echo(f"jbod: answered from the records up to offset {found.published.end_offset - 1}", err=True)
        refusals.append(found.log.refusal)
    return _told(found), settings


def _told(lake: Lake) -> Lake:
    """The lake; every question passes here, and its answer says where the lake is incomplete."""
    about(lake.incomplete_since)
    return lake


def print_json(answer: Any) -> None:
    """One JSON document on standard output; an object says where it is incomplete (``incompleteSince``)."""
    from pipelines.ask.json_values import jsonable

    said = jsonable(answer)
    if answered and isinstance(said, dict):
        said["incompleteSince"] = answered[0].as_json()
    sys.stdout.write(json.dumps(said) + "\n")
