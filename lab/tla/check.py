"""TLC and the explorer side by side: `python -m lab.tla.check`, or `make tla`.

The explorer says what to expect, TLC has to say the same: the number of distinct states, which properties hold and
which break, the length of the shortest counterexamples, and what each seeded bug breaks. Nothing is written down here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jbod_model.profiles import PROFILES
from lab.explore.bounds import Bounds
from lab.explore.search import Findings, explore
from lab.tla.tlc import Outcome, TlcError, configuration, run_tlc
from lab.tla.trace import TRACES, Trace
from tests.support.seeded_bugs import BUGS, seeded

CONFIGURATIONS = tuple(f"{size}-{profile}" for size in ("T1", "T2", "T3", "T4") for profile in ("kip858", "kafka"))

INVARIANTS = {2: "LeaderInSync", 9: "LeaderOnline", 31: "PlacedAsSaid", 36: "NoneLedFromDeadDisk"}
STEPS = {
    10: "FailuresMoveLeaders",
    13: "AssignmentsWritten",
    29: "UnfencedWhenAssigned",
    37: "NoSecondLog",
    39: "SwapsAsRecorded",
    40: "NoCopyBesideOffline",
}
SAFETY: dict[int, str] = {**INVARIANTS, **STEPS}
LEADS_TO = {
    "dead leader": "DeadLeaderEnds",
    "missing log": "MissingLogEnds",
    "fenced": "FencedEnds",
    "unassigned": "UnassignedEnds",
    "queue": "QueueEnds",
    "move": "MoveEnds",
    "unreported": "UnreportedEnds",
    "misplaced": "MisplacedEnds",
    "gone leader": "GoneLeaderEnds",
    "leaderless": "LeaderlessEnds",
}

# Bugs of tests/support/seeded_bugs.py that the module knows by the same name, as the constant Bug.
SEEDED = (
    "failed directories are never reported",
    "a process forgets that a directory failed",
    "a log is created and not reported",
    "a broker asks to stay fenced for ever",
    "a broker that has caught up is not ready to be unfenced",
    "no revert when the source of a move dies",
    "no revert when the target of a move dies",
    "no revert when a move is cancelled",
    "a move is withdrawn though it was told",
    "a replica is promoted without confirmation",
    "a move that has caught up is not reported",
    "a confirmation is overheard",
    "a move is allowed while a directory is offline",
    "a confirmed move never swaps",
    "LOST is refilled while a disk is offline",
    "the queue never drains",
    "what is older wins in the queue",
    "a heartbeat that reports a failure leaves the leaders",
    "a failed directory stays registered",
    "fencing leaves the leaders",
    "unfencing elects nobody",
    "a broker is never unfenced",
    "a broker is unfenced before its assignments are known",
    "a session that expires fences nobody",
    "an assignment is confirmed and not written",
    "a change of a registration leaves its directories",
    "a change of a partition leaves its directories",
)


@dataclass(frozen=True)
class Row:
    """One comparison: what was checked, what the explorer says, what TLC says."""

    checked: str
    explorer: str
    tlc: str

    @property
    def equal(self) -> bool:
        """Both say the same, and what should break does."""
        return self.explorer == self.tlc != "holds"


def bounds_of(constants: dict[str, str]) -> Bounds:
    """The same bounds for the explorer."""
    faults = constants["Faults"]
    return Bounds(
        brokers=_size(constants["Brokers"]),
        directories=_size(constants["Dirs"]),
        partitions=_size(constants["Partitions"]),
        moves=constants["Moves"] == "TRUE",
        failures='"fail"' in faults,
        crashes='"crash"' in faults,
        expiry='"expire"' in faults,
        depth=1000,
        symmetry=False,
    )


def constants_of(bounds: Bounds, profile: str, bug: str) -> dict[str, str]:
    """The same bounds for TLC."""
    faults = {"fail": bounds.failures, "crash": bounds.crashes, "expire": bounds.expiry}
    return {
        "Brokers": _numbers(1, bounds.brokers),
        "Dirs": _numbers(1, bounds.directories),
        "Partitions": _numbers(0, bounds.partitions),
        "Profile": f'"{profile}"',
        "Moves": str(bounds.moves).upper(),
        "Faults": "{" + ", ".join(f'"{fault}"' for fault, happens in faults.items() if happens) + "}",
        "Bug": f'"{bug}"',
    }


def compare_configuration(name: str, *, liveness: bool = True) -> Iterator[Row]:
    """The states of a base configuration, the properties that hold, and each that breaks."""
    constants = configuration(name)
    profile = constants["Profile"].strip('"')
    findings = explore(PROFILES[profile], replace(bounds_of(constants), liveness=liveness))
    assert findings.complete
    broken = set(findings.counterexamples) | set(findings.runs)
    lively = {key: each for key, each in LEADS_TO.items() if liveness and key not in broken}
    holding = [*(each for key, each in STEPS.items() if key not in broken), *lively.values()]
    outcome = run_tlc(
        constants,
        specification="FairSpec" if liveness else "Spec",
        invariants=[each for key, each in INVARIANTS.items() if key not in broken],
        properties=holding,
    )
    yield Row(f"{name}: distinct states", str(findings.states), str(outcome.states or "a property breaks"))
    yield from (compare_property(name, constants, key, findings) for key in SAFETY if key in broken)
    yield from (compare_property(name, constants, key, findings) for key in LEADS_TO if key in broken)


def compare_property(name: str, constants: dict[str, str], key: int | str, findings: Findings) -> Row:
    """One property that the explorer finds broken; for safety with the length of the shortest counterexample."""
    if isinstance(key, int):
        found_by = f"{len(findings.counterexamples[key].steps)} steps" if key in findings.counterexamples else "holds"
        return Row(f"{name}: R-INV-{key} {SAFETY[key]}", found_by, verdict(run_property(constants, key)))
    states = f"{findings.states} states" if key in findings.runs else "holds"
    return Row(f"{name}: {LEADS_TO[key]}", states, verdict(run_property(constants, key)))


def run_property(constants: dict[str, str], key: int | str) -> Outcome:
    """TLC with one property."""
    if isinstance(key, str):
        return run_tlc(constants, specification="FairSpec", invariants=[], properties=[LEADS_TO[key]])
    invariants = [INVARIANTS[key]] if key in INVARIANTS else []
    return run_tlc(constants, invariants=invariants, properties=[] if invariants else [STEPS[key]])


def verdict(outcome: Outcome) -> str:
    """A verdict: a leads-to is judged when all states are met, safety at the first breach."""
    if not outcome.broken:
        return "holds"
    return f"{outcome.states} states" if outcome.states else f"{outcome.steps} steps"


def compare_bug(name: str) -> Row:
    """What a seeded bug breaks, in the bounds in which the explorer's tests look for it."""
    bug = next(each for each in BUGS if each.name == name)
    safety = isinstance(bug.breaks, int)
    wanted = {key: value for key, value in bug.bounds.items() if key != "states"}
    bounds = Bounds(
        **{"brokers": 1, **wanted, "depth": 1000, "symmetry": False, "first": safety, "liveness": not safety}
    )
    with seeded(bug):
        findings = explore(PROFILES["kip858"], bounds)
    constants = constants_of(replace(bounds, moves=bounds.moves or bounds.wishes), "kip858", name)
    return compare_property(name, constants, bug.breaks, findings)


