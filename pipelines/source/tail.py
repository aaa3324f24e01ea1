"""How far behind the log's end a reader stays. The high watermark is not on disk; an election may cut off the tail."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from jbod_model.errors import UsageError

_FORM = re.compile(r"(\d+)|(\d+(?:\.\d+)?)s")


@dataclass(frozen=True)
class Settle:
    """A batch may be read once ``records`` records follow it and one of them was appended ``seconds`` or more later.

    Both count by the log, not by the reader's clock: the same bytes always give the same end. Kafka appends a
    NoOpRecord at least every half second, so the end advances in an idle cluster, too.
    """

    records: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Settle:
        """Parses ``100`` as records, ``2s`` or ``0.5s`` as seconds. Raises UsageError for anything else."""
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise UsageError(f"--settle {text}: give a number of records (100) or of seconds (2s)")
        return cls(records=int(found[1])) if found[1] else cls(seconds=float(found[2]))

    def __str__(self) -> str:
        return f"{self.seconds}s" if self.seconds else str(self.records)

    def end(self, headers: np.ndarray, end: int) -> int:
        """Returns the offset after the last batch that may be read, or ``end`` itself if nothing is held back.

        ``headers`` (BATCH_DTYPE) are the newest batches of a log that ends at ``end``.
        """
        if not (self.records or self.seconds) or not len(headers):
            return end
        ends = headers["base_offset"] + headers["count"]
        fresh = ends > end - self.records
        if self.seconds:
            fresh |= headers["timestamp"] > headers["timestamp"].max() - self.seconds * 1000
        waiting = np.flatnonzero(fresh)
        return int(headers["base_offset"][waiting[0]]) if len(waiting) else end
