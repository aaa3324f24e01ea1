"""``jbod jobs``: reads ``databricks.yml`` and the files it includes, and runs a job, each task in its own process.

Schedules, retries, timeouts and clusters are for Databricks, which compares all keys with its schema.
"""

from __future__ import annotations

import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.settings import read_yaml

SUCCEEDED, FINDINGS, FAILED, SKIPPED = "succeeded", "findings", "failed", "skipped"
"""The states of a task by its exit code: 0, 1 (a failure for the tasks that depend on it), any other; none."""
RUN_IF: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "ALL_SUCCESS": lambda states: all(state == SUCCEEDED for state in states),
    "ALL_DONE": lambda _: True,
    "NONE_FAILED": lambda states: SUCCEEDED in states and not any(state in (FINDINGS, FAILED) for state in states),
    "AT_LEAST_ONE_SUCCESS": lambda states: SUCCEEDED in states,
    "ALL_FAILED": lambda states: all(state in (FINDINGS, FAILED) for state in states),
    "AT_LEAST_ONE_FAILED": lambda states: any(state in (FINDINGS, FAILED) for state in states),
}
"""Whether a task runs if the tasks that it depends on ended with these states."""
VARIABLE_PREFIX = "BUNDLE_VAR_"
"""Environment variables that set bundle variables, as for Databricks' own command line."""


@dataclass(frozen=True)
class Task:
    """One command of a job: the arguments of jbod."""

    key: str
    arguments: Sequence[str]
    depends_on: Sequence[str]
    run_if: str


@dataclass(frozen=True)
class BundleJob:
    """A job: tasks in an order in which every task comes after those it depends on."""

    key: str
    tasks: Sequence[Task]
    parameters: Mapping[str, str]


def default_bundle() -> Path:
    """``databricks.yml`` of the current directory, otherwise the one in the installed package."""
    places = (Path(), Path(__file__).with_name("shipped"), Path(__file__).parents[2])
    return next(path for place in places if (path := place / "databricks.yml").is_file())


def read_bundle(path: Path) -> dict[str, BundleJob]:
    """The jobs of the bundle at ``path`` (``databricks.yml``), by key. UsageError names the file and the wrong key."""
    bundle = read_yaml(path, "jobs")
    files = [path]
    for pattern in bundle.get("include") or ():
        included = sorted(path.parent.glob(str(pattern)))
        if not included:
            raise UsageError(f"{path}: include {pattern}: no such file")
        files += included
    variables = _variables(path, bundle)
    jobs: dict[str, BundleJob] = {}
    for file in files:
        raw_jobs = ((bundle if file == path else read_yaml(file, "jobs")).get("resources") or {}).get("jobs") or {}
        for key, raw in raw_jobs.items():
            where = f"{file}: jobs.{key}"
            try:
                jobs[key] = _job(key, raw, variables, where)
            except KeyError as missing:
                raise UsageError(f"{where}: {missing.args[0]} is missing") from None
            except (TypeError, AttributeError) as problem:
                raise UsageError(f"{where}: not the form of a job: {problem}") from None
    return jobs


def _variables(path: Path, bundle: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: (declared or {}).get("default") for name, declared in (bundle.get("variables") or {}).items()}
    for name, value in os.environ.items():
        if name.startswith(VARIABLE_PREFIX):
            variable = name.removeprefix(VARIABLE_PREFIX)
            if variable not in values:
                raise UsageError(f"{name}: {path} has no variable {variable}; it has {', '.join(values) or 'none'}")
            values[variable] = value
    return values


def _inserted(text: str, variables: Mapping[str, Any], where: str) -> str:
    """``text`` with every ``${var.x}`` replaced."""

    def value(match: re.Match[str]) -> str:
        name = match[1].removeprefix("var.")
        if name == match[1] or name not in variables:
            raise UsageError(f"{where}: {match[0]}: no such variable")
        if variables[name] is None:
            raise UsageError(f"{where}: {match[0]} has no value: set {VARIABLE_PREFIX}{name}")
        return str(variables[name])

    return re.sub(r"\$\{([^}]*)\}", value, text)


