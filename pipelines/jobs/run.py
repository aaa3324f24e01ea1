"""Runs a job: its tasks one after the other, each by this interpreter in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping

from jbod_model.errors import UsageError
from pipelines.jobs.bundle import FAILED, FINDINGS, RUN_IF, SKIPPED, SUCCEEDED, Job, Task


def run_job(job: Job, given: Mapping[str, str], say: Callable[[str], None]) -> dict[str, str]:
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
