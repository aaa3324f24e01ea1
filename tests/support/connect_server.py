"""A Spark Connect server from PySpark's own jars, on a free port of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from pipelines.java import use_java
from pipelines.start.session import SPARK_OPTIONS, class_archive, use_spark_home

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PATIENCE = 120


@contextmanager
def connect_server(folder: Path, **conf: str) -> Iterator[str]:
    """Starts a server with two cores that works in ``folder``, and yields its ``sc://`` address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
        # Workers that have the kernels loaded start faster.
        "spark.python.daemon.module": "pipelines.start.daemon",
        "spark.executorEnv._JBOD_PRELOAD": "pipelines.run.preload",
        **SPARK_OPTIONS,
        **conf,
    }
    java = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    use_spark_home()
    if class_archive(use_java()).is_file():
        java += f" -XX:SharedArchiveFile={class_archive(use_java())}"
    home = os.environ.get("SPARK_HOME", pyspark.__path__[0])
    submit = Path(home, "bin", "spark-submit")
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    env |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    env["SPARK_HOME"] = home
    command = [
        str(submit),
        "--class",
        SERVER,
        "--master",
        "local[2]",
        "--driver-memory",
        "1g",
        "--driver-java-options",
        java,
        *words,
        "spark-internal",
    ]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait(process, port, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-2000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-2000:])
