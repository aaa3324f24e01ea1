"""Runs in an environment with the wheel and one PySpark, on jbod's own session: what Delta Lake adds, as JSON.

``python with_delta.py LAKE``
"""

from __future__ import annotations

import json
import sys

from jbod_model.errors import UsageError
from pipelines import open_lake
from pipelines.spark.catalog import register

location = sys.argv[1]
lake = open_lake(location, at_offset=231).in_spark()
spark = lake.spark
facts: dict[str, object] = {"delta": lake.has_delta, "assignments": lake.table("assignments").count()}
try:
    register(location, "kafka", spark=spark)
    spark.sql("USE kafka")
    facts["catalog"] = spark.sql("SELECT * FROM assignments_at(231)").count()
except UsageError as problem:
    facts["catalog"] = str(problem)
if lake.has_delta:
    stream = spark.readStream.format("delta").load(f"{location}/changes")
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    facts["changes"] = sum(progress["numInputRows"] for progress in query.recentProgress)
print(json.dumps(facts))
