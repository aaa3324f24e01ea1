"""docs/spec/kip.md: every statement of KIP-858 has a rule, or says why it is left out."""

from __future__ import annotations

import re

import pytest

from tests.support import rules

PAGE = rules.SPEC / "kip.md"
TEXT = PAGE.read_text(encoding="utf-8")
STATEMENTS, DIFFERENCES, CONTRADICTIONS = 91, 14, 8
LEFT_OUT = {"K-2", "K-82"}
"""Statements without any rule: more need a decision."""
ROWS = [
    (row[0], row[1], rules.RULE.findall(row[2]), row[3])
    for row in re.findall(r"^\| ([KD]-\d+) \| ([^|]+) \| ([^|]+) \| ([^|]*)\|$", TEXT, re.M)
]
# The page's sections that say what is so or shall be so, and those that say what is not done.
SECTIONS = (
    "Motivation",
    "Public interfaces",
    "Metrics, configuration, formatting",
    "Broker lifecycle management",
    "Metadata caching",
    "Handling log directory failures",
    "Replica management",
    "Intra-broker replica movement",
    "Controller",
    "Compatibility, deprecation and migration",
    "Drafts",
    "What we do not do",
)


@pytest.mark.parametrize(
    ("kind", "count"), [("K", STATEMENTS), ("D", DIFFERENCES), ("C", CONTRADICTIONS), ("F", 8)], ids=lambda each: each
)
def test_statements_are_numbered_without_a_gap(kind: str, count: int) -> None:
    assert re.findall(rf"^\| {kind}-(\d+) \|", TEXT, re.M) == [str(number) for number in range(1, count + 1)]


def test_every_row_of_a_statement_is_read() -> None:
    assert [row[0] for row in ROWS] == re.findall(r"^\| ([KD]-\d+) \|", TEXT, re.M)


@pytest.mark.parametrize("section", SECTIONS)
def test_section_of_the_page_exists(section: str) -> None:
    assert re.search(rf"^##+ {re.escape(section)}$", TEXT, re.M)


@pytest.mark.parametrize(("statement", "text", "named", "note"), ROWS, ids=[row[0] for row in ROWS])
def test_statement_has_rules_or_a_reason(statement: str, text: str, named: list[str], note: str) -> None:
    assert text.strip().endswith(".")
    if not named:
        assert statement in LEFT_OUT, "no rule does what it says"
        assert note.startswith("Left out: "), "nothing says why it is left out"
    unknown = set(named) - rules.stated_rules().keys() - rules.stated_invariants()
    assert unknown == set(), "no page states these rules"


def test_rules_of_statements_have_code_and_a_test() -> None:
    """A rule that nothing implements, or nothing tests, leaves its statements without either."""
    code = rules.first_lines([*rules.model_files(), *rules.engine_files()])
    tests = rules.first_lines(rules.files_of_tests())
    bare = {row[0]: rule for row in ROWS for rule in row[2] if rule not in code or rule not in tests}
    assert bare == {}


def test_contradictions_name_statements_and_rules() -> None:
    rows = re.findall(r"^\| (C-\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", TEXT, re.M)
    assert len(rows) == CONTRADICTIONS
    for row in rows:
        assert re.search(r"K-\d+", row[1]), f"{row[0]} names no statement"
        assert rules.RULE.findall(row[3]), f"{row[0]} has no rule"


def test_references_between_statements_lead_somewhere() -> None:
    listed = set(re.findall(r"^\| ([KDCF]-\d+) \|", TEXT, re.M))
    assert set(re.findall(r"\b[KDCF]-\d+\b", TEXT)) - listed == set()
