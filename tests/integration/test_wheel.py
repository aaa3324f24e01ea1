"""The built wheel in an environment of its own, used from an empty directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.lakes import Reference
from tests.support.logs import read_log
from tests.support.paths import ROOT, metadata_dir
from tests.support.tables import differences, expected_rows, rows_of

pytestmark = pytest.mark.spark
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all of this. Commands run in the folder ``empty`` there."""
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="module")
def jbod(made: Path) -> Run:
    """Runs the ``jbod`` of the wheel. The packages it needs come from this environment."""
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
    _take_kernels(Path(scheme["purelib"]))
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


def _take_kernels(packages: Path) -> None:
    """Takes compiled kernels from this checkout, as compiling takes half a minute. Numba compares times of modules."""
    for kept in (ROOT / "pipelines").glob("*/__pycache__/*.nb[ci]"):
        module = kept.parents[1] / f"{kept.name.partition('.')[0]}.py"
        if not module.exists():
            continue  # left in this checkout by a module that has moved
        there = packages / kept.relative_to(ROOT)
        there.parent.mkdir(exist_ok=True)
        shutil.copy(kept, there)
        shutil.copystat(module, packages / module.relative_to(ROOT))


@pytest.fixture(scope="module")
def first(jbod: Run, made: Path) -> subprocess.CompletedProcess[str]:
    """The first replay of the wheel, on a machine that nobody has prepared and that has compiled no kernel."""
    # pytest's folders have names too long for the sockets of workers.
    with TemporaryDirectory(prefix="wheel-") as temporary:
        own = {"TMPDIR": temporary, "NUMBA_CACHE_DIR": str(made / "compiled")}
        done = jbod("replay", metadata_dir("kafka-4.1.2"), "--lake", "lake", **own)
        assert [*Path(temporary).glob("jbod-*")] == []
    return done


@pytest.fixture(scope="module")
def lake(first: subprocess.CompletedProcess[str]) -> str:
    """The bundled cluster, replayed by the wheel."""
    assert "630 rows written" in first.stdout
    return "lake"


def test_first_replay_of_the_wheel_makes_the_tables_of_the_reference_and_compiles_no_kernel(
    first: subprocess.CompletedProcess[str], lake: str, made: Path
) -> None:
    assert "Traceback" not in first.stderr
    expected = expected_rows(Reference().add(read_log(metadata_dir("kafka-4.1.2"))))
    assert differences(rows_of(made / "empty" / lake), expected) == []
    assert [*made.glob("compiled/**/*.nbi")] == []


def test_wheel_in_an_empty_directory_answers_and_reports(jbod: Run, lake: str) -> None:
    assert json.loads(jbod("offline", "--lake", lake, "--at-offset", "200", "--json").stdout)["replicas"]
    assert "report.html" in jbod("report", "--lake", lake, "--out", "report.html").stdout


@pytest.mark.exhaustive  # from a checkout: test_expectations.py
def test_wheel_in_an_empty_directory_validates_with_great_expectations(jbod: Run, lake: str) -> None:
    done = jbod("check", "--lake", lake, "--validate", "--json", code=1)
    assert json.loads(done.stdout)["findings"]


def test_wheel_in_an_empty_directory_lists_the_jobs_it_comes_with(jbod: Run) -> None:
    assert "\nreplay " in jbod("jobs", "list").stdout


def test_wheel_in_an_empty_directory_reads_no_settings_file(jbod: Run) -> None:
    assert json.loads(jbod("settings", "--json").stdout)["files"] == []


LINE = "jbod: jbod warm, run once, makes every start of Spark on this machine faster"


def test_first_replay_of_the_wheel_tells_of_jbod_warm(first: subprocess.CompletedProcess[str]) -> None:
    assert first.stderr.splitlines()[-1] == LINE


@pytest.mark.exhaustive
def test_second_replay_of_the_wheel_does_not_tell_of_jbod_warm(jbod: Run, lake: str) -> None:
    assert LINE not in jbod("replay", metadata_dir("kafka-4.1.2"), "--lake", "another").stderr
