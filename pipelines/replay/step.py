"""The result of one batch in a shard."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipelines.formats.kernels import njit
from pipelines.formats.lists import take_lists, zeros
from pipelines.formats.partitions import REPLICAS
from pipelines.replay.fold_columns import Lists
from pipelines.replay.offline import Timeline
from pipelines.replay.state import Moments, ShardState


@dataclass(frozen=True)
class Step:
    """The result of one batch in a shard, as tables of numbers that pipelines.replay.rows turns into Arrow.

    ``versions`` int32[h, 14]: every version of a partition that was current during the batch; ``slots`` int32[s, 7]
    likewise for assignments, ``intervals`` int64[o, 7] for offline replicas. List references point into ``lists``, FROM
    and TO of versions and slots into ``moments``. ``version_rows`` and ``slot_rows`` are (ended rows, open rows). A row
    that begins and ends at the same offset, as when a snapshot repeats a record, is in neither. ``parts`` int32[p, 8].
    The first ``old`` versions and ``old_slots`` slots were there before the batch. ``batches`` int64: the base offset
    of the batch of each moment, -1 for those of the state.
    """

    state: ShardState
    topics: np.ndarray
    topic_names: list[bytes]
    directory_ids: np.ndarray
    parts: np.ndarray
    versions: np.ndarray
    version_rows: tuple[np.ndarray, np.ndarray]
    slots: np.ndarray
    slot_rows: tuple[np.ndarray, np.ndarray]
    intervals: np.ndarray
    moments: Moments
    lists: Lists
    absent_directory: int
    old: int
    old_slots: int
    batches: np.ndarray
    timeline: Timeline

    @cached_property
    def _known_offsets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Offsets of the batch's events and broker changes, ascending; their batches; whether they are a snapshot's."""
        new = self.batches >= 0
        steps = self.timeline.offsets >= 0
        offsets = np.concatenate([self.moments.offsets[new], self.timeline.offsets[steps]])
        order = np.argsort(offsets, kind="stable")
        batches = np.concatenate([self.batches[new], self.timeline.batches[steps]])
        snapshot = np.concatenate([self.moments.snapshot[new], self.timeline.snapshot[steps]])
        return offsets[order], batches[order], snapshot[order]

    @property
    def first_offset(self) -> int:
        """The first offset of the batch at which a record changed this shard or a broker, or one beyond all."""
        offsets, _, _ = self._known_offsets
        return int(offsets[0]) if len(offsets) else np.iinfo(np.int64).max

    def batches_at(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For offsets of the batch: base offset of their batch of the log, and whether a snapshot is their witness."""
        known, batches, snapshot = self._known_offsets
        at = np.searchsorted(known, offsets)
        return batches[at], snapshot[at]

    @cached_property
    def _used(self) -> list[bool]:
        """For each int list column, whether any row has a value."""
        return [bool(sizes.max(initial=0) > 0) for sizes in self.lists.sizes]

    def int_lists(self, slot: int, references: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Int list ``slot`` at the given references: (values int32, ends int32)."""
        # In most clusters, most of the six columns are empty.
        if not self._used[slot]:
            return np.empty(0, np.int32), zeros(len(references) + 1)
        return take_lists(self.lists.values, self.lists.starts[slot], self.lists.sizes[slot], references)

    def directory_lists(self, references: np.ndarray, replicas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Directory numbers by the references of both lists, absent ones filled in: (numbers, ends), int32."""
        lists = self.lists
        counts = np.maximum(np.where(replicas >= 0, lists.sizes[REPLICAS][replicas], 0), 0)
        filled, ends = fill_absent(
            lists.directories, lists.directory_starts, lists.directory_sizes, references, counts, self.absent_directory
        )
        return filled, ends


@njit(cache=True, nogil=True)
def fill_absent(numbers: Any, starts: Any, sizes: Any, references: Any, counts: Any, absent_directory: int) -> Any:
    """Lists of directories by reference, absent ones filled in: (values, ends). ``counts``: the length of each."""
    ends = np.empty(len(references) + 1, np.int32)
    ends[0] = 0
    for i in range(len(references)):
        ends[i + 1] = ends[i] + (counts[i] if references[i] < 0 else sizes[references[i]])
    filled = np.empty(ends[-1], np.int32)
    for i in range(len(references)):
        for k in range(ends[i + 1] - ends[i]):
            absent = references[i] < 0
            filled[ends[i] + k] = absent_directory if absent else numbers[starts[references[i]] + k]
    return filled, ends
