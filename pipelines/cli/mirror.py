"""``jbod mirror``: a byte-exact copy of a quorum's committed log, from its controllers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from jbod_model.errors import JbodError, UsageError
from pipelines.cli import progress
from pipelines.cli.options import CommandConfig
from pipelines.cli.process import Interrupts, Stopped

_DELETE_SECONDS = 60.0
"""How often history is looked for that may be deleted."""


def mirror(
    quorum: Annotated[str, typer.Argument(metavar="kafka://HOST:PORT", help="The controllers, separated by commas.")],
    into: Annotated[str, typer.Option("--into", metavar="DIR", help="The folder of the copy, a metadata.log.dir.")],
    follow: Annotated[bool, typer.Option("--follow", help="Continue as the log grows, until Ctrl-C.")] = False,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="30d", help="Delete what is older. Default: nothing.")
    ] = None,
    lake: Annotated[
        list[str] | None,
        typer.Option("--lake", metavar="LAKE", help="With --keep: keep what this lake has not read yet, too."),
    ] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="DIR", help="Begin a new copy with this copy of the files.")
    ] = None,
    command_config: CommandConfig = None,
) -> None:
    """Keep a byte-exact copy of the committed metadata log, which its controllers hand out with the high watermark."""
    from pipelines.lake.times import parse_age
    from pipelines.mirror.folder import MirrorFolder
    from pipelines.mirror.follow import Mirror
    from pipelines.quorum import KAFKA
    from pipelines.quorum.client import QuorumClient, addresses_of
    from pipelines.quorum.connection import Halted
    from pipelines.quorum.security import security_of
    from pipelines.settings import load

    if not quorum.startswith(KAFKA):
        raise UsageError(f"{quorum}: write kafka://HOST:PORT[,HOST:PORT...], the controllers")
    if lake and keep is None:
        raise UsageError("--lake: says what --keep must not delete: give --keep, too")
    addresses, security = addresses_of(quorum), security_of(command_config or load().quorum.command_config)
    seconds = None if keep is None else parse_age("--keep", keep)
    needed = partial(_read_until, lake or ())
    with Interrupts() as interrupts:
        stopped: list[int] = []
        interrupts.stop = lambda: stopped.append(1)
        folder = MirrorFolder(into)
        source = QuorumClient(
            addresses,
            security,
            stop=lambda: bool(stopped),
            patience=float("inf") if follow else 60.0,
            told=progress.notice,
        )
        copy = Mirror(source, folder, progress.notice)
        try:
            copy.begin(seed)
            deleted = 0.0
            while not copy.step() or follow:
                end = folder.end
                progress.say(f"offset {0 if end is None else end.offset} of {copy.progress.high_watermark}")
                if seconds is not None and time.monotonic() - deleted > min(_DELETE_SECONDS, seconds):
                    copy.delete_before(seconds, needed)
                    deleted = time.monotonic()
            if seconds is not None:
                copy.delete_before(seconds, needed)
        except Halted:
            pass
        finally:
            source.close()
            folder.close()
    progress.say("")
    end = folder.end
    if end is not None:
        typer.echo(f"{into}: offsets {folder.first or 0} to {end.offset - 1}; {copy.progress.begins}")
    if stopped and not follow:
        raise Stopped(interrupts.exit_code)


def _read_until(lakes: Sequence[str]) -> int | None:
    """The offset from which on one of the lakes has not read the log; None without lakes.

    A lake that cannot be read, or has nothing yet, may need all of the log.
    """
    from pipelines.lake.reader import Lake

    ends = []
    for lake in lakes:
        try:
            ends.append(Lake.open(lake).published.end_offset)
        except JbodError as problem:
            progress.notice(f"--keep deletes nothing: {problem}")
            ends.append(0)
    return min(ends, default=None)
