"""Mutation of the specification: ``python -m lab.mutation [PACKAGE...] [--sample N] [--seed S] [--minutes M]``.

Every mutant (lab/mutation/mutants.py) is tried with the tests that run its lines: first those of its package, and of
these first the ones that noticed its neighbours; if all of them pass, those of the other packages. Prints the score of
each package, the part of the mutants that a test notices, and every mutant that survives. Survivors that no test can
notice are in survivors.toml, each with the reason. Ends with 1 if a score is below its target, if a survivor is not
judged, or if a judged one is noticed or is no longer a mutant. A run continues where the last one ended: results are in
build/mutation, and are valid as long as the module is as it was; those of survivors as long as the tests are, too.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from lab.mutation.measure import measured
from lab.mutation.mutants import Mutant, digest, mutants_of
from lab.mutation.session import SURVIVED, Trial, run_at_import, run_in_functions
from tests.support.paths import ROOT

TARGETS = {"controller": 95, "broker": 95, "replay": 95, "explore": 85}
"""Packages of jbod_model, and ``explore`` of the laboratory, with the least score, in percent."""

SOURCES = {package: f"{'lab' if package == 'explore' else 'jbod_model'}/{package}" for package in TARGETS}
OWN = {package: f"tests/{'lab' if package == 'explore' else 'unit/model'}/{package}" for package in TARGETS}
SUITE = (*OWN.values(), *(f"tests/lab/{each}" for each in ("behaviour", "conformance", "simulation")))
SURVIVED_OWN = "survived the tests of its package"
KILLED_BY = "killed by "
BUILD = ROOT / "build" / "mutation"
JUDGED = Path(__file__).with_name("survivors.toml")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="*", choices=[*TARGETS, []], help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--sample", type=int, metavar="N", help="N mutants of each package, drawn at random")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the sample")
    parser.add_argument("--only", default="", metavar="TEXT", help="only mutants of modules or functions so named")
    parser.add_argument("--minutes", type=float, metavar="M", help="begin no further mutant after this time")
    parser.add_argument("--budget", type=float, default=60, metavar="S", help="seconds of tests for each mutant")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="mutants tried at a time")
    options = parser.parse_args()
    chosen = {
        package: _chosen(package, options.only, options.sample, options.seed) for package in options.package or TARGETS
    }
    results = Results(BUILD / "results.jsonl")
    ends = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    for package, mutants in chosen.items():
        todo = [each for each in mutants if results.verdict(each) is None]
        _try(todo, (OWN[package],), results, options, ends)
    left = [each for each in chain(*chosen.values()) if results.verdict(each) == SURVIVED_OWN]
    _try(left, SUITE, results, options, ends)
    return _report(chosen, results, whole=not (options.sample or options.only or options.package))


def _chosen(package: str, only: str, sample: int | None, seed: int) -> list[Mutant]:
    mutants = [each for each in mutants_of(ROOT, SOURCES[package]) if only in f"{each.path} {each.function}"]
    if sample is not None and sample < len(mutants):
        return random.Random(f"{seed} {package}").sample(mutants, sample)
    return mutants


class Results:
    """The verdicts of this run and of earlier ones, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests = digest(*map(_text, sorted((ROOT / "tests").rglob("*.py"))))
        self.modules: dict[str, str] = {}
        self.known: dict[str, dict[str, str]] = {}
        self.load()

    def load(self) -> None:
        """Read the file again, to which other processes add."""
        if self.path.exists():
            lines = _text(self.path).splitlines()
            self.known = {each["mutant"]: each for each in map(json.loads, lines)}

    def verdict(self, mutant: Mutant) -> str | None:
        """What came of a mutant, unless the module has changed, or the tests that did not notice it."""
        record = self.known.get(mutant.key)
        if record is None or record["module"] != self._module(mutant):
            return None
        noticed = record["verdict"] not in (SURVIVED, SURVIVED_OWN)
        return record["verdict"] if noticed or record["tests"] == self.tests else None

    def killers(self) -> Killers:
        """The tests that noticed mutants so far."""
        all_killers = Killers()
        for each in self.known.values():
            if each["verdict"].startswith(KILLED_BY):
                all_killers.add(each["mutant"], each["verdict"].removeprefix(KILLED_BY))
        return all_killers

    def add(self, mutant: Mutant, verdict: str) -> None:
        """Keep a verdict."""
        record = {"mutant": mutant.key, "verdict": verdict, "module": self._module(mutant), "tests": self.tests}
        self.known[mutant.key] = record
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def _module(self, mutant: Mutant) -> str:
        if mutant.path not in self.modules:
            self.modules[mutant.path] = digest(_text(ROOT / mutant.path))
        return self.modules[mutant.path]


