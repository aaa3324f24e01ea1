"""The state machine as a Spark query: decodes slices, distributes events to shards, folds them, reports files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.replay.job import Job
from pipelines.replay.processor import ShardProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGE_DDL = "key int, sequence long, kind string, payload binary"


def decode_stage(job: Job) -> Any:
    """Returns a function for mapInArrow that turns slices into rows of STAGE_SCHEMA."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from jbod_model.errors import JbodError
        from pipelines.replay.stages import decode_slice, error_row, rows_batch
        from pipelines.source.positions import Slice

        for batch in batches:
            for sequence, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                try:
                    yield rows_batch(job, list(decode_slice(job, sequence, Slice.of(json.loads(text)))))
                except JbodError as problem:
                    yield rows_batch(job, [error_row(problem)])

    return run


def state_machine(slices: DataFrame, job: Job) -> DataFrame:
    """Turns the source's slices into the rows for the driver: files written, small tables, summaries, errors."""
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
