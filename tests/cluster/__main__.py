"""Kill executors and workers at random: ``python -m tests.cluster [--kills N] [--seed S]``.

A cluster of two workers replays bundled logs. In every run executors, and sometimes a whole worker, are killed until
the run ends. Its tables must equal those of the reference, row for row; otherwise the exit code is 1 and the lake is
kept. The counts are a line of JSON. In a third of the runs Spark also starts slow tasks a second time (speculation).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from shutil import rmtree

from tests.cluster.kills import MOMENTS, Killer, orphans
from tests.cluster.standalone import Run, Standalone, started
from tests.support.lakes import Reference
from tests.support.logs import read_log
from tests.support.paths import metadata_dir
from tests.support.tables import COMPARED, differences, expected_rows, rows_of

LOGS = (("kafka-3.7.2", "log"), ("kafka-4.1.2", "log"), ("kafka-4.1.2", "snapshot"))
TWICE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "20ms",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="executors")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    chance = random.Random(options.seed)
    root = Path(tempfile.mkdtemp(prefix="cluster-"))
    cluster = Standalone(root / "spark")
    counts: Counter[str] = Counter()
    try:
        cluster.start()
        while sum(counts[moment] for moment in (*MOMENTS, "at any time")) < options.kills:
            one_run(cluster, root / f"run-{counts['runs']}", chance, counts)
            print(f"\r{dict(counts)}", end="", file=sys.stderr, flush=True)
    except AssertionError as lie:
        print(f"\nseed {options.seed}, kept in {root}: {lie}\n{dict(counts)}", file=sys.stderr)
        return 1
    finally:
        cluster.stop()
    rmtree(root)
    print(json.dumps({"seed": options.seed, **counts, "seconds": round(time.monotonic() - began)}))
    return 0


def one_run(cluster: Standalone, root: Path, chance: random.Random, counts: Counter[str]) -> None:
    """A run whose executors are killed until it ends; AssertionError if its tables differ."""
    kafka, start = chance.choice(LOGS)
    source, lake = metadata_dir(kafka), root / "lake"
    words = ("--start", start, "--max-records", str(chance.choice((10, 20, 50))))
    twice = chance.random() < 1 / 3
    killer = Killer(cluster, lake, chance, counts)
    with started(Run(cluster.url, source, lake, root, *words, **(TWICE if twice else {}))) as run:
        while run.runs():
            if chance.random() < 0.1 and lake.is_dir():
                cluster.replace_worker()
                counts["workers"] += run.runs()
            killer.kill(run, chance.choice((*MOMENTS, "at any time")), chance.randint(1, len(cluster.workers)))
        run.end()
    rows, expected = rows_of(lake), expected_rows(Reference().add(read_log(source, start)))
    assert differences(rows, expected) == [], (kafka, start, differences(rows, expected))
    counts["runs"] += 1
    counts["of them with speculation"] += twice
    counts["tables compared"] += len(COMPARED)
    counts["rows compared"] += sum(map(len, rows.values()))
    counts["files in no table"] += len(orphans(lake))
    rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
