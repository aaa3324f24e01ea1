"""A Spark standalone cluster on this machine: a master and workers, separate processes with a core each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from tests.support.paths import ROOT

HOME = Path(pyspark.__file__).parent
EXECUTOR = "CoarseGrainedExecutorBackend"
MEMORY = "1000"
"""Megabytes of a worker; its executor takes 600."""
LISTEN = ("--host", "127.0.0.1", "--webui-port", "0")


def session_of(leader: int) -> Iterator[int]:
    """The processes of the session that ``leader`` was started to lead."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                stat = Path(entry.path, "stat").read_text()
                if int(stat.rsplit(")", 1)[1].split()[3]) == leader:
                    yield int(entry.name)


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process that leads a session, and to all that it started."""
    for member in [*session_of(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    process.wait()


def wait_for(what: str, ready: Callable[[], Any], seconds: float = 120) -> Any:
    """What ``ready`` returns once it is true; AssertionError after ``seconds``."""
    end = time.monotonic() + seconds
    while not (answer := ready()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)
    return answer


@dataclass
class Standalone:
    """A master and workers; logs and scratch files lie in ``root``."""

    root: Path
    url: str = ""
    master: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    made: int = 0
    """Workers so far, including those that were killed."""

    def start(self, workers: int = 2) -> None:
        """Start all, and wait until the workers are registered."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.master = self._process("master", "master.Master", "--port", "0")
        self.url = wait_for("master", lambda: self._word_after("master", "Starting Spark master at "))
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> None:
        """Start one more worker, and wait until it is registered."""
        name = f"worker-{self.made}"
        self.made += 1
        words = ("--cores", "1", "--memory", f"{MEMORY}m", "--work-dir", str(self.root / name), self.url)
        self.workers.append(self._process(name, "worker.Worker", *words))
        wait_for(name, lambda: self._word_after(name, "Successfully registered with master "))

    def stop(self) -> None:
        """End every process that this started."""
        for process in (*self.workers, self.master):
            if process is not None:
                kill_session(process)

    def executors(self) -> list[int]:
        """Processes of the executors that run now."""
        return [pid for worker in self.workers for pid in session_of(worker.pid) if EXECUTOR in _command(pid)]

    def replace_worker(self) -> None:
        """SIGKILL to the oldest worker, its executor and the executor's Python; then another worker joins."""
        kill_session(self.workers.pop(0))
        self.add_worker()

    def _process(self, name: str, main: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.root / f"{name}.log").open("wb") as output:
            return subprocess.Popen(
                [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{main}", *LISTEN, *words],
                cwd=self.root,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=os.environ
                | {
                    "SPARK_HOME": str(HOME),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(self.root),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -Dspark.master.rest.enabled=false",
                },
            )

    def _word_after(self, name: str, before: str) -> str:
        """The word that follows ``before`` in a log, empty where it is not there."""
        _, separator, rest = (self.root / f"{name}.log").read_text().partition(before)
        return rest.split()[0] if separator and "\n" in rest else ""


def _command(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "cmdline").read_text()
    except OSError:
        return ""


class Run:
    """``jbod replay`` in a separate process, on the cluster's master or a local one."""

    def __init__(self, master: str, log_dir: Path, lake: Path, root: Path, *options: str, **conf: str) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._output = root / "replay.txt"
        ours = {"spark.executor.memory": "600m", "spark.sql.shuffle.partitions": "2"}
        confs = json.dumps(ours | conf)
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pipelines.cli.main", "replay", str(log_dir), "--lake", str(lake), *options],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=os.environ
                | {
                    "TMPDIR": str(root),
                    "SPARK_LOCAL_DIRS": str(root),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,
                    "JBOD_SPARK__MASTER": master,
                    "JBOD_SPARK__DRIVER_MEMORY": "1g",
                    "JBOD_SPARK__JAVA_OPTIONS": f"-XX:+UseSerialGC -Djava.io.tmpdir={root}",
                    "JBOD_SPARK__CONF": confs,
                },
            )

    @property
    def output(self) -> str:
        """Its output so far."""
        return self._output.read_text()

    def runs(self) -> bool:
        return self.process.poll() is None

    def end(self, seconds: float = 900) -> None:
        """Wait for its end; AssertionError with its output if it failed."""
        code = self.process.wait(seconds)
        assert code == 0, (code, self.output)


@contextmanager
def started(run: Run) -> Iterator[Run]:
    """A run whose processes are all ended afterwards."""
    try:
        yield run
    finally:
        kill_session(run.process)
