"""The rules of storage, broker and simulation in docs/spec: each is named by code and by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.broker_pictures import decision_table, moves_diagram

ROOT = Path(__file__).parents[4]
RULES = [
    rule
    for page in ("storage.md", "broker.md", "simulation.md")
    for rule in re.findall(r"^\| (R-[A-Z]+-[0-9]+) \|", (ROOT / "docs" / "spec" / page).read_text(), re.MULTILINE)
]


def text(*folders: str) -> str:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return "\n".join(path.read_text() for path in files if path != Path(__file__))


CODE = text("jbod_model", "pipelines")
TESTS = text("tests")


def test_rules_have_ids_of_their_own() -> None:
    assert len(RULES) == len(set(RULES)) > 70


def test_pictures_in_the_docs_are_the_tables_in_the_code() -> None:
    page = (ROOT / "docs" / "spec" / "broker.md").read_text()
    assert decision_table() in page
    assert moves_diagram() in page


def test_invariants_that_are_explored_are_named_by_the_explorer() -> None:
    page = (ROOT / "docs" / "spec" / "invariants.md").read_text()
    listed = re.findall(r"^\| (R-INV-[0-9]+) \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    assert [int(rule.rpartition("-")[2]) for rule, _ in listed] == list(range(1, 36))
    for rule, where in listed:
        if where.startswith("explorer"):
            assert re.search(rf"{rule}\b", CODE), f"no code names {rule}"


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_named_by_code_and_by_a_test(rule: str) -> None:
    assert re.search(rf"{rule}\b", CODE), f"no code names {rule}"
    assert re.search(rf"{rule}\b", TESTS), f"no test names {rule}"
