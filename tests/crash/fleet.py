"""Kills runs of a fleet at random moments: ``python -m tests.crash.fleet [--kills N] [--seed S] [--spark]``.

After each kill, every lake must be the beginning of the history of its log. After a run to the end, every lake must
equal that of a lone replay, row for row. Without ``--spark``, the logs are loaded. Prints the counts as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from shutil import copy, rmtree

from tests.crash.check import complete, readable, uninterrupted
from tests.crash.loop import LOG, until
from tests.support.logs import segments
from tests.support.paths import ROOT, metadata_dir

NAMES = ("a", "b", "c")
BATCHES = (30, 100, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spark", action="store_true")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    counts = {"kills": 0, "ended_first": 0, "published": 0, "compared": 0}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crash-", ignore_cleanup_errors=True) as made:
        root = Path(made)
        source = segments(metadata_dir("kafka-3.7.2"), root / "source")
        history = uninterrupted(source, root / "whole")
        (root / "fleet.yaml").write_text("clusters: [{log: logs/*, lake: lakes/*}]\n")
        seconds = 60.0 if options.spark else 10.0
        while counts["kills"] < options.kills:
            for name in NAMES:
                until(source, chance.randrange(50, history.end), root / "logs" / name)
            for part in ("begun", "grown"):
                if part == "grown":
                    for name in NAMES:
                        for path in (source / LOG).glob("*.log"):
                            copy(path, root / "logs" / name / LOG)
                for _ in range(chance.randint(1, 5)):
                    if counts["kills"] == options.kills:
                        break
                    before = [readable(root / "lakes" / name, [history]) for name in NAMES]
                    started = time.monotonic()
                    with run(root, chance.choice(BATCHES), spark=options.spark) as process:
                        code = ended(process, chance.uniform(0, 1.2 * seconds))
                        if code is None:
                            os.killpg(process.pid, signal.SIGKILL)
                            process.wait()
                    if code is not None:
                        assert code == 0, code
                        counts["ended_first"] += 1
                        break
                    counts["kills"] += 1
                    after = [readable(root / "lakes" / name, [history]) for name in NAMES]
                    assert all(end >= known for end, known in zip(after, before, strict=True)), (before, after)
                    counts["published"] += after != before
                    print(f"\r{counts}", end="", file=sys.stderr, flush=True)
            started = time.monotonic()
            with run(root, 1000, spark=options.spark) as process:
                assert ended(process, 1200) == 0
            seconds = time.monotonic() - started
            for name in NAMES:
                complete(root / "lakes" / name, history)
                counts["compared"] += 1
            rmtree(root / "lakes")
            rmtree(root / "logs")
    print(json.dumps({**counts, "spark": options.spark, "seconds": round(time.monotonic() - began)}))


def run(root: Path, most: int, *, spark: bool) -> subprocess.Popen[bytes]:
    """A run of the fleet in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli.main", "fleet", root / "fleet.yaml"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ
        | {
            "PYSPARK_PYTHON": sys.executable,
            "JBOD_REPLAY__MAX_RECORDS": str(most),
            "JBOD_REPLAY__LOAD_BYTES": "0" if spark else "1",
            "JBOD_SPARK__MASTER": "local[2]",
            "JBOD_SPARK__DRIVER_MEMORY": "1g",
            "JBOD_SPARK__CONF": '{"spark.sql.shuffle.partitions": 2}',
        },
    )


def ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Its exit code, None if it still runs after that time."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    main()
