"""Running jobs: order, retries, timeouts, parameters, exit codes, and never twice at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from jbod_model.errors import UsageError
from pipelines.cli import main
from pipelines.jobs.bundle import read_bundle
from pipelines.jobs.execute import Done, exit_code, run_job
from pipelines.jobs.lock import Busy, held
from pipelines.jobs.schedule import run_schedule
from tests.support.paths import ROOT

# What the tasks of these tests run: a package of its own with an entry point, as an installed wheel has it.
TOOL = """
    import subprocess, sys, time
    from pathlib import Path

    def main():
        notes, what, *rest = sys.argv[1:]
        notes = Path(notes)
        with notes.open("a") as out:
            out.write(" ".join([Path(sys.argv[0]).name, what, *rest]) + chr(10))
        if what == "exit":
            sys.exit(int(rest[0]))
        if what == "flaky":
            sys.exit(0 if notes.read_text().count("flaky") > int(rest[0]) else 5)
        if what == "hang":
            # A child that does not end when it is asked.
            code = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
            child = subprocess.Popen([sys.executable, "-c", code + "; time.sleep(600)"], stdout=subprocess.PIPE)
            child.stdout.read(1)
            notes.with_name("child").write_text(str(child.pid))
            time.sleep(600)
"""


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a bundle of one job ``j``: ``bundle(task, ..., parameters=..., more keys of the job)``."""
    packages = tmp_path / "packages"
    (packages / "tool-1.dist-info").mkdir(parents=True)
    (packages / "tool-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: tool\nVersion: 1\n")
    (packages / "tool-1.dist-info" / "entry_points.txt").write_text("[console_scripts]\ntool = tool_main:main\n")
    (packages / "tool_main.py").write_text(textwrap.dedent(TOOL))
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(packages), str(ROOT)]))

    def write(*tasks: dict[str, Any], **more: Any) -> Path:
        parameters = {"lake": str(tmp_path / "lake"), **more.pop("parameters", {})}
        job = {
            "parameters": [{"name": name, "default": value} for name, value in parameters.items()],
            "tasks": list(tasks),
            **more,
        }
        path = tmp_path / "databricks.yml"
        path.write_text(
            yaml.safe_dump({"resources": {"jobs": {"j": job}}, "variables": {"x": {"default": "v"}, "y": {}}})
        )
        return path

    return write


