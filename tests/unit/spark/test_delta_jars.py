"""Delta Lake's jars: which are kept, and what a session is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.spark import versions
from pipelines.spark.versions import keep

JARS = ("io.delta_delta-storage-4.4.0.jar", "org.slf4j_slf4j-api-2.0.13.jar", "io.airlift_aircompressor-2.0.2.jar")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jars as Ivy names them, kept in an empty cache. PySpark has two of them, in other versions."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fetched, of_spark = tmp_path / "ivy", tmp_path / "pyspark"
    for folder, names in ((fetched, JARS), (of_spark, ("slf4j-api-2.0.18.jar", "aircompressor-2.0.3.jar"))):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(name)
    return keep([fetched / name for name in JARS], of_spark)


def options(conf: dict[str, str]) -> dict[str, str]:
    """What a builder is given."""
    builder = versions.with_delta(SparkSession.Builder(), conf)
    return {name: str(value) for name, value in builder._options.items()}


def test_jars_that_pyspark_brings_in_another_version_are_not_kept(kept: Path) -> None:
    assert kept == versions.folder()
    assert [path.name for path in kept.iterdir()] == [JARS[0]]
    assert list(kept.parent.iterdir()) == [kept]


def test_session_takes_kept_jars_beside_those_of_the_settings(kept: Path) -> None:
    conf = options({"spark.jars": "/a.jar,/b.jar"})
    assert conf["spark.jars"] == f"{kept / JARS[0]},/a.jar,/b.jar"
    assert "spark.jars.packages" not in conf


def test_session_without_kept_jars_fetches_them_beside_the_packages_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    conf = options({"spark.jars.packages": "a:b:1"})
    ours, theirs = conf["spark.jars.packages"].split(",")
    assert ours.startswith("io.delta:delta-spark_")
    assert theirs == "a:b:1"
    assert "spark.jars" not in conf
