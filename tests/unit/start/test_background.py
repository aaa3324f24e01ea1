"""When a command prepares the machine in the background, and how the process runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.java import find_java
from pipelines.start import background
from pipelines.start.background import RETRY_SECONDS, Preparation, preparation
from pipelines.start.cache import cache_dir, prepared
from pipelines.start.switch import TRICKS, choose

PATIENCE = 30.0
WORK = f"""
import os, sys, time
from pathlib import Path
folder = Path(os.environ["FOLDER"])
(folder / "runs").write_text(f"{{os.nice(0)}} {{os.getsid(0) == os.getpid()}}")
print("compiling", flush=True)
ends = time.monotonic() + {PATIENCE}
while not (folder / "end").exists() and time.monotonic() < ends:
    time.sleep(0.01)
"""
"""A module in place of ``jbod warm``, which runs until a file exists."""


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an empty cache, on which commands may start something in the background."""
    monkeypatch.delenv(background.VARIABLE)
    monkeypatch.setenv("JBOD_SPARK__FAST_START", "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preparation:
    """What prepares this machine, with WORK as its work."""
    (tmp_path / "work_of_a_test.py").write_text(WORK)
    monkeypatch.setattr(background, "_MODULE", "work_of_a_test")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = preparation()
    assert found is not None
    return found


def _wait_for(what: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_machine_that_is_prepared_needs_no_preparation() -> None:
    java = find_java()
    assert java is not None
    assert preparation() is not None
    prepared(java).parent.mkdir(parents=True)
    prepared(java).touch()
    assert preparation() is None


def test_switch_and_variable_turn_the_preparation_off(monkeypatch: pytest.MonkeyPatch) -> None:
    choose([trick for trick in TRICKS if trick != "background"])
    assert preparation() is None
    choose(["background"])
    assert preparation() is not None
    monkeypatch.setenv(background.VARIABLE, "0")
    assert preparation() is None


def test_preparation_runs_at_low_priority_in_a_session_of_its_own_and_never_twice(
    tmp_path: Path, made: Preparation
) -> None:
    log = made.start()
    assert log is not None
    _wait_for((tmp_path / "runs").exists)
    _wait_for((tmp_path / "runs").read_text)
    assert (tmp_path / "runs").read_text() == "19 True"
    _wait_for(log.read_text)
    assert log.read_text() == "compiling\n"
    _make_old(log)
    assert made.start() is None, "another process prepares this machine"
    (tmp_path / "end").touch()
    _wait_for(made.start)  # the lock is free when the process has ended


def test_preparation_that_failed_is_tried_again_after_a_day(tmp_path: Path, made: Preparation) -> None:
    (tmp_path / "end").touch()
    cache_dir().mkdir(parents=True)
    made.log.touch()
    assert made.start() is None
    _make_old(made.log)
    assert made.start() == made.log


def test_preparation_that_another_process_has_finished_is_not_started(made: Preparation) -> None:
    cache_dir().mkdir(parents=True)
    prepared(made.java).touch()
    assert made.start() is None


def test_preparation_without_a_cache_that_can_be_written_is_not_started(tmp_path: Path, made: Preparation) -> None:
    (tmp_path / "cache").touch()
    assert made.start() is None


def _make_old(log: Path) -> None:
    then = time.time() - RETRY_SECONDS - 1
    os.utime(log, (then, then))
