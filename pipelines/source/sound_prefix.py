"""The sound batches at the beginning of some bytes, and the damage after them (R-READ-1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jbod_model.errors import MalformedLog
from pipelines.formats.batches import scan_sound, verify
from pipelines.source.markers import markers


@dataclass(frozen=True)
class Sound:
    """``headers`` (BATCH_DTYPE) of the sound batches and their transaction ``marks`` (offset, record type)."""

    headers: np.ndarray
    marks: list[tuple[int, int]]
    problem: MalformedLog | None
    """The damage after the sound batches, if any."""


def sound(data: np.ndarray, path: str, *, next_offset: int, epoch: int) -> Sound:
    """The sound batches at the beginning of ``data`` (uint8), the first at ``next_offset``, epochs from ``epoch`` on.

    This checks headers, checksums, transaction markers and the order of epochs. The workers check records.
    """
    batches, problem = scan_sound(data, path, next_offset=next_offset)
    headers = batches.headers
    while True:
        try:
            verify(data, headers, path)
            _check_epochs(headers, path, epoch)
            return Sound(headers, markers(data, headers, path), problem)
        except MalformedLog as found:
            problem = found
            before = headers[headers["base_offset"] + headers["count"] <= found.offset]
            headers = before if len(before) < len(headers) else headers[:0]


def _check_epochs(headers: np.ndarray, path: str, epoch: int) -> None:
    epochs = np.concatenate([[epoch], headers["epoch"]])
    back = np.flatnonzero(np.diff(epochs) < 0)
    if len(back):
        at = headers[back[0]]
        raise MalformedLog(
            path, int(at["base_offset"]), f"epoch {int(at['epoch'])} follows epoch {int(epochs[back[0]])}"
        )
