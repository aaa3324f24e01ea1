"""A fleet that runs for days: its Spark session ends after so many replays, and the next one starts another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.logs import segments
from tests.support.paths import ROOT, metadata_dir

SCRIPT = """
import os, signal, sys
from contextlib import suppress
from pathlib import Path
import pytest

from tests.support.logs import segments
from tests.support.paths import metadata_dir
from pipelines.fleet.clusters import read_fleet
from pipelines.fleet.replay import Fleet
from pipelines.settings import Settings, Spark

def machines():
    \"\"\"The JVMs of this process.\"\"\"
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it may have ended
            number, name, _, parent, *_ = path.read_text().split()
            found += [number] if (name, parent) == ("(java)", str(os.getpid())) else []
    return found

root, killed = Path(sys.argv[1]), sys.argv[2:]
spark = Spark(master="local[1]", conf={"spark.sql.shuffle.partitions": "1"})
fleet = Fleet(read_fleet(root / "fleet.yaml"), spark, 1, lambda _: [], brief=True, session_replays=9 if killed else 2)
for most in (1, 2, 3):
    if most == 2 and killed:
        jvm = int(machines()[0])
        os.kill(jvm, signal.SIGKILL)
        os.waitid(os.P_PID, jvm, os.WEXITED | os.WNOWAIT)
    segments(metadata_dir("kafka-3.7.2"), root / "logs" / "a", most=most)
    print(*(done.state for done in fleet.round()), *machines())
"""


def rounds(tmp_path: Path, *killed: str) -> list[list[str]]:
    """The state of the cluster, and the JVMs, after each of three rounds."""
    (tmp_path / "fleet.yaml").write_text("clusters: [{log: logs/a, lake: lakes/a, name: a}]\n")
    (tmp_path / "logs").mkdir()
    segments(metadata_dir("kafka-3.7.2"), tmp_path / "logs" / "a", most=1)
    words = [sys.executable, "-c", SCRIPT, str(tmp_path), *killed]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.exhaustive
def test_session_of_a_fleet_ends_after_its_replays_and_the_next_one_replays_on(tmp_path: Path) -> None:
    """Cause: the JVM and its workers grew with every replay, by gigabytes in a day."""
    first, second, third = rounds(tmp_path)
    assert [first[0], second[0], third[0]] == ["replayed"] * 3
    assert len(first) == 2, "one JVM"
    assert second == first
    assert len(third) == 2
    assert third != first


@pytest.mark.exhaustive
def test_jvm_of_a_fleet_that_was_killed_is_replaced_before_the_next_replay(tmp_path: Path) -> None:
    """Cause: all other clusters failed, and a fleet that follows ended."""
    first, second, third = rounds(tmp_path, "killed")
    assert [first[0], second[0], third[0]] == ["replayed"] * 3
    assert len(second) == 2
    assert second != first
    assert third == second
