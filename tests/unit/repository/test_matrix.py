"""docs/spec/matrix.md: every rule with the modules that implement it and the tests that prove it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.support.paths import ROOT

SPEC = ROOT / "docs" / "spec"
MATRIX = SPEC / "matrix.md"
RULE = re.compile(r"R-([A-Z]+)-(\d+)(?: to (\d+))?")
HEAD = """# Rules, code and tests

Every numbered rule of this folder, the modules that name it and the test modules that name it. Invariants are not here:
[invariants.md](invariants.md) says of each what checks it. `tests/unit/repository/test_matrix.py` writes this page anew
and fails when it is out of date.

| rule | stated in | code | tests |
| --- | --- | --- | --- |
"""


def _cited(paths: list[Path]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for area, first, last in RULE.findall(path.read_text(encoding="utf-8")):
            for number in range(int(first), int(last or first) + 1):
                found[f"R-{area}-{number}"].add(path.relative_to(ROOT).as_posix())
    return found


def _matrix() -> str:
    stated: dict[str, str] = {}
    for spec in sorted(SPEC.glob("*.md")):
        if spec not in (MATRIX, SPEC / "invariants.md"):
            for rule in re.findall(r"^\| (R-[A-Z]+-\d+) \|", spec.read_text(encoding="utf-8"), re.M):
                stated[rule] = spec.name
    code = _cited([*(ROOT / "jbod_model").rglob("*.py"), *(ROOT / "pipelines").rglob("*.py")])
    tests = _cited([path for path in (ROOT / "tests").rglob("test_*.py") if path.name != Path(__file__).name])
    rows = []
    for rule in sorted(stated, key=lambda r: (stated[r], r.rpartition("-")[0], int(r.rpartition("-")[2]))):
        cells = (" ".join(f"`{path}`" for path in sorted(found.get(rule, set()))) for found in (code, tests))
        rows.append(f"| {rule} | {stated[rule]} | {' | '.join(cells)} |")
    return HEAD + "\n".join(rows) + "\n"


def test_every_rule_has_code_and_a_test() -> None:
    bare = [line for line in _matrix().splitlines() if line.startswith("| R-") and re.search(r"\| +\|", line)]
    assert bare == []


def test_matrix_in_the_docs_is_up_to_date() -> None:
    made = _matrix()
    if not MATRIX.exists() or MATRIX.read_text(encoding="utf-8") != made:
        MATRIX.write_text(made, encoding="utf-8")
        raise AssertionError(f"{MATRIX.name} was out of date and is written anew: commit it")
