"""Reads one slice of a log: bytes, checksums, frames and bodies. Records that do not count are masked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from jbod_model.errors import LogChanged, MalformedLog, ReplayViolation
from jbod_model.formats.codec import UPGRADE
from pipelines.formats.batches import scan, verify
from pipelines.formats.records import CONTROL_BASE, REPORT, Records, check_control, decode
from pipelines.source.log_dir import read_bytes
from pipelines.source.positions import Slice, fingerprint
from pipelines.source.scan import ABORT, BEGIN, END, WRITTEN_SO, snapshot_errors


def read_slice(piece: Slice, *, keep_unknown: bool = False) -> tuple[Records, np.ndarray]:
    """The records of the slice's batches, and which of them count (bool[n]): within its offsets, not aborted.

    Records of a snapshot have the append time of the last record that it contains. Raises MalformedLog that names the
    file and the offset, and LogChanged if the bytes are not those that were planned.
    """
    data, headers = _planned(piece)
    with snapshot_errors() if piece.snapshot >= 0 else _record_errors():
        check_control(data, headers, piece.path)
        if piece.snapshot_time >= 0:
            headers = headers.copy()
            headers["timestamp"] = piece.snapshot_time
        records = decode(data, headers, piece.path, keep_unknown=keep_unknown)
    kept = (records.offsets >= piece.first) & (records.offsets < piece.last)
    if piece.snapshot >= 0 and (np.isin(records.types, (BEGIN, END, ABORT)) & records.known).any():
        raise ReplayViolation(piece.snapshot - 1, f"{piece.path}: a transaction in a snapshot (R-TXN-6)")
    for begin, close in piece.dropped:
        # Raft's own records count even inside an aborted transaction.
        kept &= (records.offsets <= begin) | (records.offsets >= close) | (records.types >= CONTROL_BASE)
    return records, kept


@contextmanager
def _record_errors() -> Iterator[None]:
    """Adds to the error of a record in a sound batch what to do about it, unless it says so itself."""
    try:
        yield
    except MalformedLog as problem:
        if problem.problem.endswith((UPGRADE, REPORT)):
            raise
        raise MalformedLog(problem.file, problem.offset, f"{problem.problem}: {WRITTEN_SO}") from None


def _planned(piece: Slice) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a slice and the headers of its batches, compared with the plan."""
    try:
        data = read_bytes(piece.log_dir, piece.path, piece.start, piece.end)
        batches = scan(data, piece.path, next_offset=piece.next_offset)
        verify(data, batches.headers, piece.path)
    except MalformedLog as problem:
        if piece.snapshot >= 0:
            with snapshot_errors():
                raise
        if piece.fingerprint < 0:
            raise
        raise LogChanged(piece.path, piece.next_offset, f"not the planned batches: {problem.problem}") from None
    if batches.end != piece.end - piece.start:
        raise LogChanged(piece.path, piece.next_offset, "the file was cut off after the read was planned")
    if piece.fingerprint not in (-1, fingerprint(batches.headers)):
        raise LogChanged(piece.path, piece.next_offset, "the file was rewritten after the read was planned")
    return data, batches.headers
