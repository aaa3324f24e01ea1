"""Which Spark can replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from pipelines.cli.main import application
from pipelines.source.kraft_metadata import KraftMetadata
from pipelines.spark.versions import check_version
from tests.support.paths import metadata_dir


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0-SNAPSHOT", "5.0.1"])
def test_spark_that_can_limit_batches_of_a_python_source_is_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.4", "4.0.1", "4.1.1"])
def test_older_spark_is_refused_with_the_version_that_a_replay_needs(version: str) -> None:
    with pytest.raises(UsageError, match=rf"^Spark {version}: a replay needs Spark 4\.2 or later"):
        check_version(version)


def test_stream_of_a_log_is_refused_by_an_older_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    with pytest.raises(UsageError, match=r"^Spark 4\.1\.4: a stream of a log needs Spark 4\.2"):
        KraftMetadata({"path": "x"}).streamReader(StructType())


def test_replay_is_refused_by_an_older_spark_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.0.5")
    done = CliRunner().invoke(
        application(), ["replay", str(metadata_dir("kafka-4.1.2")), "--lake", str(tmp_path / "lake")]
    )
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("Spark 4.0.5: a replay needs Spark 4.2 or later")
    assert not (tmp_path / "lake").exists()
