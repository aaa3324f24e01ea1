"""The TLA+ module cites rules that exist, and knows every bug that is compared."""

from __future__ import annotations

import re

import pytest

from lab.tla.check import SAFETY, SEEDED, Row, bounds_of, constants_of
from lab.tla.tlc import Outcome, TlcError, configuration, outcome
from lab.tla.trace import TRACES, Trace, module
from tests.support.paths import ROOT

MODULE = (ROOT / "lab" / "tla" / "Jbod.tla").read_text(encoding="utf-8")


def test_cited_rules_exist() -> None:
    tables = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "spec").glob("*.md"))
    known = set(re.findall(r"^\| (R-[A-Z]+-\d+) \|", tables, re.MULTILINE))
    cited = set()
    pages = [page for page in (ROOT / "lab" / "tla").glob("*.*") if page.suffix != ".py"]
    for page in pages:
        cited |= set(re.findall(r"\bR-[A-Z]+(?:-\d+)?", page.read_text(encoding="utf-8")))
    assert len(cited) > 30
    assert cited - known == set()


def test_module_has_each_bug() -> None:
    comparisons = re.findall(r'Bug (?:=|#|\\in) ("[^"]+"|\{[^}]+\})', MODULE)
    assert set(re.findall(r'"([^"]+)"', " ".join(comparisons))) == set(SEEDED)
    assert [bug for bug in SEEDED if f'"{bug}"' not in MODULE] == []


def test_page_has_each_bug_and_invariant() -> None:
    page = (ROOT / "lab" / "tla" / "README.md").read_text(encoding="utf-8")
    assert [bug for bug in SEEDED if f"| {bug} |" not in page] == []
    assert [name for name in SAFETY.values() if name not in page] == []


def test_bounds_of_a_configuration_are_the_constants_again() -> None:
    constants = configuration("T2-kafka")
    assert constants_of(bounds_of(constants), "kafka", "") == constants


STATES = "7 states generated, 5 distinct states found, 0 states left on queue.\n"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("Model checking completed. No error has been found.\n" + STATES, Outcome(5, False, 0)),
        (
            "Error: Invariant LeaderOnline is violated.\nState 1: <Initial predicate>\nState 2: <Fail(1,1)>\n",
            Outcome(0, True, 1),
        ),
        ("Error: Temporal properties were violated.\nState 1: <Initial predicate>\n" + STATES, Outcome(5, True, 0)),
    ],
)
def test_output_of_tlc_is_read(printed: str, expected: Outcome) -> None:
    assert outcome(printed) == expected


def test_output_without_a_verdict_is_an_error() -> None:
    with pytest.raises(TlcError, match="without a verdict"):
        outcome("Error: TLC cannot handle the temporal formula\n" + STATES)


def test_rows_differ_where_the_verdicts_do() -> None:
    assert Row("T1", "5 steps", "5 steps").equal
    assert not Row("T1", "5 steps", "6 steps").equal
    assert not Row("a bug that nobody finds", "holds", "holds").equal


def test_traces_begin_as_the_module_does_and_end_where_it_has_no_more() -> None:
    """The forged ones differ from the real ones in one state."""
    for trace in TRACES:
        states = trace.states()
        _, first = states[0]
        assert not first.fenced
        assert all(first.leads)
        assert set(first.directory) == {0}
        assert trace.by_behaviour() == ("a behaviour" if trace.forge is None else f"not from {_forged_batch(trace)} on")
    real, other = (trace.states() for trace in (TRACES[0], TRACES[2]))
    assert [base for base, _ in real] == [80, 89, 151, 199, 221, 537]
    assert real[:2] == other[:2]
    assert real[2] != other[2]


def _forged_batch(trace: Trace) -> int:
    assert trace.forge is not None
    return next(entry.header.base_offset for entry in trace.entries() if entry.offset == trace.forge[0])


def test_a_trace_is_written_as_the_module_has_its_variables() -> None:
    text = module([meta for _, meta in TRACES[1].states()])
    assert "EXTENDS Jbod, TLC" in text
    assert (
        "[fenced |-> (1 :> FALSE), online |-> (1 :> {1}), leader |-> (0 :> NoLeader @@ 1 :> 1), "
        "isr |-> (0 :> <<1>> @@ 1 :> <<1>>), dir |-> (0 :> (1 :> 2) @@ 1 :> (1 :> 1))]>>" in text
    )
