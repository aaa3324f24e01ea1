"""Keeps Delta Lake's jars on this machine, so that sessions with Delta Lake need no network.

``make setup`` and ``jbod warm --delta`` call it.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyspark

from pipelines.spark.delta_jars import folder
from pipelines.spark.session import spark_session


def main() -> int:
    """Fetches the jars, unless they are kept already."""
    if folder().is_dir():
        return 0
    session = spark_session(delta=True)
    fetched = [Path(url2pathname(urlsplit(jar).path)) for jar in (session.conf.get("spark.jars") or "").split(",")]
    keep(fetched, Path(pyspark.__file__).parent / "jars")
    session.stop()
    return 0


def keep(jars: list[Path], of_spark: Path) -> Path:
    """Copies the jars that ``of_spark`` has in no version. Returns their folder, which is made whole or not at all."""
    brought = {_artifact(jar) for jar in of_spark.glob("*.jar")}
    there = folder()
    there.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=there.parent) as scratch:
        made = Path(scratch, "jars")
        made.mkdir()
        for jar in jars:
            if _artifact(jar) not in brought:
                shutil.copy(jar, made)
        shutil.rmtree(there, ignore_errors=True)
        made.rename(there)
    return there


def _artifact(jar: Path) -> str:
    """The name without the group that Ivy puts before it, and without version: ``delta-storage``."""
    name = jar.name
    if "_" in name and "." in name.partition("_")[0]:
        name = name.partition("_")[2]
    return re.split(r"-\d", name)[0]


if __name__ == "__main__":
    sys.exit(main())
