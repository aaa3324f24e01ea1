"""Request logs at full size: a million lines made of real ones, read by ``jbod replay --requests``.

    python -m benchmarks.requests [LINES] [--gzip]

Prints one JSON line for a quarter of the lines and one for all: seconds from start to end of the command, Java
included, and the peak memory of all its processes. Memory is flat when the two peaks are about the same.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks.memory import Peak

CLUSTER = Path(__file__).parent.parent / "tests" / "fixtures" / "clusters" / "kafka-4.1.2"
LOG = CLUSTER / "metadata" / "controller-100"
ROTATED = 100_000
"""Lines of one file."""


def lines() -> Iterator[bytes]:
    """The real lines over and over, each time of connections of their own."""
    real = gzip.decompress((CLUSTER / "requests-100.log.gz").read_bytes()).splitlines(keepends=True)
    number = 0
    while True:
        mark = b'-%d","totalTimeMs"' % number
        yield from (line.replace(b'","totalTimeMs"', mark, 1) for line in real)
        number += 1


def make(folder: Path, count: int, packed: bool) -> int:
    """Rotated files of together ``count`` lines; their size unpacked, in bytes."""
    source, size = lines(), 0
    for number, left in enumerate(range(count, 0, -ROTATED)):
        text = b"".join(islice(source, min(left, ROTATED)))
        size += len(text)
        path = folder / f"kafka-request.log.{number:03d}"
        if packed:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(text, 1))
        else:
            path.write_bytes(text)
    return size


def replay(lake: Path, *more: str) -> dict[str, object]:
    """Run the command: what it took and what it said."""
    command = [sys.executable, "-m", "pipelines.cli.main", "replay", str(LOG), "--lake", str(lake), "--json", *more]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    peak = Peak(process.pid)
    peak.start()
    out, _ = process.communicate()
    seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"jbod replay left with {process.returncode}")
    return {
        "seconds": round(seconds, 1),
        "peakMegabytes": peak.stop(),
        "requested": json.loads(out).get("requests"),
    }


def main(count: int, packed: bool) -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as scratch:
        for number in (count // 4, count):
            folder, lake = Path(scratch, f"logs-{number}"), Path(scratch, f"lake-{number}")
            folder.mkdir()
            size = make(folder, number, packed)
            replay(lake)
            done = replay(lake, "--requests", str(folder / "kafka-request.log*"))
            result = {"lines": number, "megabytes": size >> 20, "gzip": packed, **done}
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    counts = [int(word) for word in sys.argv[1:] if word.isdigit()]
    main(counts[0] if counts else 1_000_000, "--gzip" in sys.argv)