class Killers:
    """How often each test noticed a mutant of a function, and of a module."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, mutant: str, test: str) -> None:
        """A test noticed a mutant with this key."""
        module, _, rest = mutant.partition(" ")
        self._counts.update([(module, test), (f"{module} {rest.partition(':')[0]}", test)])

    def first(self, mutant: Mutant, tests: list[str]) -> list[str]:
        """The tests, those first that noticed mutants of the same function, then of the same module."""
        function = f"{mutant.path} {mutant.function}"
        return sorted(tests, key=lambda test: (-self._counts[function, test], -self._counts[mutant.path, test]))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _try(
    todo: list[Mutant], suite: tuple[str, ...], results: Results, options: argparse.Namespace, ends: float | None
) -> None:
    """Try mutants with the tests of ``suite``: those of their own package, or all, without those already tried."""
    if not todo or (ends is not None and time.monotonic() > ends):
        return
    known = measured(suite, [*SOURCES.values()], BUILD / "measured.json")
    everything = suite == SUITE
    killers = results.killers()
    random.Random(options.seed).shuffle(todo)  # so that a run that ends early is a sample, too
    count = 0

    def done(trial: Trial, verdict: str) -> None:
        nonlocal count
        count += 1
        if verdict == SURVIVED and not everything:
            verdict = SURVIVED_OWN
        results.add(trial.mutant, verdict)
        if verdict == SURVIVED or count % 20 == 0:
            print(f"{count} of {len(todo)}: {verdict}: {trial.mutant.key}", file=sys.stderr, flush=True)

    def trial(mutant: Mutant) -> Trial:
        within = suite if not everything else tuple(set(suite) - {OWN[mutant.path.split("/")[1]]})
        tests = [each for each in known.covering(mutant) if each.startswith(tuple(f"{folder}/" for folder in within))]
        return known.trial(mutant, killers.first(mutant, tests), options.budget)

    def in_time(of: list[Trial]) -> Iterator[Trial]:
        for each in of:
            if ends is None or time.monotonic() < ends:
                yield each

    trials = [trial(mutant) for mutant in todo]
    for each in trials:
        if not each.tests:
            done(each, SURVIVED)
    at_import = [each for each in trials if each.tests and known.on_import(each.mutant)]
    in_functions = [each for each in trials if each.tests and not known.on_import(each.mutant)]
    run_in_functions(suite, in_time(in_functions), options.jobs, done)
    run_at_import(in_time(at_import), options.jobs, done)
    results.load()


def _report(chosen: dict[str, list[Mutant]], results: Results, *, whole: bool) -> int:
    judged = {f"{each['mutant']}": each["reason"] for each in tomllib.loads(_text(JUDGED)).get("survivor", ())}
    failed = False
    for package, mutants in chosen.items():
        verdicts = {each: results.verdict(each) for each in mutants}
        tried = [each for each, verdict in verdicts.items() if verdict not in (None, SURVIVED_OWN)]
        survived = [each for each in tried if verdicts[each] == SURVIVED]
        open_ = [each for each in survived if each.key not in judged]
        noticed = [each for each in tried if each.key in judged and verdicts[each] != SURVIVED]
        score = 100 * (len(tried) - len(survived)) / max(1, len(tried))
        print(
            f"{package}: {score:.1f} % of {len(tried)} mutants are noticed (target {TARGETS[package]} %), "
            f"{len(survived)} survive, {len(survived) - len(open_)} of them judged"
            + (f"; {len(mutants) - len(tried)} not tried yet" if len(tried) < len(mutants) else "")
        )
        for each in open_:
            print(f"  survives: {each.key} (line {each.lines[0]})")
        for each in noticed:
            print(f"  is noticed, remove it from {JUDGED.name}: {each.key}")
        failed |= score < TARGETS[package] or bool(open_ or noticed)
    if whole:
        keys = {each.key for mutants in chosen.values() for each in mutants}
        for key in sorted(judged.keys() - keys):
            failed = True
            print(f"is no mutant any more, remove it from {JUDGED.name}: {key}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
