"""Runs of the main job in separate processes, and ways to kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.support.paths import ROOT

_FORKED = get_context("forkserver")
BOUND = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()

_FORKED.set_forkserver_preload(["tests.crash.engine"])


def forked(
    log_dir: Path,
    lake: Path | str,
    most: int | None,
    point: str | None = None,
    first: Callable[[], object] | None = None,
    *,
    loads: bool = False,
) -> BaseProcess:
    """A run without Spark that was started: a process that forks with everything loaded, in milliseconds."""
    from tests.crash.engine import run

    process = _FORKED.Process(target=run, args=(log_dir, lake, most, point, first, loads))
    process.start()
    return process


class SparkRun:
    """``jbod replay`` with Spark: a session of processes (driver, JVM, workers' parents, workers)."""

    def __init__(
        self, log_dir: Path, lake: Path | str, most: int, temporary: Path, point: str | None, *, bound: bool = False
    ) -> None:
        die = [] if point is None else ["--die", point]
        replay = ["replay", str(log_dir), "--lake", str(lake), "--max-records", str(most)]
        self._errors = temporary / "stderr.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*(BOUND if bound else ()), sys.executable, "-m", "tests.crash.child", *die, *replay],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                env=os.environ
                | {
                    "TMPDIR": str(temporary),
                    "SPARK_LOCAL_DIRS": str(temporary),
                    "PYSPARK_PYTHON": sys.executable,
                    "JBOD_SPARK__MASTER": "local[2]",
                    "JBOD_SPARK__DRIVER_MEMORY": "1g",
                    "JBOD_SPARK__CONF": '{"spark.sql.shuffle.partitions": 2}',
                    "JBOD_SPARK__JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}",
                },
            )

    @property
    def errors(self) -> str:
        """Its standard error so far."""
        return self._errors.read_text()

    def ended(self, seconds: float) -> int | None:
        """Its exit code, None if it still runs after that time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def is_ready(self, seconds: float = 300) -> bool:
        """Wait until Spark is up; False if the run ended before, or is not up after that time."""
        until = time.monotonic() + seconds
        while "ready" not in self.errors:
            if self._process.poll() is not None or time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def kill(self, whom: str) -> None:
        """SIGKILL to the ``driver`` alone, its ``group`` (the JVM, too), or the ``session`` (the workers, too)."""
        if whom == "driver":
            self._process.kill()
        else:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if whom == "session":
            self.clear()
        self._process.wait()

    def clear(self) -> None:
        """Kill the remaining processes of the session. Its number is that of the driver, which leads it."""
        for process in self._session():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _session(self) -> Iterator[int]:
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with suppress(OSError):
                    stat = Path(entry.path, "stat").read_text()
                    if int(stat.rsplit(")", 1)[1].split()[3]) == self._process.pid:
                        yield int(entry.name)


@contextmanager
def spark_run(
    log_dir: Path, lake: Path | str, most: int, point: str | None = None, *, bound: bool = False
) -> Iterator[SparkRun]:
    """A run that was started. Afterwards its processes have ended and its temporary files are removed.

    ``bound``: permissions apply to it even if root runs it.
    """
    with tempfile.TemporaryDirectory(prefix="crash-", ignore_cleanup_errors=True) as temporary:
        run = SparkRun(log_dir, lake, most, Path(temporary), point, bound=bound)
        try:
            yield run
        finally:
            run.kill("session")
