"""The snippets of the pages that need Spark run as they are printed, on the log and the lake of a real cluster."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree

import pytest
from deltalake import DeltaTable

from pipelines.lake.tables import CHANGES
from pipelines.start.session import SPARK_OPTIONS
from tests.support.doc_blocks import PAGES, blocks, commands, with_paths
from tests.support.paths import CLUSTERS, ROOT, metadata_dir
from tests.support.spark_engine import SparkEngine
from tests.support.volume import rare

KAFKA = "kafka-4.1.2"
WITH_SPARK = [page for page in PAGES if any("spark" in block.text for block in blocks(page, "python", "sql"))]
SAMPLE = [page if page.name in ("README.md", "spark.md") else rare(page) for page in WITH_SPARK]


@pytest.fixture
def place(tmp_path: Path, cluster_lakes: Mapping[str, Path]) -> Path:
    """A folder with the lake and the log of the pages."""
    copytree(cluster_lakes[KAFKA], tmp_path / "lake")
    copytree(metadata_dir(KAFKA), tmp_path / "metadata")
    return tmp_path


@pytest.mark.parametrize("page", SAMPLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_and_sql_of_page_run_one_after_the_other(engine: SparkEngine, place: Path, page: Path) -> None:
    """docs/spark.md left out ``register`` before the source ``kraft_metadata``."""
    paths = {"/srv/jbod/lake": str(place / "lake"), "/var/lib/kafka/metadata": str(place / "metadata")}
    paths["/var/log/kafka/kafka-request.log"] = str(CLUSTERS / KAFKA / "requests-100.log.gz")
    paths["main.jbod"] = "jbod_docs"  # a session of tests has no catalog of this name
    run = [block for block in blocks(page, "python", "sql") if block.is_run]
    snippets = [[block.language, with_paths(block.text, paths)] for block in run]
    assert engine.call("tests.support.doc_calls:run_blocks", str(page), snippets, str(place)) == len(snippets)


@pytest.mark.exhaustive
def test_spark_submit_of_the_page_of_streams_consumes_the_changes_of_a_lake(place: Path) -> None:
    """Delta Lake takes no relative path for a new table by location, so the line failed as it is printed."""
    settings = {
        **SPARK_OPTIONS,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.master": "local[2]",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    conf = "".join(f"{name} {value}\n" for name, value in settings.items())
    (place / "conf").mkdir()
    (place / "conf" / "spark-defaults.conf").write_text(conf)
    (place / "examples").symlink_to(ROOT / "examples")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["SPARK_CONF_DIR"] = str(place / "conf")

    (line,) = (
        line
        for block in blocks(ROOT / "docs" / "spark.md", "console")
        for line in commands(block.text)
        if line.startswith("spark-submit ")
    )
    done = subprocess.run(
        shlex.split(line), cwd=place, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]

    key = [name for name in CHANGES.key if name not in ("generation", "retraction")]
    changes = DeltaTable(str(place / "lake" / "changes")).to_pyarrow_table().select(key)
    events = DeltaTable(str(place / "target" / "events")).to_pyarrow_table().select(key)
    assert events.num_rows > 500
    assert sorted(map(str, events.to_pylist())) == sorted(map(str, changes.to_pylist()))
    assert DeltaTable(str(place / "target" / "state")).to_pyarrow_table().num_rows > 50
