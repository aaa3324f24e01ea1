"""jbod warm: what it does on a fresh machine, without the session whose classes it archives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.upkeep.warm import BATCHES, compile_plans, write_log
from tests.support import local
from tests.support.paths import ROOT, metadata_dir


def test_log_of_warm_is_one_that_plans_can_be_made_of(tmp_path: Path) -> None:
    """It had one broker with two disks, and plans began to refuse disks without a path: every jbod warm failed."""
    (tmp_path / "log").mkdir()
    write_log(tmp_path / "log", len(BATCHES))
    local.replay(tmp_path / "log", tmp_path / "lake")
    compile_plans(tmp_path / "lake")


LOADS = """
import sys
from pathlib import Path
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from pipelines.upkeep.warm import BATCHES, write_log

real, root = sys.argv[1], Path(sys.argv[2])
compiled = lambda: {path.name for path in (root / "kernels").rglob("*.nbc")}
(root / "log").mkdir()
for batches in range(1, len(BATCHES) + 1):
    write_log(root / "log", batches)
    Runner(Replay(str(root / "log"), str(root / "lake"))).load()
before = compiled()
Runner(Replay(real, str(root / "real"), start="log", max_records=200)).load()
print(len(before), *sorted(compiled() - before))
"""


@pytest.mark.exhaustive  # it compiles for a minute
def test_real_log_needs_no_kernel_that_warm_has_not_compiled(tmp_path: Path) -> None:
    """A log of one partition has other layouts of arrays: the second replay of most logs compiled for 12 s."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    words = [sys.executable, "-c", LOADS, str(metadata_dir("kafka-3.7.2")), str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    count, *later = done.stdout.split()
    assert int(count) > 30
    assert later == []
