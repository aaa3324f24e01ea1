"""``jbod quorum | upgrade-check``: the quorum of this cluster, and whether it can be upgraded to the next release."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.question import Asked, Reply, question
from pipelines.show.columns import QUORUM, UPGRADE

if TYPE_CHECKING:
    from pipelines.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("quorum")(quorum)
    app.command("upgrade-check")(upgrade_check)


@question(QUORUM, log_argument=True)
def quorum(asked: Asked) -> Reply:
    """Leader, epoch, voters and observers; registered and unregistered controllers.

    The exit code is 0 for every answer.
    """
    from pipelines.ask.json_values import jsonable
    from pipelines.ask.quorum import quorum as ask
    from pipelines.show.quorum import node_rows, show_quorum

    answer = ask(asked.lake, _ghost_after(asked.settings))
    chosen = asked.choose(QUORUM, node_rows(answer))
    return Reply(
        chosen,
        lambda: {**jsonable(answer), "nodes": asked.objects(chosen)},
        lambda: show_quorum(answer, chosen),
    )


@question(UPGRADE, log_argument=True)
def upgrade_check(
    asked: Asked,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="RELEASE",
            help="4.4, 4.4-IV2, or a level of one feature: kraft.version=1. Without: what blocks the next levels.",
        ),
    ] = None,
) -> Reply:
    """Whether all nodes support a feature level, who blocks it, and what to do. Exit code 0: ready, 1: blocked."""
    from pipelines.ask.json_values import jsonable
    from pipelines.ask.upgrade import upgrade_check as ask
    from pipelines.show.quorum import show_upgrade_check

    answer = ask(asked.lake, to, _ghost_after(asked.settings))
    chosen = asked.choose(UPGRADE, answer.features)
    return Reply(
        chosen,
        lambda: {**jsonable(answer), "features": asked.objects(chosen)},
        lambda: show_upgrade_check(answer, chosen),
        exit_code=0 if answer.ready else 1,
    )


def _ghost_after(settings: Settings) -> timedelta:
    """How long a broker may be fenced before it counts as a ghost."""
    return timedelta(hours=settings.check.offline_hours)
