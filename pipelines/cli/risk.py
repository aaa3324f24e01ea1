"""``jbod risk | whatif | safe-to-remove``: what would be lost if a disk or a broker failed."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.ask import open_lake, print_json
from pipelines.cli.options import All, AsJson, AtOffset, AtTime, LakePath, LogDirs, Logs


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    panel = "Questions, answered without a JVM"
    app.command("risk", rich_help_panel=panel)(risk)
    app.command("whatif", rich_help_panel=panel)(whatif)
    app.command("safe-to-remove", rich_help_panel=panel)(safe_to_remove)


def risk(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
    every: All = False,
) -> None:
    """For each directory and broker: what would be lost if it failed now, worst first. Exit code 0."""
    from pipelines.ask.risk import risk as ask

    opened, settings = open_lake(lake, at_offset, at_time, log_dirs, log)
    answer = ask(opened, settings.ask.min_insync_replicas)
    if as_json:
        print_json(answer.as_json())
        return
    from pipelines.show.risk import show_risk

    show_risk(answer, every)


def whatif(
    fail: Annotated[
        list[str],
        typer.Option(
            "--fail", metavar="BROKER[:DIRECTORY]", help="What fails; give it several times. An id may be cut short."
        ),
    ],
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
    every: All = False,
) -> None:
    """What would happen if these brokers and directories failed at once, partition by partition. Exit code 0."""
    from rich.console import Console

    from pipelines.ask.whatif import whatif as ask

    opened, settings = open_lake(lake, at_offset, at_time, log)
    with Console(stderr=True).status("Asking the controller about every partition that is touched"):
        answer = ask(opened, fail, settings.ask.min_insync_replicas)
    if as_json:
        print_json(answer.as_json())
        return
    from pipelines.show.risk import show_whatif

    show_whatif(answer, every)


def safe_to_remove(
    directory: Annotated[str, typer.Argument(metavar="BROKER:DIRECTORY", help="For instance 1:r60J.")],
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
    every: All = False,
) -> None:
    """Whether a directory can be removed, and what to do first. Exit code 0: safe, 1: not, 2: no such directory."""
    from pipelines.ask.removal import safe_to_remove as ask

    opened, settings = open_lake(lake, at_offset, at_time, log)
    answer = ask(opened, directory, settings.ask.min_insync_replicas)
    if as_json:
        print_json(answer.as_json())
    else:
        from pipelines.show.risk import show_removal

        show_removal(answer, every)
    raise typer.Exit(0 if answer.safe else 1)
