"""Leaders and in-sync sets get one number for each distinct one, also after the tables of numbers have grown."""

from __future__ import annotations

import numpy as np

from pipelines.fold import changes as t

ROWS = 5_000


def changes(what: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    table = np.full((ROWS, 7), -1, np.int32)
    table[:, t.C_WHAT], table[:, t.C_BEFORE], table[:, t.C_AFTER] = what, before, after
    return table


def test_thousands_of_leaders_have_one_number_each() -> None:
    chance = np.random.default_rng(858)
    change_rows = changes(t.LEADS, chance.integers(-1, 1_500, ROWS), chance.integers(-1, 1 << 30, ROWS))
    table = change_rows.copy()
    no_sets = np.empty(0, np.int32)
    distinct = t.number_texts(table, ROWS, t.LEADS, 7, no_sets, no_sets, no_sets)
    assert len(distinct) == len(set(distinct.tolist())) > 5_000
    for column in (t.C_BEFORE, t.C_AFTER):
        none = change_rows[:, column] < 0
        assert (table[none, column] == -1).all()
        assert (distinct[table[~none, column] - 7] == change_rows[~none, column]).all()


def test_hundreds_of_in_sync_sets_have_one_number_each_by_content() -> None:
    chance = np.random.default_rng(858)
    lists = [chance.integers(0, 12, size).astype(np.int32) for size in chance.integers(0, 4, 3_000)]
    sizes = np.array([len(in_sync_set) for in_sync_set in lists], np.int32)
    starts = (np.cumsum(sizes) - sizes).astype(np.int32)
    change_rows = changes(t.IN_SYNC, chance.integers(-1, len(lists), ROWS), chance.integers(0, len(lists), ROWS))
    table = change_rows.copy()
    distinct = t.number_texts(table, ROWS, t.IN_SYNC, 3, np.concatenate(lists), starts, sizes)
    assert len(distinct) == len({tuple(lists[index]) for index in distinct}) > 500
    for column in (t.C_BEFORE, t.C_AFTER):
        for before, number in zip(change_rows[:, column].tolist(), table[:, column].tolist(), strict=True):
            assert number == -1 if before < 0 else tuple(lists[distinct[number - 3]]) == tuple(lists[before])
