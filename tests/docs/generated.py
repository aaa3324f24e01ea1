"""Which pages and parts of pages are made from the code, and by which function.

A part stands between ``<!-- made from the code: NAME -->`` and ``<!-- end of NAME -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.docs import pictures
from tests.docs.columns import columns_page
from tests.docs.matrix import matrix
from tests.docs.terminal import offline_picture
from tests.support.paths import ROOT

DOCS = ROOT / "docs"

PAGES: Mapping[Path, Callable[[], str]] = {
    DOCS / "spec" / "columns.md": columns_page,
    DOCS / "offline.svg": offline_picture,
    DOCS / "spec" / "matrix.md": matrix,
}
PARTS: Mapping[str, Callable[[], str]] = {
    "decisions": pictures.decision_table,
    "move": pictures.moves_diagram,
    "replica": pictures.replica_diagram,
    "directory": pictures.directory_diagram,
    "heartbeats": pictures.heartbeats_diagram,
    "checks": pictures.checks_table,
    "other checks": pictures.other_checks_table,
}
"""Each is on one page or on several."""

_PART = re.compile(r"(<!-- made from the code: ([\w ]+) -->\n).*?(\n<!-- end of \2 -->)", re.DOTALL)


def out_of_date() -> dict[Path, str]:
    """Page -> its text as it has to be, for each page that differs."""
    pages = {path: _with_parts(path) for path in sorted(DOCS.rglob("*.md")) if path not in PAGES}
    pages |= {path: make() for path, make in PAGES.items()}
    return {path: text for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text}


def names_of_parts() -> set[str]:
    """The parts that the pages have."""
    return {name for path in DOCS.rglob("*.md") for _, name, _ in _PART.findall(path.read_text(encoding="utf-8"))}


def _with_parts(path: Path) -> str:
    return _PART.sub(lambda part: part[1] + PARTS[part[2]]() + part[3], path.read_text(encoding="utf-8"))
