"""The stateful part of the state machine, as Spark calls it.

Spark also loads this module in processes that only inspect the processor, so it imports the engine at the first row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from pipelines.replay.job import Job

if TYPE_CHECKING:
    import pandas as pd

# Rows with this shard are for the driver only.
DRIVER = -1


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
        from pipelines.replay.keys import keys_of
        from pipelines.replay.stages import Row, error_row, fold_shard

        shard = DRIVER if key[0] == DRIVER else keys_of(self._job.shards + 1).index(key[0])
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
        from pipelines.replay.seed import seed_state

        return seed_state(self._job.home, shard)

    def close(self) -> None:
        """Does nothing: no resource is open."""
