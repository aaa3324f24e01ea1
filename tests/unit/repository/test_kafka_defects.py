"""The table of docs/spec/kafka-defects.md equals what Kafka's classes did, and has every flaw of the model."""

from __future__ import annotations

import json
import re

import pytest

from jbod_model.profiles import REPAIRED_IN, Quirk, Release
from tests.support.paths import GOLDEN, ROOT

PAGE = (ROOT / "docs" / "spec" / "kafka-defects.md").read_text()
TRIED: dict[str, dict[str, list[str]]] = json.loads((GOLDEN / "defects.json").read_text())
ROW = re.compile(r"^\| \[.*\]\(#(?P<anchor>[\w-]+)\) \| (?P<rule>R-[A-Z]+-\d+|) \| (?P<rest>.*) \|$", re.MULTILINE)
REMEDY = " (remedy)"
FAILS = {"stale-eligible-leaders": {"3.9.2"}, "an-empty-eligible-leader": {"3.7.2", "3.8.1", "3.9.2"}}
"""The releases in which a remedy does not help."""
WORDS = {"yes": "yes", "no": "no", "absent": "-"}
RULE_OF = {match["anchor"]: match["rule"] for match in ROW.finditer(PAGE)}
QUIRK_OF = {
    rules[0]: quirk
    for quirk, line in re.findall(
        r'    ([A-Z_]+) = "\w+"\n    """(.*)"""', (ROOT / "jbod_model/profiles.py").read_text()
    )
    if (rules := re.findall(r"R-QUIRK-\d+", line))
}


DEFECTS = [name for name in TRIED["4.4.0"] if REMEDY not in name]
REMEDIES = [name for name in TRIED["4.4.0"] if REMEDY in name]


@pytest.mark.parametrize("defect", DEFECTS)
def test_table_of_defects_equals_what_kafkas_classes_did(defect: str) -> None:
    row = next(match for match in ROW.finditer(PAGE) if match["anchor"] == defect)
    assert row["rest"].split(" | ") == [WORDS[tries[defect][0]] for tries in TRIED.values()]


def test_every_defect_of_the_table_was_tried_on_every_release() -> None:
    head = next(row for row in PAGE.splitlines() if row.startswith("| defect"))
    assert list(TRIED) == re.findall(r"\d\.\d\.\d", head)
    assert all(set(RULE_OF) == {name for name in tries if REMEDY not in name} for tries in TRIED.values())


@pytest.mark.parametrize("remedy", REMEDIES)
def test_advice_that_was_tried_helps_where_the_page_gives_it(remedy: str) -> None:
    """Eligible leaders cannot be cleared before 4.0, as the page says."""
    failed = {release for release, tries in TRIED.items() if tries[remedy][0] == "no"}
    assert failed == FAILS.get(remedy.removesuffix(REMEDY), set())
    section = PAGE.split(f"\n## {remedy.removesuffix(REMEDY).replace('-', ' ').capitalize()}\n")[1].split("\n## ")[0]
    assert "tried on the classes" in " ".join(section.lower().split())


def test_every_flaw_of_the_reference_controller_is_on_the_page() -> None:
    assert set(QUIRK_OF.values()) == {quirk.name for quirk in Quirk}
    assert set(QUIRK_OF) <= set(RULE_OF.values())


@pytest.mark.parametrize(
    "defect", [anchor for anchor, rule in RULE_OF.items() if rule in QUIRK_OF and anchor in TRIED["4.3.1"]]
)
def test_release_that_repaired_a_flaw_is_the_one_kafkas_classes_tell(defect: str) -> None:
    """R-RELEASE-2"""
    since = REPAIRED_IN.get(Quirk[QUIRK_OF[RULE_OF[defect]]], Release(99, 0))
    for release, tries in TRIED.items():
        repaired = Release(*map(int, release.split(".")[:2])) >= since
        assert tries[defect][0] in (("no", "absent") if repaired else ("yes", "no", "absent"))
        if tries[defect][0] == "yes":
            assert not repaired
    if since <= Release(4, 3):
        assert TRIED["4.3.1"][defect][0] == "no"


def test_every_defect_of_the_table_has_its_section() -> None:
    headings = {
        re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-")
        for line in PAGE.splitlines()
        if line.startswith("## ")
    }
    assert set(RULE_OF) == headings
