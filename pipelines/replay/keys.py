"""The key under which Spark holds a shard's state: chosen so that its hash spreads shards evenly.

Spark chooses the task of a key by its Murmur3 hash. With shard numbers as keys, one of two tasks had nine of sixteen
shards and the other one waited. With these keys, tasks differ by one shard at most, for up to eight partitions.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

VERSION = 3
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
