"""Follow mode: seconds from a record on disk to a readable row, and the CPU that waiting costs. Prints one JSON line.

``follow.py [--records N] [--idle SECONDS] [--lake LAKE --log LOG_DIR]``: appends to a log as a controller does, a
NoOpRecord every half second and a topic now and then, beside ``jbod replay --follow`` in a process of its own. With a
lake and the log that it was made of, both are copied first and the records come on top of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from jbod_model.formats.batch import write_batch
from jbod_model.formats.codec import encode
from jbod_model.formats.records import FeatureLevelRecord, NoOpRecord, Record, TopicRecord, VersionedRecord
from jbod_model.ids import Uuid
from pipelines.formats.batches import scan
from pipelines.lake.reader import Lake
from pipelines.source.log_dir import LogDir

LOG = "__cluster_metadata-0"
EVERY = 0.5


class Controller:
    """Appends to the last segment of a log."""

    def __init__(self, log_dir: Path) -> None:
        segments, _ = LogDir(str(log_dir)).files()
        path = Path(segments[-1].path)
        self._headers = headers = scan(LogDir(str(log_dir)).read(str(path), 0, segments[-1].size), str(path)).headers
        last = headers[-1] if len(headers) else None
        self.next = segments[-1].base_offset if last is None else int(last["base_offset"]) + int(last["count"])
        self._epoch = 1 if last is None else int(last["epoch"])
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def append(self, record: Record) -> int:
        """Append a batch of one record, on disk when this returns; its offset."""
        with self._lock:
            offset, self.next = self.next, self.next + 1
            value = encode(VersionedRecord(record, 0))
            now = int(time.time() * 1000)
            self._file.write(write_batch([value], base_offset=offset, epoch=self._epoch, timestamp=now))
            os.fsync(self._file.fileno())
            return offset

    def append_all(self, batches: Iterable[tuple[int, Sequence[VersionedRecord]]]) -> int:
        """Append batches (time in ms, records) with one write, on disk when this returns; the last offset."""
        with self._lock:
            parts = []
            for time_ms, records in batches:
                values = [encode(record) for record in records]
                parts.append(write_batch(values, base_offset=self.next, epoch=self._epoch, timestamp=time_ms))
                self.next += len(values)
            self._file.write(b"".join(parts))
            os.fsync(self._file.fileno())
            return self.next - 1

    def lose(self, records: int) -> int:
        """What was there when this began loses its last batches, as by an election: how many records are gone.

        The next epoch begins.
        """
        with self._lock:
            gone = self._headers[self._headers["base_offset"] > self._headers[-1]["base_offset"] - records]
            self._file.truncate(int(gone[0]["position"]))
            before, self.next = self.next, int(gone[0]["base_offset"])
            self._epoch += 1
            return before - self.next

    def idle(self, stop: threading.Event) -> None:
        """What an active controller writes while nothing happens."""
        while not stop.wait(EVERY):
            self.append(NoOpRecord())


def cpu_seconds(pid: int) -> float:
    """CPU of a process and all below it, those included that ended."""
    total, todo, tick = 0.0, [pid], os.sysconf("SC_CLK_TCK")
    while todo:
        process = todo.pop()
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
            for task in Path(f"/proc/{process}/task").iterdir():
                children += (task / "children").read_text().split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / tick
        todo += {int(child) for child in children} - {process}
    return total


def readable(lake: str) -> int:
    """The newest offset that a reader sees, -1 where there is none."""
    try:
        return Lake.open(lake).offset
    except Exception:
        return -1


def wait(lake: str, offset: int, seconds: float = 600) -> None:
    """Until a reader sees an offset. It opens the lake only after a publication: asking costs CPU that others need."""
    end, seen = time.monotonic() + seconds, ""
    while True:
        newest = max((path.name for path in Path(lake, "ledger", "_delta_log").glob("*.json")), default="")
        if newest != seen and readable(lake) >= offset:
            return
        seen = newest
        if time.monotonic() > end:
            raise SystemExit(f"offset {offset} was not readable within {seconds} s")
        time.sleep(0.05)


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20)
    parser.add_argument("--idle", type=float, default=120)
    parser.add_argument("--lake")
    parser.add_argument("--log")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        log_dir, lake = Path(scratch, "log"), str(Path(scratch, "lake"))
        if options.lake:
            shutil.copytree(options.lake, lake)
            shutil.copytree(options.log, log_dir)
        else:
            (log_dir / LOG).mkdir(parents=True)
            (log_dir / LOG / f"{0:020d}.log").touch()
        controller = Controller(log_dir)
        first = controller.append(FeatureLevelRecord(name="metadata.version", feature_level=27))
        stop = threading.Event()
        threading.Thread(target=controller.idle, args=(stop,), daemon=True).start()
        words = [sys.executable, "-m", "pipelines.cli.main", "replay", str(log_dir), "--lake", lake, "--follow"]
        following = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            wait(lake, first)
            delays = []
            for number in range(options.records):
                time.sleep(1 + number % 3)
                began = time.perf_counter()
                wait(lake, controller.append(TopicRecord(name=f"t{number}", topic_id=Uuid(77, number))))
                delays.append(time.perf_counter() - began)
            time.sleep(5)
            spent, began = cpu_seconds(following.pid), time.perf_counter()
            time.sleep(options.idle)
            share = (cpu_seconds(following.pid) - spent) / (time.perf_counter() - began)
        finally:
            stop.set()
            following.send_signal(signal.SIGINT)
            following.wait(60)
    print(
        json.dumps(
            {
                "records": len(delays),
                "medianSeconds": round(statistics.median(delays), 2),
                "worstSeconds": round(max(delays), 2),
                "idleSeconds": options.idle,
                "idleCpuPercent": round(100 * share, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
