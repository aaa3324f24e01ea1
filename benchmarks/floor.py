"""``jbod replay`` of the bundled log beside the barest streaming query (benchmarks.bare_query), whole commands in turn.

Prints the medians and how many times the bare query the replay takes: of the query on Spark's defaults, and of the
query on jbod's own session with its start-up tricks, which is the stricter floor. Options: --pairs N (5). Run it on an
idle machine, after ``jbod warm``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.start_up import LOG, ROOT

BARE = ("-m", "benchmarks.bare_query")
FLOORS = {"the bare query on Spark's defaults": "plain", "the bare query on jbod's session": "jbod"}
REPLAY = "jbod replay"


def commands(scratch: Path) -> Mapping[str, Sequence[str]]:
    """What is measured, as arguments of Python. ``scratch`` must be an empty folder."""
    floors = {name: (*BARE, session, str(scratch / session)) for name, session in FLOORS.items()}
    return {REPLAY: ("-m", "pipelines.cli.main", "replay", str(LOG), "--lake", str(scratch / "lake")), **floors}


def seconds(words: Sequence[str]) -> float:
    """How long a whole command takes."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
    return taken


def round_of_all() -> Mapping[str, float]:
    """The seconds of each command, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        return {what: seconds(words) for what, words in commands(Path(name)).items()}


def table(rounds: Sequence[Mapping[str, float]]) -> list[str]:
    """Lines of a table: medians and ranges, and the median of the ratios within each round."""
    lines = ["| whole command | seconds, median and range | jbod replay takes |", "| --- | --- | --- |"]
    for what in rounds[0]:
        taken = sorted(seconds[what] for seconds in rounds)
        ratio = statistics.median(seconds[REPLAY] / seconds[what] for seconds in rounds)
        times = "" if what == REPLAY else f"{ratio:.2f} times this"
        lines.append(f"| {what} | {statistics.median(taken):.2f} ({taken[0]:.2f} to {taken[-1]:.2f}) | {times} |")
    return lines


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    round_of_all()  # so that the first round does not pay for cold files
    print("\n".join(table([round_of_all() for _ in range(pairs)])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
