"""Kills executors at chosen moments of a run, and lists the files that they left in the lake."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.lake.tables import HISTORY
from tests.cluster.standalone import Run, Standalone, wait_for
from tests.support.tables import COMPARED

MOMENTS: Mapping[str, tuple[str, ...]] = {
    "decoding": ("records/closed-*",),
    "folding": tuple(f"{table.name}/*/open-*" for table in HISTORY),
    "keeping state": ("_checkpoint/state/0/*/*.changelog*", "_checkpoint/state/0/*/.*.changelog*"),
}
"""Moment of a micro-batch -> patterns of the files that then appear in the lake."""


@dataclass
class Killer:
    """Kills the executors of a run, and counts the kills."""

    cluster: Standalone
    lake: Path
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    """Executors killed, by moment."""

    def kill(self, run: Run, moment: str, most: int) -> None:
        """Kill up to ``most`` executors at the next such moment of a run, and wait until it publishes again.

        So no task fails four times, after which Spark would give up. A run that ends first loses no executor.
        """
        if not self._wait(run, lambda: len(self.cluster.executors()) == len(self.cluster.workers)):
            return
        if moment in MOMENTS:
            before = self._files(moment)
            if not self._wait(run, lambda: self._files(moment) - before):
                return
        else:
            time.sleep(self.chance.uniform(0, 1))
        there = self.cluster.executors()
        for executor in self.chance.sample(there, min(most, len(there))):
            with suppress(ProcessLookupError):
                os.kill(executor, signal.SIGKILL)
                self.counts[moment] += 1
        published = publications(self.lake)
        self._wait(run, lambda: publications(self.lake) > published)

    def _wait(self, run: Run, ready: Callable[[], object]) -> bool:
        wait_for("the run", lambda: ready() or not run.runs(), 600)
        return run.runs()

    def _files(self, moment: str) -> set[Path]:
        return {path for pattern in MOMENTS[moment] for path in self.lake.glob(pattern)}


def publications(lake: Path) -> int:
    """The number of commits of the ledger."""
    return len(list(lake.glob("ledger/_delta_log/*.json")))


def orphans(lake: Path) -> list[Path]:
    """Data files that no version of a table ever named."""
    return [
        path
        for table in COMPARED
        for path in lake.glob(f"{table.name}/*.parquet")
        if path.name not in _added(lake / table.name)
    ]


def _added(table: Path) -> set[str]:
    commits = (json.loads(line) for log in table.glob("_delta_log/*.json") for line in log.read_text().splitlines())
    return {action["add"]["path"] for action in commits if "add" in action}
