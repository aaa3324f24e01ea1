"""``jbod check``: what is wrong, told before anybody asks."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pipelines.cli_ask import AsJson, AtOffset, AtTime, LakePath, _open, _print_json


class FailOn(StrEnum):
    """The least severity that makes the exit code 1."""

    critical = "critical"
    warning = "warning"
    info = "info"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("check", rich_help_panel="Questions, answered without a JVM")(check)


def check(
    lake: LakePath = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Ids or names of checks, separated by commas; all of them else.")
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Leave with 1 for findings at least this severe.")
    ] = FailOn.warning,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="Name everything found, however long.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Write what is found now to the lake's table findings.")
    ] = True,
    catalogue: Annotated[bool, typer.Option("--list", help="Name the checks, and leave.")] = False,
) -> None:
    """What is wrong with the cluster's disks. Leaves with 1 where something is.

    Findings of the newest offset are kept in the table findings; those of the past are only shown.
    """
    if catalogue:
        _show_catalogue(as_json)
        return
    from pipelines.check.catalogue import chosen
    from pipelines.check.definition import at_least
    from pipelines.check.run import run_checks
    from pipelines.settings import load

    words = [word.strip() for given in only or () for word in given.split(",")]
    ran = chosen(words)
    opened, _ = _open(lake, at_offset, at_time)
    found = run_checks(opened, words, load(lake=lake))
    if as_json:
        _print_json(
            {
                "offset": opened.offset,
                "time": opened.time,
                "checks": [one.id for one in ran],
                "findings": [one.as_json() for one in found],
            }
        )
    else:
        from pipelines.check.show import show_findings

        show_findings(opened.offset, opened.time, ran, found, every)
    if keep and at_offset is None and at_time is None:
        from pipelines.check.findings import record

        if record(opened, ran, found) is None:
            typer.echo(f"{opened.path}: the lake ends before what findings say: nothing is kept until then", err=True)
    if any(one.severity in at_least(fail_on.value) for one in found):
        raise typer.Exit(1)


def _show_catalogue(as_json: bool) -> None:
    if not as_json:
        from pipelines.check.show import show_catalogue

        show_catalogue()
        return
    from pipelines.ask.form import jsonable
    from pipelines.check.catalogue import CHECKS, ELSEWHERE

    _print_json({"checks": jsonable(list(CHECKS)), "elsewhere": jsonable(list(ELSEWHERE))})
