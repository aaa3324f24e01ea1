"""One wheel in an environment for each PySpark of SPARK_VERSIONS. The table in docs/spark.md is of these tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jbod_model.errors import UsageError
from pipelines import ask
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from tests.crash.loop import LOG
from tests.support.logs import first_batches, segments
from tests.support.paths import ROOT, metadata_dir
from tests.support.request_lakes import request_log
from tests.support.tables import differences, rows_of
from tests.versions.conftest import WANTED

KAFKA = "kafka-4.1.2"
VERSIONS = os.environ.get(WANTED, "").split()
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
LOWEST = [re.sub(r">=([\d.]+).*", r"==\1", dependency) for dependency in DEPENDENCIES]
"""The lower ends of the ranges: the lowest PySpark has the lowest version of everything beside it."""
REQUESTS = {"recorded": 112, "already true": 16}
"""The requested assignments of the log by outcome."""


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel and one PySpark."""

    version: str
    folder: Path
    empty: Path

    @property
    def numbers(self) -> tuple[int, ...]:
        """Major and minor version."""
        return tuple(map(int, self.version.split(".")[:2]))

    def start(self, *words: str | Path, **variables: str) -> subprocess.Popen[str]:
        """Starts a program of the environment in an empty directory."""
        mine = {"XDG_CACHE_HOME": str(self.folder / "cache"), "XDG_CONFIG_HOME": str(self.folder / "config")}
        clean = {name: text for name, text in os.environ.items() if not name.startswith(("JBOD_", "PYTHON", "SPARK_"))}
        program, *others = words
        return subprocess.Popen(
            [self.folder / "bin" / program, *others],
            cwd=self.empty,
            env=clean | mine | {"PYSPARK_PYTHON": str(self.folder / "bin" / "python")} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str | Path, code: int = 0, **variables: str) -> tuple[str, str]:
        """What a program writes to its output and its standard error."""
        process = self.start(*words, **variables)
        out, errors = process.communicate(timeout=7200)
        assert process.returncode == code, errors
        return out, errors


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", made, ROOT], check=True)
    (path,) = made.glob("*.whl")
    return path


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
    if f"pyspark=={version}" in LOWEST:
        pinned = LOWEST
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
    facts: dict[str, Any] = json.loads(done[0].splitlines()[-1])
    return facts


def count(lake: Path, offset: int, table: str) -> int:
    opened = ask.Lake.open(lake, at_offset=offset)
    return int(opened.query(f"SELECT count(*) FROM {opened.at(table)}")[0][0])


def test_questions_to_a_lake_and_to_a_log_are_answered(environment: Environment, lake: Path) -> None:
    for source in (("--lake", lake), ("--log", metadata_dir(KAFKA))):
        answer = json.loads(environment.run("jbod", "offline", *source, "--at-offset", "200", "--json")[0])
        assert len(answer["replicas"]) == count(lake, 200, "offline_replicas")
        environment.run("jbod", "status", *source)


def test_stock_session_reads_logs(environment: Environment, session: dict[str, Any]) -> None:
    assert (session["spark"], session["records"]) == (environment.version, 630)
    assert session["requests"] > 0


def test_stock_session_opens_a_lake(session: dict[str, Any], lake: Path) -> None:
    counts = [session[name] for name in ("assignments", "offline", "assignments_at")]
    wanted = (("assignments", 231), ("offline_replicas", 231), ("assignments", 200))
    assert counts == [count(lake, offset, table) for table, offset in wanted]


def test_stream_of_a_log_is_read_or_refused_with_the_version_that_it_needs(
    environment: Environment, session: dict[str, Any]
) -> None:
    if environment.numbers >= (4, 2):
        assert session["stream"] == 630
    else:
        assert f"Spark {environment.version}: a stream of a log needs Spark 4.2 or later" in session["stream"]


def test_session_of_jbod_has_delta_lake_or_reads_the_files(environment: Environment, lake: Path) -> None:
    out, _ = environment.run("python", Path(__file__).with_name("with_delta.py"), lake)
    facts = json.loads(out.splitlines()[-1])
    there = count(lake, 231, "assignments")
    if environment.numbers <= (4, 2):
        events = len(rows_of(lake)["changes"])
        assert facts == {"delta": True, "assignments": there, "catalog": there, "changes": events}
        return
    assert (facts["delta"], facts["assignments"]) == (False, there)
    assert facts["catalog"].startswith("kafka: the session cannot read Delta tables: ")
    _, errors = environment.run("jbod", "warm", "--delta", code=2)
    (line,) = errors.splitlines()
    assert line.startswith(f"jbod: Spark {environment.version}: Delta Lake ")


def test_replay_in_several_batches_gives_the_same_tables(environment: Environment, lake: Path, tmp_path: Path) -> None:
    mine = tmp_path / "lake"
    out, _ = environment.run("jbod", "replay", metadata_dir(KAFKA), "--lake", mine, "--max-records", "100")
    assert ", 7 batches" in out
    assert differences(rows_of(mine), rows_of(lake)) == []
    out, _ = environment.run("jbod", "replay", metadata_dir(KAFKA), "--lake", mine)
    assert "nothing new" in out


def test_replay_reads_request_logs_in_several_batches(environment: Environment, tmp_path: Path) -> None:
    words = ("replay", metadata_dir(KAFKA), "--lake", tmp_path / "lake", "--max-records", "200", "--json")
    out, _ = environment.run("jbod", *words, "--requests", request_log(KAFKA))
    assert json.loads(out)["requests"] == REQUESTS
    out, _ = environment.run("jbod", *words, "--requests", request_log(KAFKA))
    assert json.loads(out)["requests"] == {}


def test_replay_that_follows_publishes_what_is_appended(environment: Environment, lake: Path, tmp_path: Path) -> None:
    log, mine = segments(metadata_dir(KAFKA), tmp_path / "log"), tmp_path / "lake"
    last = max((log / LOG).glob("*.log"))
    content = last.read_bytes()
    last.write_bytes(first_batches(content, 600))
    process = environment.start("jbod", "replay", log, "--lake", mine, "--follow", "--max-records", "100")
    try:
        wait(mine, 590, process)
        with last.open("ab") as growing:
            growing.write(content[last.stat().st_size :])
        wait(mine, 629, process)
    finally:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert differences(rows_of(mine), rows_of(lake)) == []


def wait(lake: Path, offset: int, process: subprocess.Popen[str]) -> None:
    """Until the lake has the offset."""
    end = time.monotonic() + 600
    while time.monotonic() < end and process.poll() is None:
        try:
            if ask.Lake.open(lake).offset >= offset:
                return
        except UsageError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"{lake} has no offset {offset}")


def test_lake_of_killed_replays_equals_that_of_one(environment: Environment) -> None:
    """The tests come from this tree, and with them the product, which is that of the wheel."""
    out, _ = environment.run("python", "-m", "tests.crash", "--kills", "10", PYTHONPATH=str(ROOT))
    assert json.loads(out.splitlines()[-1])["kills"] == 10
