"""The JVM of a session: it ends with its process, and a signal to all processes ends the run first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO

import pytest

from tests.support.paths import ROOT, metadata_dir
from tests.support.volume import sampled

pytestmark = pytest.mark.spark

REPLAY = [sys.executable, "-m", "pipelines.cli.main", "replay", str(metadata_dir("kafka-4.1.2"))]
UNKNOWN = "54321"
"""A user that /etc/passwd lacks. It may read what this one may: the packages of this environment."""
AS_UNKNOWN = (
    ["setpriv", f"--reuid={UNKNOWN}", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    if os.geteuid() == 0
    else ["unshare", "--user", f"--map-user={UNKNOWN}"]
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_HOME", "")  # set and taken away, so that what the test sets is taken away too
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.exhaustive
def test_session_of_a_jvm_started_directly_answers_and_ends_with_its_process(cache: Path) -> None:
    program = """
from pipelines.spark.session import spark_session_soon
from pipelines.settings import Spark
spark = spark_session_soon(Spark(master="local[1]", driver_memory="1g"))()
print(spark.range(3).count(), "/bin/spark-submit" in " ".join(spark.sparkContext._gateway.proc.args))
print(spark.conf.get("spark.sql.session.timeZone"), spark.sparkContext._gateway.proc.pid)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    first, second = done.stdout.splitlines()
    zone, process = second.split()
    assert (first, zone) == ("3 True", "UTC")
    for _ in range(100):
        if not Path("/proc", process).exists():
            break
        time.sleep(0.1)
    assert not Path("/proc", process).exists()


@pytest.mark.parametrize(
    ("name", "value"), sampled([("spark.log.level", "LOUD"), ("spark.sql.shuffle.partitions", "x")], 1)
)
def test_value_that_spark_does_not_take_is_2_and_a_line_that_names_it(tmp_path: Path, name: str, value: str) -> None:
    """Cause: Spark's own names have no check of jbod, and their errors were tracebacks of Python and Java."""
    environment = os.environ | {"JBOD_SPARK__CONF": json.dumps({name: value})}
    done = subprocess.run(
        [*REPLAY, "-q", "--lake", str(tmp_path / "lake")], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"jbod: spark.conf: The value '{value}' in the config \"{name}\" is invalid.")


def test_jvm_that_does_not_start_is_2_and_a_line_with_its_reason(tmp_path: Path) -> None:
    """Cause: the JVM's end was a RuntimeError: a traceback, and exit code 3."""
    environment = os.environ | {"JBOD_SPARK__DRIVER_MEMORY": "900t", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*REPLAY, "-q", "--lake", str(tmp_path / "lake")], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("jbod: Spark's JVM did not start: Could not reserve enough space for")


def environment_of(process: Path) -> str:
    try:
        return (process / "environ").read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def test_replay_that_is_refused_while_the_jvm_starts_leaves_no_folder_and_no_jvm(tmp_path: Path) -> None:
    """Cause: each left an empty folder where temporary files are, or one with the port and the secret of its JVM; or,
    without the folder, a JVM that could not write there and stayed for ever."""
    temporary, lake = tmp_path / "temporary", "/proc/lake"
    temporary.mkdir()
    environment = os.environ | {"JBOD_REPLAY__LOAD_BYTES": "0", "TMPDIR": str(temporary)}
    done = subprocess.run([*REPLAY, "-q", "--lake", lake], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"jbod: {lake}: No such file or directory\n")
    assert [*temporary.glob("jbod-jvm-*")] == []
    end = time.monotonic() + 60  # what Spark's script began before it ended is soon done
    while any(str(temporary) in environment_of(process) for process in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_user_that_passwd_lacks_replays_through_spark() -> None:
    """Cause: a pod may run as any number, and Hadoop's login failed: a traceback of Python, and exit code 3."""
    clean = {name: text for name, text in os.environ.items() if name != "HOME"} | {"JBOD_REPLAY__LOAD_BYTES": "0"}
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are for its user only
        Path(folder).chmod(0o777)
        run = [*AS_UNKNOWN, *REPLAY, "-q", "--lake", f"{folder}/lake"]
        done = subprocess.run(run, cwd=ROOT, env=clean | {"TMPDIR": folder}, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert Path(folder, "lake", "_checkpoint", "commits", "0").is_file()


@contextmanager
def following(lake: Path, output: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """``jbod replay --follow`` that has published its first batch."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    run = subprocess.Popen(
        [*REPLAY, "--follow", "--lake", str(lake)],
        cwd=ROOT,
        env=clean,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 120
        while not [*lake.glob("_checkpoint/commits/0")]:
            assert run.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        yield run
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)


def test_jvm_that_is_killed_ends_the_run_with_a_line(tmp_path: Path) -> None:
    """Cause: the kernel kills it where the memory of a pod is short: 300 lines of tracebacks, and exit code 3. Later it
    was one of PySpark's server of accumulators, before the line."""
    with (tmp_path / "said").open("w+") as output, following(tmp_path / "lake", output) as run:
        children = [*chain(*(task.read_text().split() for task in Path(f"/proc/{run.pid}/task").glob("*/children")))]
        (jvm,) = (int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "java\n")
        os.kill(jvm, signal.SIGKILL)
        assert run.wait(60) == 2
        output.seek(0)
        *before, line = output.read().splitlines()
    assert "Traceback (most recent call last):" not in before, "\n".join(before)
    assert line == (
        "jbod: Spark's JVM was killed, as the kernel does if memory is short: give this machine or pod more, or Spark "
        "less (spark.driver_memory); run again: what was published is whole and stays"
    )


def test_signal_to_the_whole_group_ends_a_run_that_follows_as_well_as_one_to_the_command(tmp_path: Path) -> None:
    """systemd and ``jbod jobs`` send SIGTERM to every process. The JVM ended first, and the run with Spark's error."""
    lake = tmp_path / "lake"
    with (tmp_path / "said").open("w+") as output:
        with following(lake, output) as run:
            os.killpg(run.pid, signal.SIGTERM)
            assert run.wait(60) == 0
        output.seek(0)
        # A run that takes long tells of its progress first.
        lines = [line for line in output.read().splitlines() if not line.startswith("jbod replay: ")]
    assert lines[0].startswith(f"{lake}: replayed offsets 0 to 629")
    assert lines[-1] == f"next: jbod offline --lake {lake}"
