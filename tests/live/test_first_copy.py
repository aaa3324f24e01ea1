"""The first copy of a large log, from a real controller that replayed it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pipelines.mirror.folder import MirrorFolder
from tests.live.kafka import Cluster
from tests.live.large import LOG, committed, controller_with, url
from tests.support.paths import ROOT

PARTITIONS = int(os.environ.get("LIVE_COPY_PARTITIONS", "20000"))
MOST_MEMORY = 250 << 20
"""Bytes of the mirror's process, however large the log is."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with controller_with(PARTITIONS, tmp_path_factory.mktemp("large")) as kafka:
        yield kafka


def most_memory_of(process: int) -> int:
    """The most bytes that a process had so far, 0 if it ended. (What ``wait4`` tells begins with its parent's.)"""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(match[1]) << 10 if match else 0


def digest(files: Sequence[Path], size: int) -> bytes:
    """Of the first bytes of files in a row."""
    checksum = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while size and (data := file.read(min(1 << 20, size))):
                checksum.update(data)
                size -= len(data)
    assert size == 0
    return checksum.digest()


def test_first_copy_of_a_large_log_from_a_real_controller_is_its_log_in_bounded_memory(
    cluster: Cluster, tmp_path: Path
) -> None:
    size = sum(path.stat().st_size for path in (cluster.metadata / LOG).glob("*.log"))
    end = committed(cluster)
    words = [sys.executable, "-m", "pipelines.cli.main", "mirror", url(cluster), "--into", str(tmp_path / "mirror")]
    before, began, memory = os.times(), time.perf_counter(), 0
    copying = subprocess.Popen(words, cwd=ROOT)
    while copying.poll() is None:
        memory = max(memory, most_memory_of(copying.pid))
        time.sleep(0.02)
    seconds, after = time.perf_counter() - began, os.times()
    assert copying.returncode == 0
    held = sorted((tmp_path / "mirror" / LOG).glob("*.log"))
    copied = sum(path.stat().st_size for path in held)
    assert copied >= size
    assert digest(held, copied) == digest(sorted((cluster.metadata / LOG).glob("*.log")), copied)
    mirror = MirrorFolder(str(tmp_path / "mirror"))
    assert mirror.end is not None
    assert mirror.end.offset >= end
    mirror.close()
    assert 0 < memory < MOST_MEMORY
    print(
        f"{copied:,} bytes, {end:,} records in {seconds:.1f} s: {copied / seconds / 1e6:.0f} MB/s, "
        f"{sum(after[2:4]) - sum(before[2:4]):.1f} s of CPU, {memory >> 20} MiB"
    )
