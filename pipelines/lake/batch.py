"""One publication: the files of a micro-batch, and the columns of its row in the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.lake.files import DataFile


@dataclass(frozen=True)
class Batch:
    """The publication of one micro-batch: its range of offsets, the files, and the ledger's other columns."""

    start_offset: int
    end_offset: int
    epoch: int
    fingerprint: int
    end_time: int
    files: Sequence[DataFile]
    touched: frozenset[tuple[str, int]]
    metadata_version: int
    from_snapshot: int | None
    dropped: int
    log_end: int | None = None
    """The log's end offset, if it is before the lake's end."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """The kinds of records that are not known, each with the offset of the first (R-REC-4)."""
