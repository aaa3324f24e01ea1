"""The parameters of a replay that the executors need. Every process of a query imports this module: keep it light."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.fold.rules import EngineRules
from pipelines.lake.uris import LakeUri, for_all, home_of

VERSION = 6
"""The version of the states in a checkpoint. A run cannot use those of another version."""


@dataclass(frozen=True)
class Job:
    """The parameters of both stages: the lake's location, its number of shards, the rules."""

    lake: LakeUri
    """Empty for a fold in this process only, which writes nothing."""
    shards: int
    rules: EngineRules
    seeded: bool = False
    """Whether a shard without state takes its state from the checkpoint's seed (pipelines.run.seed)."""
    generation: int | None = None
    """The generation of rows of ``changes`` (R-EVENT-8). None: no such rows are written."""
    home: str = ""
    """Where the checkpoint is, the lake if empty."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lake", self.lake and for_all(self.lake))
        object.__setattr__(self, "home", for_all(self.home) if self.home else home_of(self.lake))

    @property
    def broker_shard(self) -> int:
        """Number of the broker shard."""
        return self.shards
