"""The snapshots of a metadata log: whether one is complete, and where its batches are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from jbod_model.errors import MalformedLog
from jbod_model.formats.batch import is_time, read_batch
from jbod_model.formats.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from pipelines.formats.batches import scan
from pipelines.source.log_dir import LogDir, Snapshot


def is_complete(log: LogDir, snapshot: Snapshot) -> bool:
    """Whether a snapshot ends with its footer. One without a footer is skipped, as in Kafka's loader."""
    data = log.read(snapshot.path, 0, snapshot.size)
    whole = scan(data, snapshot.path, next_offset=0)
    if not whole.complete or not len(whole.headers):
        return False
    last = whole.headers[-1]
    start = int(last["position"])
    batch = read_batch(data[start : start + int(last["size"])].tobytes(), 0, file=snapshot.path)
    return batch is not None and bool(batch.control) and type(batch.control[-1]) is SnapshotFooterRecord


def batches_of(log: LogDir, snapshot: Snapshot) -> tuple[np.ndarray, int]:
    """(headers of its batches, append time in milliseconds of the last record it contains: R-LOG-6).

    Raises MalformedLog if it does not begin with its header record or a batch has another epoch (R-LOG-7).
    """
    data = log.read(snapshot.path, 0, snapshot.size)
    headers = scan(data, snapshot.path, next_offset=0).headers
    first = read_batch(data[: int(headers[0]["size"])].tobytes(), 0, file=snapshot.path)
    if first is None or not first.control or type(first.control[0]) is not SnapshotHeaderRecord:
        raise MalformedLog(snapshot.path, 0, "the snapshot does not begin with its header record")
    if (headers["epoch"] != snapshot.epoch).any():
        raise MalformedLog(snapshot.path, 0, f"a batch is not of the snapshot's epoch {snapshot.epoch}")
    time = first.control[0].last_contained_log_timestamp
    if not is_time(time):
        raise MalformedLog(snapshot.path, 0, f"last contained log timestamp is {time}")
    return headers, time


def check_follows(snapshot: Snapshot, scanned: Iterable[tuple[str, np.ndarray]]) -> None:
    """R-LOG-5: a snapshot ends where a batch ends, and epochs do not decrease after it.

    ``scanned``: path and headers (BATCH_DTYPE) in log order. Raises MalformedLog that names the first batch that
    breaks the rule.
    """
    for path, headers in scanned:
        ends = headers["base_offset"] + headers["count"]
        for header in headers[ends > snapshot.end_offset][:1]:
            base, epoch = int(header["base_offset"]), int(header["epoch"])
            if base < snapshot.end_offset:
                raise MalformedLog(path, base, f"the snapshot ends inside this batch, at {snapshot.end_offset}")
            if epoch < snapshot.epoch:
                raise MalformedLog(path, base, f"epoch {epoch} follows epoch {snapshot.epoch} of the snapshot")
