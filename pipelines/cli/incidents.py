"""``jbod incidents``: every failure so far, from its beginning to its end."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.question import Asked, Reply, question
from pipelines.show.columns import INCIDENTS, OUTAGES


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("incidents")(incidents)


@question(INCIDENTS, OUTAGES)
def incidents(
    asked: Asked,
    number: Annotated[int | None, typer.Argument(metavar="NO", help="One incident, replica by replica.")] = None,
) -> Reply:
    """Every failed directory and lost broker so far: what it took, who took over, how it came back. Exit code 0."""
    from pipelines.ask.incident_list import details
    from pipelines.ask.incident_list import incidents as ask
    from pipelines.ask.move_counts import moving
    from pipelines.show.incidents import show_details, show_incidents, show_moving

    lake = asked.lake
    if number is not None:
        one = details(lake, number, asked.min_isr)
        chosen = asked.choose(OUTAGES, one.outages)
        return Reply(
            chosen,
            lambda: {**asked.position, **one.as_json(), "outages": asked.objects(chosen)},
            lambda: show_details(one, chosen, lake.time, asked.every),
        )
    answer = ask(lake, asked.min_isr)
    chosen = asked.choose(INCIDENTS, answer)
    moved, queue = moving(lake)

    def show() -> None:
        show_incidents(lake.offset, lake.time, answer, chosen, asked.every)
        show_moving(moved, queue)

    return Reply(
        chosen,
        lambda: {
            **asked.position,
            "incidents": asked.objects(chosen),
            "moves": moved,
            "assignment_queue": queue,
        },
        show,
    )
