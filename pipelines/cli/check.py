"""``jbod check``: what is wrong with the cluster's disks."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jbod_model.errors import UsageError
from pipelines.check.expectations import docs_page, expectations_folder
from pipelines.cli.ask import AsJson, AtOffset, AtTime, LakePath, LogDirs, Logs, open_lake, print_json

if TYPE_CHECKING:
    from pipelines.check.expectations.validate import Validation
    from pipelines.lake.reader import Lake
    from pipelines.settings import Settings


class FailOn(StrEnum):
    """The least severity that makes the exit code 1."""

    critical = "critical"
    warning = "warning"
    info = "info"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("check", rich_help_panel="Questions, answered without a JVM")(check)


def check(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
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
    validate: Annotated[
        bool,
        typer.Option("--validate", help="Run contracts and checks as Great Expectations; keeps Data Docs."),
    ] = False,
    docs: Annotated[
        bool, typer.Option("--docs", help="Open the Data Docs, or print where they are; and leave.")
    ] = False,
) -> None:
    """What is wrong with the cluster's disks. Exits with 1 if something is.

    Findings of the newest offset are kept in the table findings; those of the past are only shown.
    """
    if catalogue:
        _show_catalogue(as_json)
        return
    from pipelines.check.catalogue import chosen
    from pipelines.check.definition import at_least
    from pipelines.check.evaluate import run_checks
    from pipelines.settings import load

    settings = load(lake=lake)
    if docs:
        _show_docs(expectations_folder(settings))
        return
    words = [word.strip() for given in only or () for word in given.split(",")]
    ran = chosen(words)
    if validate and (words or at_offset is not None or at_time is not None):
        raise UsageError("--validate runs everything at the newest offset: leave out --only, --at-offset and --at-time")
    if validate and (log_dirs or log):
        raise UsageError("--validate reads the tables of a lake: jbod replay LOG_DIR --lake LAKE first")
    opened, _ = open_lake(lake, at_offset, at_time, log_dirs, log)
    validation = _validate(opened, settings) if validate else None
    found = run_checks(opened, words, settings) if validation is None else validation.findings
    if as_json:
        answer = {
            "offset": opened.offset,
            "time": opened.time,
            "checks": [one.id for one in ran],
            "findings": [one.as_json() for one in found],
        }
        print_json(answer if validation is None else answer | {"expectations": validation.as_json()})
    else:
        from pipelines.show.findings import show_findings

        show_findings(opened.offset, opened.time, ran, found, every)
        if validation is not None:
            from pipelines.show.findings import show_validation

            show_validation(validation)
    if keep and not (log_dirs or log) and at_offset is None and at_time is None:
        from pipelines.check.findings import record

        if record(opened, ran, found) is None:
            typer.echo(f"{opened.path}: the lake ends before what findings say: nothing is kept until then", err=True)
    bad = at_least(fail_on.value)
    if opened.incomplete_since is not None:  # whatever was asked for, it may be missing
        raise typer.Exit(1)
    unmet = () if validation is None else validation.failures
    if any(one.severity in bad for one in found) or any(one.severity in bad for one in unmet):
        raise typer.Exit(1)


def _validate(lake: Lake, settings: Settings) -> Validation:
    lake.check_files()  # an engine would fail with a page of text
    from pipelines.check.expectations.validate import validate

    return validate(lake, settings, expectations_folder(settings))


def _show_docs(folder: Path) -> None:
    """Prints the path of the Data Docs. On a terminal, also opens them in a browser."""
    page = docs_page(folder)
    if not page.is_file():
        raise UsageError(f"{page}: no Data Docs yet: run jbod check --validate")
    typer.echo(page)
    if sys.stdout.isatty():
        typer.launch(page.absolute().as_uri())


def _show_catalogue(as_json: bool) -> None:
    if not as_json:
        from pipelines.show.findings import show_catalogue

        show_catalogue()
        return
    from pipelines.ask.json_values import jsonable
    from pipelines.check.catalogue import CHECKS, ELSEWHERE

    print_json({"checks": jsonable(list(CHECKS)), "elsewhere": jsonable(list(ELSEWHERE))})
