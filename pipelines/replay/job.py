"""What a replay is, as the executors need to know it. Light: every process of a query imports it."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.lake.uris import for_all
from pipelines.replay.rules import EngineRules


@dataclass(frozen=True)
class Job:
    """What both stages need to know: where the lake is, how many shards it has, which rules hold."""

    lake: str
    """Empty: a fold in this process alone, which writes nothing."""
    shards: int
    rules: EngineRules
    seeded: bool = False
    """A shard without state takes that of the checkpoint's seed (pipelines.replay.seed)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lake", self.lake and for_all(self.lake))

    @property
    def broker_shard(self) -> int:
        """Number of the broker shard."""
        return self.shards
