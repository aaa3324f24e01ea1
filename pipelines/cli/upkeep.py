"""``jbod optimize | vacuum | rebuild | verify | warm``: maintenance. None of them needs the log.

``jbod metrics``: for a monitor (docs/alerts.md).
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.cli.options import AsJson, LakePath, Listen, MaintainedLake, MetricsFile
from pipelines.cli.question import open_lake, print_json, refuse_damage
from pipelines.lake.uris import LakeUri


def optimize(lake: MaintainedLake = None, as_json: AsJson = False) -> None:
    """Merge small files into fewer, larger, sorted ones. Rows stay the same, and readers see no difference."""
    from pipelines.show.text import Screen, show_table
    from pipelines.upkeep import compact

    path = _path_of(lake)
    done = compact.optimize(path)
    if as_json:
        print_json({"lake": path, "tables": [asdict(merge) for merge in done]})
        return
    show_table(Screen(), (("TABLE", "table"), (">FILES BEFORE", "before"), (">AFTER", "after")), done)


def vacuum(
    lake: MaintainedLake = None,
    keep: Annotated[int, typer.Option(help="Hours that a replaced version can still be read.", min=1)] = 168,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete files that belong only to versions replaced more than --keep hours ago."""
    from pipelines.show.text import Screen, show_table
    from pipelines.upkeep import compact

    path = _path_of(lake)
    done = compact.vacuum(path, timedelta(hours=keep), dry_run=dry_run)
    if as_json:
        print_json({"lake": path, "dry_run": dry_run, "tables": [asdict(removal) for removal in done]})
        return
    files = ">FILES TO DELETE" if dry_run else ">FILES DELETED"
    columns = (("TABLE", "table"), (files, lambda it: f"{it.files:,}"), (">BYTES", lambda it: f"{it.size:,}"))
    show_table(Screen(), columns, done)


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
    show_table(Screen(), (("TABLE", str), (">ROWS", lambda table: f"{rows[table]:,}")), rows)


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
    answer = run(path, by=by)
    if as_json:
        print_json({"lake": path, "ok": not answer.differences, **asdict(answer)})
    else:
        out = Screen()
        for difference in answer.differences:
            at = "" if difference.offset is None else f" at offset {difference.offset}"
            say(out, f"{difference.table}{at}: {difference.key}: {difference.what}")
        for line in answer.foreign:
            say(out, f"another engine made {line}")
        counted = ", ".join(f"{count:,} {name}" for name, count in answer.rows.items())
        verdict = "differs from its records" if answer.differences else "is what its records say"
        say(out, f"{path} {verdict}, up to offset {answer.end_offset - 1}, by the {answer.by}: {answer.files} files")
        if counted:
            say(out, f"rows: {counted}")
    raise typer.Exit(1 if answer.differences else 0)


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


_FOLDER = Path(__file__).parents[1] / "metrics"
RULES, DASHBOARD = _FOLDER / "jbod-rules.yml", _FOLDER / "jbod-dashboard.json"
"""The files that --rules and --dashboard print."""


def metrics(
    lake: LakePath = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            metavar="DIR",
            help="With --lake: measure also how far the lake is behind this log. Else: measure the log.",
        ),
    ] = None,
    out: MetricsFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of Prometheus text.")] = False,
    listen: Listen = None,
    rules: Annotated[bool, typer.Option("--rules", help="Print alerting and recording rules for Prometheus.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print a dashboard for Grafana to import.")] = False,
) -> None:
    """The state of the cluster and of the lake as Prometheus text."""
    if rules or dashboard or listen is not None:
        _refuse_others(out is not None, as_json, listen is not None, rules, dashboard)
        if listen is not None and log is not None and lake is None:
            raise UsageError("--listen and --log: give --lake, too: a lake is served, and how far it is behind the log")
        if listen is not None:
            _serve(listen, lake, log)
        else:
            sys.stdout.write((RULES if rules else DASHBOARD).read_text(encoding="utf-8"))
        return
    from pipelines.metrics.declared import as_json as measured
    from pipelines.metrics.declared import as_text, write
    from pipelines.metrics.measure import behind, measure

    opened, settings = open_lake(lake, None, None, [] if log is None or lake is not None else [log])
    lag = None if log is None or lake is None else behind(log, opened.published.end_offset)
    families = measure(
        opened,
        datetime.now(UTC),
        default_min_isr=settings.ask.min_insync_replicas,
        accepted_until=settings.check.losses_accepted_until,
        log=lag,
    )
    if as_json:
        if out is not None:
            raise UsageError("--out and --json: give one of them: the file has Prometheus text")
        print_json(measured(families), opened)
    elif out is None:
        sys.stdout.write(as_text(families))
    else:
        write(families, out)
    refuse_damage(opened)


def _refuse_others(*given: bool) -> None:
    if sum(given) > 1:
        names = ("--out", "--json", "--listen", "--rules", "--dashboard")
        options = [name for name, is_given in zip(names, given, strict=True) if is_given]
        raise UsageError(f"{' and '.join(options)}: give one of them")


def _serve(address: str, path: str | None, log_dir: str | None) -> None:
    """Serves until Ctrl-C or SIGTERM. A lake or log that cannot be read is reported, and read again by each scrape."""
    from pipelines.cli.progress import Interrupts
    from pipelines.metrics.serve import Measured, MetricsServer
    from pipelines.settings import load

    settings = load(lake=path)
    measured = Measured(
        settings.lake,
        lambda line: typer.echo(f"jbod: {line}", err=True),
        log_dir,
        settings.ask.min_insync_replicas,
        settings.check.losses_accepted_until,
    )
    listener = MetricsServer(address, measured)
    with Interrupts() as interrupts:
        interrupts.stop = listener.stop
        progress.notice(f"metrics of {settings.lake} at {listener.url}")
        progress.say("")
        listener.serve()
