"""The parameters of a replay that the executors need. Every process of a query imports this module: keep it light."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pipelines.fold.rules import EngineRules
from pipelines.lake.uris import LakeUri, for_all, home_of

VERSION = 5
"""The version of keys and states in a checkpoint. A run cannot use those of another version."""
_EVEN = 840
"""Divisible by every number up to eight."""
_CANDIDATES = 1 << 16
_SEED = 42


def spark_hash(numbers: np.ndarray) -> np.ndarray:
    """Spark's hash of ints (Murmur3Hash with its seed): int32[n]."""
    mixed = _turned(numbers.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    word = _turned(np.uint32(_SEED) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    word ^= np.uint32(4)
    word = (word ^ (word >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    word = (word ^ (word >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (word ^ (word >> np.uint32(16))).view(np.int32)


def _turned(words: np.ndarray, bits: int) -> np.ndarray:
    turned: np.ndarray = (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
    return turned


@lru_cache(maxsize=4)
def keys_of(shards: int) -> tuple[int, ...]:
    """Keys of the shards 0 to ``shards`` - 1: the smallest numbers whose hash modulo 840 is the shard modulo 840."""
    places = spark_hash(np.arange(_CANDIDATES)) % _EVEN
    return tuple(int(np.flatnonzero(places == shard % _EVEN)[shard // _EVEN]) for shard in range(shards))


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
