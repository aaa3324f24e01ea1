"""``jbod label``: gives directories the names that people know, and keeps them in the lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.cli.lakes import open_lake, print_json
from pipelines.cli.options import AsJson, MaintainedLake

if TYPE_CHECKING:
    from pipelines.ask.label_sources import Read
    from pipelines.lake.names import Names, Statement
    from pipelines.lake.reader import Lake


def label(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="Mounted disks (or the folder that has them), a server.properties, the output of kafka-log-dirs "
            "--describe, or a file with lines like: broker 1 /data/disk1b = rack 7 slot 3",
        ),
    ] = None,
    lake: MaintainedLake = None,
    forget: Annotated[
        list[str] | None, typer.Option("--forget", metavar="DIR", help="Remove the names of this id or path.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give disks the names that people know: every answer then shows the path, with the id behind it.

    Without a source: the sources of the setting labels.sources are read again, and all names are listed.
    """
    opened, settings = open_lake(lake, None, None)
    known = [one for one in opened.kept_names() if forget is None or not _is_about(one, forget)]
    if forget and len(known) == len(opened.kept_names()):
        raise UsageError(f"--forget {', '.join(forget)}: it has no names: jbod label lists all names")
    read, kept = _read(opened, sources or settings.labels.sources, known)
    if kept != [*opened.kept_names()]:
        from pipelines.lake.labels import write_statements

        write_statements(opened.path, kept)
    from pipelines.lake.names import Names
    from pipelines.show.text import Screen, show_incomplete

    names = Names.of(kept)
    for line in (*read.notes, *names.conflicts):
        progress.notice(f"labels: {line}")
    if as_json:
        said: list[dict[str, Any]] = [row._asdict() for row in kept]
        print_json({"statements": said, "conflicts": names.conflicts, "notes": read.notes}, opened)
    else:
        show_incomplete(Screen(), opened)
        _show(kept, names)


def relabel(lake: Lake, sources: Sequence[str]) -> list[str]:
    """Reads the sources into the lake again. Returns what could not be used or disagrees, a line each."""
    from pipelines.lake.labels import write_statements
    from pipelines.lake.names import Names

    read, kept = _read(lake, sources, lake.kept_names())
    if kept != [*lake.kept_names()]:
        write_statements(lake.path, kept)
    return [*read.notes, *Names.of(kept).conflicts]


def _read(lake: Lake, sources: Sequence[str], known: Sequence[Statement]) -> tuple[Read, list[Statement]]:
    from pipelines.ask.label_sources import merged, read_sources

    read = read_sources(lake, sources, known)
    return read, merged(known, read.statements)


def _is_about(one: Statement, forget: Sequence[str]) -> bool:
    return one.directory_id in forget or one.path in forget


def _show(kept: Sequence[Statement], names: Names) -> None:
    from pipelines.show.text import Screen, many, say, show_table

    out = Screen()  # the ids are shown beside the names
    say(out, f"{many(len(names.by_id), 'directory', 'directories')} with a name.", "bold")
    brokers = {one.directory_id: one.broker_id for one in kept if one.broker_id is not None}
    kinds: dict[str | None, list[str]] = {}
    for one in kept:
        kinds.setdefault(one.directory_id, []).append(one.kind)
    rows = [
        (brokers.get(directory), name.path, name.label, directory, ", ".join(dict.fromkeys(kinds.get(directory, ()))))
        for directory, name in names.by_id.items()
    ]
    rows.sort(key=lambda row: (-1 if row[0] is None else row[0], row[1] or "", row[3]))
    if rows:
        show_table(out, ("BROKER", "PATH", "LABEL", "DIRECTORY", "SAID BY"), rows, numbers=(0,))
    used = {name.path for name in names.by_id.values()}
    unused = [one for one in kept if one.directory_id is None and one.path not in used]
    if unused:
        say(out, f"{many(len(unused), 'label')} of a path that no directory is known to have:", "yellow")
    for one in unused:
        place = "" if one.broker_id is None else f"broker {one.broker_id} "
        say(out, f"  {place}{one.path} = {one.label} ({one.source})", hang=4)
