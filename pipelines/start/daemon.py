"""The parent of Spark's Python workers. It loads what they need before it forks, so that they start in milliseconds.

``spark.python.daemon.module`` names this module; ``_JBOD_PRELOAD`` names a module whose ``warm()`` loads the rest.
Spark starts one such parent for each kind of worker; only that of ``pyspark.worker``, which runs the stages, needs it.
"""

from __future__ import annotations

import importlib
import os
import sys

from pyspark.daemon import manager

from pipelines.start.process import PRELOAD, collect_rarely, freeze_objects, keep_memory

# What every such worker imports, whatever it runs.
WORKER_MODULES = (
    "pandas",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
    # Imported at the first call of the state, which takes a quarter of a second in each worker.
    "pyspark.sql.streaming.proto.StateMessage_pb2",
)


if __name__ == "__main__":
    collect_rarely()
    if "pyspark.worker" in sys.argv:
        for name in WORKER_MODULES:
            importlib.import_module(name)
        keep_memory()
        if os.environ.get(PRELOAD):
            importlib.import_module(os.environ[PRELOAD]).warm()
        freeze_objects()
    manager()
