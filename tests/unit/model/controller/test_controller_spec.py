"""Every rule of the controller is in the code and in a test, and no rule is cited that is not written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SPEC = ROOT / "docs" / "spec" / "controller.md"
WRITTEN = set(re.findall(r"^\| (R-[A-Z]+-\d+) \|", SPEC.read_text("utf-8"), re.M))
AREAS = "|".join(sorted({rule.split("-")[1] for rule in WRITTEN}))
CITED = re.compile(rf"R-(?:{AREAS})-\d+")
MODEL = sorted((ROOT / "jbod_model").rglob("*.py"))
TESTS = sorted(path for path in (ROOT / "tests" / "unit" / "model").rglob("*.py") if path != Path(__file__))


def cited(files: Iterable[Path]) -> set[str]:
    return {rule for file in files for rule in CITED.findall(file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("rule", sorted(WRITTEN))
def test_controller_rule_is_implemented_and_tested(rule: str) -> None:
    assert rule in cited(MODEL), "no code names it"
    assert rule in cited(TESTS), "no test names it"


def test_controller_cited_rules_are_written() -> None:
    assert cited([*MODEL, *TESTS]) - WRITTEN == set()
