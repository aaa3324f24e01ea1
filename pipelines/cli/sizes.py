"""``jbod sizes``: how full the disks are (docs/plans.md)."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli import progress
from pipelines.cli.options import CommandConfig
from pipelines.cli.question import Inquiry, Reply, question
from pipelines.show.columns_plans import SIZES


@question(SIZES)
def sizes(
    query: Inquiry,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="kafka://BROKER:PORT, a file that kafka-log-dirs --describe printed, mounted disks, or a folder with "
            "them.",
        ),
    ],
    command_config: CommandConfig = None,
) -> Reply:
    """How full each directory is, and what fills it. Exit code 0 whatever the answer is."""
    from pipelines.ask.sizes import sizes as ask
    from pipelines.show.sizes import show_sizes

    answer = ask(query.lake, sources, command_config or "")
    for line in answer.notes:
        progress.notice(f"sizes: {line}")
    chosen = query.choose(SIZES, answer.directories)
    return Reply(
        chosen,
        lambda: {**answer.as_json(), "directories": query.objects(chosen)},
        lambda out: show_sizes(out, answer, chosen, query.every),
    )
