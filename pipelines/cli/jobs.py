"""``jbod jobs list | run``: the jobs of a bundle on this machine. Something else starts them (docs/jobs.md)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress

Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle", metavar="FILE", help="The bundle's main file: databricks.yml here, else the one jbod comes with."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    jobs = typer.Typer(help="The jobs of jobs.yaml, on this machine.", no_args_is_help=True)
    jobs.command("list")(show)
    jobs.command("run")(run)
    app.add_typer(jobs, name="jobs")


def show(bundle: Bundle = None) -> None:
    """The jobs, their tasks and parameters."""
    from pipelines.jobs.bundle import default_bundle, read_bundle
    from pipelines.show.text import console, show_table

    jobs = read_bundle(bundle or default_bundle())
    rows = [[name, " ".join(task.key for task in job.tasks), " ".join(job.parameters)] for name, job in jobs.items()]
    show_table(console(), ["JOB", "TASKS", "PARAMETERS"], rows)


def run(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job that jbod jobs list prints.")],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="A job parameter, in place of its default."),
    ] = None,
    bundle: Bundle = None,
) -> None:
    """Run a job now. Exit code 0: all done, 1: tasks found something, 2: bad usage, nothing ran, 3: a task failed."""
    from pipelines.jobs.bundle import default_bundle, read_bundle
    from pipelines.jobs.run import exit_code, run_job

    jobs = read_bundle(bundle or default_bundle())
    if job not in jobs:
        raise UsageError(f"{job}: no such job; there are {', '.join(jobs) or 'none'}")
    parameters = {}
    for text in param or []:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--param {text}: write NAME=VALUE")
        parameters[name] = value

    def say(line: str) -> None:
        progress.notice(line, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ} ")

    raise typer.Exit(exit_code(run_job(jobs[job], parameters, say)))
