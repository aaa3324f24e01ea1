"""``jbod metrics | jobs``: metrics, rules and a dashboard for a monitor, and jobs that something else starts.

docs/alerts.md and docs/jobs.md say with what.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.cli.lakes import open_lake, print_json, refuse_damage
from pipelines.cli.options import LakePath

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
    out: Annotated[
        Path | None,
        typer.Option(help="Write this file in one step instead; node_exporter's textfile collector reads *.prom."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of Prometheus text.")] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve the metrics to Prometheus at this address, until interrupted."),
    ] = None,
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
    from pipelines.metrics.measure import behind, measure, recorded

    opened, settings = open_lake(lake, None, None, [] if log is None or lake is not None else [log])
    lag = None if log is None or lake is None else behind(log, opened.published.end_offset)
    families = measure(
        opened,
        datetime.now(UTC),
        default_min_isr=settings.ask.min_insync_replicas,
        accepted_until=settings.check.losses_accepted_until,
        log=lag,
        findings=recorded(opened),
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
        told = [name for name, is_given in zip(names, given, strict=True) if is_given]
        raise UsageError(f"{' and '.join(told)}: give one of them")


def _serve(address: str, path: str | None, log_dir: str | None) -> None:
    """Serves until Ctrl-C or SIGTERM. A lake or log that cannot be read is reported, and read again by each scrape."""
    from pipelines.cli.process import Interrupts
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


Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle", metavar="FILE", help="The bundle's main file: databricks.yml here, else the one jbod comes with."
    ),
]


def jobs() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="The jobs of jobs.yaml, on this machine.", no_args_is_help=True)
    group.command("list")(show)
    group.command("run")(run)
    return group


def show(bundle: Bundle = None) -> None:
    """The jobs, their tasks and parameters."""
    from pipelines.jobs.bundle import default_bundle, read_bundle
    from pipelines.show.text import Screen, show_table

    known = read_bundle(bundle or default_bundle())
    rows = [[name, " ".join(task.key for task in job.tasks), " ".join(job.parameters)] for name, job in known.items()]
    show_table(Screen(), ["JOB", "TASKS", "PARAMETERS"], rows)


def run(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job that jbod jobs list prints.")],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="A job parameter, in place of its default."),
    ] = None,
    bundle: Bundle = None,
) -> None:
    """Run a job now. Exit code 0: all done, 1: tasks found something, 2: bad usage, nothing ran, 3: a task failed."""
    from pipelines.jobs.bundle import default_bundle, exit_code, read_bundle, run_job

    known = read_bundle(bundle or default_bundle())
    if job not in known:
        raise UsageError(f"{job}: no such job; there are {', '.join(known) or 'none'}")
    parameters = {}
    for text in param or []:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--param {text}: write NAME=VALUE")
        parameters[name] = value

    def say(line: str) -> None:
        progress.notice(line, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ} ")

    raise typer.Exit(exit_code(run_job(known[job], parameters, say)))
