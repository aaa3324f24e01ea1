"""``jbod optimize | vacuum | rebuild | verify | warm``: maintenance. None of them needs the log."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Literal

import typer

from pipelines.cli import progress
from pipelines.cli.lakes import print_json
from pipelines.cli.options import AsJson, MaintainedLake
from pipelines.lake.uris import LakeUri


def optimize(lake: MaintainedLake = None, as_json: AsJson = False) -> None:
    """Merge small files into fewer, larger, sorted ones. Rows stay the same, and readers see no difference."""
    from pipelines.show.text import Screen, show_table
    from pipelines.upkeep import compact

    path = _path_of(lake)
    done = compact.optimize(path)
    if as_json:
        print_json({"lake": path, "tables": [asdict(one) for one in done]})
        return
    rows = [(one.table, one.before, one.after) for one in done]
    show_table(Screen(), ["TABLE", "FILES BEFORE", "AFTER"], rows, numbers=(1, 2))


def vacuum(
    lake: MaintainedLake = None,
    keep: Annotated[int, typer.Option(help="Hours that a replaced version can still be read.", min=1)] = 168,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete files of no version that the ledger names, or named in the last hours (--keep)."""
    from pipelines.show.text import Screen, show_table
    from pipelines.upkeep import compact

    path = _path_of(lake)
    done = compact.vacuum(path, timedelta(hours=keep), dry_run=dry_run)
    if as_json:
        print_json({"lake": path, "dry_run": dry_run, "tables": [asdict(one) for one in done]})
        return
    rows = [(one.table, f"{one.files:,}", f"{one.size:,}") for one in done]
    show_table(Screen(), ["TABLE", "FILES TO DELETE" if dry_run else "FILES DELETED", "BYTES"], rows, numbers=(1, 2))


def rebuild(lake: MaintainedLake = None, as_json: AsJson = False) -> None:
    """Rebuild all tables from the records table, and replace the old tables at the end."""
    from pipelines.show.text import Screen, show_table
    from pipelines.upkeep.rebuild import rebuild as run

    path = _path_of(lake)
    rows = run(path, say=progress.say)
    progress.clear()
    if as_json:
        print_json({"lake": path, "rows": rows})
        return
    show_table(Screen(), ["TABLE", "ROWS"], [(name, f"{count:,}") for name, count in rows.items()], numbers=(1,))


def verify(
    lake: MaintainedLake = None,
    by: Annotated[
        Literal["model", "engine"] | None,
        typer.Option(help="What replays the records: the engine, or the plain model (for small lakes)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a lake's records again and compare its history row by row. Exit code 1 if something differs."""
    from pipelines.show.text import Screen, say
    from pipelines.upkeep.verify import verify as run

    path = _path_of(lake)
    found = run(path, by=by)
    if as_json:
        print_json({"lake": path, "ok": not found.differences, **asdict(found)})
    else:
        out = Screen()
        for one in found.differences:
            at = "" if one.offset is None else f" at offset {one.offset}"
            say(out, f"{one.table}{at}: {one.key}: {one.what}")
        for line in found.foreign:
            say(out, f"another engine made {line}")
        counted = ", ".join(f"{count:,} {name}" for name, count in found.rows.items())
        verdict = "differs from its records" if found.differences else "is what its records say"
        say(out, f"{path} {verdict}, up to offset {found.end_offset - 1}, by the {found.by}: {found.files} files")
        if counted:
            say(out, f"rows: {counted}")
    raise typer.Exit(1 if found.differences else 0)


def warm(
    delta: Annotated[
        bool, typer.Option("--delta", help="Only fetch Delta Lake's jars, so that sessions with it need no network.")
    ] = False,
) -> None:
    """Prepare this machine for fast starts: compile kernels, archive the classes that Spark loads. Takes a minute."""
    if delta:
        from pipelines.upkeep.warm import fetch_delta_jars

        progress.say("fetching Delta Lake's jars")
        typer.echo(str(fetch_delta_jars()))
        return
    from pipelines.upkeep.warm import main

    progress.say("compiling kernels and archiving Spark's classes")
    main()


def _path_of(lake: LakeUri | None) -> LakeUri:
    from pipelines.settings import load

    return load(lake=lake).lake
