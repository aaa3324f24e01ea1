"""``jbod settings``: which settings apply, and where each comes from."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from pipelines.cli.options import AsJson
from pipelines.settings import MACHINE_FILE, found_files, named_files, settings_in_force, user_file


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("settings", rich_help_panel="Upkeep of a lake")(settings)


def settings(
    show_all: Annotated[bool, typer.Option("--all", help="Also the settings that have their default.")] = False,
    as_json: AsJson = False,
) -> None:
    """The effective settings and the source of each: files in the order in which they are read, then variables."""
    found = settings_in_force()
    read = found_files(named_files())
    if as_json:
        values = {one.name: {"value": one.value, "source": one.source} for one in found}
        sys.stdout.write(json.dumps({"files": [str(file) for file in read], "settings": values}) + "\n")
        return
    from pipelines.show.text import console, show_table

    typer.echo("Files, later wins:")
    for file in (MACHINE_FILE, user_file(), *named_files()):
        typer.echo(f"  {file}{'' if file in read else '  (not there)'}")
    typer.echo("Then variables (JBOD_REPLAY__MAX_RECORDS=1000), then options.\n")
    rows = [(one.name, json.dumps(one.value), one.source) for one in found if show_all or not one.is_default]
    if not rows:
        typer.echo("Every setting has its default; --all shows them.")
        return
    show_table(console(), ["SETTING", "VALUE", "FROM"], rows)
