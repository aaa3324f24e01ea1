"""Running jobs in real processes: order, parameters, run_if and exit codes, with commands of jbod as tasks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT, metadata_dir

GOOD = ("settings",)
FINDS = ("check", str(metadata_dir("kafka-4.1.2")), "--at-offset", "200")
REFUSED = ("status", "--lake", "{{job.parameters.lake}}")


def task(key: str, *words: str, after: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    wheel = {"package_name": "jbod", "entry_point": "jbod", "parameters": list(words)}
    return {"task_key": key, "python_wheel_task": wheel, "depends_on": [{"task_key": name} for name in after], **more}


def run(folder: Path, *tasks: dict[str, Any], words: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """``jbod jobs run j`` of a bundle of one job ``j`` with the parameter ``lake``: exit code and outputs."""
    job = {"parameters": [{"name": "lake", "default": "${var.lake}"}], "tasks": list(tasks)}
    content = {"resources": {"jobs": {"j": job}}, "variables": {"lake": {"default": str(folder / "none")}}}
    (folder / "databricks.yml").write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "pipelines.cli.main", "jobs", "run", "j", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    return done.returncode, done.stdout, done.stderr


def states(err: str) -> list[tuple[str, str]]:
    """The tasks that ended, in order, each with its state."""
    words = [line.split()[2:] for line in err.splitlines() if " j/" in line]
    return [(name[2:-1], state.rstrip(",")) for name, state, *_ in words if state != "started"]


def test_tasks_run_after_those_that_they_depend_on_and_print_to_standard_output(tmp_path: Path) -> None:
    last = task("c", *GOOD, after=("b", "a"))
    code, out, err = run(tmp_path, last, task("b", *GOOD, after=("a",)), task("a", *GOOD))
    assert (code, states(err)) == (0, [("a", "succeeded"), ("b", "succeeded"), ("c", "succeeded")])
    assert out.count("Files, later wins:") == 3


def test_findings_are_no_failure_of_the_job_but_of_the_tasks_that_depend_on_them(tmp_path: Path) -> None:
    check = task("check", *FINDS)
    tasks = (check, task("report", *GOOD, after=("check",), run_if="ALL_DONE"), task("on", *GOOD, after=("check",)))
    code, _, err = run(tmp_path, *tasks)
    assert (code, dict(states(err))) == (1, {"check": "findings", "report": "succeeded", "on": "skipped"})


def test_task_that_fails_fails_the_job_and_skips_all_that_depend_on_it(tmp_path: Path) -> None:
    tasks = (task("a", *REFUSED), task("b", *GOOD, after=("a",)), task("c", *GOOD, after=("b",)))
    code, _, err = run(tmp_path, *tasks, words=("--param", f"lake={tmp_path}/$(given) 'lake'"))
    assert (code, states(err)) == (3, [("a", "failed"), ("b", "skipped"), ("c", "skipped")])
    assert f"jbod: {tmp_path}/$(given) 'lake': no lake there" in err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--param", "q=1"), "--param q: job j has no such parameter; it has lake"),
        (("--param", "lake"), "--param lake: write NAME=VALUE"),
        (("--bundle", "none.yml"), "none.yml: cannot read the jobs: No such file or directory"),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    assert run(tmp_path, task("a", *GOOD), words=words) == (2, "", f"jbod: {problem}\n")
