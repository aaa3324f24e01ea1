"""Loads the engine into the parent of Spark's workers, so that numba's cache is read once, not in each worker."""

from __future__ import annotations

import numpy as np

# Imported for the workers, which need them at once.
import pipelines.run.spark_query
import pipelines.run.stages
import pipelines.source.readers  # noqa: F401
from pipelines.fold.brokers import timeline
from pipelines.fold.events import Part, SliceIds, by_shard, events_of, join, rows_of_events
from pipelines.fold.rows import record_rows, rows_of
from pipelines.fold.rules import rules
from pipelines.fold.shard import step
from pipelines.fold.state import empty_state
from pipelines.formats.batches import BATCH_DTYPE, scan
from pipelines.formats.records import decode


def warm() -> None:
    """Calls every kernel on empty arrays, so that it is loaded."""
    data = np.frombuffer(b"", np.uint8)
    scan(data, "")
    records = decode(data, np.empty(0, BATCH_DTYPE), "")
    record_rows(records, np.ones(0, np.bool_), None)
    rows, bounds = by_shard(rows_of_events(records), SliceIds.of(records), 2)
    # Each shard's events are one of several parts.
    events = join([Part.of(events_of(records, rows).to_bytes(bounds), shard) for shard in range(2)])
    chosen = rules()
    done = step(
        empty_state(chosen.reserved_ids),
        events,
        lambda known: timeline({}, [], known),
        absent_directory=chosen.absent_directory,
        literal_offline=chosen.literal_offline,
    )
    rows_of(done, 0)
