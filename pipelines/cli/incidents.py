"""``jbod incidents``: every failure so far, from its beginning to its end."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.ask import open_lake, print_json
from pipelines.cli.options import All, AsJson, AtOffset, AtTime, LakePath, Logs


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("incidents", rich_help_panel="Questions, answered without a JVM")(incidents)


def incidents(
    number: Annotated[int | None, typer.Argument(metavar="[NO]", help="One incident, replica by replica.")] = None,
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
    every: All = False,
) -> None:
    """Every failed directory and lost broker so far: what it took, who took over, how it came back. Exit code 0."""
    from pipelines.ask.incidents import details
    from pipelines.ask.incidents import incidents as ask
    from pipelines.ask.move_counts import moving

    opened, settings = open_lake(lake, at_offset, at_time, log)
    default = settings.ask.min_insync_replicas
    position = {"offset": opened.offset, "time": opened.time}
    if number is not None:
        one = details(opened, number, default)
        if as_json:
            print_json({**position, **one.as_json()})
            return
        from pipelines.show.incidents import show_details

        show_details(one, opened.time, every)
        return
    answer = ask(opened, default)
    moved, asked = moving(opened)
    if as_json:
        stories = [each.as_json() for each in answer]
        print_json({**position, "incidents": stories, "moves": moved, "assignmentQueue": asked})
        return
    from pipelines.show.incidents import show_incidents, show_moving

    show_incidents(opened.offset, opened.time, answer, every)
    show_moving(moved, asked)
