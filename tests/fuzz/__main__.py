"""Fuzz the readers: ``python -m tests.fuzz [TARGET...] [--inputs N] [--seed S]``, a line of JSON for each target.

Every outcome must be 'read', or 'refused' with the target's one error, within the memory ceiling. The first input with
another outcome is written to build/fuzz and ends the run with exit code 1. The same seed makes the same inputs.
``--coverage SECONDS`` lets atheris (libFuzzer) choose the inputs by the branches they reach in the plain readers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.fuzz.run import FUZZ_FOLDER, fuzz

PART = 5000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="*")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ceiling", type=int, default=256, help="MiB that all inputs together may add to the memory")
    parser.add_argument("--coverage", type=int, metavar="SECONDS", help="let atheris guide one target")
    options = parser.parse_args()
    if options.coverage:
        return _guided(options.target[0], options.coverage)
    from tests.fuzz.targets import targets

    for name in options.target or targets():
        if not _all(name, options.inputs, options.seed, options.ceiling):
            return 1
    return 0


def _all(name: str, inputs: int, seed: int, ceiling: int) -> bool:
    """Run every part of a target in a separate process: memory that a library leaks ends with it."""
    started, read, added = time.monotonic(), 0, 0
    for part, at in enumerate(range(0, inputs, PART)):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            report = fresh.submit(fuzz, name, min(PART, inputs - at), f"{seed}.{part}", ceiling).result()
        if report is None:
            return False
        read, added = read + report.read, max(added, report.added)
    summary = {
        "target": name,
        "seed": seed,
        "inputs": inputs,
        "read": read,
        "refused": inputs - read,
        "addedMiB": added,
    }
    print(json.dumps({**summary, "seconds": round(time.monotonic() - started, 1)}), flush=True)
    return True


def _guided(name: str, seconds: int) -> int:
    import atheris

    with atheris.instrument_imports(include=["jbod_model", "pipelines.formats"]):
        from tests.fuzz.targets import targets

        target = targets()[name]
    corpus = FUZZ_FOLDER / f"corpus-{name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, good in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(good)

    def run_input(data: bytes) -> None:
        target.run(data if target.repair is None else target.repair(data))

    limits = [f"-max_total_time={seconds}", "-rss_limit_mb=4096", f"-artifact_prefix={FUZZ_FOLDER}/{name}-"]
    atheris.Setup([sys.argv[0], *limits, str(corpus)], run_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
