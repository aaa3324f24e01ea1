"""Warm micro-batches onto a large lake: the last records of a log, a thousand at a time. Prints one JSON line."""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pipelines.formats.batches import scan
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from pipelines.source.log_dir import LogDir
from pipelines.spark.session import spark_session

TAIL = 25_000
BATCH = 1_000


def cut(log_dir: str, out: Path, keep: int) -> None:
    """Copy a log up to about ``keep`` records before its end."""
    segments = LogDir(log_dir).files()[0]
    for segment in segments[:-1]:
        shutil.copy(segment.path, out)
    data = LogDir(log_dir).read(segments[-1].path, 0, segments[-1].size)
    headers = scan(data, segments[-1].path).headers
    end = int(headers[-1]["base_offset"]) + int(headers[-1]["count"])
    last = int((headers["base_offset"] <= end - keep).sum()) - 1
    (out / Path(segments[-1].path).name).write_bytes(data[: int(headers[last]["position"])].tobytes())


def run(log_dir: str) -> dict[str, float]:
    """Seconds between one publication and the next, over the tail of the log."""
    spark = spark_session()
    with tempfile.TemporaryDirectory() as scratch:
        part, lake = Path(scratch, "log"), str(Path(scratch, "lake"))
        part.mkdir()
        cut(log_dir, part, TAIL)
        Runner(Replay(str(part), lake)).run(spark)
        for path in Path(log_dir).glob("*.log"):
            shutil.copy(path, part)
        stamps: list[float] = []

        def note(line: str) -> None:
            if line.startswith("published"):
                stamps.append(time.perf_counter())

        Runner(Replay(str(part), lake, max_records=BATCH), progress=note).run(spark)
    gaps = [after - before for before, after in itertools.pairwise(stamps[2:])]
    return {
        "batches": len(gaps),
        "medianSeconds": round(statistics.median(gaps), 2),
        "worstSeconds": round(max(gaps), 2),
    }


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))
