"""What a fleet costs: ``jbod fleet`` on copies of a bundled cluster, through Spark, with default settings.

    python -m benchmarks.fleet DIR [--clusters 100]

Three rounds: first replays, something new in every cluster, nothing new in any. For each: seconds, and CPU seconds of
the whole machine (so it should be idle), in all and for each cluster. Spark's start is included.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from benchmarks.scale import command
from tests.support.logs import segments
from tests.support.paths import metadata_dir

CLUSTER = metadata_dir("kafka-4.1.2")
ROUNDS = (("first replay", 2), ("something new in every cluster", 3), ("nothing new", 3))
"""The name of a round, and how many segments each log has."""


def cpu_seconds() -> float:
    """The CPU time of all processes of the machine since its start: user, nice and system."""
    fields = Path("/proc/stat").read_text().split(maxsplit=4)
    return sum(map(int, fields[1:4])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Runs the rounds, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clusters", type=int, default=100)
    options = parser.parse_args()
    root, count = options.folder / "fleet", options.clusters
    shutil.rmtree(root, ignore_errors=True)
    (root / "logs").mkdir(parents=True)
    (root / "fleet.yaml").write_text("clusters: [{log: logs/*, lake: lakes/*}]\n")
    for name, most in ROUNDS:
        for number in range(count):
            segments(CLUSTER, root / "logs" / f"cluster-{number}", most=most)
        before = cpu_seconds()
        seconds, _, _ = command(["-q", "fleet", str(root / "fleet.yaml")], sampled=False)
        cpu = cpu_seconds() - before
        print(
            f"{name}, {count} clusters: {seconds:.1f} s, {cpu:.0f} s of CPU; "
            f"each {seconds / count:.2f} s, {cpu / count:.2f} s of CPU",
            flush=True,
        )


if __name__ == "__main__":
    main()
