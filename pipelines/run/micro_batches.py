"""The loop over micro-batches in threads of this process: the stages of Spark's query, without Spark.

The loop is pure. It takes the two stages as functions, and what it yields goes to a sink:

    a lake      pipelines.run.runner            publishes each micro-batch
    memory      pipelines.run.log_lake          keeps the tables, for questions to a log
    states      pipelines.run.rebuild_states    keeps the states of the shards, for a checkpoint that is lost
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from jbod_model.errors import JbodError
from pipelines.fold.machine import Row
from pipelines.run.errors import first_error
from pipelines.start.process import cores

End = TypeVar("End")
Piece = TypeVar("Piece")
Made = TypeVar("Made")
_A = TypeVar("_A")
_B = TypeVar("_B")


@dataclass(frozen=True)
class MicroBatch(Generic[End, Made]):
    """A micro-batch after both stages: its end, the rows of ``decode`` for the driver, and what each shard made."""

    end: End
    reports: Sequence[Row]
    shards: Sequence[tuple[int, Made]]


def micro_batches(
    plan: Iterable[tuple[End, Sequence[Piece]]],
    decode: Callable[[int, Piece], Iterable[Row]],
    fold: Callable[[int, bytes | None, list[Row]], tuple[bytes, Made]],
    states: dict[int, bytes],
    *,
    threads: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[MicroBatch[End, Made]]:
    """Decodes and folds each micro-batch of ``plan`` (its end, its pieces); updates ``states``, by shard.

    ``decode`` takes a piece and its number in the micro-batch, ``fold`` a shard, its state and the rows for it, and
    returns the next state. ``threads``: the pieces or shards in work at once, by default one for each core that this
    process may use. Raises the error of the first piece that has one, and of several shards the error with the lowest
    offset.
    """
    pool = ThreadPoolExecutor(threads or cores())

    def each(number: int, what: str, work: Callable[[_A], _B], items: Sequence[_A]) -> Iterator[_B]:
        """The results of ``work`` in the order of the items. Shows progress."""
        for done, result in enumerate(map(work, items) if len(items) < 2 else pool.map(work, items), 1):
            say(f"loading batch {number}: {done} of {len(items)} {what}")
            yield result

    def decoded(item: tuple[int, Piece]) -> list[Row]:
        return list(decode(*item))

    def folded(item: tuple[int, list[Row]]) -> tuple[int, Made] | JbodError:
        shard, rows = item
        try:
            states[shard], made = fold(shard, states.get(shard), rows)
        except JbodError as problem:  # another shard may have met one at a lower offset
            return problem
        return shard, made

    try:
        for number, (end, pieces) in enumerate(plan, 1):
            of_shard: dict[int, list[Row]] = defaultdict(list)
            for rows in each(number, "slices", decoded, list(enumerate(pieces))):
                for row in rows:
                    of_shard[row[0]].append(row)
            reports = of_shard.pop(-1, [])
            results = list(each(number, "shards", folded, sorted(of_shard.items())))
            if errors := [result for result in results if isinstance(result, JbodError)]:
                raise first_error(errors)
            yield MicroBatch(end, reports, [result for result in results if not isinstance(result, JbodError)])
    finally:
        pool.shutdown(cancel_futures=True)
