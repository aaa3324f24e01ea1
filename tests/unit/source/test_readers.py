"""How slices are divided among the tasks of a read."""

from __future__ import annotations

import pytest

from pipelines.source.positions import Slice
from pipelines.source.readers import TASK_BYTES, parts_of


@pytest.mark.parametrize(
    ("size", "tasks", "sizes"),
    [(100, 4, [3, 3]), (100, 1, [6]), (TASK_BYTES // 3, 6, [2, 2, 2]), (TASK_BYTES, 6, [1] * 6)],
)
def test_small_slices_are_read_by_fewer_tasks(size: int, tasks: int, sizes: list[int]) -> None:
    slices = [Slice("", "log", at * size, (at + 1) * size, at, at + 1, at + 1) for at in range(6)]
    parts = parts_of(slices, tasks)
    assert [len(part.slices) for part in parts] == sizes
    assert [piece for part in parts for piece in part.slices] == slices
    assert [part.first for part in parts] == [sum(sizes[:at]) for at in range(len(sizes))]
