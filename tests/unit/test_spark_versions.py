"""Which Spark can do what."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from pipelines.cli.main import application
from pipelines.spark.versions import check_delta, check_version, has_jars, limits_batches
from tests.support.paths import metadata_dir


@pytest.mark.parametrize("version", ["4.0.1", "4.1.1", "4.2.0", "4.3.0-SNAPSHOT", "5.0.1"])
def test_spark_that_keeps_state_for_python_can_replay(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["3.4.1", "3.5.4"])
def test_older_spark_is_refused_with_the_version_that_a_replay_needs(version: str) -> None:
    with pytest.raises(UsageError, match=rf"^Spark {version}: a replay needs Spark 4\.0\.1 or later"):
        check_version(version)


@pytest.mark.parametrize(("version", "does"), [("4.0.5", False), ("4.1.4", False), ("4.2.0", True), ("4.3.0", True)])
def test_spark_limits_batches_of_a_python_source_from_4_2_on(version: str, does: bool) -> None:
    assert limits_batches(version) is does


@pytest.mark.parametrize(("version", "has"), [("4.0.5", True), ("4.2.1", True), ("4.3.0", False)])
def test_delta_lake_is_refused_in_a_line_by_a_spark_without_its_jars(
    version: str, has: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert has_jars() is has
    if has:
        check_delta()
        return
    with pytest.raises(UsageError, match=r"^Spark 4\.3\.0: Delta Lake [\d.]+ has no jars for it: .*$"):
        check_delta()


def test_replay_is_refused_by_an_older_spark_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.4")
    done = CliRunner().invoke(
        application(["replay"]), ["replay", str(metadata_dir("kafka-4.1.2")), "--lake", str(tmp_path / "lake")]
    )
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("Spark 3.5.4: a replay needs Spark 4.0.1 or later")
    assert not (tmp_path / "lake").exists()
