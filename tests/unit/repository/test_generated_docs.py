"""The generated parts of the documentation are those that the code gives."""

from __future__ import annotations

from tests.docs.generated import PARTS, names_of_parts, out_of_date
from tests.support.paths import ROOT


def test_generated_pages_are_up_to_date() -> None:
    stale = [str(path.relative_to(ROOT)) for path in out_of_date()]
    assert stale == [], "python -m tests.docs --write"


def test_every_generated_part_is_on_a_page() -> None:
    assert names_of_parts() == set(PARTS)
