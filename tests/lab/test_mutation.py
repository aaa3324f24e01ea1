"""``make mutate``: which mutants there are, what is kept of them, and when it fails."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from lab.mutation import __main__ as command
from lab.mutation.measure import Measured
from lab.mutation.mutants import MODULE, Mutant, mutants, mutants_of
from lab.mutation.session import SURVIVED
from tests.support.paths import ROOT

SOURCE = '''"""Text."""

from dataclasses import dataclass, replace

LIMIT = 3
TABLE = {"a": 1, "b": LIMIT}
Alias = int | str


@dataclass(frozen=True)
class Part:
    size: int = 1

    def grown(self, most, other):
        """Text."""
        assert most > 0
        if self.size >= most or not other:
            raise ValueError(f"{self.size + 1} is too much")
        other.append(self.size)
        return replace(self, size=self.size + 1)
'''


def changes(function: str) -> set[str]:
    return {each.change for each in mutants("part.py", SOURCE) if each.function == function}


@pytest.mark.parametrize("body", ["return zip(a, b, strict=True)", "...", '"""Text."""'])
def test_what_no_test_can_notice_is_no_mutant(body: str) -> None:
    assert mutants("part.py", f"def pairs(a, b):\n    {body}\n") == []


def test_mutants_of_a_function_leave_out_operands_statements_and_values() -> None:
    assert changes("Part.grown") == {
        "if self.size >= most or not other -> if True",
        "if self.size >= most or not other -> if False",
        "self.size >= most or not other -> self.size >= most",
        "self.size >= most or not other -> not other",
        "self.size >= most -> self.size > most",
        "not other -> other",
        "raise ValueError(f'{self.size + 1} is too much') -> pass",
        "other.append(self.size) -> pass",
        "replace(self, size=self.size + 1) -> replace(self)",
        "self.size + 1 -> self.size",
        "self.size + 1 -> 1",
        "1 -> 2",
    }


def test_mutants_of_a_module_change_tables_and_defaults_but_no_types() -> None:
    assert changes(MODULE) == {"3 -> 4", "row 'a': 1 -> none", "row 'b': LIMIT -> none", "1 -> 2", "1 -> 2 [2]"}


def test_every_mutant_differs_from_the_module_and_compiles() -> None:
    mutations = mutants("part.py", SOURCE)
    assert len({each.key for each in mutations}) == len(mutations)
    plain = compile(SOURCE, "part.py", "exec")
    for each in mutations:
        assert compile(each.tree(SOURCE), "part.py", "exec") != plain, each.key


def test_mutant_keeps_its_key_when_lines_move() -> None:
    moved = SOURCE.replace("LIMIT = 3\n", "\n\n\nLIMIT = 3\n\n")
    assert [each.key for each in mutants("part.py", moved)] == [each.key for each in mutants("part.py", SOURCE)]


def test_tests_of_a_mutant_are_those_that_run_its_lines_quickest_first() -> None:
    guard = next(each for each in mutants("part.py", SOURCE) if each.change == "not other -> other")
    table = next(each for each in mutants("part.py", SOURCE) if each.change == "3 -> 4")
    (line,) = guard.lines
    known = Measured(
        seconds={"slow": 9.0, "quick": 0.1, "middle": 1.0, "elsewhere": 0.2},
        lines={"slow": {"part.py": [line]}, "quick": {"part.py": [line, 4]}, "middle": {"part.py": [4]}},
    )
    assert known.covering(guard) == ["quick", "slow"]
    assert known.covering(table) == ["quick", "middle", "slow"]
    assert known.trial(guard, ["slow", "quick"], budget=60).tests == ("slow", "quick")
    assert known.trial(guard, ["quick", "slow"], budget=5).tests == ("quick",)


def test_tests_of_a_table_are_also_those_of_the_files_that_import_its_module() -> None:
    """A test that only compares a table runs no line of its module, and two mutants of WITHOUT_EFFECT survived."""
    mutant = next(each for each in mutants_of(ROOT, "jbod_model/replay") if "row NoOpRecord" in each.key)
    assert mutant.path == "jbod_model/replay/image.py"
    reading, other = "tests/unit/model/replay/test_image.py", "tests/unit/model/broker/test_moves.py"
    tests = (f"{reading}::test_table", f"{other}::test_else")
    known = Measured(
        seconds=dict.fromkeys(tests, 1.0), lines={test: {} for test in tests}, files={reading: "", other: ""}
    )
    assert known.covering(mutant) == [tests[0]]
    of_replicas = next(each for each in mutants_of(ROOT, "jbod_model/broker") if each.path.endswith("replicas.py"))
    assert known.covering(replace(of_replicas, function=MODULE)) == [tests[1]]  # from jbod_model.broker import replicas


def test_tests_that_noticed_neighbours_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutations = of_election()
    mutant, other = mutations[0], next(each for each in mutations if each.function != mutations[0].function)
    kept = results(tmp_path, monkeypatch)
    kept.add(mutant, "killed by a")
    kept.add(other, "killed by b")
    kept.add(mutations[-1], "killed: the process ends")
    assert kept.killers().first(mutant, ["c", "b", "a"]) == ["a", "b", "c"]
    assert kept.killers().first(other, ["c", "a", "b"]) == ["b", "a", "c"]


def test_survivor_of_its_packages_tests_has_no_verdict_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutations = of_election()
    kept = results(tmp_path, monkeypatch)
    for each in mutations[1:]:
        kept.add(each, "killed by test")
    kept.add(mutations[0], command.SURVIVED_OWN)
    assert kept.verdict(mutations[0]) == command.SURVIVED_OWN
    assert command._report({"explore": mutations}, kept, whole=False) == 0
    assert "1 not tried yet" in capsys.readouterr().out


def results(folder: Path, monkeypatch: pytest.MonkeyPatch, judged: str = "") -> command.Results:
    (folder / "survivors.toml").write_text(judged, encoding="utf-8")
    monkeypatch.setattr(command, "JUDGED", folder / "survivors.toml")
    return command.Results(folder / "results.jsonl")


def of_election() -> list[Mutant]:
    path = "jbod_model/controller/partition_change.py"
    return mutants(path, (ROOT / path).read_text(encoding="utf-8"))


def test_a_survivor_without_a_reason_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutations = of_election()
    survivor = mutations[-1]
    kept = results(tmp_path, monkeypatch)
    for each in mutations:
        kept.add(each, SURVIVED if each is survivor else "killed by test")
    many = {"explore": mutations}  # whose target one survivor does not miss
    assert command._report(many, kept, whole=False) == 1
    reason = f"[[survivor]]\nmutant = {survivor.key!r}\nreason = 'the same'\n"
    assert command._report(many, results(tmp_path, monkeypatch, reason), whole=False) == 0


def test_a_judged_survivor_that_is_noticed_or_gone_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutations = of_election()
    noticed = f"[[survivor]]\nmutant = {mutations[0].key!r}\nreason = 'the same'\n"
    kept = results(tmp_path, monkeypatch, noticed)
    for each in mutations:
        kept.add(each, "killed by test")
    assert command._report({"explore": mutations}, kept, whole=False) == 1
    gone = "[[survivor]]\nmutant = 'no such'\nreason = 'the same'\n"
    assert command._report({"explore": mutations}, results(tmp_path, monkeypatch, gone), whole=True) == 1


def test_a_score_below_the_target_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutations = of_election()[:20]
    reasons = "".join(f"[[survivor]]\nmutant = {each.key!r}\nreason = 'the same'\n" for each in mutations[:2])
    kept = results(tmp_path, monkeypatch, reasons)
    for each in mutations:
        kept.add(each, SURVIVED if each in mutations[:2] else "killed by test")
    assert command._report({"explore": mutations}, kept, whole=False) == 0
    assert command._report({"controller": mutations}, kept, whole=False) == 1


def test_results_last_as_long_as_module_and_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed, survived = of_election()[:2]
    kept = results(tmp_path, monkeypatch)
    kept.add(killed, "killed by test")
    kept.add(survived, SURVIVED)
    again = results(tmp_path, monkeypatch)
    assert (again.verdict(killed), again.verdict(survived)) == ("killed by test", SURVIVED)
    again.tests = "others"
    assert (again.verdict(killed), again.verdict(survived)) == ("killed by test", None)
    again.modules[killed.path] = "another"
    assert again.verdict(killed) is None


def test_judged_survivors_are_mutants_and_have_reasons() -> None:
    judged = tomllib.loads(command.JUDGED.read_text(encoding="utf-8")).get("survivor", [])
    keys: dict[str, set[str]] = {}
    for each in judged:
        path = each["mutant"].partition(" ")[0]
        if path not in keys:
            keys[path] = {mutant.key for mutant in mutants(path, (ROOT / path).read_text(encoding="utf-8"))}
        assert each["mutant"] in keys[path]
        assert len(each["reason"]) > 20
