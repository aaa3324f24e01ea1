"""Combines the reports of both stages on one micro-batch into a batch to publish, on the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from jbod_model.errors import JbodError
from pipelines.formats.record_names import first_of
from pipelines.lake import files
from pipelines.lake.files import DataFile
from pipelines.lake.publish import Batch
from pipelines.lake.tables import BY_NAME, CHANGES
from pipelines.run.errors import first_error
from pipelines.run.reports import (
    ClosedRows,
    FileWritten,
    MetadataVersion,
    OpenRowsReplaced,
    Refusal,
    SliceRead,
    decode,
)


def batch_of(lake: str, rows: Iterable[Any], metadata_version: int) -> Batch | None:
    """Returns the batch that ``rows`` (kind, payload) report, None if nothing was read. Raises the error of a stage,
    and UsageError if a file that a stage wrote is missing.

    Closed rows that came as rows are written here: one file per table for all shards. ``metadata_version`` is the
    feature level before the batch.
    """
    written: list[DataFile] = []
    small: dict[str, list[pa.Table]] = defaultdict(list)
    replaced: set[tuple[str, int]] = set()
    slices: list[SliceRead] = []
    errors: list[JbodError] = []
    for report in (decode(kind, payload) for kind, payload in rows):
        match report:
            case Refusal():
                errors.append(report.error)
            case FileWritten():
                written.append(report.file)
            case ClosedRows():
                small[report.table].append(report.rows)
            case OpenRowsReplaced():
                replaced.add((report.table, report.shard))
            case MetadataVersion():
                metadata_version = report.level
            case SliceRead():
                slices.append(report)
    if errors:
        raise first_error(errors)
    if not slices:
        return None
    for name in sorted(small):
        rows_of_table = pa.concat_tables([part.cast(BY_NAME[name].schema) for part in small[name]])
        if name == CHANGES.name:
            rows_of_table = rows_of_table.sort_by("log_offset")
        written.append(files.write(lake, name, rows_of_table))
    files.check_there(lake, written)
    last = max(slices, key=lambda piece: (piece.end, piece.snapshot < 0))
    snapshots = [piece.snapshot for piece in slices if piece.snapshot >= 0]
    return Batch(
        start_offset=min(piece.start for piece in slices),
        end_offset=last.end,
        epoch=last.epoch,
        fingerprint=last.crc,
        end_time=last.time,
        files=[file for file in written if file.rows],
        touched=frozenset(replaced),
        metadata_version=metadata_version,
        from_snapshot=max(snapshots) if snapshots else None,
        dropped=sum(piece.dropped for piece in slices),
        unknown=first_of(piece.unknown for piece in slices),
    )
