"""The snippets of the pages that need Spark run as they are printed, on the log and the lake of a real cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shutil import copytree

import pytest

from tests.support.doc_blocks import PAGES, blocks, with_paths
from tests.support.paths import CLUSTERS, ROOT, metadata_dir
from tests.support.spark_engine import SparkEngine

KAFKA = "kafka-4.1.2"
WITH_SPARK = [page for page in PAGES if any("spark" in block.text for block in blocks(page, "python", "sql"))]


@pytest.fixture
def place(tmp_path: Path, cluster_lakes: Mapping[str, Path]) -> Path:
    """A folder with the lake and the log of the pages."""
    copytree(cluster_lakes[KAFKA], tmp_path / "lake")
    copytree(metadata_dir(KAFKA), tmp_path / "metadata")
    return tmp_path


@pytest.mark.parametrize("page", WITH_SPARK, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_and_sql_of_page_run_one_after_the_other(engine: SparkEngine, place: Path, page: Path) -> None:
    """docs/spark.md left out ``register`` before the source ``kraft_metadata``."""
    paths = {"/srv/jbod/lake": str(place / "lake"), "/var/lib/kafka/metadata": str(place / "metadata")}
    paths["/var/log/kafka/kafka-request.log"] = str(CLUSTERS / KAFKA / "requests-100.log.gz")
    paths["main.jbod"] = "jbod_docs"  # a session of tests has no catalog of this name
    run = [block for block in blocks(page, "python", "sql") if block.is_run]
    told = [[block.language, with_paths(block.text, paths)] for block in run]
    if page.name == "streaming.md":  # its SQL reads the table changes
        changes = f"spark.read.format('delta').load('{place}/lake/changes').createOrReplaceTempView('changes')"
        told.insert(1, ["python", changes])
    assert engine.call("tests.support.doc_calls:run_blocks", str(page), told, str(place)) == len(told)
