"""Runs in an environment with the wheel and one PySpark, on a stock session: what it reads, as a line of JSON.

``python in_session.py LOG_DIR LAKE REQUEST_LOG``
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines import open_lake
from pipelines.source import kafka_request_log, kraft_metadata

log_dir, location, requests = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
kraft_metadata.register(spark)
kafka_request_log.register(spark)
facts: dict[str, object] = {
    "spark": spark.version,
    "records": spark.read.format("kraft_metadata").load(log_dir).count(),
    "requests": spark.read.format("kafka_request_log").load(requests).count(),
}
lake = open_lake(location, at_offset=231).in_spark(spark)
lake.create_views()
facts["assignments"] = lake.table("assignments").count()
facts["offline"] = spark.sql("SELECT * FROM offline_now").count()
facts["assignments_at"] = spark.sql("SELECT * FROM assignments_at(200)").count()
try:
    stream = spark.readStream.format("kraft_metadata").load(log_dir)
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    facts["stream"] = sum(progress["numInputRows"] for progress in query.recentProgress)
except PySparkException as problem:
    facts["stream"] = str(problem)
print(json.dumps(facts))
