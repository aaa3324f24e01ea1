"""The main job with every start-up trick off, and with all: the same tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.start.process import VARIABLE
from tests.support.lakes import Reference
from tests.support.logs import read_log
from tests.support.paths import ROOT, metadata_dir
from tests.support.tables import differences, expected_rows, rows_of

pytestmark = pytest.mark.spark


def _replayed(lake: Path, **env: str) -> None:
    """The bundled log, replayed into a new lake by a command without settings of Spark. Compares all tables."""
    source = metadata_dir("kafka-4.1.2")
    command: list[str | Path] = [sys.executable, "-m", "pipelines.cli.main", "replay", source, "--lake", lake]
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    temporary = lake.with_name("tmp")
    temporary.mkdir()
    clean["TMPDIR"] = str(temporary)
    done = subprocess.run(command, cwd=ROOT, env=clean | env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "Traceback" in line]
    assert not [*temporary.glob("jbod-*")]
    assert differences(rows_of(lake), expected_rows(Reference().add(read_log(source)))) == []


@pytest.mark.exhaustive
def test_main_job_without_start_up_tricks_makes_the_same_tables(tmp_path: Path) -> None:
    _replayed(tmp_path / "lake", **{VARIABLE: "false"})


def test_main_job_with_a_small_log_compiles_no_kernel_in_any_process(tmp_path: Path) -> None:
    _replayed(tmp_path / "lake", **{VARIABLE: "true"}, NUMBA_CACHE_DIR=str(tmp_path / "compiled"))
    assert not [*tmp_path.glob("compiled/**/*.nbi")]
