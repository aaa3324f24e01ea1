"""The barest streaming query of the kind that jbod runs: three rows of a Python source, one stateful operator.

``python -m benchmarks.bare_query plain|jbod FOLDER``: on a session with Spark's defaults and RocksDB, which the
operator requires, or on jbod's session with its start-up tricks. FOLDER takes the checkpoint.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

ROWS = 3


def source() -> type[DataSource]:
    """A data source of three rows. Functions import PySpark, so that jbod's session starts its JVM before."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"row": 0}

        def latestOffset(self, *_: Any) -> dict[str, int]:
            return {"row": ROWS}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition((start["row"], end["row"]))]

        def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
            yield from ((row % 2, row) for row in range(*partition.value))

    class Few(DataSource):
        @classmethod
        def name(cls) -> str:
            return "few"

        def schema(self) -> str:
            return "key int, value int"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002
            return Reader()

    return Few


def run(spark: SparkSession, folder: str) -> None:
    """Runs the query to its end."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("rows", "rows int")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002
            import pandas as pd

            count = sum(map(len, rows)) + (self.state.get()[0] if self.state.exists() else 0)
            self.state.update((count,))
            yield pd.DataFrame({"key": [key[0]], "rows": [count]})

        def close(self) -> None:
            pass

    spark.dataSource.register(source())
    rows = spark.readStream.format("few").load()
    counted = rows.groupBy("key").transformWithStateInPandas(Count(), "key int, rows int", "append", "none")
    query = (
        counted.writeStream.format("noop")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    assert progress.numInputRows == ROWS, "the folder has a checkpoint"


def plain() -> SparkSession:
    """A session with Spark's defaults, as many partitions of state as cores, and the state store that is required."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark would run the first python3 on the path
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    return (
        SparkSession.builder.master("local[*]")
        .config("spark.sql.streaming.stateStore.providerClass", store)
        .config("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
        .getOrCreate()
    )


def own(folder: str) -> None:
    """Runs the query on jbod's session of a single command, and ends the process as a command does."""
    from pipelines.settings import Spark
    from pipelines.spark.session import spark_session_soon
    from pipelines.start.session import wake_workers

    spark = spark_session_soon(Spark())()
    wake_workers(spark)
    run(spark, folder)
    os._exit(0)


def main(session: str, folder: str) -> None:
    """Runs the query on one of the two sessions."""
    own(folder) if session == "jbod" else run(plain(), folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
