"""Publishes the micro-batches of a run and counts them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jbod_model.errors import JbodError
from pipelines.lake.incomplete import ADVICE
from pipelines.lake.publish import LakeWriter
from pipelines.replay.options import RunOutcome
from pipelines.replay.staged import clear_staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipelines.replay.request_stream import Lock, Requests, RequestStream


class Publisher:
    """Writes to the lake, one batch at a time. ``problem`` is the error that refused the last batch."""

    def __init__(
        self,
        lake: LakeWriter,
        requests: Requests | None,
        say: Callable[[str], None],
        tell: Callable[[str], None],
        lock: Lock | None = None,
    ) -> None:
        self.lake = lake
        self.outcome = RunOutcome(lake.end_offset, lake.end_offset)
        self.problem: JbodError | None = None
        self._say = say
        self._tell = tell
        self._lock = lock = lock or threading.RLock()
        self.requests: RequestStream | None = None
        if requests is not None:
            from pipelines.replay.request_stream import RequestStream

            self.requests = RequestStream(lake, requests, lock, self.outcome.add_rows)

    def function(self) -> Callable[[DataFrame, int], None]:
        """What foreachBatch calls."""
        return self.publish

    def look(self, *, last: bool = False) -> None:
        """Does nothing: this process publishes, so the outcome is known."""

    def publish(self, frame: DataFrame, _batch_id: int) -> None:
        """Publishes the executors' reports on one micro-batch. For foreachBatch."""
        self.publish_reports(frame.select("kind", "payload").collect())

    def publish_reports(self, reports: Sequence[tuple[str, bytes]]) -> None:
        """Publishes reports (kind, payload) of both stages on one micro-batch."""
        from pipelines.replay.collect import batch_of

        lake, outcome = self.lake, self.outcome
        try:
            level = lake.ledger["metadata_version"] if lake.ledger else -1
            batch = batch_of(lake.location, reports, level)
            if batch is None:
                return
            before, known = lake.end_offset, lake.unknown
            with self._lock:
                rows = lake.publish(batch)
                if self.requests is not None:
                    self.requests.join_waiting()
            clear_staged(lake.location)
        except JbodError as problem:
            self.problem = problem
            raise
        outcome.add_batch(before, lake.end_offset, batch.from_snapshot)
        outcome.add_rows(rows)
        for kind, offset in lake.unknown.items():
            if kind not in known:
                self._tell(unknown_kind(kind, offset))
        self._say(f"published up to offset {batch.end_offset - 1}, batch {outcome.batches}")


def unknown_kind(kind: str, offset: int) -> str:
    """The notice of the first record of an unknown kind."""
    return f"offset {offset}: {kind} is not known to this jbod: {ADVICE}"
