"""The Spark query of a run: readStream, decode, transformWithState, foreachBatch.

    kraft_metadata      a row per slice: where the records are
    decode              mapInArrow: the events of the slice for each shard, the files of its ``records``
    ShardProcessor      transformWithState, a key per shard: the events folded into the state, the files of the history
    foreachBatch        one publication of what the stages report

Spark's workers import this module, also to inspect the processor only. So the engine is imported at the first row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from pipelines.run.stage_options import Job

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROW = "key int, sequence long, kind string, payload binary"
"""A row between the stages, and of a stage for the driver (pipelines.run.stages)."""
DRIVER = -1
"""The key of rows for the driver only."""


def start_query(
    spark: SparkSession,
    job: Job,
    options: Mapping[str, str],
    publish: Callable[[DataFrame, int], None],
    follow_seconds: float | None,
) -> StreamingQuery:
    """Starts the query. ``options`` are those of the data source. ``follow_seconds``: None ends it at the log's end."""
    from pipelines.lake.uris import for_spark
    from pipelines.run.seed import CHECKPOINT, mark_version, planned, seed_position
    from pipelines.source.kraft_metadata import register
    from pipelines.source.limits import position_options
    from pipelines.spark.session import cores_of, is_connect
    from pipelines.spark.versions import start
    from pipelines.start.session import wake_workers

    register(spark)
    seed = seed_position(job.home)
    slices = (
        spark.readStream.format("kraft_metadata")
        .options(**options)
        .option("from", json.dumps(asdict(seed)) if seed else "")
        .option("partitions", 2 * cores_of(spark))
        .options(**position_options(planned(job.home, CHECKPOINT), ends=follow_seconds is None))
        .load()
    )
    if not is_connect(spark):
        wake_workers(spark)
    mark_version(job.home)
    reports = (
        slices.mapInArrow(decode(job), ROW)
        .groupBy("key")
        .transformWithStateInPandas(
            statefulProcessor=ShardProcessor(job), outputStructType=ROW, outputMode="append", timeMode="none"
        )
    )
    writer = (
        reports.writeStream.foreachBatch(publish)
        .option("checkpointLocation", f"{for_spark(job.home)}/{CHECKPOINT}")
        .outputMode("append")
    )
    return start(spark, writer, follow_seconds)


def decode(job: Job) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for mapInArrow that turns slices into rows of ROW."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from jbod_model.errors import JbodError
        from pipelines.run.stages import decode_slice, error_row, rows_batch
        from pipelines.source.positions import Slice

        for batch in batches:
            for sequence, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                try:
                    yield rows_batch(list(decode_slice(job, sequence, Slice.of(json.loads(text)))))
                except JbodError as problem:
                    yield rows_batch([error_row(problem)])

    return run


class ShardProcessor(StatefulProcessor):
    """One shard per key. The state is one value: the packed columns of the shard."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getValueState("shard", "columns binary")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002
    ) -> Iterator[pd.DataFrame]:
        """Folds the rows of one batch into the shard, and passes on the rows for the driver."""
        import pandas as pd

        from jbod_model.errors import JbodError
        from pipelines.fold.machine import Row
        from pipelines.run.stages import error_row, fold_shard

        shard = int(key[0])
        incoming: list[Row] = [
            (shard, int(sequence), kind, bytes(payload))
            for frame in rows
            for sequence, kind, payload in zip(frame["sequence"], frame["kind"], frame["payload"], strict=True)
        ]
        if shard == DRIVER:
            out = incoming
        else:
            try:
                held = self._state.get()
                before = self._seed(shard) if held is None else bytes(held[0])
                state, out = fold_shard(self._job, shard, before, incoming)
                self._state.update((state,))
            except JbodError as problem:
                out = [error_row(problem)]
        yield pd.DataFrame(out, columns=["key", "sequence", "kind", "payload"])

    def _seed(self, shard: int) -> bytes | None:
        if not self._job.seeded:
            return None
        from pipelines.run.seed import seed_state

        return seed_state(self._job.home, shard)

    def close(self) -> None:
        """Does nothing: no resource is open."""
