"""Options that more than one command takes: each is defined once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pipelines.show.formats import Format

_WHAT, _WHICH, _HOW = "What is asked", "Which rows", "How it is printed"
"""The panels of options in the help of a question."""

LakePath = Annotated[
    str | None,
    typer.Option("--lake", help="The lake to read. The setting lake changes the default.", rich_help_panel=_WHAT),
]
MaintainedLake = Annotated[
    str | None, typer.Option("--lake", help="The lake to change. The setting lake changes the default.")
]
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="DIR",
        help="Ask this log in place of a lake: a metadata.log.dir, its __cluster_metadata-0 or a URI.",
        rich_help_panel=_WHAT,
    ),
]
LogDirs = Annotated[list[str] | None, typer.Argument(metavar="LOG_DIR", help="The same as --log DIR.")]
AtOffset = Annotated[
    int | None,
    typer.Option("--at-offset", help="The state after the record at this offset.", rich_help_panel=_WHAT),
]
AtTime = Annotated[
    str | None,
    typer.Option(
        "--at-time",
        metavar="TIME",
        help="The state at this time: 2026-11-21T02:21:05Z, -10m, 2h ago, yesterday 14:00 (UTC).",
        rich_help_panel=_WHAT,
    ),
]
LabelFiles = Annotated[
    list[str] | None,
    typer.Option("--labels", metavar="FILE", help="Names of disks, see jbod label.", rich_help_panel=_WHAT),
]
Brokers = Annotated[
    list[str] | None, typer.Option("--broker", metavar="ID", help="Only of this broker.", rich_help_panel=_WHICH)
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="GLOB", help="Only of this topic: orders, or orders*.", rich_help_panel=_WHICH),
]
Dirs = Annotated[
    list[str] | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Only of this disk: its id, its path or the end of it (disk7c), or its label.",
        rich_help_panel=_WHICH,
    ),
]
Reasons = Annotated[
    list[str] | None,
    typer.Option("--reason", metavar="TEXT", help="Only for this reason, state or kind.", rich_help_panel=_WHICH),
]
Sort = Annotated[
    list[str] | None,
    typer.Option(
        "--sort", metavar="COLUMN", help="Sort by this column; -COLUMN: in descending order.", rich_help_panel=_WHICH
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=0, help="At most this number of rows.", rich_help_panel=_WHICH)
]
Form = Annotated[
    Format,
    typer.Option("--format", help="Columns: docs/columns.md.", show_default=False, rich_help_panel=_HOW),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
QuestionAsJson = Annotated[bool, typer.Option("--json", help="The same as --format json.", rich_help_panel=_HOW)]
All = Annotated[bool, typer.Option("--all", help="List all rows.", rich_help_panel=_HOW)]
Watch = Annotated[
    str | None,
    typer.Option("--watch", metavar="5s", help="Repeat at this interval, until Ctrl-C.", rich_help_panel=_HOW),
]


class Severity(StrEnum):
    """The severity of a finding."""

    critical = "critical"
    warning = "warning"
    info = "info"
