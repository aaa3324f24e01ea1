"""The parent of Spark's Python workers, with the engine loaded before it forks: workers start in milliseconds.

Set as ``spark.python.daemon.module``. Everything compiled is read from numba's cache here, once, not in each worker.
Spark starts one such parent for each kind of worker; only that of ``pyspark.worker``, which runs the stages, needs it.
"""

from __future__ import annotations

import ctypes
import importlib
import sys

import pyarrow as pa
from pyspark.daemon import manager

# Numbers of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4

# What these workers import before they do anything.
PRELOADED = (
    "pandas",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
    "pipelines.replay.machine",
    "pipelines.replay.stages",
    "pipelines.source.readers",
)


def keep_memory() -> None:
    """Let the workers reuse the memory they got: fresh pages cost a tenth of a fold. What glibc alone can do."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    pa.set_memory_pool(pa.system_memory_pool())


def warm() -> None:
    """Call every kernel on nothing, so that it is loaded."""
    import numpy as np

    from pipelines.formats.batches import BATCH_DTYPE, scan
    from pipelines.formats.records import decode
    from pipelines.replay.blocks import by_shard, events_of, rows_of_events
    from pipelines.replay.brokers import timeline
    from pipelines.replay.named import Named
    from pipelines.replay.rows import rows_of
    from pipelines.replay.rules import rules
    from pipelines.replay.shard import step
    from pipelines.replay.state import empty_state

    data = np.frombuffer(b"", np.uint8)
    scan(data, "")
    records = decode(data, np.empty(0, BATCH_DTYPE), "")
    rows, _ = by_shard(records, rows_of_events(records), Named.of(records), 2)
    events = events_of(records, rows)
    chosen = rules()
    done = step(
        empty_state(chosen.reserved_ids),
        events,
        lambda directories: timeline({}, [], directories),
        absent=chosen.absent_directory,
        literal=chosen.literal_offline,
    )
    rows_of(done)


if __name__ == "__main__":
    if "pyspark.worker" in sys.argv:
        for name in PRELOADED:
            importlib.import_module(name)
        keep_memory()
        warm()
    manager()