def _job(key: str, raw: Any, variables: Mapping[str, Any], where: str) -> BundleJob:
    parameters = {
        parameter["name"]: _inserted(str(parameter["default"]), variables, f"{where}.{parameter['name']}")
        for parameter in raw.get("parameters") or ()
    }
    tasks = {task["task_key"]: _task(task, parameters, f"{where}.{task['task_key']}") for task in raw["tasks"]}
    if len(tasks) < len(raw["tasks"]):
        raise UsageError(f"{where}: two tasks have the same task_key")
    for task in tasks.values():
        for needed in task.depends_on:
            if needed not in tasks:
                raise UsageError(f"{where}: task {task.key} depends on {needed}, which is not there")
    try:
        order = graphlib.TopologicalSorter({task.key: task.depends_on for task in tasks.values()}).static_order()
        return BundleJob(key, [tasks[name] for name in order], parameters)
    except graphlib.CycleError as problem:
        raise UsageError(f"{where}: tasks depend on each other: {' -> '.join(problem.args[1])}") from None


def _task(raw: Any, parameters: Mapping[str, str], where: str) -> Task:
    wheel = raw["python_wheel_task"]
    if wheel["entry_point"] != "jbod":
        raise UsageError(f"{where}: entry_point {wheel['entry_point']}: only commands of jbod run here")
    arguments = [str(argument) for argument in wheel.get("parameters") or ()]
    for argument in arguments:
        for reference in re.findall(r"\{\{\s*(.*?)\s*\}\}", argument):
            name = reference.removeprefix("job.parameters.")
            if name == reference or name not in parameters:
                raise UsageError(f"{where}: {{{{{reference}}}}}: the job has no such parameter")
    run_if = raw.get("run_if", "ALL_SUCCESS")
    if run_if not in RUN_IF:
        raise UsageError(f"{where}: run_if {run_if}: there are {', '.join(RUN_IF)}")
    needed = [task["task_key"] for task in raw.get("depends_on") or ()]
    return Task(raw["task_key"], arguments, needed, run_if)


def run_job(job: BundleJob, given: Mapping[str, str], say: Callable[[str], None]) -> dict[str, str]:
    """Runs a job; ``given`` parameters replace defaults. Returns the state of each task.

    Raises UsageError, before anything runs, if the job has no such parameter.
    """
    if unknown := [name for name in given if name not in job.parameters]:
        known = ", ".join(job.parameters) or "none"
        raise UsageError(f"--param {unknown[0]}: job {job.key} has no such parameter; it has {known}")
    states: dict[str, str] = {}
    for task in job.tasks:
        if task.depends_on and not RUN_IF[task.run_if]([states[key] for key in task.depends_on]):
            states[task.key] = SKIPPED
            say(f"{job.key}/{task.key}: skipped, because of {task.run_if} of {', '.join(task.depends_on)}")
            continue
        say(f"{job.key}/{task.key}: started")
        code = subprocess.call(command(task, {**job.parameters, **given}), stdin=subprocess.DEVNULL)  # noqa: S603
        states[task.key] = {0: SUCCEEDED, 1: FINDINGS}.get(code, FAILED)
        say(f"{job.key}/{task.key}: {states[task.key]} (exit code {code})")
    return states


def exit_code(states: Mapping[str, str]) -> int:
    """Exit code of a job: 0 all succeeded, 1 tasks found something and nothing failed, 3 a task failed."""
    return 3 if FAILED in states.values() else 1 if FINDINGS in states.values() else 0


def command(task: Task, parameters: Mapping[str, str]) -> list[str]:
    """The command line of a task, with parameters inserted. DuckDB takes a program of ``-c`` for an interactive one."""
    insert = re.compile(r"\{\{\s*job\.parameters\.(.*?)\s*\}\}").sub
    words = (insert(lambda match: parameters[match[1]], argument) for argument in task.arguments)
    return [sys.executable, "-m", "pipelines.cli.main", *words]


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
    from pipelines.show.text import Screen, show_table

    known = read_bundle(bundle or default_bundle())
    show_table(
        Screen(),
        (
            ("JOB", str),
            ("TASKS", lambda name: " ".join(task.key for task in known[name].tasks)),
            ("PARAMETERS", lambda name: " ".join(known[name].parameters)),
        ),
        known,
    )


def run(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job that jbod jobs list prints.")],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="A job parameter, in place of its default."),
    ] = None,
    bundle: Bundle = None,
) -> None:
    """Run a job now. Exit code 0: all done, 1: tasks found something, 2: bad usage, nothing ran, 3: a task failed."""
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
