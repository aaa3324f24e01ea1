"""Opens the lake of a command, or a log that answers like a lake; prints JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.lake.times import is_exact, parse_time

if TYPE_CHECKING:
    from pipelines.lake.reader import Lake
    from pipelines.settings import Settings


def open_lake(
    path: str | None,
    at_offset: int | None,
    at_time: str | None,
    *logs: Sequence[str] | None,
    labels: Sequence[str] = (),
) -> tuple[Lake, Settings]:
    """Opens the lake, or a log that answers like a lake. Also returns the settings of this command.

    If a log is damaged, the answer uses the records before the damage. The command then ends with the log's error, like
    a replay (`refuse_damage`). ``labels``: files with names of directories, see ``pipelines.ask.label_sources``.
    """
    if at_offset is not None and at_time is not None:
        raise UsageError("--at-offset and --at-time: give one of them")
    log_dirs = [one for some in logs for one in some or ()]
    if path is not None and log_dirs:
        raise UsageError("--lake and --log: give one of them")
    if len(log_dirs) > 1:
        raise UsageError(f"{', '.join(log_dirs)}: a question is about one log: give one")
    time = None if at_time is None else parse_time(at_time)
    from pipelines.settings import load

    settings = load(lake=path)
    if not log_dirs:
        from pipelines.lake.reader import Lake

        found = Lake.open(settings.lake, at_offset, time)
        progress.decision(f"asks the lake {settings.lake} at offset {found.offset}")
    else:
        from pipelines.start.plain_kernels import are_plain, choose_kernels

        choose_kernels(log_dirs)
        from pipelines.run.log_lake import LogLake
        from pipelines.source.log_options import LogOptions

        replay = settings.replay
        options = LogOptions(path=log_dirs[0], tail=replay.tail)
        found = LogLake.of(options, at_offset, time, profile=replay.profile)
        kernels = "plain functions, the log is small" if are_plain() else "numba"
        progress.decision(f"replayed the log {log_dirs[0]} in memory by {kernels}, up to offset {found.offset}")
        for line in found.log.notices:
            progress.notice(line)
        if found.log.refusal is not None:
            progress.notice(f"answered from the records up to offset {found.published.end_offset - 1}")
    sources = [*(settings.labels.sources if log_dirs else ()), *labels]
    if sources:
        from pipelines.ask.label_sources import read_sources

        read = read_sources(found, sources, found.kept_names())
        for line in read.notes:
            progress.notice(f"labels: {line}")
        found = replace(found, named=read.statements)
    if at_time is not None and time is not None and not is_exact(at_time):
        meant = f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        progress.notice(f"--at-time {at_time} is {meant}: the answer is of offset {found.offset}")
    return found, settings


def refuse_damage(lake: Lake) -> None:
    """After an answer: raises the error that ended the reading of a damaged log."""
    if lake.refusal is not None:
        raise lake.refusal


def print_json(answer: Any, lake: Lake | None = None) -> None:
    """One JSON document on standard output; an object says where its lake is incomplete (``incomplete_since``)."""
    from pipelines.ask.json_values import jsonable
    from pipelines.show.text import with_names

    said = jsonable(answer)
    if lake is not None:
        said = with_names(said, lake.names)
    if lake is not None and lake.incomplete_since is not None and isinstance(said, dict):
        said["incomplete_since"] = lake.incomplete_since.as_json()
    sys.stdout.write(json.dumps(said) + "\n")
