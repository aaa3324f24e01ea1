"""A few thousand mutated inputs for every reader of foreign bytes; tests/README.md has the longer runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.fuzz.run import fuzz
from tests.fuzz.targets import NAMES, targets
from tests.support.paths import ROOT
from tests.support.volume import amount


@pytest.mark.parametrize("name", NAMES)
def test_reader_of_mutated_input_reads_it_or_refuses_it_with_one_error(name: str) -> None:
    assert fuzz(name, inputs=amount(300, 5000), seed="2026") is not None


@pytest.mark.parametrize("name", NAMES)
def test_target_reads_what_it_starts_from(name: str) -> None:
    target = targets()[name]
    assert any(target.run(good) for good in target.seeds)


def test_every_target_is_mutated() -> None:
    assert sorted(targets()) == [*NAMES]


def test_mutated_batches_are_read_or_refused_below_a_ceiling_of_memory() -> None:
    """In a process of its own, which may not allocate more: lengths are compared with what remains before that."""
    command = [sys.executable, "-m", "tests.fuzz", "batch", "--inputs", str(amount(100, 300)), "--ceiling", "64"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["addedMiB"] <= 64
