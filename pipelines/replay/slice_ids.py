"""Numbers the ids in the records of a slice: topics, and the directories of partitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.formats.lists import number_ids
from pipelines.formats.records import Records
from pipelines.replay.events import NO_IDS


@dataclass(frozen=True)
class SliceIds:
    """For each of ``n`` records: ``part_row`` int64[n], its row among the partition records (-1: not one of them), and
    ``topic_of`` int32[n], its topic's number in ``topics`` uint64[t, 2] (-1: no topic). ``directories`` int32[*]: the
    directories of partitions in the order of the records, as numbers in ``directory_ids`` uint64[d, 2]."""

    part_row: np.ndarray
    topic_of: np.ndarray
    topics: np.ndarray
    directories: np.ndarray
    directory_ids: np.ndarray

    @classmethod
    def of(cls, records: Records) -> SliceIds:
        """Numbers the ids in all records of a slice."""
        part_row = np.full(len(records), -1, np.int64)
        part_row[records.partition_at] = np.arange(len(records.partition_at))
        of_part, topics = number_ids(records.partitions.topics, NO_IDS)
        topic_of = np.full(len(records), -1, np.int32)
        topic_of[records.partition_at] = of_part
        others = np.flatnonzero(records.topic_at >= 0)
        if len(others):
            at = records.topic_at[others][:, None] + np.arange(16)
            topic_of[others], topics = number_ids(records.data[at].view(np.uint64), topics)
        part = records.partitions
        return cls(part_row, topic_of, topics, *number_ids(part.directory_ids[: part.directory_ends[-1]], NO_IDS))
