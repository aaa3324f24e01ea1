"""The smallest configuration of the TLA+ module, and real logs, through TLC; `make tla` checks all of them.

Maven fetches TLC.
"""

from __future__ import annotations

import pytest

from lab.tla.check import compare_configuration, compare_trace
from lab.tla.trace import TRACES, Trace

pytestmark = pytest.mark.exhaustive


@pytest.fixture(autouse=True)
def _quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models this small, compiling TLC itself would take most of the time."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.mark.parametrize(("name", "comparisons"), [("T1-kip858", 1), ("T1-kafka", 4)])
def test_tlc_and_the_explorer_agree(name: str, comparisons: int) -> None:
    """As many distinct states; under Kafka's rules the same three invariants break, in as few steps."""
    rows = list(compare_configuration(name, liveness=False))
    assert len(rows) == comparisons
    assert [row for row in rows if not row.equal] == []


@pytest.mark.parametrize(("trace", "answer"), [(TRACES[0], "a behaviour"), (TRACES[2], "not from 151 on")])
def test_tlc_takes_a_real_log_and_refuses_a_forged_one(trace: Trace, answer: str) -> None:
    """R-BEHAVE-1: the same answer as `python -m lab explore --trace`."""
    row = compare_trace(trace)
    assert row.equal
    assert row.tlc == answer
