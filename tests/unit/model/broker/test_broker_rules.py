"""The explorer names the invariants that it explores."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.paths import ROOT


def text(*folders: str) -> str:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return "\n".join(path.read_text() for path in files if path != Path(__file__))


CODE = text("jbod_model", "pipelines", "lab")


def test_invariants_that_are_explored_are_named_by_the_explorer() -> None:
    page = (ROOT / "docs" / "spec" / "invariants.md").read_text()
    listed = re.findall(r"^\| (R-INV-[0-9]+) \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    assert [int(rule.rpartition("-")[2]) for rule, _ in listed] == list(range(1, 41))
    for rule, where in listed:
        if where.startswith("explorer"):
            assert re.search(rf"{rule}\b", CODE), f"no code names {rule}"
