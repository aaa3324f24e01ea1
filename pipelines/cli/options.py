"""Options that more than one command takes: each is defined once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

LakePath = Annotated[str | None, typer.Option("--lake", help="The lake to ask; settings name another default.")]
MaintainedLake = Annotated[
    str | None, typer.Option("--lake", help="The lake to work on; settings name another default.")
]
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="DIR",
        help="Ask this log in place of a lake: a metadata.log.dir, its __cluster_metadata-0 or a URI. Several for the "
        "directories of several controllers.",
    ),
]
LogDirs = Annotated[list[str] | None, typer.Argument(metavar="[LOG_DIR]...", help="The same as --log DIR.")]
AtOffset = Annotated[int | None, typer.Option("--at-offset", help="As it was after the record at this offset.")]
AtTime = Annotated[
    str | None,
    typer.Option("--at-time", help="As it was at this time: 2026-11-21T02:21:05Z, or milliseconds since 1970."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
All = Annotated[bool, typer.Option("--all", help="List everything, however long.")]


class Severity(StrEnum):
    """The severity of a finding."""

    critical = "critical"
    warning = "warning"
    info = "info"
