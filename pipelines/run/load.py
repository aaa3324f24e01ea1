"""Loads a log into a lake in this process: the stages and the publications of Spark's query, without Spark.

Spark and its workers take four seconds to start, and two million partitions are loaded in six. So a large log is loaded
into a new lake without them. The states of the shards are left as the seed of a checkpoint, from which Spark's query
continues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from pipelines.fold.machine import Row
from pipelines.run.micro_batches import micro_batches
from pipelines.run.seed import seed_position, seed_state, take_seed, write_seed
from pipelines.run.stage_options import Job
from pipelines.run.stages import decode_slice, fold_shard
from pipelines.source.log_options import LogOptions
from pipelines.source.plan import Planner
from pipelines.source.positions import Slice

Publish = Callable[[Sequence[tuple[str, bytes]]], None]
"""Publishes the reports (kind, payload) of both stages on one micro-batch."""


def load(
    job: Job,
    options: LogOptions,
    publish: Publish,
    stop: threading.Event,
    *,
    say: Callable[[str], None],
    threads: int | None = None,
) -> None:
    """Publishes one micro-batch after the other, from the log's beginning or the seed of the lake's checkpoint to the
    log's present end, or until ``stop``. Raises the error of the log.

    If the process dies between publication and seed, the next run rebuilds the states from the records.
    """
    planner = Planner.of(options)
    planner.freeze()
    begin = seed_position(job.home) or planner.begin(options.start)
    plan = planner.micro_batches(begin, options.max_records or None)
    seeds = ((shard, seed_state(job.home, shard)) for shard in range(job.shards + 1))
    states = {shard: state for shard, state in seeds if state is not None}

    def decode(sequence: int, piece: Slice) -> Iterable[Row]:
        return decode_slice(job, sequence, piece)

    def fold(shard: int, state: bytes | None, rows: list[Row]) -> tuple[bytes, list[Row]]:
        return fold_shard(job, shard, state, rows)

    going_on = takewhile(lambda _: not stop.is_set(), plan)
    for batch in micro_batches(going_on, decode, fold, states, threads=threads, say=say):
        rows = [*batch.reports, *(row for _, reports in batch.shards for row in reports)]
        write_seed(job.home, states, batch.end)
        publish([(kind, payload) for _, _, kind, payload in rows])
        take_seed(job.home)
