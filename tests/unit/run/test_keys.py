"""The keys of shards: Spark's hash, and how evenly it spreads them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pipelines.run.stage_options import keys_of, spark_hash


def test_hash_of_numbers_is_what_spark_says() -> None:
    # SELECT hash(0), hash(1), hash(42), hash(65535)
    assert spark_hash(np.array([0, 1, 42, 65535])).tolist() == [933211791, -559580957, 29417773, -1629199920]


@pytest.mark.parametrize("partitions", range(1, 9))
@pytest.mark.parametrize("shards", [3, 17, 65])
def test_shards_of_any_two_partitions_differ_by_one_at_most(partitions: int, shards: int) -> None:
    counts = Counter((spark_hash(np.array(keys_of(shards))) % partitions).tolist())
    assert sum(counts.values()) == shards == len(set(keys_of(shards)))
    assert max(counts.values()) - min(counts.get(k, 0) for k in range(partitions)) <= 1


def test_keys_do_not_depend_on_how_many_shards_there_are() -> None:
    assert keys_of(65)[:17] == keys_of(17)
