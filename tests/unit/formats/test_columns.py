"""Columns for people: texts of ids, and batches that are cut where records do not count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbod_model.ids import Uuid
from pipelines.formats.arrow_arrays import id_texts
from pipelines.source import typed
from pipelines.source.slices import read_slice
from tests.support import engine
from tests.support.paths import metadata_dir
from tests.support.volume import sampled

IDS = st.lists(st.builds(Uuid, *[st.integers(-(2**63), 2**63 - 1)] * 2))


@given(IDS)
def test_ids_of_a_column_become_the_texts_of_the_model(ids: list[Uuid]) -> None:
    column = np.frombuffer(b"".join(uuid.bytes for uuid in ids), np.uint64).reshape(-1, 2)
    texts = id_texts(column)
    texts.validate(full=True)
    assert texts.to_pylist() == [str(uuid) for uuid in ids]


@given(IDS, st.data())
def test_ids_that_are_not_given_are_null(ids: list[Uuid], data: st.DataObject) -> None:
    given_ids = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    column = np.frombuffer(b"".join(uuid.bytes for uuid in ids), np.uint64).reshape(-1, 2)
    bits = pa.py_buffer(np.packbits(np.array(given_ids, np.bool_), bitorder="little"))
    expected = [str(uuid) if there else None for uuid, there in zip(ids, given_ids, strict=True)]
    assert id_texts(column, bits).to_pylist() == expected


@pytest.mark.parametrize("most", [1, 7, 64])
@pytest.mark.parametrize("modulus", sampled([1, 2, 5, 40], 2))
def test_rows_of_records_that_count_are_the_same_however_they_are_cut(
    most: int, modulus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for piece in engine.slices(metadata_dir("kafka-4.1.2")):
        records, kept = read_slice(piece)
        whole = _rows(records, kept)
        counted = np.flatnonzero(kept)
        chosen = kept & ((np.arange(len(kept)) // 3) % modulus == 0)
        with monkeypatch.context() as patch:
            patch.setattr(typed, "BATCH_ROWS", most)
            assert _rows(records, chosen) == [row for row, at in zip(whole, counted, strict=True) if chosen[at]]


def _rows(records: Any, kept: np.ndarray) -> list[dict[str, Any]]:
    batches = list(typed.typed_batches(records, kept, None))
    for batch in batches:
        batch.validate(full=True)
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, typed.TYPED_SCHEMA).to_pylist()
    return rows
