"""Spark with Delta Lake as another engine, in a process and a JVM of its own: SQL comes in by line, errors go out."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.support.paths import ROOT


class SparkEngine:
    """The other end of the process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sql(self, statements: Sequence[str]) -> None:
        """Run statements beside each other; the first error that any of them gave is raised."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps(statements), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "Spark died"
        errors = [error for error in json.loads(line) if error]
        assert not errors, errors[0]

    def call(self, function: str, *arguments: object) -> Any:
        """What ``module:function`` returns there, called with the session and with arguments that are JSON."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps({"function": function, "arguments": arguments}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "Spark died"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]


@contextmanager
def spark_engine() -> Iterator[SparkEngine]:
    """Spark with the Delta jars, which are fetched from Maven Central at the first use."""
    command = [sys.executable, "-m", "tests.support.spark_engine"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield SparkEngine(process)
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(60)


def main() -> None:
    """Serve until the input ends."""
    from pipelines.settings import Spark
    from pipelines.spark.session import spark_session

    conf = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # VACUUM would list the files of a small table in 10,000 tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "1",
    }
    settings = Spark(master="local[2]", driver_memory="1g", java_options="-XX:+UseParallelGC", conf=conf)
    session = spark_session(settings, delta=True, brief=True)

    def run(statement: str) -> str:
        try:
            session.sql(statement).collect()
        except Exception as problem:
            return f"{statement}: {problem}"
        return ""

    def call(function: str, arguments: list[Any]) -> dict[str, Any]:
        module, _, name = function.partition(":")
        try:
            return {"result": getattr(importlib.import_module(module), name)(session, *arguments)}
        except Exception:
            return {"error": traceback.format_exc()}

    with ThreadPoolExecutor(4) as pool:
        for line in sys.stdin:
            wanted = json.loads(line)
            answer = call(**wanted) if isinstance(wanted, dict) else list(pool.map(run, wanted))
            print(json.dumps(answer), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
