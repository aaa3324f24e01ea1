"""Runs examples/consume_changes.py in a separate process and JVM, as users do."""

from __future__ import annotations

import argparse
import importlib.util
import os
from typing import Any

from tests.support.paths import ROOT


def example() -> Any:
    spec = importlib.util.spec_from_file_location("consume_changes", ROOT / "examples" / "consume_changes.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    from pipelines.settings import Spark
    from pipelines.spark.session import spark_session

    parser = argparse.ArgumentParser()
    parser.add_argument("lake")
    parser.add_argument("target")
    parser.add_argument("--files")
    parser.add_argument("--die", action="store_true")
    parser.add_argument("--plain", action="store_true")
    wanted = parser.parse_args()
    spark = spark_session(Spark(master="local[2]", driver_memory="1g", shuffle_partitions=1), delta=True, brief=True)
    if wanted.plain:
        rows = spark.readStream.format("delta").load(wanted.lake).writeStream.format("noop")
        rows.option("checkpointLocation", wanted.target).trigger(availableNow=True).start().awaitTermination()
        return
    code = example()
    merge = code._merge

    def dying(batch: Any, path: str, *arguments: Any) -> None:
        if path.endswith("state"):
            os._exit(0)
        merge(batch, path, *arguments)

    if wanted.die:
        code._merge = dying
    more = {"maxFilesPerTrigger": wanted.files} if wanted.files else {}
    code.consume(spark, wanted.lake, wanted.target, **more).awaitTermination()


if __name__ == "__main__":
    main()
