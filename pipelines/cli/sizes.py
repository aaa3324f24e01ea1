"""``jbod sizes``: how full the disks are (docs/plans.md)."""

from __future__ import annotations

from typing import Annotated

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.cli.options import CommandConfig
from pipelines.cli.question import Inquiry, Reply, question
from pipelines.show.columns_plans import SIZES


@question(SIZES)
def sizes(
    query: Inquiry,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="A cluster (kafka://BROKER:PORT), a file that kafka-log-dirs --describe printed, mounted disks, or a "
            "folder with them. Without one: what was kept.",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the sizes in the lake, for what grows and how fast.")
    ] = False,
    command_config: CommandConfig = None,
) -> Reply:
    """How full each directory is, and what fills it. Exit code 0 whatever the answer is."""
    from pipelines.ask.sizes import keep as keep_in_lake
    from pipelines.ask.sizes import kept
    from pipelines.ask.sizes import sizes as ask
    from pipelines.show.sizes import show_sizes

    if keep and (query.is_log or not sources):
        raise UsageError("--keep: name a source, and the lake that keeps what it says (--lake)")
    answer = ask(query.lake, sources, command_config or "") if sources else kept(query.lake)
    for line in answer.notes:
        progress.notice(f"sizes: {line}")
    if keep:
        new = keep_in_lake(query.lake, answer)
        progress.notice(f"sizes of {new:,} directories are kept" if new else "these sizes were kept before")
    chosen = query.choose(SIZES, answer.directories)
    return Reply(
        chosen,
        lambda: {**answer.as_json(), "directories": query.objects(chosen)},
        lambda out: show_sizes(out, answer, chosen, query.every),
    )
