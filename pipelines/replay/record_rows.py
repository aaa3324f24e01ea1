"""Decoded records as rows of the ``records`` table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.formats.id_texts import id_texts
from pipelines.formats.kernels import njit
from pipelines.formats.native import copy
from pipelines.formats.nulls import nullable
from pipelines.formats.record_names import type_names
from pipelines.formats.records import Records
from pipelines.lake import tables
from pipelines.replay.slice_ids import SliceIds


@njit(cache=True, nogil=True)
def _gather(data: Any, starts: Any, sizes: Any, out: Any, ends: Any) -> None:
    fill = 0
    for i in range(len(starts)):
        copy(out, fill, data, starts[i], sizes[i])
        fill += sizes[i]
        ends[i + 1] = fill


def record_rows(records: Records, kept: np.ndarray, snapshot: int | None, named: SliceIds | None = None) -> pa.Table:
    """Rows of the records that count. ``snapshot``: the last contained offset if they are those of a snapshot."""
    named = named or SliceIds.of(records)
    rows = np.flatnonzero(kept)
    # Usually every record counts, and the columns need no selection.
    pick = slice(None) if len(rows) == len(records) else rows
    n = len(rows)
    headers, batch = records.headers, records.batch[pick]
    topics, part_row = named.topic_of[pick], named.part_row[pick]
    # The appended entry is for row -1, "none".
    partitions = np.append(records.partitions.partitions, np.int32(-1))[part_row]
    offsets, brokers = records.offsets[pick], records.broker_ids[pick]
    return pa.table(
        [
            pa.array(offsets if snapshot is None else np.full(n, snapshot, np.int64)),
            pa.array(headers["epoch"][batch]),
            pa.array(headers["timestamp"][batch] * 1000, pa.int64()).view(tables.TIME),
            pa.array(headers["base_offset"][batch]),
            type_names(records.types[pick]),
            pa.array(records.versions[pick]),
            pa.array(np.full(n, snapshot is not None)),
            pa.nulls(n, pa.int64()) if snapshot is None else pa.array(offsets),
            pa.DictionaryArray.from_arrays(nullable(topics), id_texts(named.topics)),
            pa.array(partitions, mask=part_row < 0),
            nullable(brokers),
            values_of(records, rows),
        ],
        names=tables.RECORDS.schema.names,
    )


def values_of(records: Records, rows: np.ndarray) -> pa.Array:
    """Record values of some rows: binary[n]."""
    sizes = (records.value_ends - records.value_starts)[rows]
    out = np.empty(int(sizes.sum()), np.uint8)
    ends = np.zeros(len(rows) + 1, np.int32)
    _gather(records.data, records.value_starts[rows], sizes, out, ends)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(out)])
