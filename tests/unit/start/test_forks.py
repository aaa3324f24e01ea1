"""The process that parents of workers are forked from: what it takes over, and what happens without it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.start import forks
from tests.support.paths import ROOT

# Instead of PySpark: a manager that says what it was given, and ends as told.
_SERVER = """
import os, socket, sys, types
from pipelines.start import forks

def manager():
    print(os.environ["COLOUR"], os.getcwd(), sys.argv[1:], sys.path[-1], sys.stdin.readline().strip(), flush=True)
    sys.exit(0)

module = types.ModuleType("pyspark.daemon")
module.manager = manager
sys.modules["pyspark"], sys.modules["pyspark.daemon"] = types.ModuleType("pyspark"), module
forks.load_modules = lambda: None
forks.serve(socket.socket(fileno=int(sys.argv[1])))
"""
_PARENT = "import sys; sys.path.append('added'); from pipelines.start.forks import hand_over; print(hand_over())"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Its address and its process."""
    address = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as calls:
        calls.bind(address)
        calls.listen()
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(calls.fileno())],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            pass_fds=(calls.fileno(),),
        )
    with process:
        yield address, process
        process.kill()


def parent(address: str, folder: Path, said: str = "") -> list[str]:
    """What a parent of workers prints that calls ``address``."""
    env = os.environ | {forks.ADDRESS: address, "COLOUR": "red", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", _PARENT, "pyspark.worker"]
    done = subprocess.run(words, cwd=folder, env=env, input=said, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_fork_goes_on_with_the_variables_arguments_folder_and_files_of_the_parent(
    server: tuple[str, object], tmp_path: Path
) -> None:
    for said in ("one", "two"):
        assert parent(server[0], tmp_path, said + "\n") == [
            f"red {tmp_path} ['pyspark.worker'] added {said}",
            "True",
        ]


def test_process_ends_with_the_one_that_started_it(server: tuple[str, subprocess.Popen[bytes]], tmp_path: Path) -> None:
    address, process = server
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0
    assert parent(address, tmp_path) == ["False"]


def test_call_of_an_impossible_length_is_refused_and_the_next_is_served(
    server: tuple[str, object], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as call:
        call.connect(server[0])
        call.settimeout(30)
        socket.send_fds(call, [(1 << 40).to_bytes(8, "big")], [0, 1, 2])
        assert call.recv(1) == b""
    assert parent(server[0], tmp_path, "after it\n")[-1] == "True"


@pytest.mark.parametrize("address", ["", "/nowhere/s"])
def test_parent_goes_on_itself_without_the_process(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(forks.ADDRESS, address)
    assert not forks.hand_over()


def test_process_starts_once_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_MODULE", "json.tool")  # ends at once: its arguments are no files
    made = forks.Forks()
    folder = Path(made.address).parent
    assert folder.is_dir()
    made.start("", tmp_path / "log")
    first = made.process
    made.start("", tmp_path / "log")
    assert made.process is first
    assert first is not None
    first.wait(30)
    made.remove()
    assert not folder.exists()
