"""The built wheel in an environment of its own, used from an empty directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT, metadata_dir

pytestmark = pytest.mark.spark
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def jbod(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs the ``jbod`` of the wheel. The packages it needs come from this environment."""
    made = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", made, ROOT], check=True)
    (wheel,) = made.glob("*.whl")
    venv = made / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    scheme = sysconfig.get_paths(vars={"base": str(venv), "platbase": str(venv)})
    subprocess.run(
        [*pip, "--python", venv / "bin" / "python", "install", "--no-deps", wheel], check=True, capture_output=True
    )
    # A path file inside a directory that a path file names is not read, so the editable jbod stays out.
    Path(scheme["purelib"], "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    empty = made / "empty"
    empty.mkdir()

    def run(*words: str | Path, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        home = {"XDG_CACHE_HOME": str(made / "cache"), "XDG_CONFIG_HOME": str(made / "config")}
        clean = {name: text for name, text in os.environ.items() if not name.startswith(("JBOD_", "PYTHON", "SPARK_"))}
        done = subprocess.run(
            [venv / "bin" / "jbod", *words],
            cwd=empty,
            env=clean | home | env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def lake(jbod: Run) -> str:
    """The bundled cluster, replayed by the wheel."""
    assert "630 rows written" in jbod("replay", metadata_dir("kafka-4.1.2"), "--lake", "lake").stdout
    return "lake"


def test_wheel_in_an_empty_directory_answers_and_reports(jbod: Run, lake: str) -> None:
    assert json.loads(jbod("offline", "--lake", lake, "--at-offset", "200", "--json").stdout)["replicas"]
    assert "report.html" in jbod("report", "--lake", lake, "--out", "report.html").stdout


def test_wheel_in_an_empty_directory_validates_with_great_expectations(jbod: Run, lake: str) -> None:
    done = jbod("check", "--lake", lake, "--validate", "--json", code=1)
    assert json.loads(done.stdout)["findings"]


def test_wheel_in_an_empty_directory_lists_the_jobs_it_comes_with(jbod: Run) -> None:
    listed = json.loads(jbod("jobs", "list", "--json").stdout)["jobs"]
    assert "replay" in {job["job"] for job in listed}


def test_wheel_in_an_empty_directory_reads_no_settings_file(jbod: Run) -> None:
    assert json.loads(jbod("settings", "--json").stdout)["files"] == []
