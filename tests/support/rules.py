"""The rules of docs/spec: the place of each, and the places in code, tests and pages that cite it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

SPEC = ROOT / "docs" / "spec"
MATRIX = SPEC / "matrix.md"
RULE = re.compile(r"\bR-[A-Z]+-\d+\b")
ABBREVIATED = re.compile(r"\bR-[A-Z]+-(?:\*|\d+(?:,? (?:to|and|or) \d|, \d))")


@dataclass(frozen=True)
class Rule:
    """A row of a page of docs/spec: its id, what it says, its sources and the KIP's words, page and line."""

    id: str
    text: str
    source: str
    page: str
    line: int


def stated_rules() -> dict[str, Rule]:
    """Every rule of docs/spec by its id, without invariants; ValueError if two rows have the same id."""
    rules: dict[str, Rule] = {}
    for page in sorted(SPEC.glob("*.md")):
        if page.name in ("matrix.md", "invariants.md", "kip.md"):
            continue
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            row = re.match(r"\| (R-[A-Z]+-\d+) \| (.*) \| (.*) \|$", line)
            if row is None:
                continue
            if row[1] in rules:
                raise ValueError(f"{page.name}:{number}: {row[1]} is stated in {rules[row[1]].page} already")
            rules[row[1]] = Rule(row[1], row[2], row[3], page.name, number)
    return rules


def stated_invariants() -> set[str]:
    """Ids of the rows of docs/spec/invariants.md."""
    text = (SPEC / "invariants.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| (R-INV-\d+) \|", text, re.M))


def first_lines(paths: Iterable[Path]) -> dict[str, dict[str, int]]:
    """Rule id -> path relative to the root -> the first line that cites the id."""
    citations: dict[str, dict[str, int]] = {}
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for rule in RULE.findall(line):
                citations.setdefault(rule, {}).setdefault(name, number)
    return citations


def model_files() -> list[Path]:
    """Python files of the executable specification and of its laboratory."""
    return [path for tree in ("jbod_model", "lab") for path in (ROOT / tree).rglob("*.py")]


def engine_files() -> list[Path]:
    """Python files of the engine."""
    return [*(ROOT / "pipelines").rglob("*.py")]


def files_of_tests() -> list[Path]:
    """Python files of the tests, without those about this repository's own pages."""
    return [
        path for path in (ROOT / "tests").rglob("*.py") if path.parent.name not in ("repository", "support", "docs")
    ]


def pages() -> list[Path]:
    """Every page of the documentation except the matrix, which is made from the others."""
    return [path for path in (ROOT / "docs").rglob("*.md") if path != MATRIX] + [ROOT / "README.md"]
