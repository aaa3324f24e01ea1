"""The first copy of a large log, from a real controller that replayed it."""

from __future__ import annotations

import hashlib
import os
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
    with controller_with(PARTITIONS, tmp_path_factory.mktemp("large")) as found:
        yield found


def digest(files: Sequence[Path], size: int) -> bytes:
    """Of the first bytes of files in a row."""
    found = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while size and (data := file.read(min(1 << 20, size))):
                found.update(data)
                size -= len(data)
    assert size == 0
    return found.digest()


def test_first_copy_of_a_large_log_from_a_real_controller_is_its_log_in_bounded_memory(
    cluster: Cluster, tmp_path: Path
) -> None:
    size = sum(path.stat().st_size for path in (cluster.metadata / LOG).glob("*.log"))
    end = committed(cluster)
    words = [sys.executable, "-m", "pipelines.cli.main", "mirror", url(cluster), "--into", str(tmp_path / "mirror")]
    began = time.perf_counter()
    copying = subprocess.Popen(words, cwd=ROOT)
    _, status, used = os.wait4(copying.pid, 0)
    seconds = time.perf_counter() - began
    assert status == 0
    held = sorted((tmp_path / "mirror" / LOG).glob("*.log"))
    copied = sum(path.stat().st_size for path in held)
    assert copied >= size
    assert digest(held, copied) == digest(sorted((cluster.metadata / LOG).glob("*.log")), copied)
    mirror = MirrorFolder(str(tmp_path / "mirror"))
    assert mirror.end is not None
    assert mirror.end.offset >= end
    mirror.close()
    assert used.ru_maxrss << 10 < MOST_MEMORY
    print(
        f"{copied:,} bytes, {end:,} records in {seconds:.1f} s: {copied / seconds / 1e6:.0f} MB/s, "
        f"{used.ru_utime + used.ru_stime:.1f} s of CPU, {used.ru_maxrss >> 10} MiB"
    )
