"""How time, memory and tables grow with the cluster: the same day and the same failures on lakes of several sizes.

    python -m benchmarks.scale DIR [--sizes 20000,200000,2000000] [--json]

For every size: the first replay of a log with full history; a day's records; a disk and a broker that fail, each read
by a run of its own and by one that follows; then questions, and upkeep. Logs are made once in DIR (``log-SIZE``: 100
brokers of 12 disks, 3 replicas, 20 disks failed), lakes anew. Peaks are of all processes of a command, shared pages
counted once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.follow import Controller, wait
from benchmarks.increments import DAY, broker_loss, day, disk_failure
from benchmarks.memory import Peak
from jbod_model.formats.records import TopicRecord, VersionedRecord
from jbod_model.ids import Uuid
from pipelines.lake.reader import Lake

HERE = Path(__file__).parent
SIZES = "20000,200000,2000000"
SHAPE = (100, 12, 3, 50, 256 << 20, 20)
"""Brokers, disks of each, replicas, partitions of a topic, bytes of a segment, disk failures."""
BATCH = 1_000
"""Most records of a batch, as a controller under load writes them."""
FOLLOWED = (41, 43, 47)
"""Brokers of which a disk fails while a run follows."""
PATIENCE = 100
"""Seconds in which what was appended has to be readable."""
QUESTIONS = ("offline", "offline --json", "risk", "status", "directories", "image")

UPKEEP = ("verify --by engine", "optimize", "rebuild")
REWRITTEN = 10_000
"""Records."""


@dataclass(frozen=True)
class Figure:
    """One measurement of one size."""

    size: int
    what: str
    seconds: float
    peak_mb: int = 0
    records: int = 0
    """Of the log, where some were read."""
    rows: int = 0
    bytes: int = 0

    def cell(self) -> str:
        """What was measured, in a few words."""
        if not self.seconds:
            return f"{self.rows:,} rows, {self.bytes / 1e6:.1f} MB" if self.rows else f"{self.bytes / 1e6:.1f} MB"
        return f"{self.seconds:.2f} s, {self.peak_mb:,} MB"

    def __str__(self) -> str:
        records = f" ({self.records:,} records)" if self.records else ""
        return f"{self.size:>9,}  {self.what:<42}  {self.cell()}{records}"


class Measure:
    """A log, its lake and what was measured on them."""

    def __init__(self, size: int, log: Path, lake: Path) -> None:
        self.size, self.log, self.lake = size, log, str(lake)
        self.controller = Controller(log)
        self.figures: list[Figure] = []

    def note(
        self, what: str, seconds: float, peak_mb: int = 0, records: int = 0, rows: int = 0, bytes_: int = 0
    ) -> None:
        """Keep a figure, and say it as soon as it is known."""
        figure = Figure(self.size, what, round(seconds, 2), peak_mb, records, rows, bytes_)
        self.figures.append(figure)
        print(figure, file=sys.stderr, flush=True)

    def everything(self) -> None:
        """All steps, in the order of a lake's life."""
        self.replay("first replay", self.controller.next)
        self.sizes("after the first replay")
        started = int(time.time() * 1000) - DAY
        before = self.controller.next
        self.controller.append_all((started + at, records) for at, records in day(Lake.open(self.lake)))
        self.replay("a day, read by a run of its own", self.controller.next - before)
        self.replay("a disk failed, a run of its own", self.fail_disk(31))
        for words in QUESTIONS:
            self.ask(words)
        self.replay("a broker lost, a run of its own", self.lose_broker(11))
        self.follow()
        self.ask("offline", ", two brokers lost")
        self.sizes("at the end")
        for words in UPKEEP:
            self.ask(words)
        self.rewrite_history()

    def ask(self, words: str, when: str = "") -> None:
        """A command that needs no log."""
        seconds, peak, _ = command([*words.split(), "--lake", self.lake])
        self.note(f"jbod {words}{when}", seconds, peak)

    def rewrite_history(self) -> None:
        """Another leader has a log that parts from ours: the lake is taken back to there, and goes on."""
        self.controller = Controller(self.log)
        lost = self.controller.lose(REWRITTEN)
        self.append([VersionedRecord(TopicRecord(name="rewritten", topic_id=Uuid(self.controller.next, 0)), 0)])
        self.replay("history rewritten, rolled back and continued", lost)

    def replay(self, what: str, records: int) -> None:
        """A run to the end of the log."""
        seconds, peak, output = command(["replay", str(self.log), "--lake", self.lake, "--json"])
        if json.loads(output)["end_offset"] != self.controller.next:
            raise SystemExit(f"{what}: the lake is not at the end of the log")
        self.note(what, seconds, peak, records)

    def follow(self) -> None:
        """Disks that fail and a broker that is lost while a run follows: until a reader sees the last record."""
        words = [sys.executable, "-m", "pipelines.cli.main", "replay", str(self.log), "--lake", self.lake, "--follow"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            peak = Peak(process.pid)
            peak.start()
            try:
                for number in range(2):  # it follows, and is warm; NoOpRecords alone would be let wait
                    topic = TopicRecord(name=f"awake-{number}", topic_id=Uuid(self.controller.next, number))
                    wait(self.lake, self.append([VersionedRecord(topic, 0)]), PATIENCE)
                    time.sleep(1)
                delays: list[float] = []
                lost: list[float] = []
                counts = [self.fail_disk(broker, delays) for broker in FOLLOWED]
                records = self.lose_broker(13, lost)
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(60)
        peak_mb = peak.stop()
        middle = round(statistics.median(counts))
        self.note("a disk failed, followed: median of three", statistics.median(delays), peak_mb, middle)
        self.note("a disk failed, followed: worst of three", max(delays), peak_mb, max(counts))
        self.note("a broker lost, followed", lost[0], peak_mb, records)

    def fail_disk(self, broker: int, delays: list[float] | None = None) -> int:
        """Append what the controller writes when a broker's first disk fails; how many records."""
        lake = Lake.open(self.lake)
        ((disks,),) = lake.query(f"SELECT log_dirs FROM {lake.at('brokers')} WHERE broker_id = {broker}")
        return self._append(disk_failure(lake, broker, disks[0]), delays)

    def lose_broker(self, broker: int, delays: list[float] | None = None) -> int:
        """Append what the controller writes when a broker is lost; how many records."""
        return self._append(broker_loss(Lake.open(self.lake), broker), delays)

    def _append(self, records: Sequence[VersionedRecord], delays: list[float] | None) -> int:
        last = self.append(records)
        if delays is not None:
            began = time.perf_counter()
            wait(self.lake, last, PATIENCE)
            delays.append(time.perf_counter() - began)
        return len(records)

    def append(self, records: Sequence[VersionedRecord]) -> int:
        """Append records now; the last offset."""
        now = int(time.time() * 1000)
        return self.controller.append_all((now, records[at : at + BATCH]) for at in range(0, len(records), BATCH))

    def sizes(self, when: str) -> None:
        """Rows and bytes of the tables, and bytes of the checkpoint."""
        rows = bytes_ = 0
        for name, table in sorted(Lake.open(self.lake).tables.items()):
            files = table.get_add_actions(flatten=True)
            held, size = (sum(files.column(name).to_pylist()) for name in ("num_records", "size_bytes"))
            rows, bytes_ = rows + held, bytes_ + size
            self.note(f"{name} {when}", 0, rows=held, bytes_=size)
        self.note(f"all tables {when}", 0, rows=rows, bytes_=bytes_)
        held = sum(path.stat().st_size for path in Path(self.lake, "_checkpoint").rglob("*") if path.is_file())
        self.note(f"checkpoint {when}", 0, bytes_=held)


def command(words: Sequence[str], *, sampled: bool = True) -> tuple[float, int, str]:
    """Wall-clock seconds of a whole jbod command, the peak of its processes in MB, and what it printed.

    Without ``sampled`` the peak is 0: sampling slows a command that allocates much by a third. It prints to a file: to
    take 600 MB from a pipe takes longer than to write them.
    """
    with tempfile.TemporaryFile() as out:
        started = time.perf_counter()
        with subprocess.Popen([sys.executable, "-m", "pipelines.cli.main", *words], stdout=out) as process:
            peak = Peak(process.pid)
            if sampled:
                peak.start()
            process.wait()
            seconds = time.perf_counter() - started
        if process.returncode > 1:  # 1: the answer has findings
            raise SystemExit(f"jbod {' '.join(words)} left with {process.returncode}")
        out.seek(0)
        return seconds, peak.stop() if sampled else 0, out.read().decode()


def exponent(points: Sequence[Figure], of: str) -> float | None:
    """How something grows with the number of partitions: the slope between logarithms, least squares over all sizes."""
    known = [(math.log(point.size), math.log(getattr(point, of))) for point in points if getattr(point, of)]
    return round(statistics.linear_regression(*zip(*known, strict=True)).slope, 2) if len(known) > 1 else None


def tables(figures: Sequence[Figure]) -> Iterator[str]:
    """Two tables in Markdown, a column for each size: time with memory, and the lake; then the exponents of growth."""
    sizes = sorted({figure.size for figure in figures})
    by_name: dict[str, dict[int, Figure]] = {}
    for figure in figures:
        by_name.setdefault(figure.what, {})[figure.size] = figure
    for timed in (True, False):
        grown = ["time", "memory"] if timed else ["bytes"]
        yield _row(["partitions", *(f"{size:,}" for size in sizes), *(f"{what} grows" for what in grown)])
        yield _row(["---"] * (1 + len(sizes) + len(grown)))
        for what, by_size in by_name.items():
            points = [by_size[size] for size in sizes if size in by_size]
            if bool(points[0].seconds) != timed:
                continue
            cells = [by_size[size].cell() if size in by_size else "" for size in sizes]
            units = ("seconds", "peak_mb") if timed else ("bytes",)
            yield _row([what, *cells, *(_exponents(points, unit) for unit in units)])
        yield ""


def _exponents(points: Sequence[Figure], of: str) -> str:
    """Over all sizes, and from the last but one to the last."""
    exponents = exponent(points, of), exponent(points[-2:], of)
    return "" if None in exponents else "{:.2f}, {:.2f}".format(*exponents)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def prepare(folder: Path, size: int) -> tuple[Path, Path]:
    """A log to append to, of links to one that is made once, and where its lake is to be."""
    made, log, lake = (folder / f"{kind}-{size}" for kind in ("log", "grown", "lake"))
    if not (made / ".complete").exists():
        shutil.rmtree(made, ignore_errors=True)
        build = subprocess.run([HERE / "baseline" / "build.sh"], stdout=subprocess.PIPE, text=True, check=True)
        java = ["java", "-cp", build.stdout.strip(), "jbod.MakeLog", str(made), str(size), *map(str, SHAPE)]
        subprocess.run(java, stdout=sys.stderr, check=True)
        (made / ".complete").touch()
    shutil.rmtree(lake, ignore_errors=True)
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir()
    *whole, last = sorted(made.glob("*.log"))
    for path in whole:
        os.link(path, log / path.name)
    shutil.copy(last, log)
    return log, lake


def main() -> None:
    """Measure every size, smallest first; figures as they come on standard error, all of them on standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--json", action="store_true", help="one JSON list of all figures instead")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    figures: list[Figure] = []
    for size in map(int, options.sizes.split(",")):
        measure = Measure(size, *prepare(options.folder, size))
        measure.everything()
        figures += measure.figures
    if options.json:
        print(json.dumps([asdict(figure) for figure in figures]))
    else:
        print(*tables(figures), sep="\n")


if __name__ == "__main__":
    main()
