"""The Spark source as a stream into a noop sink, every record with its typed columns, in turn with Kafka's own reader.

Options: --rounds N (3); --kafka CLASS_PATH of benchmarks/baseline (without it, ours alone). Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession

from pipelines.source.kraft_metadata import register
from pipelines.spark.session import spark_session


def stream(spark: SparkSession, log_dir: str) -> tuple[int, float]:
    """Records, and seconds from the start of a query to its end."""
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
        return sum(progress["numInputRows"] for progress in query.recentProgress), seconds


def kafka(class_path: str, log_dir: str) -> float:
    """Seconds of Kafka's decode, replay, image and offline replicas, without the start of its JVM."""
    words = ["java", "-cp", class_path, "jbod.ReadLog", log_dir]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["totalSeconds"])


def run(log_dir: str, rounds: int, class_path: str | None) -> dict[str, Any]:
    """A stream that does not count: the session, its workers and the page cache are warm then. Then the rounds."""
    spark = spark_session()
    register(spark)
    records, _ = stream(spark, log_dir)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(stream(spark, log_dir)[1])
        if class_path:
            theirs.append(kafka(class_path, log_dir))
    seconds = statistics.median(ours)
    report: dict[str, Any] = {"records": records, "seconds": round(seconds, 2), "perSecond": round(records / seconds)}
    report["rounds"] = [round(duration, 2) for duration in ours]
    if theirs:
        report["kafkaSeconds"] = round(statistics.median(theirs), 2)
        report["kafkaRounds"] = [round(duration, 2) for duration in theirs]
        report["times"] = round(statistics.median(theirs) / seconds, 2)
        report["timesOfRounds"] = [round(his / own, 2) for own, his in zip(ours, theirs, strict=True)]
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log_dir")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", metavar="CLASS_PATH")
    options = parser.parse_args()
    print(json.dumps(run(options.log_dir, options.rounds, options.kafka)))
