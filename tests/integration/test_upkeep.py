"""Upkeep killed for good: a process that gets SIGKILL between any two of its commits, and the lake after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from shutil import copytree

import pytest

from pipelines.upkeep.compact import optimize
from pipelines.upkeep.rebuild import rebuild
from pipelines.upkeep.verify import verify
from tests.support import local
from tests.support.logs import segments
from tests.support.paths import ROOT, metadata_dir
from tests.support.tables import rows_of
from tests.support.volume import exhaustive, rare

# The commits of a lake: one a table, then the ledger's; the number says before which one the process dies.
KILLED = """
    import os, signal, sys
    from deltalake import DeltaTable
    what, lake, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
    commits = 0

    def counted(commit):
        def run(*arguments, **options):
            global commits
            if commits == last:
                os.kill(os.getpid(), signal.SIGKILL)
            commits += 1
            return commit(*arguments, **options)
        return run

    DeltaTable.create_write_transaction = counted(DeltaTable.create_write_transaction)
    if what == "optimize":
        from pipelines.upkeep.compact import optimize
        optimize(lake)
    else:
        from pipelines.upkeep.rebuild import rebuild
        rebuild(lake, say=lambda line: None)
    print(commits)
"""


def killed(what: str, lake: Path, last: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), what, str(lake), str(last)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("what", ["optimize", rare("rebuild")])
def test_upkeep_killed_before_any_of_its_commits_leaves_a_lake_that_can_be_continued(tmp_path: Path, what: str) -> None:
    """One lake is killed again and again, at each commit; then it is verified, goes on and is verified."""
    whole = tmp_path / "whole"
    local.replay(metadata_dir("kafka-4.1.2"), whole)
    lake = tmp_path / "lake"
    local.replay(segments(metadata_dir("kafka-4.1.2"), tmp_path / "log", most=1), lake, most=100)
    before = rows_of(lake)
    commits = int(killed(what, copytree(lake, tmp_path / "counted"), 99).stdout)
    assert commits >= 5
    for last in range(commits) if exhaustive() else (3,):
        victim = copytree(lake, tmp_path / f"killed-{last}")
        done = killed(what, victim, last)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert rows_of(victim) == before
        if last % 2:
            optimize(str(victim)) if what == "optimize" else rebuild(str(victim), say=lambda _: None)
            assert rows_of(victim) == before
        local.replay(metadata_dir("kafka-4.1.2"), victim, most=200)
        assert rows_of(victim) == rows_of(whole)
        assert verify(str(victim)).differences == []