def task(key: str, *words: str, after: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    wheel = {"package_name": "tool", "entry_point": "tool", "parameters": ["{{job.parameters.lake}}.notes", *words]}
    return {
        "task_key": key, "python_wheel_task": wheel, "depends_on": [{"task_key": one} for one in after], **more
    }  # fmt: skip


def run(path: Path, stop: threading.Event | None = None, **given: str) -> tuple[list[Done], list[str]]:
    lines: list[str] = []
    return run_job(read_bundle(path)["j"], given, say=lines.append, stop=stop or threading.Event()), lines


def notes(tmp_path: Path) -> list[str]:
    return (tmp_path / "lake.notes").read_text().splitlines()


def states(done: list[Done]) -> dict[str, str]:
    return {one.task: one.state for one in done}


def test_tasks_run_in_order_of_their_dependencies_with_parameters_in_place(
    bundle: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUNDLE_VAR_y", "from the environment")
    last = task("c", "say", "{{job.parameters.p}}/{{ job.parameters.lake }}", "${var.x}", "${var.y}", after=("b", "a"))
    path = bundle(last, task("b", "say", "b", after=("a",)), task("a", "say", "a"), parameters={"p": "no"})
    done, _ = run(path, p="$(rm) 'p'")
    assert exit_code(done) == 0
    assert notes(tmp_path) == ["tool say a", "tool say b", f"tool say $(rm) 'p'/{tmp_path}/lake v from the environment"]


def test_named_parameters_are_options(bundle: Callable[..., Path], tmp_path: Path) -> None:
    one = task("a", "say")
    one["python_wheel_task"]["named_parameters"] = {"keep": "{{job.parameters.lake}}"}
    run(bundle(one))
    assert notes(tmp_path) == [f"tool say --keep={tmp_path}/lake"]


def test_failed_task_is_tried_again_not_before_its_interval(bundle: Callable[..., Path], tmp_path: Path) -> None:
    path = bundle(task("a", "flaky", "2", max_retries=3, min_retry_interval_millis=400))
    begun = time.monotonic()
    done, lines = run(path)
    assert (done[0].state, done[0].attempts, exit_code(done)) == ("succeeded", 3, 0)
    assert time.monotonic() - begun >= 0.8
    assert len(notes(tmp_path)) == 3
    assert sum("failed (exit code 5)" in line for line in lines) == 2


def test_task_that_keeps_failing_fails_the_job_and_skips_dependent_tasks(bundle: Callable[..., Path]) -> None:
    done, _ = run(
        bundle(task("a", "exit", "3", max_retries=1), task("b", "say", after=("a",)), task("c", "say", after=("b",)))
    )
    assert states(done) == {"a": "failed", "b": "skipped", "c": "skipped"}
    assert (done[0].attempts, exit_code(done)) == (2, 3)


@pytest.mark.parametrize(("code", "attempts"), [(1, 1), (2, 1), (3, 3), (4, 3)])
def test_task_is_tried_again_only_where_that_may_help(bundle: Callable[..., Path], code: int, attempts: int) -> None:
    done, _ = run(bundle(task("a", "exit", str(code), max_retries=2)))
    assert (done[0].attempts, done[0].exit_code) == (attempts, code)


def test_findings_are_no_failure_of_the_job_and_not_tried_again(bundle: Callable[..., Path]) -> None:
    check = task("check", "exit", "1", max_retries=3)
    done, _ = run(
        bundle(check, task("alert", "say", after=("check",), run_if="ALL_DONE"), task("on", after=("check",)))
    )
    assert states(done) == {"check": "findings", "alert": "succeeded", "on": "skipped"}
    assert (done[0].attempts, exit_code(done)) == (1, 1)


@pytest.mark.parametrize(
    ("run_if", "runs"),
    [
        ("ALL_SUCCESS", False),
        ("ALL_DONE", True),
        ("NONE_FAILED", False),
        ("AT_LEAST_ONE_SUCCESS", True),
        ("ALL_FAILED", False),
        ("AT_LEAST_ONE_FAILED", True),
    ],
)
def test_run_if_of_a_task_after_one_that_succeeded_and_one_that_failed(
    bundle: Callable[..., Path], run_if: str, runs: bool
) -> None:
    done, _ = run(bundle(task("a", "say"), task("b", "exit", "4"), task("c", "say", after=("a", "b"), run_if=run_if)))
    assert states(done)["c"] == ("succeeded" if runs else "skipped")


@pytest.mark.parametrize("how", ["task", "job"])
def test_task_that_is_too_long_is_killed_with_its_children(
    bundle: Callable[..., Path], tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.jobs.execute.GRACE", 0.3)
    if how == "task":
        path = bundle(task("a", "hang", timeout_seconds=1, max_retries=2), task("b", "say", after=("a",)))
    else:
        path = bundle(task("a", "hang", max_retries=2), task("b", "say", after=("a",)), timeout_seconds=1)
    done, _ = run(path)
    assert states(done) == {"a": "timed out", "b": "skipped"}
    assert (done[0].attempts, exit_code(done)) == (1, 3)
    assert gone(int((tmp_path / "child").read_text()))


def test_timeout_is_retried_if_the_task_says_so(bundle: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.jobs.execute.GRACE", 0.3)
    done, _ = run(bundle(task("a", "hang", timeout_seconds=1, max_retries=1, retry_on_timeout=True)))
    assert (done[0].state, done[0].attempts) == ("timed out", 2)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_second_run_of_a_job_on_a_lake_is_refused_and_names_the_first(
    bundle: Callable[..., Path], tmp_path: Path
) -> None:
    path = bundle(task("a", "say"))
    with held("j", str(tmp_path / "lake"), 1), pytest.raises(Busy) as refused:
        run(path)
    assert f"process {os.getpid()} of " in str(refused.value)
    assert not (tmp_path / "lake.notes").exists()
    done, _ = run(path)
    assert exit_code(done) == 0


def test_job_runs_at_once_on_another_lake_and_as_often_as_it_may(bundle: Callable[..., Path], tmp_path: Path) -> None:
    path = bundle(task("a", "say"), max_concurrent_runs=2)
    with held("j", str(tmp_path / "lake"), 2):
        assert exit_code(run(path)[0]) == 0
        with held("j", str(tmp_path / "lake"), 2), pytest.raises(Busy):
            run(path)
    with held("j", str(tmp_path / "other"), 1):
        assert exit_code(run(path)[0]) == 0


def jobs(*words: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pipelines.cli.main", "jobs", *words]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_run_is_refused_in_another_process_and_free_again_when_its_holder_is_killed(
    bundle: Callable[..., Path], tmp_path: Path
) -> None:
    bundle(task("a", "hang"))
    first = jobs("run", "j", cwd=tmp_path)
    until((tmp_path / "child").exists)
    second = jobs("run", "j", cwd=tmp_path)
    assert second.wait() == 2
    assert second.stderr is not None
    assert re.fullmatch(rf"jbod: job j is running on .*: process {first.pid} of .*\n", second.stderr.read())
    (task_pid,) = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    first.kill()
    first.wait()
    os.killpg(int(task_pid), signal.SIGKILL)
    bundle(task("a", "say"))
    assert jobs("run", "j", cwd=tmp_path).wait() == 0


def test_interrupted_run_ends_its_task_and_leaves_with_3(bundle: Callable[..., Path], tmp_path: Path) -> None:
    bundle(task("a", "hang"), task("b", "say", after=("a",)))
    going = jobs("run", "j", "--json", cwd=tmp_path)
    until((tmp_path / "child").exists)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    going.send_signal(signal.SIGINT)
    out, _ = going.communicate()
    assert going.returncode == 3
    assert [one["state"] for one in json.loads(out)["tasks"]] == ["stopped", "stopped"]


def test_schedule_runs_jobs_at_their_times_until_it_is_asked_to_stop(
    bundle: Callable[..., Path], tmp_path: Path
) -> None:
    every = {"quartz_cron_expression": "* * * * * ?", "timezone_id": "UTC"}
    bundle(task("a", "say", "{{job.parameters.p}}"), schedule=every, parameters={"p": "x"})
    going = jobs("schedule", "--param", "p=y", cwd=tmp_path)
    until(lambda: (tmp_path / "lake.notes").exists() and len(notes(tmp_path)) >= 2)
    going.send_signal(signal.SIGTERM)
    _, said = going.communicate(timeout=20)
    assert going.returncode == 0
    assert "j: done, exit code 0" in said
    assert set(notes(tmp_path)) == {"tool say y"}


def test_schedule_that_stops_ends_the_task_at_work(bundle: Callable[..., Path], tmp_path: Path) -> None:
    every = {"quartz_cron_expression": "* * * * * ?", "timezone_id": "UTC"}
    path = bundle(task("a", "hang"), schedule=every)
    stop, lines = threading.Event(), list[str]()
    jobs = list(read_bundle(path).values())
    thread = threading.Thread(target=run_schedule, args=(jobs, {}), kwargs={"say": lines.append, "stop": stop})
    thread.start()
    until((tmp_path / "child").exists)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    stop.set()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert any("a: stopped" in line for line in lines)


def test_schedule_of_paused_jobs_only_is_refused(bundle: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="no job has a schedule that is not paused"):
        run_schedule([], {}, say=print, stop=threading.Event())


HOURLY = {"quartz_cron_expression": "0 0 * * * ?", "timezone_id": "UTC"}


@pytest.mark.parametrize(
    ("tasks", "more", "problem"),
    [
        ([task("a", "{{job.parameters.q}}")], {}, "{{job.parameters.q}}: the job has no such parameter"),
        ([task("a", "{{job.id}}")], {}, "{{job.id}}: the job has no such parameter"),
        ([task("a", "${var.z}")], {}, "tasks[0].python_wheel_task.parameters[1]: ${var.z}: no such variable"),
        ([task("a", "${var.y}")], {}, "${var.y} has no value: set BUNDLE_VAR_y"),
        ([task("a", "${workspace.host}")], {}, "${workspace.host}: no such variable"),
        ([task("a", after=("b",)), task("b", after=("a",))], {}, "tasks depend on each other: "),
        ([task("a", after=("x",))], {}, "task a depends on x, which is not there"),
        ([task("a"), task("a")], {}, "two tasks have the same task_key"),
        ([task("a", run_if="SOMETIMES")], {}, "run_if SOMETIMES: there are ALL_SUCCESS"),
        ([task("a", max_retries="x")], {}, "max_retries 'x': a whole number from -1 on"),
        ([task("a", timeout_seconds=-1)], {}, "timeout_seconds -1: a whole number from 0 on"),
        ([task("a", timeout=1)], {}, "tasks[0]: timeout: no such key"),
        ([{"task_key": "a", "notebook_task": {}}], {}, "notebook_task: no such key"),
        ([{"task_key": "a"}], {}, "there is no python_wheel_task"),
        ([{"task_key": "a", "python_wheel_task": []}], {}, "a mapping belongs here, not a list"),
        ([], {}, "a job needs tasks"),
        ([task("a")], {"schedule": {**HOURLY, "quartz_cron_expression": "* * *"}}, "jobs.j.schedule: quartz_cron"),
        ([task("a")], {"schedule": {**HOURLY, "timezone_id": "Mars/Olympus"}}, "no such time zone"),
        ([task("a")], {"schedule": {**HOURLY, "pause_status": "NO"}}, "pause_status NO: there are PAUSED"),
    ],
)
def test_wrong_bundle_is_refused_with_one_line_and_exit_code_2(
    bundle: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    tasks: list[dict[str, Any]],
    more: dict[str, Any],
    problem: str,
) -> None:
    path = bundle(*tasks, **more)
    with pytest.raises(SystemExit) as left:
        main.main(["jobs", "validate", "--bundle", str(path)])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run", "nope"], "nope: no such job; there are j"),
        (["run", "j", "--param", "q=1"], "--param q: job j has no such parameter; it has lake"),
        (["run", "j", "--param", "lake"], "--param lake: write NAME=VALUE"),
        (["schedule", "--param", "q=1"], "--param q: no scheduled job has such a parameter; they have lake"),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(
    bundle: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    path = bundle(task("a", "say"), schedule=HOURLY)
    with pytest.raises(SystemExit) as left:
        main.main(["jobs", *words, "--bundle", str(path)])
    assert (left.value.code, capsys.readouterr().err) == (2, f"jbod: {problem}\n")
    assert not (tmp_path / "lake.notes").exists()


def test_task_of_a_package_or_entry_point_that_is_not_there_is_refused(bundle: Callable[..., Path]) -> None:
    for key, value, problem in (
        ("package_name", "no-such-package", "no-such-package: the package of a task is not installed"),
        ("entry_point", "nope", "tool: the package has no entry point nope"),
    ):
        one = task("a", "say")
        one["python_wheel_task"][key] = value
        with pytest.raises(UsageError, match=problem):
            run(bundle(one))


def test_bundle_that_is_not_there_or_no_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the bundle: No such file or directory"):
        read_bundle(tmp_path / "databricks.yml")
    (tmp_path / "databricks.yml").write_text("a: [\n")
    with pytest.raises(UsageError, match="line 2: not valid YAML"):
        read_bundle(tmp_path / "databricks.yml")
    (tmp_path / "databricks.yml").write_text("include: [jobs.yaml]\n")
    with pytest.raises(UsageError, match=r"include jobs\.yaml: no such file"):
        read_bundle(tmp_path / "databricks.yml")


def test_list_tells_schedules_and_tasks(bundle: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = bundle(task("a"), task("b", after=("a",)), schedule=HOURLY)
    with pytest.raises(SystemExit) as left:
        main.main(["jobs", "list", "--bundle", str(path), "--json"])
    assert left.value.code == 0
    (said,) = json.loads(capsys.readouterr().out)["jobs"]
    assert said["schedule"] == {"expression": "0 0 * * * ?", "timezone": "UTC", "paused": False}
    assert said["next"].endswith(":00:00+00:00")
    assert said["tasks"] == [{"task": "a", "dependsOn": []}, {"task": "b", "dependsOn": ["a"]}]


def test_command_that_breaks_is_no_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("pipelines.jobs.bundle.read_bundle", broken)
    with pytest.raises(SystemExit) as left:
        main.main(["jobs", "list"])
    assert left.value.code == 3
    assert "ZeroDivisionError" in capsys.readouterr().err
