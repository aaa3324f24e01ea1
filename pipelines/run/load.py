"""Micro-batches in threads of this process: the stages and the publications of Spark's query, without Spark.

Spark and its workers take four seconds to start, and two million partitions are loaded in six. So a large log is loaded
into a new lake without them. The states of the shards are left as the seed of a checkpoint, from which Spark's query
continues.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jbod_model.errors import JbodError
from pipelines.run.seed import seed_position, seed_state, take_seed, write_seed
from pipelines.run.stage_options import Job
from pipelines.run.stages import Row, decode_slice, error_row, fold_shard
from pipelines.source.log_options import Options
from pipelines.source.plan import Planner
from pipelines.source.positions import Position, Slice

Publish = Callable[[Sequence[tuple[str, bytes]]], None]
"""Publishes the reports (kind, payload) of both stages on one micro-batch."""
_A = TypeVar("_A")
_B = TypeVar("_B")


class Load:
    """Reads a log from its beginning, or from the seed of the lake's checkpoint, to its present end."""

    def __init__(self, job: Job, publish: Publish, say: Callable[[str], None], threads: int | None = None) -> None:
        """``threads``: the slices or shards in work at once, by default as many as this machine has cores."""
        self._job = job
        self._threads = threads or os.cpu_count() or 1
        self._publish = publish
        self._say = say
        self._batch = 0
        self._states = {shard: seed_state(job.home, shard) for shard in range(job.shards + 1)}

    def run(self, options: Options, stop: threading.Event) -> None:
        """Publishes one micro-batch after the other until the end, or until ``stop``. Raises the error of the log."""
        planner = Planner.of(options)
        planner.freeze()
        position = seed_position(self._job.home) or planner.begin(options.start)
        pool = ThreadPoolExecutor(self._threads)
        try:
            while not stop.is_set() and (end := planner.advance(position, options.max_records or None)) != position:
                self._replay(pool, list(planner.slices(position, end)), end)
                position = end
        finally:
            pool.shutdown(cancel_futures=True)

    def _replay(self, pool: ThreadPoolExecutor, pieces: Sequence[Slice], end: Position) -> None:
        """If the process dies between publication and seed, the next run rebuilds the states from the records."""
        self._batch += 1
        reports: list[Row] = []
        of_shard: dict[int, list[Row]] = defaultdict(list)
        for rows in self._each(pool, "slices", self._decoded, list(enumerate(pieces))):
            for row in rows:
                (of_shard[row[0]] if row[0] >= 0 else reports).append(row)
        for rows in self._each(pool, "shards", self._folded, sorted(of_shard.items())):
            reports += rows
        states = {shard: state for shard, state in self._states.items() if state is not None}
        write_seed(self._job.home, states, end)
        self._publish([(kind, payload) for _, _, kind, payload in reports])
        take_seed(self._job.home)

    def _each(self, pool: ThreadPoolExecutor, what: str, work: Callable[[_A], _B], items: Sequence[_A]) -> Iterator[_B]:
        """The results of ``work`` in the order of the items. Shows progress."""
        for done, result in enumerate(pool.map(work, items), 1):
            self._say(f"loading batch {self._batch}: {done} of {len(items)} {what}")
            yield result

    def _decoded(self, item: tuple[int, Slice]) -> list[Row]:
        return list(decode_slice(self._job, *item))

    def _folded(self, item: tuple[int, list[Row]]) -> list[Row]:
        shard, rows = item
        try:
            self._states[shard], reports = fold_shard(self._job, shard, self._states[shard], rows)
        except JbodError as problem:  # another shard may have met one at a lower offset
            return [error_row(problem)]
        return reports
