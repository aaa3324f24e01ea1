"""Spark's JVM started without Spark's launcher: which command, and when not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipelines.java import Java
from pipelines.start import launch
from pipelines.start.launch import command, command_file, start_jvm

SUBMIT = "org.apache.spark.deploy.SparkSubmit"
OPTIONS = {
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": "-Xlog:disable -Dname='a b'",
    "spark.app.name": "jbod",
}


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """A Java that writes what it is asked to run, and a command kept for it and for the home that is set."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_SUBMIT"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(program.parent.parent))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    java = Java(program.parent.parent, 17, bundled=False)
    keep(java, "java", "-cp", f"{tmp_path}/spark/jars/*", "-Xmx1g", "--add-opens=x", SUBMIT, "pyspark-shell")
    return java


def keep(java: Java, *words: str) -> None:
    command_file(java).parent.mkdir(parents=True, exist_ok=True)
    command_file(java).write_text(json.dumps(words))


def test_options_stand_where_sparks_launcher_puts_them(java: Java) -> None:
    kept = json.loads(command_file(java).read_text())
    assert command(kept, OPTIONS) == [
        f"{java.home}/bin/java", *kept[1:3], "-Xmx3g", "-Xlog:disable", "-Dname=a b", "--add-opens=x", SUBMIT,
        *(word for name, value in OPTIONS.items() for word in ("--conf", f"{name}={value}")), "pyspark-shell",
    ]  # fmt: skip


def test_jvm_that_ends_before_it_listens_is_no_gateway(java: Java, tmp_path: Path) -> None:
    jvm = start_jvm(java, OPTIONS, tmp_path / "log")
    assert jvm is not None
    assert jvm.gateway(None) is None
    assert SUBMIT in (tmp_path / "log").read_text().splitlines()
    assert not jvm.said.parent.exists()


def test_nothing_is_started_without_a_kept_command(java: Java, tmp_path: Path) -> None:
    command_file(java).unlink()
    assert start_jvm(java, OPTIONS, tmp_path / "log") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '["java", "-Xmx1g"]', '["-cp", "spark/jars", 3]'])
def test_kept_command_that_is_none_is_left_alone(java: Java, tmp_path: Path, text: str) -> None:
    command_file(java).write_text(text)
    assert start_jvm(java, OPTIONS, tmp_path / "log") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPARK_CONF_DIR", "conf.d"),
        ("SPARK_SUBMIT_OPTS", "-Dx=y"),
        ("PYSPARK_SUBMIT_ARGS", "--jars a.jar pyspark-shell"),
        ("PYSPARK_GATEWAY_PORT", "1234"),
        ("SPARK_HOME", "/opt/spark"),
    ],
)
def test_variable_that_sparks_scripts_read_leaves_the_start_to_them(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert start_jvm(java, OPTIONS, tmp_path / "log") is None


@pytest.mark.parametrize(
    "more",
    [
        {"spark.driver.extraClassPath": "a.jar"},
        {"spark.submit.deployMode": "client"},
        {"spark.driver.extraJavaOptions": "-Xmx9g"},
    ],
)
def test_option_that_sparks_launcher_interprets_leaves_the_start_to_it(
    java: Java, tmp_path: Path, more: dict[str, str]
) -> None:
    assert start_jvm(java, OPTIONS | more, tmp_path / "log") is None


def test_file_of_the_command_differs_by_java(java: Java) -> None:
    assert launch.command_file(java) != launch.command_file(Java(java.home, 21, bundled=False))
