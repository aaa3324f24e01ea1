"""The folder of links that local sessions take for Spark's home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from pipelines.start.session import use_spark_home


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Set and taken away, so that what the test sets is taken away too.
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.delenv("SPARK_HOME")
    return tmp_path


def test_home_has_spark_and_not_its_zipped_sources(cache: Path) -> None:
    use_spark_home()
    home = Path(os.environ["SPARK_HOME"])
    assert cache in home.parents
    assert (home / "bin" / "spark-submit").is_file()
    assert (home / "jars").resolve() == (Path(pyspark.__file__).parent / "jars").resolve()
    assert not (home / "python").exists()


def test_home_made_twice_is_the_same_and_leaves_nothing_beside_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_spark_home()
    first = os.environ["SPARK_HOME"]
    monkeypatch.delenv("SPARK_HOME")
    use_spark_home()
    assert os.environ["SPARK_HOME"] == first
    assert [path.name for path in (cache / "jbod").iterdir()] == [Path(first).name]


def test_home_whose_links_lead_nowhere_is_made_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_spark_home()
    home = Path(os.environ["SPARK_HOME"])
    (home / "jars").unlink()
    (home / "jars").symlink_to(cache / "gone")
    monkeypatch.delenv("SPARK_HOME")
    use_spark_home()
    assert (home / "jars").is_dir()


def test_home_that_the_user_chose_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    use_spark_home()
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert not (cache / "jbod").exists()


def test_home_where_the_cache_cannot_be_written_is_the_installed_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "jbod").write_text("in the way")
    use_spark_home()
    assert "SPARK_HOME" not in os.environ


def test_processor_is_loaded_without_the_engine() -> None:
    code = "import sys, pipelines.run.spark_query; print(*{'numba', 'pandas'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []
