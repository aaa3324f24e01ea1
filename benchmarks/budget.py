"""The budget of each command: seconds and memory that it may take on a log or lake of a size, and what it takes now.

    python -m benchmarks.budget DIR [--sizes 0,200000,2000000] [--only offline] [--rounds 3] [--json]

Size 0 is the bundled log. The other logs are those of benchmarks.scale, made once in DIR (``log-SIZE``), their lakes
(``budget-SIZE``) by the row of the first replay, or by a replay that is not a row. Start-up is the time of the same
command on a log of two batches, or on its lake; work is the rest. Times are medians of whole commands on an idle
machine, memory is that of one more run. CPU is user and system time of all their processes but JVMs that outlive them.
A ratio above 1 is over the budget. Nothing fails: a machine's mood is no test.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.scale import command, prepare
from pipelines.formats.batches import scan

LOG, LAKE, NEW, LOADED, COPY = "log", "lake", "new lake", "new lake, loaded", "copy of a lake"
"""What a command is given: a log; its lake; a log and a lake to fill, through Spark or not; a copy of the lake that it
changes."""
LOAD_BYTES = "JBOD_REPLAY__LOAD_BYTES"
"""The setting by which a log of two batches is loaded, like a large one."""
BUNDLED = Path(__file__).resolve().parents[1] / "tests/fixtures/clusters/kafka-4.1.2/metadata/controller-100"
OLD = "--at-time=-1s"
"""A question about the past, whose age does not matter."""
BATCHES = 2
"""Of the log that start-up is measured on."""


@dataclass(frozen=True)
class Budget:
    """What a command may take."""

    command: str
    on: str
    size: int
    """Partitions of the log, 0 for the bundled one."""
    seconds: float
    peak_mb: int


BUDGETS = (
    Budget("offline", LOG, 0, 0.6, 300),
    Budget("offline", LOG, 200_000, 1.5, 1_000),
    Budget("offline", LOG, 2_000_000, 6, 3_000),
    Budget("replay", NEW, 0, 5, 2_000),
    Budget("replay", LOADED, 200_000, 2.5, 1_500),
    Budget("replay", LOADED, 2_000_000, 9, 3_000),
    Budget("offline", LAKE, 0, 0.5, 300),
    Budget("offline", LAKE, 200_000, 1, 500),
    Budget("offline", LAKE, 2_000_000, 1, 500),
    Budget(f"safe-to-restart 1 {OLD}", LOG, 0, 1, 300),
    Budget(f"safe-to-restart 1 {OLD}", LAKE, 200_000, 1, 600),
    Budget(f"restart-plan {OLD}", LAKE, 200_000, 10, 1_000),
    Budget("status", LAKE, 2_000_000, 1, 500),
    Budget("incidents", LAKE, 2_000_000, 3, 1_000),
    Budget("check --no-keep", LAKE, 2_000_000, 5, 1_000),
    Budget(f"report --out {tempfile.gettempdir()}/jbod-report.html", LAKE, 2_000_000, 8, 1_000),
    Budget("image", LAKE, 200_000, 1, 500),
    Budget("image", LAKE, 2_000_000, 2.5, 1_000),
    Budget("verify", LAKE, 2_000_000, 20, 6_000),
    Budget("rebuild", COPY, 2_000_000, 15, 6_000),
    Budget("optimize", COPY, 2_000_000, 8, 4_000),
)
"""In the order in which they are measured: the first row on a lake of a size fills that lake."""


@dataclass(frozen=True)
class Taken:
    """What a command took."""

    budget: Budget
    seconds: float
    start_up: float
    cpu: float
    peak_mb: int

    @property
    def ratio(self) -> float:
        """The seconds taken to those of the budget."""
        return round(self.seconds / self.budget.seconds, 2)

    def cells(self) -> list[str]:
        """A row of the table."""
        budget = self.budget
        return [
            f"jbod {budget.command}",
            budget.on,
            f"{budget.size:,}" if budget.size else "bundled",
            f"{self.seconds:.2f} s of {budget.seconds:g} s",
            f"{self.ratio:.2f}",
            f"{self.start_up:.2f} s",
            f"{max(self.seconds - self.start_up, 0):.2f} s",
            f"{self.cpu:.1f} s",
            f"{self.peak_mb:,} of {budget.peak_mb:,} MB",
        ]


HEAD = ("command", "on", "partitions", "time", "ratio", "start-up", "work", "CPU", "memory")


class Bench:
    """The logs and lakes of a run."""

    def __init__(self, folder: Path, scratch: Path, rounds: int) -> None:
        self.folder, self.scratch, self.rounds = folder, scratch, rounds
        self.tiny = tiny_log(scratch)
        self._logs: dict[int, Path] = {0: BUNDLED}
        self._start_up: dict[tuple[str, str], float] = {}

    def measure(self, budget: Budget) -> Taken:
        """Runs the command of a row, and the same where there is next to nothing to do."""
        log = self.log(budget.size)
        seconds, cpu, peak = self._median(budget, log, self.folder / f"budget-{budget.size}")
        kind = (budget.command, budget.on)
        if kind not in self._start_up:
            self._start_up[kind], *_ = self._median(budget, self.tiny, self.scratch / "tiny-lake")
        return Taken(budget, seconds, self._start_up[kind], cpu, peak)

    def log(self, size: int) -> Path:
        """The log of a size."""
        if size not in self._logs:
            self._logs[size], _ = prepare(self.folder, size)
        return self._logs[size]

    def _median(self, budget: Budget, log: Path, lake: Path) -> tuple[float, float, int]:
        taken = [self._once(budget, log, lake, sampled=False) for _ in range(self.rounds)]
        seconds, cpu = (statistics.median(run[at] for run in taken) for at in range(2))
        return seconds, cpu, self._once(budget, log, lake, sampled=True)[2]

    def _once(self, budget: Budget, log: Path, lake: Path, *, sampled: bool) -> tuple[float, float, int]:
        """Seconds, seconds of CPU, and the peak in MB if ``sampled``."""
        if budget.on in (NEW, LOADED):
            shutil.rmtree(lake, ignore_errors=True)
        elif budget.on != LOG and not lake.exists():
            command(["replay", str(log), "--lake", str(lake)])
        if budget.on == COPY:
            copy = self.scratch / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            lake = Path(shutil.copytree(lake, copy))
        given = ["--log", str(log)] if budget.on == LOG else ["--lake", str(lake)]
        if budget.on in (NEW, LOADED):
            given.insert(0, str(log))
        if budget.on == LOADED and log == self.tiny:
            os.environ[LOAD_BYTES] = "1"
        before = _cpu()
        seconds, peak, _ = command([*budget.command.split(), *given], sampled=sampled)
        os.environ.pop(LOAD_BYTES, None)
        return seconds, _cpu() - before, peak


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tiny_log(scratch: Path) -> Path:
    """A log of the first batches of the bundled one."""
    (segment,) = sorted(BUNDLED.rglob("00000000000000000000.log"))
    data = segment.read_bytes()
    last = scan(np.frombuffer(data, np.uint8), str(segment)).headers[BATCHES - 1]
    log = scratch / "log" / "__cluster_metadata-0"
    log.mkdir(parents=True)
    (log / segment.name).write_bytes(data[: int(last["position"]) + int(last["size"])])
    return log.parent


def table(taken: Sequence[Taken]) -> Iterator[str]:
    """The rows in Markdown."""
    for cells in (HEAD, ["---"] * len(HEAD), *(measurement.cells() for measurement in taken)):
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Measures every row of the sizes asked for and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default=",".join(str(size) for size in sorted({row.size for row in BUDGETS})))
    parser.add_argument("--only", default="", help="the beginning of a command")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes = {int(size) for size in options.sizes.split(",")}
    options.folder.mkdir(parents=True, exist_ok=True)
    taken = []
    with tempfile.TemporaryDirectory(prefix="jbod-budget-") as scratch:
        bench = Bench(options.folder, Path(scratch), options.rounds)
        for budget in BUDGETS:
            if budget.size in sizes and budget.command.startswith(options.only):
                taken.append(bench.measure(budget))
                print(f"| {' | '.join(taken[-1].cells())} |", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps([{**asdict(measurement), "ratio": measurement.ratio} for measurement in taken]))
    else:
        print(*table(taken), sep="\n")


if __name__ == "__main__":
    main()
