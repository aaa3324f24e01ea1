"""jbod warm: what it does on a fresh machine, without the session whose classes it archives."""

from __future__ import annotations

from pathlib import Path

from pipelines.upkeep.warm import compile_plans, write_log
from tests.support import local


def test_log_of_warm_is_one_that_plans_can_be_made_of(tmp_path: Path) -> None:
    """It had one broker with two disks, and plans began to refuse disks without a path: every jbod warm failed."""
    write_log(tmp_path / "log")
    local.replay(tmp_path / "log", tmp_path / "lake")
    compile_plans(tmp_path / "lake")
