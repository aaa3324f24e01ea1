"""Runs one job: its tasks one after the other, with retries and timeouts, and never two runs at the same time.

A task is the entry point of an installed package. This interpreter runs it in a new process group. Exit code 0 means
success. 1 means that it found something: for dependent tasks this is a failure, as on Databricks, but it is not
retried. 2 means bad usage or input, which would fail again: it is not retried either. Any other exit code is a failure
and is retried.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution

from jbod_model.errors import UsageError
from pipelines.jobs.bundle import Job, Task
from pipelines.jobs.lock import held

SUCCEEDED, FINDINGS, FAILED, TIMED_OUT, STOPPED, SKIPPED = (
    "succeeded", "findings", "failed", "timed out", "stopped", "skipped",
)  # fmt: skip
REFUSED = 2
"""Exit code of a task that a retry would not help."""
GRACE = 10.0
"""Seconds between the signal that asks a process group to end and the one that kills it."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Done:
    """The outcome of a task: its state, the last attempt's exit code (None if nothing ran), attempts, seconds."""

    task: str
    state: str
    exit_code: int | None = None
    attempts: int = 0
    seconds: float = 0.0


def exit_code(done: Sequence[Done]) -> int:
    """Exit code of a job: 0 all succeeded, 1 tasks found something and nothing failed, 3 a task failed."""
    states = {one.state for one in done}
    if states & {FAILED, TIMED_OUT, STOPPED}:
        return 3
    return 1 if FINDINGS in states else 0


def run_job(
    job: Job,
    given: Mapping[str, str],
    *,
    say: Say,
    stop: threading.Event,
    output: int | None = None,
) -> list[Done]:
    """Runs a job with the parameters ``given`` until it is done or ``stop`` is set. ``output``: where tasks print.

    Raises UsageError, before anything runs, if a parameter or package does not exist, or if the job runs elsewhere.
    """

    def told(line: str) -> None:
        say(f"{job.key}/{line}")

    parameters = job.with_parameters(given)
    commands = {task.key: command(task, parameters) for task in job.tasks}
    with held(job.key, parameters.get("lake"), job.max_concurrent_runs):
        deadline = time.monotonic() + job.timeout if job.timeout else None
        done: dict[str, Done] = {}
        for task in job.tasks:
            if stop.is_set() or not _wanted(task, [done[key].state for key in task.depends_on]):
                done[task.key] = Done(task.key, STOPPED if stop.is_set() else SKIPPED)
            else:
                told(f"{task.key}: started")
                done[task.key] = _run_task(task, commands[task.key], deadline, told, stop, output)
            told(_told(done[task.key]))
        return list(done.values())


def command(task: Task, parameters: Mapping[str, str]) -> list[str]:
    """The command line of a task: this interpreter, the package's entry point, arguments with parameters inserted."""
    point = _entry_point(task.package, task.entry_point)
    function = point.attr.split(".")[0]
    code = f"import sys; from {point.module} import {function}; sys.argv[0] = {point.name!r}; sys.exit({point.attr}())"

    def value(match: re.Match[str]) -> str:
        return parameters[match[1]]

    arguments = [re.sub(r"\{\{\s*job\.parameters\.(.*?)\s*\}\}", value, one) for one in task.arguments]
    return [sys.executable, "-c", code, *arguments]


def _entry_point(package: str, name: str) -> EntryPoint:
    try:
        points = [point for point in distribution(package).entry_points if point.name == name]
    except PackageNotFoundError:
        raise UsageError(f"{package}: the package of a task is not installed beside this one") from None
    if not points:
        raise UsageError(f"{package}: the package has no entry point {name}")
    return points[0]


def _wanted(task: Task, states: Sequence[str]) -> bool:
    """Whether a task runs if the tasks that it depends on ended with ``states``."""
    good = [state == SUCCEEDED for state in states]
    bad = [state not in (SUCCEEDED, SKIPPED) for state in states]
    if not states or task.run_if == "ALL_DONE":
        return True
    return {
        "ALL_SUCCESS": all(good),
        "AT_LEAST_ONE_SUCCESS": any(good),
        "NONE_FAILED": any(good) and not any(bad),
        "ALL_FAILED": all(bad),
        "AT_LEAST_ONE_FAILED": any(bad),
    }[task.run_if]


def _run_task(
    task: Task,
    words: Sequence[str],
    deadline: float | None,
    say: Say,
    stop: threading.Event,
    output: int | None,
) -> Done:
    attempts = 0
    begun = time.monotonic()
    while True:
        attempts += 1
        started = time.monotonic()
        until = min(
            [end for end in (deadline, started + task.timeout if task.timeout else None) if end is not None],
            default=None,
        )
        state, code = _attempt(words, until, stop, output)
        done = Done(task.key, state, code, attempts, round(time.monotonic() - begun, 1))
        again = (state == FAILED and code != REFUSED) or (state == TIMED_OUT and task.retry_on_timeout)
        wait = max(0.0, started + task.retry_interval - time.monotonic())
        late = deadline is not None and time.monotonic() + wait >= deadline
        if not again or late or 0 <= task.retries < attempts:
            return done
        say(f"{_told(done)}; again in {wait:.0f} s")
        if stop.wait(wait):
            return Done(task.key, STOPPED, code, attempts, done.seconds)


def _attempt(
    words: Sequence[str], until: float | None, stop: threading.Event, output: int | None
) -> tuple[str, int | None]:
    sys.stdout.flush()
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, start_new_session=True)  # noqa: S603
    try:
        while process.poll() is None:
            if stop.wait(0.05):
                return STOPPED, _end(process)
            if until is not None and time.monotonic() >= until:
                return TIMED_OUT, _end(process)
    except BaseException:
        _end(process)
        raise
    return {0: SUCCEEDED, 1: FINDINGS}.get(process.returncode, FAILED), process.returncode


def _end(process: subprocess.Popen[bytes]) -> int:
    """Ends a task and its child processes: asks the process group to end, waits, then kills the rest."""
    for sign, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        end = time.monotonic() + patience
        while time.monotonic() < end and _alive(process):
            time.sleep(0.05)
    return process.wait()


def _alive(process: subprocess.Popen[bytes]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _told(done: Done) -> str:
    if done.state == SKIPPED:
        return f"{done.task}: skipped: what it depends on did not end as it needs"
    code = "" if done.exit_code in (None, 0) else f" (exit code {done.exit_code})"
    tries = f", attempt {done.attempts}" if done.attempts > 1 else ""
    return f"{done.task}: {done.state}{code} after {done.seconds:.1f} s{tries}"


def as_json(job: Job, done: Sequence[Done]) -> str:
    """The outcome of a run as one line of JSON."""
    tasks = [
        {
            "task": one.task,
            "state": one.state,
            "exitCode": one.exit_code,
            "attempts": one.attempts,
            "seconds": one.seconds,
        }
        for one in done
    ]
    return json.dumps({"job": job.key, "exitCode": exit_code(done), "tasks": tasks})
