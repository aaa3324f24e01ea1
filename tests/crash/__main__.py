"""Kill runs of the main job at random moments: ``python -m tests.crash [--kills N] [--seed S] [--log DIR]``.

After each kill, the readable tables must be the beginning of an uninterrupted run's history, at existing versions. A
run to the end must then give the same tables, row for row. Otherwise the exit code is 1 and the lake is kept. The
counts are a line of JSON. The seed decides everything except how far a process has come when it dies.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from shutil import rmtree

from tests.crash.loop import STORIES, Killer
from tests.support.paths import metadata_dir


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="a log from offset 0 on; with a snapshot for stories that need one")
    parser.add_argument("--story", choices=STORIES, default="rewritten", help=str(STORIES))
    parser.add_argument("--without-spark", action="store_true", help="only publications and rollbacks")
    options = parser.parse_args()
    started = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="crash-"))
    log = options.log or metadata_dir("kafka-3.7.2" if options.story == "rewritten" else "kafka-4.1.2")
    killer = Killer(log, root, options.seed, spark=not options.without_spark, story=options.story)
    try:
        counts = killer.run(options.kills)
    except AssertionError as lie:
        print(f"\nseed {options.seed}, kept in {root}: {lie}\n{killer.counts}", file=sys.stderr)
        return 1
    rmtree(root)
    print(
        json.dumps(
            {"story": options.story, "seed": options.seed, **vars(counts), "seconds": round(time.monotonic() - started)}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
