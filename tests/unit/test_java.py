"""Finding a Java for Spark."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from jbod_model.errors import UsageError
from pipelines import java as jvm
from pipelines.start import session


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin:/usr/bin" if not Path("/usr/bin/java").exists() else "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(("version", "feature"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_java_of_java_home_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, feature: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    assert jvm.find_java() == jvm.Java(tmp_path, feature, bundled=False)


@pytest.mark.parametrize(("release", "feature"), [('JAVA_VERSION="21.0.4"', 21), ("IMPLEMENTOR=x", 17), ("", 17)])
def test_java_whose_release_says_its_version_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str, feature: int
) -> None:
    home = fake_java(tmp_path, "17.0.15")
    (home / "release").write_text(f'SOURCE=""\n{release}\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert jvm.find_java() == jvm.Java(home, feature, bundled=False)


def test_release_of_a_java_that_is_gone_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.4"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert jvm.find_java() is None


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_java_too_old_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    with pytest.raises(UsageError, match=r"needs Java 17 or later .* pip install 'jbod\[java\]'"):
        jvm.use_java()


def test_java_of_the_package_gets_no_flag_it_refuses(tmp_path: Path) -> None:
    home = tmp_path / "it's here"
    java = fake_java(home, "21.0.8")
    (java / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    wrapped = jvm._wrapped(jvm.Java(home, 21, bundled=True))
    flags = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$y"]
    out = subprocess.run([wrapped / "bin" / "java", *flags], capture_output=True, text=True, env=dict(os.environ))
    assert out.stdout.splitlines() == ["-cp", "a b", "-Dx=$y"]


def test_archive_of_another_environments_pyspark_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two environments on one machine wrote the same file, and each start of the other went without it."""
    java = jvm.Java(Path("/java"), 17, bundled=False)
    here = session.class_archive(java)
    monkeypatch.setattr(
        importlib.metadata,
        "distribution",
        lambda name: SimpleNamespace(version="4.2.0", locate_file=lambda part: Path("/other", part)),
    )
    assert session.class_archive(java) != here
