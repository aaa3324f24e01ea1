"""Kills runs on S3 at random moments: ``python -m tests.s3.crash [--kills N] [--seed S] [--spark]``, as tests.crash."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.loop import STORIES, Killer
from tests.s3.server import BUCKET, environment, served
from tests.support.paths import metadata_dir


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--story", choices=STORIES, default="rewritten", help=str(STORIES))
    parser.add_argument("--spark", action="store_true")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crash-s3-", ignore_cleanup_errors=True) as made:
        root = Path(made)
        with served(root / "s3") as proxy:
            os.environ.update(environment(proxy) | {"XDG_CACHE_HOME": str(root / "cache")})
            log = metadata_dir("kafka-3.7.2" if options.story == "rewritten" else "kafka-4.1.2")
            lakes = f"s3://{BUCKET}/crash"
            killer = Killer(log, root, options.seed, spark=options.spark, story=options.story, lakes=lakes)
            try:
                counts = killer.run(options.kills)
            except AssertionError as lie:
                print(f"\nseed {options.seed}: {lie}\n{killer.counts}", file=sys.stderr)
                return 1
    seconds = round(time.monotonic() - started)
    print(json.dumps({"story": options.story, "seed": options.seed, **vars(counts), "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
