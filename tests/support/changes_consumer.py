"""Runs of examples/consume_changes.py and of a plain stream, in the process of tests.support.spark_engine."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def consume(spark: SparkSession, lake: str, target: str, files: int | None, dies: str) -> None:
    """One run of the example, ``files`` a batch. Between the writes of a batch it ``dies``, unless that is empty:

    by an "error", or at the "end" of the process.
    """
    code = _example()
    merge = code._merge

    def dying(batch: Any, path: str, *arguments: Any) -> None:
        if path.endswith("state"):
            if dies == "end":
                os._exit(0)
            raise OSError("died between two writes")
        merge(batch, path, *arguments)

    if dies:
        code._merge = dying
    more = {"maxFilesPerTrigger": str(files)} if files else {}
    code.consume(spark, lake, target, **more).awaitTermination()


def stream(spark: SparkSession, table: str, checkpoint: str) -> None:
    """Read what is new in a table, as a stream that keeps its position in ``checkpoint``."""
    rows = spark.readStream.format("delta").load(table).writeStream.format("noop")
    rows.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("consume_changes", ROOT / "examples" / "consume_changes.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
