"""Leaders and in-sync sets get one number for each distinct one, also if there are thousands."""

from __future__ import annotations

from functools import partial

import numpy as np

from pipelines.fold import changes as t
from pipelines.fold.tables import EMPTY, Lists
from pipelines.formats import arrow_arrays as arrow
from pipelines.formats.partitions import INT_LISTS, ISR

ROWS = 5_000


def changes(what: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    table = np.full((ROWS, 7), -1, np.int32)
    table[:, t.C_WHAT], table[:, t.C_BEFORE], table[:, t.C_AFTER] = what, before, after
    return table


def test_thousands_of_leaders_have_one_number_each() -> None:
    chance = np.random.default_rng(858)
    change_rows = changes(t.LEADS, chance.integers(-1, 1_500, ROWS), chance.integers(-1, 1 << 30, ROWS))
    table = change_rows.copy()
    distinct = np.array(t.number_texts(table, t.LEADS, 7, arrow.nullable).to_pylist())
    assert len(distinct) == len(set(distinct.tolist())) > 5_000
    for column in (t.C_BEFORE, t.C_AFTER):
        none = change_rows[:, column] < 0
        assert (table[none, column] == -1).all()
        assert (distinct[table[~none, column] - 7] == change_rows[~none, column]).all()


def test_hundreds_of_in_sync_sets_have_one_number_each_by_content() -> None:
    chance = np.random.default_rng(858)
    listed = [chance.integers(0, 12, size).astype(np.int32) for size in chance.integers(0, 4, 3_000)]
    sizes = np.tile(np.array([len(in_sync_set) for in_sync_set in listed], np.int32), (INT_LISTS, 1))
    starts = (np.cumsum(sizes[ISR]) - sizes).astype(np.int32)
    none = np.empty(0, np.int32)
    lists = Lists(np.concatenate(listed), starts, sizes, none, none, none)
    change_rows = changes(t.IN_SYNC, chance.integers(-9, len(listed), ROWS), chance.integers(0, len(listed), ROWS))
    table = change_rows.copy()
    distinct = t.number_texts(table, t.IN_SYNC, 3, partial(t.in_sync_sets, lists)).to_pylist()
    assert len(distinct) == len(set(distinct)) > 500
    for column in (t.C_BEFORE, t.C_AFTER):
        for reference, number in zip(change_rows[:, column].tolist(), table[:, column].tolist(), strict=True):
            if reference == EMPTY:
                assert distinct[number - 3] == b""
            elif reference < 0:
                assert number == -1
            else:
                assert distinct[number - 3] == listed[reference].tobytes()
