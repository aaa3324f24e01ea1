"""Packed arrays whose header is damaged."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pipelines.fold.pack import CorruptState, pack, unpack


def test_arrays_of_every_type_that_travels_come_back() -> None:
    arrays = {kind: np.zeros(3, kind) for kind in ("i1", "<i4", "<i8", "u1", "?", "<f8", "S12", "<U5")}
    copies = unpack(pack(arrays))
    assert {name: (array.dtype, array.shape) for name, array in copies.items()} == {
        name: (array.dtype, array.shape) for name, array in arrays.items()
    }


@pytest.mark.parametrize("kind", [b'"|a8"', b'"<m8"', b'"|O8"', b'"i8  "', b'"<i8,"'])
def test_array_of_no_known_type_is_corrupt_and_numpy_is_not_asked(kind: bytes) -> None:
    packed = pack({"x": np.zeros(1, "<i8")})
    damaged = packed.replace(b'"<i8"', kind)
    if len(damaged) != len(packed):
        length = int.from_bytes(packed[5:9], "little") + len(damaged) - len(packed)
        damaged = packed[:5] + length.to_bytes(4, "little") + damaged[9:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CorruptState, match="x is of no known type"):
            unpack(damaged)
