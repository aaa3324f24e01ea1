"""``jbod report``: one page about the cluster that opens anywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from jbod_model.errors import UsageError
from pipelines.cli.lakes import open_lake, print_json
from pipelines.cli.options import AsJson, AtOffset, AtTime, LakePath, LogDirs, Logs


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("report", rich_help_panel="Questions, answered without a JVM")(report)


def report(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE.html", help="Where to write the page.")] = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    as_json: AsJson = False,
) -> None:
    """One self-contained page: the state of the cluster, what is offline and why, what to do, with charts."""
    if out is None and not as_json:
        raise UsageError("give --out FILE.html for the page, or --json for its numbers")
    from pipelines.report.content import gather

    opened, settings = open_lake(lake, at_offset, at_time, log_dirs, log)
    content = gather(opened, settings)
    if out is not None:
        from pipelines.report.page import page, write_page

        size = write_page(out, page(content))
        typer.echo(f"{out}: {size / 1e6:.1f} MB. {content.headline}", err=as_json)
    if as_json:
        print_json(content.as_json(opened.names))
