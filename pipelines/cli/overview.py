"""``jbod`` without a command, and ``jbod settings``: what can be asked from here, and which settings apply."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from pipelines.cli.options import AsJson
from pipelines.settings import MACHINE_FILE, existing_files, named_files, settings_in_force, user_file

LOG = "__cluster_metadata-0"
_QUESTIONS = (
    ("offline", "which replicas are offline, why, and what to do"),
    ("check", "what is wrong, or about to be"),
    ("directories", "what every disk holds"),
    ("incidents", "what happened so far, failure by failure"),
    ("risk", "what the next failure would cost"),
    ("report --out report.html", "all of it on one page"),
)
_MOST = 3
"""Places that are named."""


def show_sight(places: Sequence[str]) -> bool:
    """Says what can be asked of the lakes and logs at ``places``, by default the settings' lake and this directory.

    Returns False, and prints nothing, if there is neither.
    """
    lakes_and_logs = list(dict.fromkeys(_find_places(places)))
    if not lakes_and_logs:
        return False
    for option, place in lakes_and_logs[:_MOST]:
        kind = "A lake" if option == "--lake" else "A metadata log"
        typer.echo(f"{kind}: {place}")
    if len(lakes_and_logs) > _MOST:
        typer.echo(f"and {len(lakes_and_logs) - _MOST} more")
    option, place = lakes_and_logs[0]
    typer.echo("\nAsk:")
    for question, about in _QUESTIONS:
        typer.echo(f"  jbod {question} {option} {quote(place)}\n      {about}")
    if option == "--log":
        typer.echo(f"\nKeep its history, and ask faster:\n  jbod replay {quote(place)} --lake lake")
    typer.echo("\njbod --help names all commands.")
    return True


def _find_places(places: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Option and path of each lake or log: of the places themselves, then one level below them."""
    if not places:
        from pipelines.settings import load

        lake = load().lake
        if _is_lake(Path(lake)):
            yield "--lake", lake
    for place in map(Path, places or ["."]):
        if _is_folder(place):
            here = [*_at(place)]
            yield from here
            for folder in [] if here else _folders(place):
                yield from _at(folder)


def _at(place: Path) -> Iterator[tuple[str, str]]:
    if _is_lake(place):
        yield "--lake", str(place)
    elif place.name == LOG or _is_folder(place / LOG):
        yield "--log", str(place)


def _is_lake(place: Path) -> bool:
    return _is_folder(place / "ledger" / "_delta_log")


def _is_folder(place: Path) -> bool:
    """Whether there is a folder. One that this user may not look for is none: others beside it are shown."""
    try:
        return place.is_dir()
    except PermissionError:
        return False


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(filter(_is_folder, place.iterdir()))
    except PermissionError:
        return []


def settings(
    show_all: Annotated[bool, typer.Option("--all", help="Also the settings that have their default.")] = False,
    as_json: AsJson = False,
) -> None:
    """The effective settings and the source of each: files in the order in which they are read, then variables."""
    all_settings = settings_in_force()
    read = existing_files(named_files())
    if as_json:
        values = {setting.name: {"value": setting.value, "source": setting.source} for setting in all_settings}
        sys.stdout.write(json.dumps({"files": [str(file) for file in read], "settings": values}) + "\n")
        return
    from pipelines.show.text import Screen, show_table

    typer.echo("Files, later wins:")
    for file in (MACHINE_FILE, user_file(), *named_files()):
        typer.echo(f"  {file}{'' if file in read else '  (not there)'}")
    typer.echo("Then variables (JBOD_REPLAY__MAX_RECORDS=1000), then options.\n")
    rows = [setting for setting in all_settings if show_all or not setting.is_default]
    if not rows:
        typer.echo("Every setting has its default; --all shows them.")
        return
    show_table(
        Screen(), (("SETTING", "name"), ("VALUE", lambda setting: json.dumps(setting.value)), ("FROM", "source")), rows
    )
