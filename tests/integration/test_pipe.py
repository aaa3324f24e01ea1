"""Output into a pipe whose reader goes away, and into what cannot take it: real pipes and real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.paths import ROOT, metadata_dir

JBOD = (sys.executable, "-m", "pipelines.cli.main")
LARGE = ("dump", *map(str, sorted(metadata_dir("kafka-4.1.2").glob("__cluster_metadata-0/*.log"))))
"""Far more than a pipe holds."""
QUIET_CHECK = ("check", "--no-keep", "--quiet")
"""Without progress, which comes after ten seconds on a busy machine."""


@pytest.fixture(scope="module")
def lake(cluster_lakes: Mapping[str, Path]) -> str:
    return str(cluster_lakes["kafka-4.1.2"])


def left(*words: str, read: int, errors_too: bool = False) -> tuple[int, bytes]:
    """Exit code and standard error where the reader takes ``read`` bytes and goes; 0: it was never there."""
    ours, theirs = os.pipe()
    if not read:
        os.close(ours)
    with subprocess.Popen(
        [*JBOD, *words], cwd=ROOT, stdout=theirs, stderr=theirs if errors_too else subprocess.PIPE
    ) as process:
        os.close(theirs)
        if read:
            os.read(ours, read)
            os.close(ours)
        errors = process.stderr.read() if process.stderr else b""
        return process.wait(), errors


@pytest.mark.parametrize("words", [("status",), QUIET_CHECK, ("--help",)])
def test_reader_that_was_never_there_is_141_whatever_the_answer(lake: str, words: tuple[str, ...]) -> None:
    arguments = words if words == ("--help",) else (*words, "--lake", lake)
    assert left(*arguments, read=0) == (141, b"")


@pytest.mark.parametrize("words", [LARGE, QUIET_CHECK])
def test_reader_that_leaves_after_a_few_bytes_is_141(lake: str, words: tuple[str, ...]) -> None:
    assert left(*words, *(() if words is LARGE else ("--lake", lake)), read=10) == (141, b"")


def test_error_message_that_nobody_reads_is_141() -> None:
    assert left("nosuch", read=0, errors_too=True)[0] == 141


def test_reader_of_everything_gets_the_exit_code_of_the_answer(lake: str) -> None:
    done = subprocess.run([*JBOD, *QUIET_CHECK, "--lake", lake], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.startswith(b"At offset 629")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("words", [("status",), ("image",)])
def test_answer_that_cannot_be_written_is_2_and_a_line(lake: str, words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*JBOD, *words, "--lake", lake], cwd=ROOT, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert b"No space left on device" in done.stderr
    assert done.stderr.count(b"\n") == 1
