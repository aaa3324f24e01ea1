"""``jbod jobs list | validate | run | schedule``: the jobs of a bundle on this machine."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jbod_model.errors import UsageError
from pipelines.cli.options import AsJson

if TYPE_CHECKING:
    from pipelines.jobs.bundle import Job

Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle", metavar="FILE", help="The bundle's main file: databricks.yml here, else the one jbod comes with."
    ),
]
Parameters = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="A job parameter, in place of its default.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    jobs = typer.Typer(help="Scheduled jobs, on this machine.", no_args_is_help=True)
    for name, command in (("list", show), ("validate", validate), ("run", run), ("schedule", schedule)):
        jobs.command(name)(command)
    app.add_typer(jobs, name="jobs")


def show(bundle: Bundle = None, as_json: AsJson = False) -> None:
    """The jobs, their tasks, parameters and when they run next."""
    from pipelines.jobs.bundle import default_bundle
    from pipelines.jobs.schedule import next_time
    from pipelines.show.text import console, show_table, when

    now = datetime.now(UTC)
    jobs = _checked(bundle or default_bundle())
    if as_json:
        sys.stdout.write(json.dumps({"jobs": [_as_json(job, next_time(job, now)) for job in jobs.values()]}) + "\n")
        return
    rows = []
    for job in jobs.values():
        time = next_time(job, now)
        plan = job.schedule.expression if job.schedule else ""
        next_run = when(time.astimezone(UTC))[:16] + "Z" if time else "paused" if job.schedule else "on request"
        rows.append([job.key, plan, next_run, " ".join(task.key for task in job.tasks), " ".join(job.parameters)])
    show_table(console(), ["JOB", "SCHEDULE", "NEXT", "TASKS", "PARAMETERS"], rows)


def validate(bundle: Bundle = None, as_json: AsJson = False) -> None:
    """Check the bundle: keys, order of tasks, parameters, cron expressions, packages. Exit code 2 and a line if not."""
    from pipelines.jobs.bundle import default_bundle

    jobs = _checked(bundle := bundle or default_bundle())
    if as_json:
        sys.stdout.write(json.dumps({"bundle": str(bundle), "jobs": list(jobs)}) + "\n")
    else:
        typer.echo(f"{bundle}: {len(jobs)} jobs are valid: {', '.join(jobs)}")


def run(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A key that jbod jobs list prints.")],
    param: Parameters = None,
    bundle: Bundle = None,
    as_json: Annotated[bool, typer.Option("--json", help="The outcome as JSON; tasks print to stderr.")] = False,
) -> None:
    """Run a job now. Exit code 0: all done, 1: tasks found something, 2: bad usage, nothing ran, 3: a task failed."""
    from pipelines.jobs.bundle import default_bundle, find_job, read_bundle
    from pipelines.jobs.execute import as_json as said
    from pipelines.jobs.execute import exit_code, run_job

    chosen = find_job(read_bundle(bundle or default_bundle()), job)
    output = sys.stderr.fileno() if as_json else None
    with _stopped_by_signals() as stop:
        done = run_job(chosen, _given(param), say=_say, stop=stop, output=output)
    if as_json:
        sys.stdout.write(said(chosen, done) + "\n")
    raise typer.Exit(exit_code(done))


def schedule(param: Parameters = None, bundle: Bundle = None) -> None:
    """Run jobs at their times, until Ctrl-C or SIGTERM. Jobs whose schedule is paused stay out."""
    from pipelines.jobs.bundle import default_bundle, read_bundle
    from pipelines.jobs.schedule import run_schedule, scheduled

    with _stopped_by_signals() as stop:
        run_schedule(scheduled(read_bundle(bundle or default_bundle())), _given(param), say=_say, stop=stop)


def _checked(bundle: Path) -> Mapping[str, Job]:
    from pipelines.jobs.bundle import read_bundle
    from pipelines.jobs.execute import command
    from pipelines.jobs.quartz import cron_trigger

    jobs = read_bundle(bundle)
    for job in jobs.values():
        if job.schedule is not None:
            cron_trigger(job.schedule.expression, job.schedule.timezone)
        for task in job.tasks:
            command(task, job.parameters)
    return jobs


def _given(parameters: list[str] | None) -> dict[str, str]:
    given = {}
    for text in parameters or []:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--param {text}: write NAME=VALUE")
        given[name] = value
    return given


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set."""
    stop = threading.Event()
    before = {sign: signal.signal(sign, lambda *_: stop.set()) for sign in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _say(line: str) -> None:
    typer.echo(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ} {line}", err=True)


def _as_json(job: Job, next_run: datetime | None) -> dict[str, object]:
    return {
        "job": job.key,
        "name": job.name,
        "schedule": job.schedule and vars(job.schedule),
        "next": next_run and next_run.astimezone(UTC).isoformat(),
        "parameters": dict(job.parameters),
        "tasks": [{"task": task.key, "dependsOn": list(task.depends_on)} for task in job.tasks],
    }
