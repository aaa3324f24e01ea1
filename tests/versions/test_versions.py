"""One wheel in an environment for each PySpark of SPARK_VERSIONS. The table in docs/spark.md is of these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines import ask
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from tests.support.paths import ROOT, metadata_dir
from tests.support.request_lakes import request_log
from tests.versions.conftest import WANTED

KAFKA = "kafka-4.1.2"
VERSIONS = os.environ.get(WANTED, "").split()


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel and one PySpark."""

    version: str
    folder: Path
    empty: Path

    @property
    def replays(self) -> bool:
        """Whether this Spark can replay."""
        return tuple(map(int, self.version.split(".")[:2])) >= (4, 2)

    def run(self, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment from an empty directory."""
        mine = {"XDG_CACHE_HOME": str(self.folder / "cache"), "XDG_CONFIG_HOME": str(self.folder / "config")}
        clean = {name: text for name, text in os.environ.items() if not name.startswith(("JBOD_", "PYTHON", "SPARK_"))}
        program, *others = words
        command = [self.folder / "bin" / program, *others]
        done = subprocess.run(
            command,
            cwd=self.empty,
            env=clean | mine | {"PYSPARK_PYTHON": str(self.folder / "bin" / "python")},
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == code, done.stderr
        return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", made, ROOT], check=True)
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the bundled cluster, made without Spark."""
    made = tmp_path_factory.mktemp("made") / "lake"
    Runner(Replay(str(metadata_dir(KAFKA)), str(made))).load()
    return made


@pytest.fixture(scope="module", params=VERSIONS)
def environment(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    version: str = request.param
    folder = ROOT / "build" / "spark-versions" / version
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    limits = tmp_path_factory.mktemp(version) / "constraints.txt"
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    limits.write_text(
        "\n".join([*(line for line in pinned if not line.startswith("pyspark==")), f"pyspark=={version}"])
    )
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    # The stock environment comes first: the wheel must not change its PySpark.
    subprocess.run([*pip, "install", f"pyspark=={version}"], check=True)
    subprocess.run([*pip, "install", "-c", limits, "--force-reinstall", "--no-deps", wheel], check=True)
    subprocess.run([*pip, "install", "-c", limits, f"jbod @ {wheel.as_uri()}"], check=True)
    return Environment(version, folder, tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def session(environment: Environment, lake: Path) -> dict[str, Any]:
    """What a stock session of the environment reads."""
    script = Path(__file__).with_name("in_session.py")
    done = environment.run("python", script, metadata_dir(KAFKA), lake, request_log(KAFKA))
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def count(lake: Path, offset: int, table: str) -> int:
    opened = ask.Lake.open(lake, at_offset=offset)
    return int(opened.query(f"SELECT count(*) FROM {opened.at(table)}")[0][0])


def test_questions_to_a_lake_and_to_a_log_are_answered(environment: Environment, lake: Path) -> None:
    for source in (("--lake", lake), ("--log", metadata_dir(KAFKA))):
        said = json.loads(environment.run("jbod", "offline", *source, "--at-offset", "200", "--json").stdout)
        assert len(said["replicas"]) == count(lake, 200, "offline_replicas")
        environment.run("jbod", "status", *source)


def test_stock_session_reads_logs(environment: Environment, session: dict[str, Any]) -> None:
    assert (session["spark"], session["records"]) == (environment.version, 630)
    assert session["requests"] > 0


def test_stock_session_opens_a_lake(session: dict[str, Any], lake: Path) -> None:
    found = [session[name] for name in ("assignments", "offline", "assignments_at")]
    wanted = (("assignments", 231), ("offline_replicas", 231), ("assignments", 200))
    assert found == [count(lake, offset, table) for table, offset in wanted]


def test_stream_of_a_log_is_read_or_refused_with_the_version_that_it_needs(
    environment: Environment, session: dict[str, Any]
) -> None:
    if environment.replays:
        assert session["stream"] == 630
    else:
        assert f"Spark {environment.version}: a stream of a log needs Spark 4.2 or later" in session["stream"]


def test_replay_runs_or_is_refused_with_the_version_that_it_needs(environment: Environment, tmp_path: Path) -> None:
    words = ("jbod", "replay", metadata_dir(KAFKA), "--lake", tmp_path / "lake")
    if environment.replays:
        assert "630 rows written" in environment.run(*words).stdout
        return
    (line,) = environment.run(*words, code=2).stderr.splitlines()
    assert line.startswith(f"jbod: Spark {environment.version}: a replay needs Spark 4.2 or later")
    assert not (tmp_path / "lake").exists()
