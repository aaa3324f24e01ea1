"""Columnar decode of a log on one thread: read, CRC, frames, bodies into columns. Prints one JSON line."""

from __future__ import annotations

import json
import sys
import time

from pipelines.formats.batches import scan, verify
from pipelines.formats.partitions import INT_LISTS
from pipelines.formats.records import decode
from pipelines.source.log_dir import LogDir

CHUNK = 2 << 20


def run(log_dir: str) -> dict[str, float]:
    """Decode every segment; the columns of each chunk are made and dropped."""
    log = LogDir(log_dir)
    records = lists = 0
    started = time.perf_counter()
    for segment in log.files()[0]:
        at = 0
        while at < segment.size:
            data = log.read(segment.path, at, min(at + CHUNK, segment.size))
            batches = scan(data, segment.path)
            verify(data, batches.headers, segment.path)
            columns = decode(data, batches.headers, segment.path)
            records += len(columns)
            lists += int(columns.partitions.int_ends[:INT_LISTS, -1].sum())
            at += batches.end
    seconds = time.perf_counter() - started
    return {"records": records, "seconds": round(seconds, 3), "perSecond": round(records / seconds)}


if __name__ == "__main__":
    run(sys.argv[1])  # the kernels and the page cache are warm for the run that counts
    print(json.dumps(run(sys.argv[1])))
