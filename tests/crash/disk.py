"""Full disks: ``python -m tests.crash.disk [--spark] [KIB...]``, as root, who may mount.

The lake is on a file system of KIB KiB. The run must end with exit code 2 and one line, and the published part must
stay whole. With more room, the next run must end with the tables of an uninterrupted run. Prints a line of JSON for
each size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from tests.crash.check import complete, readable, uninterrupted
from tests.crash.runs import forked, spark_run
from tests.support.logs import segments
from tests.support.paths import metadata_dir

SIZES = (40, 70, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", type=int, nargs="*", metavar="KIB", default=SIZES)
    parser.add_argument("--spark", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crash-") as made:
        root = Path(made)
        log = segments(metadata_dir("kafka-3.7.2"), root / "log")
        history = uninterrupted(log, root / "whole")
        disk = root / "disk"
        disk.mkdir()
        for size in options.size:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], check=True)
            try:
                code, errors = replay(log, disk / "lake", root / "said", spark=options.spark)
                assert code == 2, (code, errors)
                end = readable(disk / "lake", [history])
                subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
                code, again = replay(log, disk / "lake", root / "said", spark=options.spark)
                assert code == 0, (code, again)
                complete(disk / "lake", history)
                print(json.dumps({"KiB": size, "published": end, "said": errors.strip().splitlines()[-1]}), flush=True)
            finally:
                subprocess.run(["umount", disk], check=True)


def replay(log: Path, lake: Path, errors: Path, *, spark: bool) -> tuple[int | None, str]:
    """Exit code and standard error of a run in small micro-batches."""
    if spark:
        with spark_run(log, lake, 60) as run:
            return run.ended(600), run.errors
    process = forked(log, lake, 30, first=partial(listen, errors))
    process.join(600)
    return process.exitcode, errors.read_text()


def listen(errors: Path) -> None:
    """Standard error goes to a file."""
    os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)


if __name__ == "__main__":
    main()
