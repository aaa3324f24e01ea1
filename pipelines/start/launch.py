"""Starts Spark's JVM directly, if pipelines.upkeep.warm has kept the command for it.

Spark runs two shell scripts and a JVM to compose this command. They take a third of a second and start after the import
of PySpark. Here the JVM starts in parallel with the import.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.java import Java
from pipelines.start.cache import class_archive

_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
# Variables that Spark's scripts and launcher only pass on. They interpret all other ones themselves.
_PASSED_ON = frozenset({"SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_LOCAL_DIRS"})
_MEMORY, _OPTIONS = "spark.driver.memory", "spark.driver.extraJavaOptions"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def command_file(java: Java) -> Path:
    """The file of the command, beside the archive of classes, for the same Java and Spark."""
    return class_archive(java).with_suffix(".command.json")


def keep_command(java: Java) -> None:
    """Asks the launcher of SPARK_HOME which command it would run, and keeps the command."""
    script = Path(os.environ["SPARK_HOME"], "bin", "spark-class")
    asked = [str(script), "org.apache.spark.launcher.Main", _SUBMIT, "pyspark-shell"]
    said = subprocess.run(asked, capture_output=True, check=True, timeout=60).stdout.decode()  # noqa: S603
    command_file(java).write_text(json.dumps([word for word in said.split("\0") if word.strip()]))


@dataclass(frozen=True)
class Jvm:
    """A JVM that has been started and will write its port to a file."""

    process: subprocess.Popen[bytes]
    said: Path
    """The file that it writes: its port and a secret."""

    def gateway(self, conf: Any) -> Any:
        """Py4J's gateway to the JVM, None if the JVM ended before."""
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        try:
            while not self.said.is_file():
                if self.process.poll() is not None:
                    return None
                time.sleep(0.005)
            with self.said.open("rb") as said:
                port, secret = read_int(said), UTF8Deserializer().loads(said)  # type: ignore[no-untyped-call]
        finally:
            shutil.rmtree(self.said.parent, ignore_errors=True)
        os.environ[_PORT], os.environ[_SECRET] = str(port), secret
        try:
            gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
        finally:
            del os.environ[_PORT], os.environ[_SECRET]
        gateway.proc = self.process
        return gateway


def start_jvm(java: Java, options: Mapping[str, str], log: Path) -> Jvm | None:
    """Starts the JVM of a local session with Spark's ``options``. Its output goes to ``log``.

    Returns None if no command is kept, or if a setting needs Spark's launcher. The JVM ends with this process.
    """
    kept = _kept(java)
    if kept is None or not _plain(options, os.environ):
        return None
    said = Path(tempfile.mkdtemp(prefix="jbod-jvm-"), "listens")
    env = os.environ | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(said), "PYTHONHASHSEED": "0"}
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603
            command(kept, options),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=env,
            preexec_fn=_ignore_signals,
        )
    return Jvm(process, said)


def command(kept: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """The kept command with a session's options, placed as by Spark's launcher."""
    heap = next(at for at, word in enumerate(kept) if word.startswith("-Xmx"))
    main = kept.index(_SUBMIT)
    settings = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    return [
        str(Path(os.environ["JAVA_HOME"], "bin", "java")),
        *kept[1:heap],
        f"-Xmx{options[_MEMORY]}",
        *shlex.split(options[_OPTIONS]),
        *kept[heap + 1 : main + 1],
        *settings,
        *kept[main + 1 :],
    ]


def _plain(options: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Whether no setting changes the command in a way that ``command`` does not support."""
    if os.name != "posix" or {"PYSPARK_SUBMIT_ARGS", _PORT} & env.keys():
        return False
    if any(name.startswith("SPARK_") and name not in _PASSED_ON for name in env):
        return False
    ours = {name for name in options if name.startswith(("spark.driver.", "spark.submit."))}
    return ours == {_MEMORY, _OPTIONS} and "-Xmx" not in options[_OPTIONS]


def _kept(java: Java) -> list[str] | None:
    """The command kept for this Java and this SPARK_HOME, None if there is none."""
    with suppress(OSError, ValueError, KeyError):
        words = [str(word) for word in json.loads(command_file(java).read_text())]
        jars = str(Path(os.environ["SPARK_HOME"], "jars"))
        heap = any(word.startswith("-Xmx") for word in words)
        if heap and _SUBMIT in words and any(jars in word for word in words):
            return words
    return None


def _ignore_signals() -> None:
    """Ctrl-C and systemd signal every process of a group. This process stops the query, then the JVM ends with it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
