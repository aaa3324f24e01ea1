"""``jbod check``: what is wrong with the cluster's disks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbod_model.errors import UsageError
from pipelines.check.definition import Severity, at_least
from pipelines.check.expectations import docs_page, expectations_folder
from pipelines.cli import progress
from pipelines.cli.question import Inquiry, Reply, print_json, question
from pipelines.show.columns import CHECK
from pipelines.show.rows import Format

if TYPE_CHECKING:
    from pipelines.check.expectations.validate import Validation
    from pipelines.lake.reader import Lake
    from pipelines.settings import Settings
    from pipelines.show.text import Screen


@question(CHECK, log_argument=True)
def check(
    query: Inquiry,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Ids or names of checks, separated by commas. Default: all.")
    ] = None,
    fail_on: Annotated[
        Severity, typer.Option("--fail-on", help="Exit with 1 for findings at least this severe.")
    ] = "warning",
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Write the findings to the lake's table findings.")
    ] = True,
    catalogue: Annotated[bool, typer.Option("--list", help="List the checks, and exit.")] = False,
    validate: Annotated[
        bool,
        typer.Option("--validate", help="Run contracts and checks as Great Expectations, and keep Data Docs."),
    ] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Open the Data Docs, or print their path, and exit.")] = False,
) -> Reply | None:
    """What is wrong with the cluster's disks. Exit code 1 if something is.

    Findings of the newest offset are kept in the table findings; those of the past are only shown.
    """
    if catalogue:
        _show_catalogue(query.given.form is Format.json)
        return None
    if docs:
        from pipelines.settings import load

        _show_docs(expectations_folder(load(lake=query.given.lake)))
        return None
    from pipelines.check.catalogue import chosen as chosen_checks
    from pipelines.check.catalogue import run_checks
    from pipelines.show.findings import show_findings, show_validation

    words = [word.strip() for given in only or () for word in given.split(",")]
    ran = chosen_checks(words)
    if validate and (words or query.is_past):
        raise UsageError("--validate runs everything at the newest offset: leave out --only, --at-offset and --at-time")
    if validate and query.is_log:
        raise UsageError("--validate reads the tables of a lake: jbod replay LOG_DIR --lake LAKE first")
    lake, settings = query.lake, query.settings
    validation = _validate(lake, settings) if validate else None
    findings = run_checks(lake, words, settings) if validation is None else validation.findings
    chosen = query.choose(CHECK, findings)

    def as_json() -> dict[str, Any]:
        document = {
            **query.position,
            "checks": [rule.id for rule in ran],
            "findings": query.objects(chosen),
        }
        return document if validation is None else document | {"expectations": validation.as_json()}

    def show(out: Screen) -> None:
        show_findings(out, lake.offset, lake.time, ran, findings, chosen, query.every)
        if validation is not None:
            show_validation(out, validation)

    def keep_findings() -> None:
        from pipelines.check.findings import record

        if record(lake, ran, findings) is None:
            progress.notice(f"{lake.path}: the lake ends before its findings: nothing is kept until it has caught up")

    bad = at_least(fail_on)
    unmet = () if validation is None else validation.failures
    # Where the lake is incomplete, whatever was asked for may be missing.
    failed = lake.incomplete_since is not None or any(problem.severity in bad for problem in (*chosen.matching, *unmet))
    kept = keep and not query.is_log and not query.is_past
    return Reply(chosen, as_json, show, int(failed), keep_findings if kept else None, of_losses=True)


def _validate(lake: Lake, settings: Settings) -> Validation:
    lake.check_files()  # an engine would fail with a page of text
    from pipelines.check.expectations.batches import batches

    with batches(lake, settings) as made:
        # Loading Great Expectations takes seconds, in which DuckDB runs the rules.
        from pipelines.check.expectations.validate import validate_batches

        return validate_batches(made, lake, expectations_folder(settings))


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
        from pipelines.show.text import Screen

        show_catalogue(Screen())
        return
    from pipelines.ask.json_values import jsonable
    from pipelines.check.catalogue import CHECKS, ELSEWHERE

    print_json({"checks": jsonable(list(CHECKS)), "elsewhere": jsonable(list(ELSEWHERE))})
