"""The bundle's files are what Databricks and ``jbod jobs`` expect of them, and the page's units what systemd does."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from databricks.bundles.jobs import Job, JobEmailNotifications, Task
from typer.main import get_command

from jbod_model.errors import UsageError
from pipelines.cli import main
from pipelines.cli.jobs import (
    FAILED,
    FINDINGS,
    RUN_IF,
    SKIPPED,
    SUCCEEDED,
    command,
    default_bundle,
    exit_code,
    read_bundle,
)
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")


def jobs() -> dict[str, Any]:
    definitions: dict[str, Any] = yaml.safe_load((ROOT / "jobs.yaml").read_text(encoding="utf-8"))["resources"]["jobs"]
    return definitions


@pytest.mark.parametrize("name", jobs())
def test_job_is_one_of_the_bundle_schema(name: str) -> None:
    job = Job.from_dict(jobs()[name])
    assert job.max_concurrent_runs == 1
    assert isinstance(job.email_notifications, JobEmailNotifications)
    assert job.email_notifications.on_failure
    assert isinstance(job.tasks, list)
    assert all(isinstance(task, Task) and task.timeout_seconds for task in job.tasks)


@pytest.mark.parametrize(
    "path", [(), ("tasks", 0), ("tasks", 0, "python_wheel_task"), ("schedule",), ("parameters", 0)]
)
def test_unknown_key_at_any_depth_is_refused_by_the_schema(path: tuple[str | int, ...]) -> None:
    job = jobs()["replay"]
    place = job
    for step in path:
        place = place[step]
    place["timeout"] = 1
    with pytest.raises(ValueError, match="Unexpected field 'timeout'"):
        Job.from_dict(job)


def test_shipped_bundle_is_read_with_tasks_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert {name: [task.key for task in job.tasks] for name, job in read_bundle(default_bundle()).items()} == {
        "replay": ["replay", "metrics"],
        "check": ["check"],
        "report": ["report"],
        "upkeep": ["optimize", "vacuum"],
        "fleet": ["replay", "metrics", "check"],
        "backfill": ["replay", "verify", "optimize"],
    }


def test_page_shows_what_jobs_list_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main.main(["jobs", "list", "--bundle", str(ROOT / "databricks.yml")])
    assert left.value.code == 0
    assert f"$ jbod jobs list\n{capsys.readouterr().out}" in PAGE


def test_tasks_call_commands_with_options_that_they_take() -> None:
    commands = get_command(main.application()).commands  # type: ignore[attr-defined]
    for job in read_bundle(ROOT / "databricks.yml").values():
        for task in job.tasks:
            words = command(task, job.parameters)[3:]
            named = words.pop(0)
            wanted = commands[named]
            if named == "fleet":
                wanted = wanted.commands[words.pop(0) if words[0] in wanted.commands else "replay"]
            taken = wanted.make_context(named, words).params
            assert any(
                str(value) == job.parameters["fleet" if named == "fleet" else "lake"] for value in taken.values()
            )


def test_defaults_of_the_shipped_bundle_notify_nobody() -> None:
    for name in ("databricks.yml", "jobs.yaml"):
        assert "://" not in (ROOT / name).read_text()
        assert "@" not in (ROOT / name).read_text()


def task(key: str, *words: str, after: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    wheel = {"package_name": "jbod", "entry_point": "jbod", "parameters": list(words)}
    return {"task_key": key, "python_wheel_task": wheel, "depends_on": [{"task_key": name} for name in after], **more}


def bundle(folder: Path, *tasks: dict[str, Any], **more: Any) -> Path:
    """A bundle of one job ``j``."""
    job = {"parameters": [{"name": "lake", "default": "l"}, {"name": "p", "default": "${var.y}"}], "tasks": [*tasks]}
    content = {"resources": {"jobs": {"j": job}}, "variables": {"x": {"default": "v"}, "y": {"default": "w"}}, **more}
    (folder / "databricks.yml").write_text(yaml.safe_dump(content))
    return folder / "databricks.yml"


def test_parameters_and_variables_stand_in_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUNDLE_VAR_y", "from the environment")
    (job,) = read_bundle(bundle(tmp_path, task("a", "say", "{{job.parameters.p}}/{{ job.parameters.lake }}"))).values()
    assert job.parameters == {"lake": "l", "p": "from the environment"}
    assert command(job.tasks[0], {**job.parameters, "lake": "$(rm) 'l'"})[3:] == [
        "say",
        "from the environment/$(rm) 'l'",
    ]


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
def test_run_if_of_a_task_after_one_that_succeeded_and_one_that_failed(run_if: str, runs: bool) -> None:
    assert RUN_IF[run_if]([SUCCEEDED, FAILED]) == runs
    assert RUN_IF[run_if]([SUCCEEDED, FINDINGS]) == runs


@pytest.mark.parametrize("run_if", RUN_IF)
def test_run_if_of_a_task_after_one_that_was_skipped_beside_one_that_succeeded(run_if: str) -> None:
    """A task that was skipped has neither succeeded nor failed."""
    assert RUN_IF[run_if]([SUCCEEDED, SKIPPED]) == (run_if in ("ALL_DONE", "NONE_FAILED", "AT_LEAST_ONE_SUCCESS"))
    assert RUN_IF[run_if]([SKIPPED]) == (run_if == "ALL_DONE")


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ((SUCCEEDED, SKIPPED), 0),
        ((SUCCEEDED, FINDINGS), 1),
        ((FINDINGS, FAILED), 3),
    ],
)
def test_exit_code_of_a_job_is_that_of_its_worst_task(states: tuple[str, ...], code: int) -> None:
    assert exit_code(dict(enumerate(states))) == code  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ([task("a", "{{job.parameters.q}}")], "{{job.parameters.q}}: the job has no such parameter"),
        ([task("a", "{{job.id}}")], "{{job.id}}: the job has no such parameter"),
        ([task("a", after=("b",)), task("b", after=("a",))], "tasks depend on each other: "),
        ([task("a", after=("x",))], "task a depends on x, which is not there"),
        ([task("a"), task("a")], "two tasks have the same task_key"),
        ([task("a", run_if="SOMETIMES")], "run_if SOMETIMES: there are ALL_SUCCESS"),
        ([{"task_key": "a"}], "python_wheel_task is missing"),
        ([{"task_key": "a", "python_wheel_task": []}], "not the form of a job"),
        ([{"task_key": "a", "python_wheel_task": {"entry_point": "x"}}], "entry_point x: only commands of jbod"),
    ],
)
def test_wrong_bundle_is_refused_with_the_place(tmp_path: Path, tasks: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)) as refused:
        read_bundle(bundle(tmp_path, *tasks))
    assert str(refused.value).startswith(f"{tmp_path}/databricks.yml: jobs.j")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"include": ["jobs.yaml"]}, "databricks.yml: include jobs.yaml: no such file"),
        ({"variables": {}}, "databricks.yml: jobs.j.p: ${var.y}: no such variable"),
        ({"variables": {"y": {}}}, "${var.y} has no value: set BUNDLE_VAR_y"),
    ],
)
def test_bundle_without_what_it_names_is_refused(tmp_path: Path, more: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        read_bundle(bundle(tmp_path, task("a"), **more))


def test_job_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main.main(["jobs", "run", "nope", "--bundle", str(bundle(tmp_path, task("a")))])
    assert (left.value.code, capsys.readouterr().err) == (2, "jbod: nope: no such job; there are j\n")


def test_command_that_breaks_is_no_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("pipelines.cli.jobs.read_bundle", broken)
    with pytest.raises(SystemExit) as left:
        main.main(["jobs", "list"])
    assert left.value.code == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


# THE PAGE


def test_systemd_accepts_the_units_of_the_page(tmp_path: Path) -> None:
    units = re.findall(r"```ini\n# /etc/systemd/system/(\S+)\n(.*?)```", PAGE, re.DOTALL)
    assert sorted(name for name, _ in units) == ["jbod-failed@.service", "jbod-replay.timer", "jbod@.service"]
    for name, text in units:
        for program in re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE):
            text = text.replace(program, shutil.which("true") or program)
        (tmp_path / name).write_text(text)
    if (analyze := shutil.which("systemd-analyze")) is None:
        return
    (tmp_path / "jbod@replay.service").symlink_to(tmp_path / "jbod@.service")
    ran = subprocess.run(
        [analyze, "verify", "--man=no", tmp_path / "jbod-replay.timer", tmp_path / "jbod@replay.service"],
        capture_output=True,
        text=True,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_schedules_of_the_page_start_jobs_that_exist() -> None:
    named = set(re.findall(r"jobs run ([a-z]+)", PAGE)) | set(re.findall(r"jbod@([a-z]+)\.service", PAGE))
    assert named == {"replay", "check", "report", "upkeep"}


def test_dag_of_the_page_is_python() -> None:
    (dag,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    compile(dag, "docs/jobs.md", "exec")
