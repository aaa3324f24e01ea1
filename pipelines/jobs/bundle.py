"""Reads ``databricks.yml`` and the files it includes: jobs, their tasks in order, their parameters.

It reads the keys that decide how a job runs, and ignores keys that matter only on Databricks (environments,
notifications, clusters, tags). It refuses any other key, so that a typing error does not silently drop a timeout.
"""

from __future__ import annotations

import graphlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jbod_model.errors import UsageError
from pipelines.jobs.quartz import cron_fields

RUN_IF = ("ALL_SUCCESS", "ALL_DONE", "NONE_FAILED", "AT_LEAST_ONE_SUCCESS", "ALL_FAILED", "AT_LEAST_ONE_FAILED")
VARIABLE_PREFIX = "BUNDLE_VAR_"
"""Environment variables that set bundle variables, as for Databricks' own command line."""

_ELSEWHERE = {
    "access_control_list", "budget_policy_id", "description", "email_notifications", "environment_key", "environments",
    "existing_cluster_id", "health", "job_cluster_key", "job_clusters", "libraries", "new_cluster",
    "notification_settings", "performance_target", "permissions", "queue", "run_as", "tags", "webhook_notifications",
}  # fmt: skip
_JOB = {"name", "max_concurrent_runs", "parameters", "schedule", "tasks", "timeout_seconds"}
_TASK = {
    "task_key", "depends_on", "run_if", "python_wheel_task", "max_retries", "min_retry_interval_millis",
    "retry_on_timeout", "timeout_seconds",
}  # fmt: skip
_WHEEL = {"package_name", "entry_point", "parameters", "named_parameters"}
_SCHEDULE = {"quartz_cron_expression", "timezone_id", "pause_status"}


@dataclass(frozen=True)
class Task:
    """One command of a job. Times are in seconds. ``timeout`` 0 means none, ``retries`` -1 means without limit."""

    key: str
    package: str
    entry_point: str
    arguments: Sequence[str]
    depends_on: Sequence[str]
    run_if: str
    retries: int
    retry_interval: float
    retry_on_timeout: bool
    timeout: float


@dataclass(frozen=True)
class Schedule:
    """The schedule of a job: a Quartz expression in a time zone."""

    expression: str
    timezone: str
    paused: bool


