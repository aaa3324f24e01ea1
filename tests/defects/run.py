"""Tries each known defect on Kafka's own classes, release by release, and keeps the outcomes as a fixture.

Run as ``python -m tests.defects.run`` (``make defects``). Needs Maven and a JDK 17. Writes
``tests/fixtures/golden/defects.json``: for each release, each defect's outcome ("yes", "no" or "absent") and evidence.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "defects"
OUTCOMES = HERE.parent / "fixtures" / "golden" / "defects.json"
RELEASES = ("3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.0", "4.3.1", "4.4.0")
TESTS_OF = {"4.4.0": "4.3.1"}
"""A release whose test classes are not published, and the release whose test sources stand in for them."""
MOVED = {"org.apache.kafka.common.utils.LogContext": "org.apache.kafka.common.utils.internals.LogContext"}
"""Classes that such test sources import from where the newer release no longer has them."""
CONTEXT = "org/apache/kafka/controller/ReplicationControlManagerTest.java"
SOURCES = sorted((HERE / "src").rglob("*.java"))


def tried(release: str) -> dict[str, list[str]]:
    """Each defect's outcome and evidence on the classes of this release."""
    jars, classes = BUILD / release / "libs", BUILD / release / "classes"
    tests = TESTS_OF.get(release, release)
    if not jars.is_dir():
        copy = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}")
        words = (f"-Dkafka={release}", f"-Dtests={tests}")
        subprocess.run(["mvn", "-q", "-B", "-f", HERE / "pom.xml", *words, *copy], check=True)
    sources = [*SOURCES, *([context(jars, tests)] if tests != release else [])]
    path = f"{classes}:{jars}/*"
    shutil.rmtree(classes, ignore_errors=True)
    subprocess.run(["javac", "-nowarn", "-Xlint:none", "-cp", path, "-d", classes, *sources], check=True)
    run = ["java", "-Xmx512m", "-cp", path, "org.apache.kafka.controller.Defects"]
    lines = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {name: [outcome, evidence] for name, outcome, evidence in (line.split("\t", 2) for line in lines)}


def context(jars: Path, tests: str) -> Path:
    """The source of Kafka's test context, with the imports that a newer release needs."""
    with zipfile.ZipFile(jars / f"kafka-metadata-{tests}-test-sources.jar") as archive:
        source = archive.read(CONTEXT).decode()
    for old, new in MOVED.items():
        source = source.replace(f"import {old};", f"import {new};")
    file = jars.parent / "sources" / CONTEXT
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return file


def main() -> int:
    """Exit code 0 if every defect could be tried on every release, else 1."""
    outcomes = {}
    for release in RELEASES:
        print(f"Kafka {release}", file=sys.stderr)
        outcomes[release] = tried(release)
    OUTCOMES.write_text(json.dumps(outcomes, indent=1) + "\n")
    for defect in outcomes[RELEASES[-1]]:
        print(defect, *(f"{release}: {outcomes[release][defect][0]}" for release in RELEASES), sep="  ")
    return int(
        any(outcome[0] not in ("yes", "no", "absent") for tries in outcomes.values() for outcome in tries.values())
    )


if __name__ == "__main__":
    sys.exit(main())
