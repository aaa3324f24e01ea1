"""The Spark source as a stream into a noop sink, every record with its typed columns. Prints one JSON line."""

from __future__ import annotations

import json
import sys
import tempfile
import time

from pipelines.session import spark_session
from pipelines.source.kraft_metadata import register


def run(log_dir: str) -> dict[str, float]:
    """Two streams over the log, the second counts: the session, its workers and the page cache are warm then."""
    spark = spark_session()
    register(spark)
    for _ in range(2):
        with tempfile.TemporaryDirectory() as checkpoint:
            started = time.perf_counter()
            query = (
                spark.readStream.format("kraft_metadata")
                .load(log_dir)
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            seconds = time.perf_counter() - started
            records = sum(progress["numInputRows"] for progress in query.recentProgress)
    return {"records": records, "seconds": round(seconds, 2), "perSecond": round(records / seconds)}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))
