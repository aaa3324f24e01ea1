"""The JVM of a session, and what else jbod takes of Spark that has no public name. No other module takes any.

PySpark would start the JVM in the middle of its import, with the output of this process. Here the same script starts
it, with the output in a file, and the JVM runs while PySpark is imported.
"""

from __future__ import annotations

import atexit
import logging
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jbod_model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Ctrl-C and systemd signal every process of a group. This process stops the query, then the JVM ends with it. A shell
# ignores the signals, as a function of Python between fork and exec is not safe beside threads that import modules.
_IGNORING_SIGNALS = 'trap "" HUP INT TERM; exec "$0" "$@"'
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


@dataclass(frozen=True)
class Jvm:
    """A JVM that has been started and will write its port to a file. It ends with this process."""

    process: subprocess.Popen[bytes]
    listens: Path
    """The file with its port and a secret."""
    log: Path
    """The file with its output."""

    def gateway(self, conf: Any) -> Any:
        """Py4J's gateway to the JVM. Raises UsageError if the JVM ended before it listened."""
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        try:
            while not self.listens.is_file():
                if self.process.poll() is not None:
                    lines = self.log.read_text(errors="replace").splitlines()
                    why = next((line for line in reversed(lines) if line[:1].strip()), "it printed nothing")
                    raise UsageError(
                        f"Spark's JVM did not start: {why}: check spark.driver_memory, spark.java_options and the "
                        f"limits of this machine; Spark's output: {self.log}"
                    )
                time.sleep(0.005)
            with self.listens.open("rb") as content:
                port, secret = read_int(content), UTF8Deserializer().loads(content)  # type: ignore[no-untyped-call]
        finally:
            shutil.rmtree(self.listens.parent, ignore_errors=True)
        os.environ[_PORT], os.environ[_SECRET] = str(port), secret
        try:
            gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
        finally:
            del os.environ[_PORT], os.environ[_SECRET]
        gateway.proc = self.process
        # It would log the traceback of each call to a JVM that is gone, also to the root logger. The error says it.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_is_of_others)
        if not user_has_entry():
            users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
            users.setLoginUser(users.createRemoteUser(str(os.getuid())))
        return gateway


def _is_of_others(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger is not of Py4J. A logger has a function once, however many JVMs start."""
    return record.module != "java_gateway"


def user_has_entry() -> bool:
    """Whether /etc/passwd has the user of this process, who in a pod may have any number. Java does not know the name
    and the home of another one, and Hadoop needs both."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def start_jvm(options: Mapping[str, str], log: Path) -> Jvm:
    """Starts the JVM of a session with Spark's ``options``. Its output goes to ``log``."""
    home = os.environ.get("SPARK_HOME") or _installed_home()
    listens = Path(tempfile.mkdtemp(prefix="jbod-jvm-"), "listens")
    settings = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", _IGNORING_SIGNALS, str(Path(home, "bin", "spark-submit")), *settings, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=os.environ | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(listens)},
        )
    atexit.register(_abandon, process, listens.parent)
    return Jvm(process, listens, log)


def _abandon(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Ends a JVM whose command ended while it started, and nobody read the file in ``folder``. Without the folder, the
    JVM would fail to write the file, and stay for ever: it waits for the end of its input only after that."""
    if folder.exists():
        process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def session_of(builder: SparkSession.Builder, jvm: Jvm | None, log: Path) -> SparkSession:
    """The session of a builder, in the JVM of this process, else in ``jvm``, else in one that starts now."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is None:
        conf = SparkConf().setAll(list(builder._options.items()))
        gateway = (jvm or start_jvm(builder._options, log)).gateway(conf)
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    session = builder.getOrCreate()
    # It would print a traceback where the JVM is gone. The error of the query says it.
    accumulators: Any = session.sparkContext._accumulatorServer
    accumulators.handle_error = lambda *_: None
    return session


def end_jvm(session: SparkSession) -> None:
    """Stops a session and ends its JVM, with the archive of classes that it writes. The next session starts another."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway: Any = session.sparkContext._gateway
    with suppress(Py4JError), warnings.catch_warnings():  # it may be gone
        warnings.simplefilter("ignore", RuntimeWarning)
        session.stop()
        gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None


def exit_code(patience: float = 0.0) -> int | None:
    """The exit code of this process's JVM; the negative number of the signal that killed it; None if it still runs
    after ``patience`` seconds."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        return None if process is None else int(process.wait(patience))
    except subprocess.TimeoutExpired:
        return None


def executors(session: SparkSession) -> int:
    """The number of executors of a session, the driver among them."""
    return len(session.sparkContext._jsc.sc().statusTracker().getExecutorInfos())


def _installed_home() -> str:
    import importlib.metadata

    return str(importlib.metadata.distribution("pyspark").locate_file("pyspark"))
