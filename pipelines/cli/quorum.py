"""``jbod quorum | upgrade-check``: who decides in this cluster, and whether it can go on to the next release."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.ask import open_lake, print_json
from pipelines.cli.options import AsJson, AtOffset, AtTime, LakePath, LogDirs, Logs

if TYPE_CHECKING:
    from pipelines.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    panel = "Questions, answered without a JVM"
    app.command("quorum", rich_help_panel=panel)(quorum)
    app.command("upgrade-check", rich_help_panel=panel)(upgrade_check)


def quorum(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
) -> None:
    """Leader, epoch, voters and observers; controllers registered and gone. Exit code 0 whatever the answer is."""
    from pipelines.ask.quorum import quorum as ask

    opened, settings = open_lake(lake, at_offset, at_time, log_dirs, log)
    answer = ask(opened, _ghost_after(settings))
    if as_json:
        print_json(answer)
        return
    from pipelines.show.quorum import show_quorum

    show_quorum(answer)


def upgrade_check(
    log_dirs: LogDirs = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="RELEASE",
            help="4.4, 4.4-IV2, or a level of one feature: kraft.version=1. Without: what blocks the next levels.",
        ),
    ] = None,
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
) -> None:
    """Whether all nodes support a feature level, who blocks it, and what to do. Exit code 0: ready, 1: blocked."""
    from pipelines.ask.upgrade import upgrade_check as ask

    opened, settings = open_lake(lake, at_offset, at_time, log_dirs, log)
    answer = ask(opened, to, _ghost_after(settings))
    if as_json:
        print_json(answer)
    else:
        from pipelines.show.quorum import show_upgrade_check

        show_upgrade_check(answer)
    raise typer.Exit(0 if answer.ready else 1)


def _ghost_after(settings: Settings) -> timedelta:
    """How long a broker may be fenced before it counts as a ghost."""
    return timedelta(hours=settings.check.offline_hours)
