"""The bundle's files are what a runner expects of them."""

from __future__ import annotations

import re
from typing import Any

import yaml
from typer.main import get_command

from pipelines.cli import application
from tests.paths import ROOT


def loaded(name: str) -> dict[str, Any]:
    content = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def jobs() -> dict[str, Any]:
    found: dict[str, Any] = loaded("jobs.yaml")["resources"]["jobs"]
    return found


def test_bundle_includes_the_jobs() -> None:
    assert loaded("databricks.yml")["include"] == ["jobs.yaml"]


def test_jobs_use_only_variables_and_parameters_that_are_declared() -> None:
    variables = set(loaded("databricks.yml")["variables"])
    for job in jobs().values():
        text = yaml.safe_dump(job)
        parameters = {parameter["name"] for parameter in job.get("parameters", [])}
        assert set(re.findall(r"\$\{var\.(\w+)\}", text)) <= variables
        assert set(re.findall(r"\{\{job\.parameters\.(\w+)\}\}", text)) <= parameters


def test_jobs_call_commands_that_exist_with_tasks_in_order() -> None:
    commands = get_command(application()).commands  # type: ignore[attr-defined]
    for job in jobs().values():
        before: set[str] = set()
        environments = {environment["environment_key"] for environment in job["environments"]}
        for task in job["tasks"]:
            wheel = task["python_wheel_task"]
            assert (wheel["package_name"], wheel["entry_point"]) == ("jbod", "jbod")
            assert wheel["parameters"][0] in commands
            assert {needed["task_key"] for needed in task.get("depends_on", [])} <= before
            assert task["environment_key"] in environments
            before.add(task["task_key"])


def test_schedules_are_quartz_expressions() -> None:
    for job in jobs().values():
        fields = job["schedule"]["quartz_cron_expression"].split()
        assert len(fields) in (6, 7)
        assert "?" in (fields[3], fields[5])
