"""How the JVM of a session is started; ``tests/integration/test_launch.py`` starts real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.spark.jvm import start_jvm

SUBMIT = """#!/bin/sh
kill -INT $$ && kill -TERM $$ && echo alive
printf '%s\\n' "$@"
"""
NAME = 'spark.app.name=a "name" of $HOME'


def test_jvm_is_started_with_signals_ignored_and_without_a_function_between_fork_and_exec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that imported concurrent.futures meanwhile left a traceback in the output: its hooks ran by half."""
    submit = tmp_path / "home of spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(submit.parents[1]))
    forks: list[str] = []
    os.register_at_fork(before=lambda: forks.append("before"))
    jvm = start_jvm(dict([NAME.split("=")]), tmp_path / "log")
    assert jvm.process.wait(30) == 0
    assert forks == []
    assert (tmp_path / "log").read_text().splitlines() == ["alive", "--conf", NAME, "pyspark-shell"]
    jvm.listens.parent.rmdir()