@dataclass(frozen=True)
class Job:
    """A job: tasks in an order in which every task comes after those it depends on."""

    key: str
    name: str
    tasks: Sequence[Task]
    parameters: Mapping[str, str]
    schedule: Schedule | None
    timeout: float
    max_concurrent_runs: int

    def with_parameters(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """The job's parameters: ``given`` ones replace defaults. Raises UsageError for an unknown parameter."""
        for name in given:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise UsageError(f"--param {name}: job {self.key} has no such parameter; it has {known}")
        return {**self.parameters, **given}


def default_bundle() -> Path:
    """``databricks.yml`` of the current directory, otherwise the one in the installed package."""
    here = Path("databricks.yml")
    if here.is_file():
        return here
    installed = Path(__file__).with_name("shipped") / here
    # In a checkout it is at the root.
    return installed if installed.is_file() else Path(__file__).parents[2] / here


def read_bundle(path: str | os.PathLike[str]) -> dict[str, Job]:
    """The jobs of the bundle at ``path`` (``databricks.yml``), by key. UsageError names the file and the wrong key."""
    root = Path(path)
    bundle = _yaml(root)
    files = [root]
    for pattern in _sequence(bundle.get("include"), f"{root}: include"):
        found = sorted(root.parent.glob(str(pattern)))
        if not found:
            raise UsageError(f"{root}: include {pattern}: no such file")
        files += found
    variables = _variables(root, bundle)
    jobs: dict[str, Job] = {}
    for file in files:
        content = bundle if file == root else _yaml(file)
        resources = _mapping(content.get("resources"), f"{file}: resources")
        for key, raw in _mapping(resources.get("jobs"), f"{file}: resources.jobs").items():
            if key in jobs:
                raise UsageError(f"{file}: jobs.{key}: there is another job of that name")
            where = f"{file}: jobs.{key}"
            jobs[key] = _job(key, _with_variables(raw, variables, where), where)
    return jobs


def find_job(jobs: Mapping[str, Job], name: str) -> Job:
    """The job called ``name``. Raises UsageError, with the list of jobs, if it does not exist."""
    if name not in jobs:
        raise UsageError(f"{name}: no such job; there are {', '.join(jobs) or 'none'}")
    return jobs[name]


def _yaml(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(f"{file}: cannot read the bundle: {problem.strerror}; name it with --bundle") from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" line {mark.line + 1}:" if mark else ""
        raise UsageError(f"{file}:{where} not valid YAML: {getattr(problem, 'problem', None) or 'not UTF-8'}") from None
    return _mapping(content, str(file))


def _variables(root: Path, bundle: Mapping[str, Any]) -> dict[str, str | None]:
    declared = _mapping(bundle.get("variables"), f"{root}: variables")
    values = {name: _mapping(one, f"{root}: variables.{name}").get("default") for name, one in declared.items()}
    for name in os.environ:
        if name.startswith(VARIABLE_PREFIX):
            variable = name.removeprefix(VARIABLE_PREFIX)
            if variable not in values:
                raise UsageError(f"{name}: {root} has no variable {variable}; it has {', '.join(values) or 'none'}")
            values[variable] = os.environ[name]
    return {name: None if value is None else str(value) for name, value in values.items()}


def _with_variables(node: Any, variables: Mapping[str, str | None], where: str) -> Any:
    """``node`` with every ``${var.x}`` in its texts replaced."""
    if isinstance(node, dict):
        return {key: _with_variables(value, variables, f"{where}.{key}") for key, value in node.items()}
    if isinstance(node, list):
        return [_with_variables(value, variables, f"{where}[{index}]") for index, value in enumerate(node)]
    if not isinstance(node, str):
        return node

    def value(match: re.Match[str]) -> str:
        name = match[1].removeprefix("var.")
        if name == match[1] or name not in variables:
            raise UsageError(f"{where}: {match[0]}: no such variable")
        if variables[name] is None:
            raise UsageError(f"{where}: {match[0]} has no value: set {VARIABLE_PREFIX}{name}")
        return str(variables[name])

    return re.sub(r"\$\{([^}]*)\}", value, node)


def _job(key: str, raw: Any, where: str) -> Job:
    job = _known(raw, _JOB, where)
    parameters: dict[str, str] = {}
    for index, one in enumerate(_sequence(job.get("parameters"), f"{where}.parameters")):
        place = f"{where}.parameters[{index}]"
        parameter = _known(one, {"name", "default"}, place, elsewhere=False)
        parameters[_text(parameter, "name", place)] = _text(parameter, "default", place)
    tasks = [
        _task(one, parameters, f"{where}.tasks[{index}]")
        for index, one in enumerate(_sequence(job.get("tasks"), f"{where}.tasks"))
    ]
    if not tasks:
        raise UsageError(f"{where}: a job needs tasks")
    return Job(
        key,
        _text(job, "name", where, key),
        _ordered(tasks, where),
        parameters,
        _schedule(job["schedule"], f"{where}.schedule") if "schedule" in job else None,
        _number(job, "timeout_seconds", where, 0),
        int(_number(job, "max_concurrent_runs", where, 1, least=1)),
    )


def _task(raw: Any, parameters: Mapping[str, str], where: str) -> Task:
    task = _known(raw, _TASK, where)
    if "python_wheel_task" not in task:
        raise UsageError(f"{where}: there is no python_wheel_task, the one kind of task that runs here")
    place = f"{where}.python_wheel_task"
    wheel = _known(task["python_wheel_task"], _WHEEL, place, elsewhere=False)
    arguments = [str(one) for one in _sequence(wheel.get("parameters"), f"{place}.parameters")]
    named = _mapping(wheel.get("named_parameters"), f"{place}.named_parameters")
    arguments += [f"--{name}={value}" for name, value in named.items()]
    for argument in arguments:
        for reference in re.findall(r"\{\{(.*?)\}\}", argument):
            name = reference.strip().removeprefix("job.parameters.")
            if name == reference.strip() or name not in parameters:
                raise UsageError(f"{place}: {{{{{reference}}}}}: the job has no such parameter")
    run_if = _text(task, "run_if", where, RUN_IF[0])
    if run_if not in RUN_IF:
        raise UsageError(f"{where}: run_if {run_if}: there are {', '.join(RUN_IF)}")
    needed = [
        _text(_known(one, {"task_key"}, f"{where}.depends_on", elsewhere=False), "task_key", f"{where}.depends_on")
        for one in _sequence(task.get("depends_on"), f"{where}.depends_on")
    ]
    return Task(
        _text(task, "task_key", where),
        _text(wheel, "package_name", place),
        _text(wheel, "entry_point", place),
        arguments,
        needed,
        run_if,
        int(_number(task, "max_retries", where, 0, least=-1)),
        _number(task, "min_retry_interval_millis", where, 0) / 1000,
        task.get("retry_on_timeout") is True,
        _number(task, "timeout_seconds", where, 0),
    )


def _schedule(raw: Any, where: str) -> Schedule:
    schedule = _known(raw, _SCHEDULE, where, elsewhere=False)
    expression = _text(schedule, "quartz_cron_expression", where)
    status = _text(schedule, "pause_status", where, "UNPAUSED")
    if status not in ("PAUSED", "UNPAUSED"):
        raise UsageError(f"{where}: pause_status {status}: there are PAUSED and UNPAUSED")
    try:
        cron_fields(expression)
    except UsageError as problem:
        raise UsageError(f"{where}: {problem}") from None
    return Schedule(expression, _text(schedule, "timezone_id", where), status == "PAUSED")


def _ordered(tasks: Sequence[Task], where: str) -> Sequence[Task]:
    by_key = {task.key: task for task in tasks}
    if len(by_key) < len(tasks):
        raise UsageError(f"{where}: two tasks have the same task_key")
    for task in tasks:
        for needed in task.depends_on:
            if needed not in by_key:
                raise UsageError(f"{where}: task {task.key} depends on {needed}, which is not there")
    try:
        order = graphlib.TopologicalSorter({task.key: task.depends_on for task in tasks}).static_order()
        return [by_key[key] for key in order]
    except graphlib.CycleError as problem:
        raise UsageError(f"{where}: tasks depend on each other: {' -> '.join(problem.args[1])}") from None


# -- values of a given type, or an error that names the place ---------------------------------------------------------


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{where}: a mapping belongs here, not a {type(value).__name__}")
    return value


def _sequence(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise UsageError(f"{where}: a list belongs here, not a {type(value).__name__}")
    return value


def _known(value: Any, keys: set[str], where: str, *, elsewhere: bool = True) -> dict[str, Any]:
    found = _mapping(value, where)
    for key in found:
        if key not in keys and not (elsewhere and key in _ELSEWHERE):
            raise UsageError(f"{where}: {key}: no such key; there are {', '.join(sorted(keys))}")
    return found


def _text(mapping: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = mapping.get(key, default)
    if value is None or isinstance(value, (dict, list)):
        raise UsageError(f"{where}: {key}: a text belongs here")
    return str(value)


def _number(mapping: Mapping[str, Any], key: str, where: str, default: int, *, least: int = 0) -> float:
    value = mapping.get(key, default)
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if number < least:
        raise UsageError(f"{where}: {key} {value!r}: a whole number from {least} on belongs here")
    return number
