"""``python -m lab conform``: whether the reference controller answers a recorded trace as Kafka did."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from jbod_model.profiles import KAFKA, PROFILES
from lab import conformance
from lab.options import ProfileName
from pipelines.cli.options import AsJson

SHOWN = 20
"""Mismatches, and operations on which Kafka threw, that are printed without ``--all``."""

Traces = Annotated[list[str], typer.Argument(help="Traces: .jsonl or .jsonl.gz.", metavar="FILE")]
ShowAll = Annotated[bool, typer.Option("--all", help="Print all mismatches.")]


def conform(
    traces: Traces, profile: ProfileName = KAFKA.name, as_json: AsJson = False, show_all: ShowAll = False
) -> None:
    """Replay traces of Kafka's controller. Exit 0 if every operation matches, 1 if one does not, 2 on bad input."""
    if profile not in PROFILES:
        raise typer.BadParameter(f"there is no profile {profile}; use one of {', '.join(PROFILES)}")
    reports = [conformance.conform(trace, PROFILES[profile]) for trace in traces]
    if as_json:
        documents = [report.as_json() for report in reports]
        typer.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        for report in reports:
            for line in report.lines(None if show_all else SHOWN):
                typer.echo(line)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)
