"""Names of record types, for the ``record_type`` column: Kafka's, and those of Raft's control records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from jbod_model.formats.records import API_KEYS, TYPE_NAMES
from pipelines.formats.records import CONTROL_BASE

CONTROL_NAMES = {
    0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION", 6: "KRAFT_VOTERS",
}  # fmt: skip


def type_names(types: np.ndarray) -> pa.Array:
    """Kafka's names of record types: dictionary<string>[n]."""
    distinct, numbers = np.unique(types, return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(numbers.astype(np.int16)), pa.array([type_name(int(one)) for one in distinct], pa.string())
    )


def type_name(number: int) -> str:
    """Kafka's name of a record type, UNKNOWN_n where it has none."""
    if number >= CONTROL_BASE:
        return CONTROL_NAMES.get(number - CONTROL_BASE, f"UNKNOWN_CONTROL_{number - CONTROL_BASE}")
    return TYPE_NAMES[API_KEYS[number]] if number in API_KEYS else f"UNKNOWN_{number}"
