"""``jbod risk | whatif | safe-to-remove``: what would be lost if a disk or a broker failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from pipelines.cli import progress
from pipelines.cli.question import Asked, Reply, question
from pipelines.show.columns import REMOVAL, RISK, WHATIF


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("risk")(risk)
    app.command("whatif")(whatif)
    app.command("safe-to-remove")(safe_to_remove)


@question(RISK, log_argument=True)
def risk(asked: Asked) -> Reply:
    """For each directory and broker: what would be lost if it failed now, worst first. Exit code 0."""
    from pipelines.ask.risk import risk as ask
    from pipelines.show.risk import show_risk

    answer = ask(asked.lake, asked.min_isr)
    chosen = asked.choose(RISK, [*answer.brokers, *answer.directories])
    shown = replace(
        answer,
        brokers=[one for one in chosen.rows if one.directory_id is None],
        directories=[one for one in chosen.rows if one.directory_id is not None],
    )
    return Reply(
        chosen,
        lambda: {
            **shown.as_json(),
            "brokers": asked.objects(chosen, shown.brokers),
            "directories": asked.objects(chosen, shown.directories),
        },
        lambda: show_risk(answer, shown, chosen, asked.every),
    )


@question(WHATIF)
def whatif(
    asked: Asked,
    fail: Annotated[
        list[str],
        typer.Option(
            "--fail",
            metavar="BROKER[:DIR]",
            help="What fails; give it several times. DIR is an id, the beginning of one, a path or a label.",
        ),
    ],
) -> Reply:
    """What would happen if these brokers and directories failed at once, partition by partition. Exit code 0."""
    from rich.console import Console

    from pipelines.ask.whatif import whatif as ask
    from pipelines.show.risk import show_whatif

    with Console(stderr=True, quiet=progress.is_quiet()).status(
        "Asking the controller about every partition that is touched"
    ):
        answer = ask(asked.lake, fail, asked.min_isr)
    chosen = asked.choose(WHATIF, answer.changes)
    return Reply(
        chosen,
        lambda: {**answer.as_json(), "changes": asked.objects(chosen)},
        lambda: show_whatif(answer, chosen, asked.every),
    )


@question(REMOVAL)
def safe_to_remove(
    asked: Asked,
    directory: Annotated[str, typer.Argument(metavar="BROKER:DIR", help="For instance 1:r60J, or 1:/data/disk1b.")],
) -> Reply:
    """Whether a directory can be removed, and what to do first. Exit code 0: safe, 1: not, 2: no such directory."""
    from pipelines.ask.removal import safe_to_remove as ask
    from pipelines.show.risk import show_removal

    answer = ask(asked.lake, directory, asked.min_isr)
    chosen = asked.choose(REMOVAL, answer.held)
    return Reply(
        chosen,
        lambda: {**answer.as_json(), "held": asked.objects(chosen)},
        lambda: show_removal(answer, chosen, asked.every),
        exit_code=0 if answer.safe else 1,
    )
