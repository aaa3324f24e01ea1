"""The smallest configuration of the TLA+ module, checked by TLC beside the explorer; `make tla` checks all."""

from __future__ import annotations

import pytest

from tests.tla.check import compare_configuration


@pytest.mark.parametrize(("name", "comparisons"), [("T1-kip858", 1), ("T1-kafka", 4)])
def test_tlc_and_the_explorer_agree(name: str, comparisons: int) -> None:
    """As many distinct states; under Kafka's rules the same three invariants break, in as few steps."""
    rows = list(compare_configuration(name, liveness=False))
    assert len(rows) == comparisons
    assert [row for row in rows if not row.equal] == []
