"""What each start-up trick saves: ``jbod replay`` of the bundled log with all tricks and with all but one, in turn.

Prints a row per trick for benchmarks/README.md: the median of the paired differences in seconds. Options: --pairs N
(7), --only NAME. Run it on an idle machine, after ``jbod warm``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pipelines.start.process import TRICKS, VARIABLE

ROOT = Path(__file__).resolve().parents[1]
LOG = ROOT / "tests" / "fixtures" / "clusters" / "kafka-4.1.2" / "metadata" / "controller-100"


def seconds(tricks: Sequence[str] | bool, scratch: Path) -> float:
    """How long a first replay takes with these tricks, as a whole command."""
    lake = scratch / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    jbod: list[str | Path] = [Path(sys.executable).with_name("jbod"), "replay", LOG, "--lake", lake]
    env = os.environ | {VARIABLE: json.dumps(tricks)}
    started = time.perf_counter()
    subprocess.run(jbod, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", choices=[*TRICKS, "all"])
    options = parser.parse_args()
    chosen = [options.only] if options.only else [*TRICKS, "all"]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        seconds(True, scratch)  # so that the first pair does not pay for cold files
        print("| without | seconds with all | seconds more without it, median and range |\n| --- | --- | --- |")
        for trick in chosen:
            rest = False if trick == "all" else [other for other in TRICKS if other != trick]
            pairs = [(seconds(True, scratch), seconds(rest, scratch)) for _ in range(options.pairs)]
            more = sorted(without - having for having, without in pairs)
            having = statistics.median(pair[0] for pair in pairs)
            print(f"| `{trick}` | {having:.2f} | {statistics.median(more):+.2f} ({more[0]:+.2f} to {more[-1]:+.2f}) |")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
