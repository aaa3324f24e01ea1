"""The bundled traces of Kafka's controller: the first thousand lines of each, or all with ``pytest --exhaustive``.

Every operation and every kind of fault of Kafka's occurs in these lines.
"""

from __future__ import annotations

import atexit
import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from tests.support.paths import TRACES
from tests.support.volume import amount

NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in TRACES.glob("*.jsonl.gz"))
MOST = {"seed22": 1650}
"""Lines of the sample, where a kind of fault occurs late."""
IMAGES = amount(10, 50)
"""Each trace has more images of Kafka's than this."""


def lines(name: str) -> Iterator[dict[str, Any]]:
    """The lines of a trace, up to an image."""
    yield from map(json.loads, _lines(trace_file(name)))


@cache
def trace_file(name: str) -> Path:
    """The trace as a file for readers of traces."""
    whole = TRACES / f"{name}.jsonl.gz"
    most = amount(MOST.get(name, 1000), 0)
    if not most:
        return whole
    kept = [line for line, _ in zip(_lines(whole), range(most), strict=False)]
    while json.loads(kept[-1])["op"] != "image":
        kept.pop()
    part = _folder() / f"{name}.jsonl"
    part.write_text("".join(kept), encoding="utf-8")
    return part


@cache
def _folder() -> Path:
    path = Path(mkdtemp(prefix="jbod-traces-"))
    atexit.register(rmtree, path, ignore_errors=True)
    return path


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as source:
        yield from source
