"""The state machine as Spark runs it: slices in, decoded and sharded, folded with state, and what was written out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from jbod_model.errors import JbodError
from pipelines.replay.stages import STAGE_SCHEMA, Job, Row, decode_slice, error_row, fold_shard
from pipelines.source.pieces import Slice

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

STAGE_DDL = "shard int, sequence long, kind string, payload binary"
# Rows of this shard are for the driver alone.
DRIVER = -1


def _slice_of(text: str) -> Slice:
    raw = json.loads(text)
    return Slice(**{**raw, "dropped": tuple(map(tuple, raw["dropped"]))})


def decode_stage(job: Job) -> Any:
    """A function for mapInArrow: slices to rows of STAGE_SCHEMA."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for sequence, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                try:
                    rows = list(decode_slice(job, sequence, _slice_of(text)))
                except JbodError as problem:
                    rows = [error_row(problem)]
                yield _record_batch(rows)

    return run


def _record_batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(column) for column in zip(*rows, strict=True)], schema=STAGE_SCHEMA)


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
        """Fold the rows of one batch into the shard; pass on what is for the driver."""
        import pandas as pd

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
        yield pd.DataFrame(out, columns=["shard", "sequence", "kind", "payload"])

    def _seed(self, shard: int) -> bytes | None:
        if not self._job.seeded:
            return None
        from pipelines.replay.seed import seed_state

        return seed_state(self._job.lake, shard)

    def close(self) -> None:
        """Nothing is held open."""


def state_machine(slices: DataFrame, job: Job) -> DataFrame:
    """From the source's slices to the rows for the driver: files written, few rows, summaries, errors."""
    return (
        slices.mapInArrow(decode_stage(job), STAGE_DDL)
        .groupBy("shard")
        .transformWithStateInPandas(
            statefulProcessor=ShardProcessor(job),
            outputStructType=STAGE_DDL,
            outputMode="append",
            timeMode="none",
        )
    )
