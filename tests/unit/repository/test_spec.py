"""Every rule of replay and formats is in the code and in a test, and no rule is cited that is not written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SPECS = [ROOT / "docs" / "spec" / name for name in ("replay.md", "formats.md")]
AREAS = "ID|REC|REPLAY|BROKER|TOPIC|PART|MERGE|CLEAR|CONFIG|FEATURE|TXN|OFF|DRAFT|SNAP|FMT|LOG"
CITED = re.compile(rf"R-({AREAS})-(\d+)(?: to (\d+))?")
WRITTEN = {rule for spec in SPECS for rule in re.findall(r"^\| (R-[A-Z]+-\d+) \|", spec.read_text("utf-8"), re.M)}
MODULES = sorted((ROOT / "jbod_model").rglob("*.py"))
TESTS = sorted((ROOT / "tests" / "unit" / "model").rglob("test_*.py"))


def cited(files: Iterable[Path]) -> set[str]:
    """Rules that files name; "R-X-2 to 4" names three."""
    return {
        f"R-{area}-{number}"
        for file in files
        for area, first, last in CITED.findall(file.read_text(encoding="utf-8"))
        for number in range(int(first), int(last or first) + 1)
    }


@pytest.mark.parametrize("rule", sorted(WRITTEN))
def test_rule_is_implemented_and_tested(rule: str) -> None:
    assert rule in cited(MODULES), "no code names it"
    assert rule in cited(TESTS), "no test names it"


def test_cited_rules_are_written() -> None:
    assert cited([*MODULES, *TESTS]) - WRITTEN == set()
