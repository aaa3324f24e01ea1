"""The voters of a quorum, as its log names them: in a LeaderChange record or a Voters record (R-QUORUM-1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jbod_model.formats.batch import read_batch
from jbod_model.formats.control_records import LeaderChangeMessage, VotersRecord
from pipelines.formats.batches import CONTROL_BIT
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner
from pipelines.source.positions import Position

SliceIds = tuple[int, int, frozenset[int]]
"""Epoch and base offset of the batch, and the ids of the voters that it names."""


def voters_of(planner: Planner) -> SliceIds | None:
    """Returns the voters that a log names last, None if none of its segments names any."""
    found = _newest(planner)
    if found is None and planner.first_offset() >= 0:
        # The scan begins in the middle of an epoch.
        whole = Planner(planner.log)
        whole.refresh(Position(max(planner.first_offset(), 0)))
        found = _newest(whole)
    return found


def _newest(planner: Planner) -> SliceIds | None:
    for path, header in _control(planner):
        start = int(header["position"])
        voters = _named(planner.log, path, start, start + int(header["size"]))
        if voters:
            return int(header["epoch"]), int(header["base_offset"]), voters
    return None


def _control(planner: Planner) -> Iterator[tuple[str, np.ndarray]]:
    """Path and header of each control batch, the newest first."""
    for path, headers in reversed(planner.scanned()):
        for row in np.flatnonzero(headers["attributes"] & CONTROL_BIT)[::-1]:
            yield path, headers[row]


def _named(log: LogDir, path: str, start: int, end: int) -> frozenset[int]:
    batch = read_batch(log.read(path, start, end).tobytes(), 0, file=path)
    for record in reversed(batch.control if batch else ()):
        if isinstance(record, (LeaderChangeMessage, VotersRecord)):
            return frozenset(voter.voter_id for voter in record.voters)
    return frozenset()
