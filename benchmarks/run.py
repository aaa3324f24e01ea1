"""``make bench``: jbod and Kafka's own Java reader on the same logs, one after the other, in one run.

Options: --large adds the log of 2,000,000 partitions (8.1 million records, 750 MB); --only NAME runs one line. Logs and
lakes are made in build/bench and kept. Without Maven there is no log and no baseline: say so and leave with 2.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.memory import Peak

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "bench"
SHAPES = {"A": 200_000, "B": 2_000_000}
"""Log -> partitions. The rest: 100 brokers of 12 disks, 3 replicas, 50 partitions a topic, 20 disk failures."""


@dataclass(frozen=True)
class Line:
    """One measurement: what ran, on which log, how long, and what it is to be compared with."""

    name: str
    log: str
    seconds: float
    records: int = 0
    baseline: float | None = None
    peak_mb: int | None = None

    def __str__(self) -> str:
        speed = f"{self.records / self.seconds / 1e6:6.2f} M/s" if self.records else " " * 10
        ratio = f"{self.baseline / self.seconds:5.2f} times Kafka's" if self.baseline else " " * 19
        peak = f"{self.peak_mb:6d} MB" if self.peak_mb else ""
        return f"{self.log}  {self.name:<44} {self.seconds:8.2f} s  {speed}  {ratio}  {peak}".rstrip()


def main() -> int:
    """Run everything, print a line as it is known, and the whole as JSON into build/bench/results.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", choices=["decode", "source", "replay", "questions"])
    options = parser.parse_args()
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        print(
            "the baseline is Kafka's own classes: install Maven and a JDK 17, then run make bench again",
            file=sys.stderr,
        )
        return 2
    classes = subprocess.run([HERE / "baseline" / "build.sh"], stdout=subprocess.PIPE, text=True, check=True)
    java = ["java", "-cp", classes.stdout.strip()]
    lines: list[Line] = []
    for log in ("A", "B") if options.large else ("A",):
        folder = _log(java, log)
        for line in _measure(java, log, folder, options.only):
            print(line, flush=True)
            lines.append(line)
    (BUILD / "results.json").write_text(json.dumps([vars(line) for line in lines], indent=2) + "\n")
    return 0


def _log(java: Sequence[str], log: str) -> Path:
    folder = BUILD / f"log-{log}"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shape = [SHAPES[log], 100, 12, 3, 50, 256 << 20, 20]
        _json([*java, "jbod.MakeLog", str(folder), *map(str, shape)])
        (folder / ".complete").touch()
    return folder


def _measure(java: Sequence[str], log: str, folder: Path, only: str | None) -> Iterator[Line]:
    def wanted(name: str) -> bool:
        return only in (None, name)

    if wanted("decode"):
        theirs = _json([*java, "jbod.ReadLog", str(folder), "decode"])
        yield Line("Kafka: decode", log, theirs["totalSeconds"], theirs["records"])
        ours = _json([sys.executable, str(HERE / "decode.py"), str(folder)])
        yield Line(
            "jbod: decode into columns, one thread", log, ours["seconds"], ours["records"], theirs["totalSeconds"]
        )
    if wanted("source") or wanted("replay"):
        full = _json([*java, "jbod.ReadLog", str(folder)])
        base, records = full["totalSeconds"], full["records"]
        yield Line("Kafka: decode, replay, image, offline replicas", log, base, records, peak_mb=full["peakKb"] // 1024)
    if wanted("source"):
        ours = _json([sys.executable, str(HERE / "source.py"), str(folder), "--kafka", java[-1]])
        yield Line(
            "jbod: Spark source as a stream, noop sink", log, ours["seconds"], ours["records"], ours["kafkaSeconds"]
        )
    lake = BUILD / f"lake-{log}"
    if wanted("replay") or not (lake / "ledger").exists():
        shutil.rmtree(lake, ignore_errors=True)
        seconds, peak = _command(["replay", str(folder), "--lake", str(lake)])
        known: tuple[int, float | None] = (records, base) if wanted("replay") else (0, None)
        yield Line("jbod replay: all tables, full history", log, seconds, *known, peak)
    if wanted("questions"):
        middle = str(SHAPES[log] * 2)
        for words in (["offline"], ["offline", "--at-offset", middle], ["image"], ["image", "--at-offset", middle]):
            seconds, peak = _command([*words, "--lake", str(lake)])
            yield Line("jbod " + " ".join(words), log, seconds, peak_mb=peak)


def _json(words: Sequence[str]) -> dict[str, Any]:
    """The object that a program prints as its last line."""
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def _command(words: Sequence[str]) -> tuple[float, int]:
    """Wall-clock seconds of a whole jbod command, and the peak memory of all its processes in MB."""
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "pipelines.cli.main", *words], stdout=subprocess.DEVNULL) as process:
        peak = Peak(process.pid)
        peak.start()
        if process.wait() != 0:
            raise SystemExit(f"jbod {' '.join(words)} failed")
        seconds = time.perf_counter() - started
    return seconds, peak.stop()


if __name__ == "__main__":
    sys.exit(main())
