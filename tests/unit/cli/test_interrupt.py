"""Ctrl-C while the console script imports, and while a command imports what it needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pytest

from pipelines.ask import lake_status
from pipelines.cli import main
from tests.support.paths import ROOT

INTERRUPTED_AT = """
import importlib, os, signal, sys
entry, module = sys.argv[1:3]
class Interrupting:
    def find_spec(self, name, *_):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = sys.argv[3:]
package, _, function = entry.partition(":")
sys.exit(getattr(importlib.import_module(package), function)())
"""
"""What the installed script does; the process gets SIGINT as it begins to import a module."""


def interrupted_at(module: str, *, ignored: bool = False) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``jbod status``, of no lake, interrupted at an import."""
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["jbod"]
    command = [sys.executable, "-c", INTERRUPTED_AT, entry, module, "status", "--lake", "no-lake"]
    if ignored:
        command = ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("module", ["pipelines.cli.main", "typer", "pipelines.cli.ask"])
def test_interrupt_while_the_program_is_imported_ends_it_without_a_word(module: str) -> None:
    assert interrupted_at(module) == (-2, "", "")


def test_interrupt_while_a_command_imports_what_it_needs_is_130_and_a_line() -> None:
    assert interrupted_at("duckdb") == (130, "", "jbod: interrupted\n")


@pytest.mark.parametrize(
    ("code", "stays"), [(0, False), (2, True), (3, True), (129, False), (130, False), (143, False)]
)
def test_output_of_spark_stays_for_an_error_and_not_for_a_signal(code: int, stays: bool, tmp_path: Path) -> None:
    """Cause: each run that a signal ended left a file in TMPDIR, which no message names."""
    program = (
        "from pipelines.cli import main; from pipelines.spark import session; session._log(); "
        f"main.main = lambda: main.sys.exit({code}); main.run()"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=False)
    assert (done.returncode, bool([*tmp_path.glob("jbod-spark-*")])) == (code, stays)


def test_interrupt_that_is_ignored_changes_nothing() -> None:
    code, _, errors = interrupted_at("typer", ignored=True)
    assert code == 2
    assert "no-lake: no lake there" in errors


@pytest.mark.parametrize("answers", [0, 1])
def test_interrupt_within_a_query_is_that_of_the_command(
    answers: int, cluster_lakes: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DuckDB raises an error of its own: a long answer ended with a traceback and exit code 3."""
    of_lake = lake_status.status

    def status(*arguments: object) -> object:
        if next(waits):
            return of_lake(*arguments)  # type: ignore[arg-type]
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        return (
            duckdb.connect()
            .execute("SELECT sum(a.range % (b.range + 1)) FROM range(9999999) a, range(99999) b")
            .fetchall()
        )

    waits: Iterator[bool] = iter([True] * answers + [False])
    monkeypatch.setattr(lake_status, "status", status)
    with pytest.raises(SystemExit) as left:
        main.main(["status", "--lake", str(cluster_lakes["kafka-4.1.2"]), "--watch", "0.2"])
    assert (left.value.code, capsys.readouterr().err) == ((0, "") if answers else (130, "jbod: interrupted\n"))
