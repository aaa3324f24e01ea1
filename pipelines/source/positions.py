"""Positions of a reader in a log, and slices: whole batches of one file that it reads next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from crc32c import crc32c

from pipelines.source.log_dir import Snapshot

SLICE_BYTES = 8 << 20


@dataclass(frozen=True)
class Position:
    """A position in a log: everything below ``offset`` is read.

    ``base``, ``epoch`` and ``crc`` are those of the batch before ``offset`` (-1, -1, 0 before the first): if they
    differ later, history was rewritten. ``snapshot`` is the end offset of the last snapshot read, -1 for none.
    """

    offset: int = -1
    base: int = -1
    epoch: int = -1
    crc: int = 0
    snapshot: int = -1


@dataclass(frozen=True)
class Slice:
    """Whole batches of one file: bytes ``[start, end)``, of which the records ``[first, last)`` count.

    ``dropped`` are the aborted transactions: offsets (begin, abort), both exclusive. ``snapshot``: the file is the
    snapshot with that end offset, and offsets are those within the file. ``snapshot_time`` is the append time of the
    last record that the snapshot contains (milliseconds). ``closes``: this is its last slice. ``fingerprint`` is that
    of the batches at planning; the worker compares it and refuses bytes that were rewritten since.
    """

    log_dir: str
    path: str
    start: int
    end: int
    first: int
    last: int
    next_offset: int
    dropped: tuple[tuple[int, int], ...] = ()
    snapshot: int = -1
    snapshot_time: int = -1
    closes: bool = False
    fingerprint: int = -1

    @property
    def snapshot_offset(self) -> int | None:
        """The last offset that the snapshot contains, None for a slice of the log."""
        return self.snapshot - 1 if self.snapshot >= 0 else None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Slice:
        """Builds a slice from its fields as parsed from JSON."""
        return cls(**{**raw, "dropped": tuple(map(tuple, raw["dropped"]))})


@dataclass(frozen=True)
class Tail:
    """The incomplete batch at the end of the log (R-LOG-5): ``size`` bytes in ``path``. Records end at ``offset``."""

    path: str
    size: int
    offset: int


def fingerprint(headers: np.ndarray) -> int:
    """CRC-32C over the offsets, epochs and checksums of batches."""
    columns = [headers[name].astype(np.int64) for name in ("base_offset", "epoch", "crc")]
    return int(crc32c(np.stack(columns).tobytes()))


def log_slices(
    log_dir: str, path: str, headers: np.ndarray, first: int, last: int, dropped: Sequence[tuple[int, int]]
) -> Iterator[Slice]:
    """Slices of a segment for the offsets ``[first, last)``. ``headers`` are those of all its batches."""
    ends = headers["base_offset"] + headers["count"]
    for rows in _runs(headers[(ends > first) & (headers["base_offset"] < last)]):
        begin, end = _bounds(rows)
        yield Slice(
            log_dir=log_dir,
            path=path,
            start=int(rows[0]["position"]),
            end=int(rows[-1]["position"]) + int(rows[-1]["size"]),
            first=max(first, begin),
            last=min(last, end),
            next_offset=begin,
            dropped=tuple((b, c) for b, c in dropped if b < end and c > begin),
            fingerprint=fingerprint(rows),
        )


def snapshot_slices(log_dir: str, snapshot: Snapshot, headers: np.ndarray, taken_at: int) -> Iterator[Slice]:
    """Slices of a whole snapshot. ``headers`` and ``taken_at`` are those of scan.batches_of."""
    runs = list(_runs(headers))
    for index, rows in enumerate(runs):
        first, last = _bounds(rows)
        yield Slice(
            log_dir=log_dir,
            path=snapshot.path,
            start=int(rows[0]["position"]),
            end=int(rows[-1]["position"]) + int(rows[-1]["size"]),
            first=first,
            last=last,
            next_offset=first,
            snapshot=snapshot.end_offset,
            snapshot_time=taken_at,
            closes=index == len(runs) - 1,
            fingerprint=fingerprint(rows),
        )


def _bounds(rows: np.ndarray) -> tuple[int, int]:
    return int(rows[0]["base_offset"]), int(rows[-1]["base_offset"]) + int(rows[-1]["count"])


def _runs(headers: np.ndarray) -> Iterator[np.ndarray]:
    """Cuts consecutive batches into runs of about SLICE_BYTES."""
    if not len(headers):
        return
    sizes = np.cumsum(headers["size"].astype(np.int64))
    cuts = np.flatnonzero(np.diff(sizes // SLICE_BYTES)) + 1
    yield from np.split(headers, cuts)
