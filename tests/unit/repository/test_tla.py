"""The TLA+ module cites rules that exist, and knows every bug that is compared."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import ROOT
from tests.tla.check import SAFETY, SEEDED, Row, bounds_of, constants_of
from tests.tla.tlc import Outcome, TlcError, configuration, outcome

MODULE = (ROOT / "tla" / "Jbod.tla").read_text(encoding="utf-8")


def test_cited_rules_exist() -> None:
    tables = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "spec").glob("*.md"))
    known = set(re.findall(r"^\| (R-[A-Z]+-\d+) \|", tables, re.MULTILINE))
    cited = set()
    for page in (ROOT / "tla").glob("*.*"):
        cited |= set(re.findall(r"\bR-[A-Z]+(?:-\d+)?", page.read_text(encoding="utf-8")))
    assert len(cited) > 30
    assert cited - known == set()


def test_module_has_each_bug() -> None:
    asked = re.findall(r'Bug (?:=|#|\\in) ("[^"]+"|\{[^}]+\})', MODULE)
    assert set(re.findall(r'"([^"]+)"', " ".join(asked))) == set(SEEDED)
    assert [bug for bug in SEEDED if f'"{bug}"' not in MODULE] == []


def test_page_has_each_bug_and_invariant() -> None:
    page = (ROOT / "tla" / "README.md").read_text(encoding="utf-8")
    assert [bug for bug in SEEDED if f"| {bug} |" not in page] == []
    assert [name for name in SAFETY.values() if name not in page] == []


def test_bounds_of_a_configuration_are_the_constants_again() -> None:
    constants = configuration("T2-kafka")
    assert constants_of(bounds_of(constants), "kafka", "") == constants


FOUND = "7 states generated, 5 distinct states found, 0 states left on queue.\n"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("Model checking completed. No error has been found.\n" + FOUND, Outcome(5, False, 0)),
        (
            "Error: Invariant LeaderOnline is violated.\nState 1: <Initial predicate>\nState 2: <Fail(1,1)>\n",
            Outcome(0, True, 1),
        ),
        ("Error: Temporal properties were violated.\nState 1: <Initial predicate>\n" + FOUND, Outcome(5, True, 0)),
    ],
)
def test_output_of_tlc_is_read(printed: str, expected: Outcome) -> None:
    assert outcome(printed) == expected


def test_output_without_a_verdict_is_an_error() -> None:
    with pytest.raises(TlcError, match="without a verdict"):
        outcome("Error: TLC cannot handle the temporal formula\n" + FOUND)


def test_rows_differ_where_the_verdicts_do() -> None:
    assert Row("T1", "5 steps", "5 steps").equal
    assert not Row("T1", "5 steps", "6 steps").equal
    assert not Row("a bug that nobody finds", "holds", "holds").equal
