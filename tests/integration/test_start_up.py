"""The main job with every start-up trick off: the same tables. tests/integration/test_wheel.py has them on."""

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


@pytest.mark.spark
@pytest.mark.exhaustive
def test_main_job_without_start_up_tricks_makes_the_same_tables(tmp_path: Path) -> None:
    source, lake, temporary = metadata_dir("kafka-4.1.2"), tmp_path / "lake", tmp_path / "tmp"
    command: list[str | Path] = [sys.executable, "-m", "pipelines.cli.main", "replay", source, "--lake", lake]
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    temporary.mkdir()
    own = {"TMPDIR": str(temporary), VARIABLE: "false"}
    done = subprocess.run(command, cwd=ROOT, env=clean | own, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "Traceback" in line]
    assert not [*temporary.glob("jbod-*")]
    assert differences(rows_of(lake), expected_rows(Reference().add(read_log(source)))) == []
