"""Which partitions of a shard a batch touches. If they are few, only these are folded, and the others stay as they are.

A failed disk changes a few thousand partitions of two million. To fold all of them again would take most of the time
from its record to a readable row.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from pipelines.formats.lists import number_ids
from pipelines.formats.partitions import REPLICAS
from pipelines.replay.events import CHANGE, PARTITION, TOPIC, Events
from pipelines.replay.state import ShardState

_OF_ONE_PARTITION = (TOPIC, PARTITION, CHANGE)
"""Kinds of events that touch at most the partition that they name. A snapshot ends with another kind."""


def split(state: ShardState, events: Events, brokers: Collection[int]) -> tuple[ShardState, ShardState | None]:
    """Divides ``state`` into the partitions that the batch touches and the rest, in the same numbers.

    ``brokers``: those whose registration changes in the batch. The rest is None if the batch may touch all partitions,
    or touches most of them.
    """
    if not np.isin(events.kinds, _OF_ONE_PARTITION).all():
        return state, None
    chosen = _named(state, events) | _on_brokers(state, brokers)
    if 2 * np.count_nonzero(chosen) >= len(chosen):
        return state, None
    return state.take(chosen), state.take(~chosen)


def _named(state: ShardState, events: Events) -> np.ndarray:
    """The partitions that an event names: bool[P]."""
    numbers, topics = number_ids(events.topics, state.topics)
    of_partitions = np.flatnonzero(events.kinds != TOPIC)
    named = numbers[events.topic_of[of_partitions]]
    in_topic = np.zeros(len(topics), np.bool_)
    in_topic[named] = True
    # Most topics are not named, so few keys are compared.
    near = np.flatnonzero(in_topic[state.part_topic])
    chosen = np.zeros(len(state.part_topic), np.bool_)
    keys = _keys(state.part_topic[near], state.part_number[near])
    chosen[near[np.isin(keys, _keys(named, events.partitions[of_partitions]))]] = True
    return chosen


def _keys(topics: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (topics.astype(np.int64) << 32) + numbers
    return keys


def _on_brokers(state: ShardState, brokers: Collection[int]) -> np.ndarray:
    """The partitions with a replica on one of the brokers: bool[P]."""
    chosen = np.zeros(len(state.part_topic), np.bool_)
    if brokers:
        sizes = np.maximum(state.int_sizes[REPLICAS], 0)
        replicas = state.int_values[: len(state.slot_since)]
        chosen[np.repeat(np.arange(len(sizes)), sizes)[np.isin(replicas, list(brokers))]] = True
    return chosen
