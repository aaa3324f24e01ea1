"""Runs jobs at their times until stopped: a small scheduler for machines without another one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime

from jbod_model.errors import JbodError, UsageError
from pipelines.jobs.bundle import Job
from pipelines.jobs.execute import Say, command, exit_code, run_job
from pipelines.jobs.quartz import cron_trigger


def scheduled(jobs: Mapping[str, Job]) -> list[Job]:
    """The jobs with a schedule that is not paused."""
    return [job for job in jobs.values() if job.schedule is not None and not job.schedule.paused]


def next_time(job: Job, now: datetime) -> datetime | None:
    """The time of a job's next run, None if it has no active schedule."""
    if job.schedule is None or job.schedule.paused:
        return None
    found: datetime | None = cron_trigger(job.schedule.expression, job.schedule.timezone).get_next_fire_time(None, now)
    return found


def run_schedule(jobs: Sequence[Job], given: Mapping[str, str], *, say: Say, stop: threading.Event) -> None:
    """Runs ``jobs`` at their times until ``stop`` is set. Then it ends running tasks.

    Each job takes those of the parameters ``given`` that it has. If run times were missed while the machine slept, the
    job runs once. A run time while the job is running is skipped. Raises UsageError, before anything runs, if a job
    cannot be scheduled.
    """
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    if not jobs:
        raise UsageError("no job has a schedule that is not paused")
    known = {name for job in jobs for name in job.parameters}
    for name in given:
        if name not in known:
            raise UsageError(
                f"--param {name}: no scheduled job has such a parameter; they have {', '.join(sorted(known))}"
            )
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(sum(job.max_concurrent_runs for job in jobs))}
    )
    for job in jobs:
        assert job.schedule is not None
        mine = {name: value for name, value in given.items() if name in job.parameters}
        for task in job.tasks:
            command(task, job.with_parameters(mine))
        scheduler.add_job(
            _run,
            cron_trigger(job.schedule.expression, job.schedule.timezone),
            [job, mine, say, stop],
            id=job.key,
            coalesce=True,
            misfire_grace_time=None,
            max_instances=job.max_concurrent_runs,
        )
    scheduler.start()
    for job in jobs:
        say(f"{job.key}: next at {scheduler.get_job(job.key).next_run_time:%Y-%m-%d %H:%M:%S %Z}")
    stop.wait()
    scheduler.shutdown(wait=True)


def _run(job: Job, given: Mapping[str, str], say: Say, stop: threading.Event) -> None:
    if stop.is_set():
        return
    try:
        done = run_job(job, given, say=say, stop=stop)
    except (JbodError, OSError) as problem:
        say(f"{job.key}: not run: {' '.join(str(problem).split())}")
        return
    say(f"{job.key}: done, exit code {exit_code(done)}")
