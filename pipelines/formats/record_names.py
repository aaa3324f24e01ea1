"""Names of record types, for the ``record_type`` column: Kafka's, and those of Raft's control records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from jbod_model.formats.control_records import CONTROL_TYPE_NAMES
from jbod_model.formats.records import API_KEYS, TYPE_NAMES
from pipelines.formats.records import CONTROL_BASE, Records


def type_names(types: np.ndarray) -> pa.Array:
    """Kafka's names of record types: dictionary<string>[n]."""
    distinct, numbers = np.unique(types, return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(numbers.astype(np.int16)), pa.array([type_name(int(one)) for one in distinct], pa.string())
    )


def type_name(number: int) -> str:
    """Kafka's name of a record type, UNKNOWN_n if it has none."""
    if number >= CONTROL_BASE:
        return CONTROL_TYPE_NAMES.get(number - CONTROL_BASE, f"UNKNOWN_CONTROL_{number - CONTROL_BASE}")
    return TYPE_NAMES[API_KEYS[number]] if number in API_KEYS else f"UNKNOWN_{number}"


def kind_of(number: int, version: int) -> str:
    """What a record is called that is not known: ``record type 35``, ``ConfigRecord version 1``."""
    return f"{API_KEYS[number].__name__} version {version}" if number in API_KEYS else f"record type {number}"


def unknown_kinds(records: Records, kept: np.ndarray, snapshot: int | None) -> dict[str, int]:
    """The kinds of records that count and are not known, each with the offset of the first (R-REC-4).

    ``snapshot``: last contained offset where they are those of a snapshot.
    """
    found: dict[str, int] = {}
    for row in np.flatnonzero(kept & ~records.known).tolist():
        kind = kind_of(int(records.types[row]), int(records.versions[row]))
        found.setdefault(kind, int(records.offsets[row]) if snapshot is None else snapshot)
    return found


def first_of(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The kinds of unknown records of several slices, each with the offset of the first."""
    first: dict[str, int] = {}
    for kinds in found:
        for kind, offset in kinds.items():
            first[kind] = min(offset, first.get(kind, offset))
    return first
