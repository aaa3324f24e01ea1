"""One part of a fuzzing run: mutated inputs of one target, until one of them shows a fault."""

from __future__ import annotations

import random
import resource
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutate import mutated

FUZZ_FOLDER = Path("build/fuzz")
GIB = 1 << 30


@dataclass(frozen=True)
class PartReport:
    """The number of inputs that were read, and the growth of the resident memory in MiB."""

    read: int
    added: int


def fuzz(name: str, inputs: int, seed: str, ceiling: int | None = None) -> PartReport | None:
    """Run one target on ``inputs`` mutated inputs; None if one of them shows a fault.

    ``ceiling``: MiB by which the resident memory may grow; one allocation of more than 8 GiB fails at once.
    """
    from tests.fuzz.targets import targets

    target = targets()[name]
    chance = random.Random(f"{name} {seed}")
    for good in target.seeds:
        target.run(good)
    if ceiling is not None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + 8 * GIB, resource.RLIM_INFINITY))
    before, read = _peak(), 0
    for number in range(inputs):
        data = mutated(chance, target.seeds)
        if target.repair is not None and chance.random() < 0.9:
            data = target.repair(data)
        try:
            read += target.run(data)
            if ceiling is not None and _peak() - before > ceiling:
                raise MemoryError(f"{_peak() - before} MiB more than at the start")
        except BaseException as problem:
            _keep(name, seed, number, data, problem)
            return None
    return PartReport(read, _peak() - before)


def _peak() -> int:
    """MiB that were resident at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _keep(name: str, seed: str, number: int, data: bytes, problem: BaseException) -> None:
    FUZZ_FOLDER.mkdir(parents=True, exist_ok=True)
    path = FUZZ_FOLDER / f"{name}-{seed}-{number}"
    path.write_bytes(data)
    traceback.print_exception(problem)
    print(f"{name}: input {number} of seed {seed}, kept in {path}", file=sys.stderr)
