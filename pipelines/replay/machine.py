"""The state machine as Spark runs it: slices in, decoded and sharded, folded with state, and what was written out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.replay.job import Job
from pipelines.replay.processor import DRIVER, ShardProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGE_DDL = "key int, sequence long, kind string, payload binary"


def decode_stage(job: Job) -> Any:
    """A function for mapInArrow: slices to rows of STAGE_SCHEMA."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from jbod_model.errors import JbodError
        from pipelines.replay.keys import keys_of
        from pipelines.replay.stages import STAGE_SCHEMA, decode_slice, error_row
        from pipelines.source.pieces import Slice

        # The last one serves rows of no shard, which are for the driver.
        keys = (*keys_of(job.shards + 1), DRIVER)
        for batch in batches:
            for sequence, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                raw = json.loads(text)
                piece = Slice(**{**raw, "dropped": tuple(map(tuple, raw["dropped"]))})
                try:
                    rows = list(decode_slice(job, sequence, piece))
                except JbodError as problem:
                    rows = [error_row(problem)]
                shards, *others = (pa.array(column) for column in zip(*rows, strict=True))
                keyed = pa.array([keys[shard] for shard in shards.to_pylist()], pa.int32())
                yield pa.record_batch([keyed, *others], schema=STAGE_SCHEMA)

    return run


def state_machine(slices: DataFrame, job: Job) -> DataFrame:
    """From the source's slices to the rows for the driver: files written, few rows, summaries, errors."""
    return (
        slices.mapInArrow(decode_stage(job), STAGE_DDL)
        .groupBy("key")
        .transformWithStateInPandas(
            statefulProcessor=ShardProcessor(job),
            outputStructType=STAGE_DDL,
            outputMode="append",
            timeMode="none",
        )
    )