def compare_trace(trace: Trace) -> Row:
    """A real log, or a forged one: whether it is a behaviour, or the batch from which on it is none."""
    return Row(trace.name, trace.by_behaviour(), trace.by_tlc())


def rows(names: list[str], bugs: list[str], traces: Sequence[Trace]) -> Iterator[Row]:
    """Every comparison asked for."""
    for name in names:
        yield from compare_configuration(name)
    yield from map(compare_bug, bugs)
    yield from map(compare_trace, traces)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 0 where everything is equal, 1 where something differs, 2 where TLC could not be run."""
    parser = argparse.ArgumentParser(prog="python -m lab.tla.check", description=__doc__.splitlines()[0])
    parser.add_argument(
        "configurations", nargs="*", help=f"of {', '.join(CONFIGURATIONS)} (default: all, bugs and traces)"
    )
    parser.add_argument("--bugs", action="store_true", help="the seeded bugs only")
    parser.add_argument("--traces", action="store_true", help="the real logs only")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.configurations) - set(CONFIGURATIONS))
    if unknown:
        parser.error(f"no such configuration: {', '.join(unknown)}")
    everything = not (options.configurations or options.bugs or options.traces)
    names = list(CONFIGURATIONS) if everything else options.configurations
    different = 0
    print(f"{'':3}{'checked':<80}{'python -m lab explore':>18}{'TLC':>18}")
    try:
        bugs = list(SEEDED) if everything or options.bugs else []
        for row in rows(names, bugs, TRACES if everything or options.traces else ()):
            different += not row.equal
            print(f"{'' if row.equal else '!=':3}{row.checked:<80}{row.explorer:>18}{row.tlc:>18}", flush=True)
    except TlcError as failed:
        print(failed, file=sys.stderr)
        return 2
    print("all equal" if not different else f"{different} differ")
    return 1 if different else 0


def _size(value: str) -> int:
    return len(value.strip("{}").split(","))


def _numbers(first: int, count: int) -> str:
    return "{" + ", ".join(str(first + n) for n in range(count)) + "}"


if __name__ == "__main__":
    sys.exit(main())
