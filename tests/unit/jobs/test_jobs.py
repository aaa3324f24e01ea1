"""The bundle's files are what Databricks and the local runner expect of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from databricks.bundles.jobs import Job, JobEmailNotifications, Task
from typer.main import get_command

from jbod_model.errors import UsageError
from pipelines.cli import main
from pipelines.jobs.bundle import read_bundle
from pipelines.jobs.execute import command
from tests.support.paths import ROOT


def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "jobs.yaml").read_text(encoding="utf-8"))["resources"]["jobs"]
    return found


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
def test_unknown_key_at_any_depth_is_refused_by_the_schema_and_by_the_runner(
    path: tuple[str | int, ...], tmp_path: Path
) -> None:
    job = copy.deepcopy(jobs()["replay"])
    place = job
    for step in path:
        place = place[step]
    place["timeout"] = 1
    with pytest.raises(ValueError, match="Unexpected field 'timeout'"):
        Job.from_dict(job)
    bundle = yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))
    bundle |= {"include": [], "resources": {"jobs": {"replay": job}}}
    (tmp_path / "databricks.yml").write_text(yaml.safe_dump(bundle))
    with pytest.raises(UsageError, match="timeout: no such key"):
        read_bundle(tmp_path / "databricks.yml")


def test_shipped_bundle_is_read_with_tasks_in_order() -> None:
    found = read_bundle(ROOT / "databricks.yml")
    assert {name: [task.key for task in job.tasks] for name, job in found.items()} == {
        "replay": ["replay", "metrics"],
        "check": ["check"],
        "report": ["report"],
        "upkeep": ["optimize", "vacuum"],
        "backfill": ["replay", "verify", "optimize"],
    }


def test_tasks_call_commands_with_options_that_they_take() -> None:
    commands = get_command(main.application()).commands  # type: ignore[attr-defined]
    for job in read_bundle(ROOT / "databricks.yml").values():
        for task in job.tasks:
            assert (task.package, task.entry_point) == ("jbod", "jbod")
            words = command(task, job.parameters)[3:]
            taken = commands[words[0]].make_context(words[0], words[1:]).params
            assert any(job.parameters["lake"] == value for value in taken.values())


def test_defaults_of_the_shipped_bundle_notify_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = read_bundle(ROOT / "databricks.yml")
    for name in ("databricks.yml", "jobs.yaml"):
        assert "://" not in (ROOT / name).read_text()
        assert "@" not in (ROOT / name).read_text()
    with pytest.raises(SystemExit) as left:
        main.main(["jobs", "validate", "--bundle", str(ROOT / "databricks.yml"), "--json"])
    assert left.value.code in (None, 0)
    assert json.loads(capsys.readouterr().out)["jobs"] == list(jobs)
