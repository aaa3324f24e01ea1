"""``jbod metrics | alert``: what a monitor reads, and what it is told."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli_ask import LakePath, _open


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("metrics", rich_help_panel="Questions, answered without a JVM")(metrics)


def metrics(
    lake: LakePath = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write this file in one step instead; node_exporter's textfile collector reads *.prom."),
    ] = None,
    log_dir: Annotated[
        str | None, typer.Option("--log-dir", metavar="DIR", help="The log, to say how far the lake is behind it.")
    ] = None,
) -> None:
    """The state of the cluster and of the lake as Prometheus text."""
    from pipelines.metrics.behind import behind
    from pipelines.metrics.exposition import as_text, write
    from pipelines.metrics.measure import measure

    opened, default = _open(lake, None, None)
    log = None if log_dir is None else behind(log_dir, opened.published.end_offset)
    families = measure(opened, datetime.now(UTC), default_min_isr=default, log=log)
    if out is None:
        sys.stdout.write(as_text(families))
    else:
        write(families, out)
