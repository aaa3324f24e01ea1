"""``python -m tests.docs --check`` names pages that differ from the code (exit code 1); ``--write`` writes them."""

from __future__ import annotations

import argparse
import sys

from tests.docs.generated import out_of_date
from tests.docs.matrix import matrix
from tests.support.paths import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.docs", description="The generated parts of docs/.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="name pages that are out of date; exit code 1 if any is")
    what.add_argument("--write", action="store_true", help="write them anew")
    options = parser.parse_args()
    if options.check:
        stale = out_of_date()
        for path in stale:
            print(f"{path.relative_to(ROOT)} differs from the code: python -m tests.docs --write")
        return 1 if stale else 0
    while stale := out_of_date():  # the matrix names lines of pages that the first round writes
        for path, text in stale.items():
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} is written")
        matrix.cache_clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
