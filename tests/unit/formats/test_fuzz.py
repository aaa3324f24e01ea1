"""A few thousand mutated inputs for every reader of foreign bytes; docs/reliability.md has the counts of long runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from jbod_model.errors import MalformedLog
from jbod_model.formats.compression import CODECS
from pipelines.formats.codecs import _unfold_one
from tests.fuzz.run import fuzz
from tests.fuzz.targets import targets
from tests.support.paths import ROOT
from tests.support.volume import amount


@pytest.mark.parametrize("name", sorted(targets()))
def test_reader_of_mutated_input_reads_it_or_refuses_it_with_one_error(name: str) -> None:
    assert fuzz(name, inputs=amount(300, 5000), seed="2026") is not None


@pytest.mark.parametrize("name", sorted(targets()))
def test_target_reads_what_it_starts_from(name: str) -> None:
    target = targets()[name]
    assert any(target.run(good) for good in target.seeds)


def test_mutated_batches_are_read_or_refused_below_a_ceiling_of_memory() -> None:
    """In a process of its own, which may not allocate more: lengths are compared with what remains before that."""
    command = [sys.executable, "-m", "tests.fuzz", "batch", "--inputs", "300", "--ceiling", "64"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["addedMiB"] <= 64


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param("28b52ffda000013400010000", id="nothing"),
        pytest.param("28b52ffda0000134001800006162630100" + "00", id="three bytes"),
    ],
)
def test_zstd_frame_that_announces_more_than_it_has_is_refused(frame: str) -> None:
    """Where its last block is empty: libzstd compares sizes there or not, depending on its buffers."""
    with pytest.raises(MalformedLog, match="another size than announced"):
        _unfold_one(bytes.fromhex(frame), 4, 7, "log")


def test_zstd_frames_one_after_the_other_are_read() -> None:
    codec = CODECS[4]
    assert _unfold_one(codec.compress(b"abc") + codec.compress(b"defg"), 4, 7, "log") == b"abcdefg"
