"""``python -m lab control``: exit codes, text, JSON, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.__main__ import main
from pipelines.cli import main as jbod
from tests.support.paths import CLUSTERS

REQUESTS = CLUSTERS / "kafka-4.1.2" / "requests-100.log.gz"


def run(*words: Any) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def test_control_writes_a_log_that_can_be_audited_by_its_own_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("control", "--requests", REQUESTS, "--out", out, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert sum(answer["applied"].values()) + sum(answer["refused"].values()) == 611
    assert answer["same_answer"]["ASSIGN_REPLICAS_TO_DIRS"] == 37
    assert (out / "meta.properties").read_text().count("cluster.id=JBODtestCluster0123456") == 1
    with pytest.raises(SystemExit) as left:
        jbod.main(["audit", str(out), "--requests", str(REQUESTS), "--json"])
    assert left.value.code in (0, 1)
    audited = json.loads(capsys.readouterr().out)
    assert audited["verdicts"]["same"] + audited["verdicts"]["explained by a known quirk"] > 580
    assert run("control", "--requests", REQUESTS, "--out", out) == 2
    assert "holds a metadata log already" in capsys.readouterr().err


def test_control_says_what_it_applied_refused_and_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("control", "--requests", CLUSTERS / "kafka-3.9.2-upgrade" / "requests-100.log.gz")
    assert run(*words, "--out", tmp_path / "out", "--metadata-version", "3.6-IV2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("320 requests: 320 applied, 0 refused; 263 offsets written to ")
    assert "Replicas of created partitions: 0 given by the request, 46 known from later requests, 2 guessed." in lines


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("control", "--requests", str(REQUESTS)), "--out DIR"),
        (("control", "--requests", str(REQUESTS), "--out", "x", "--metadata-version", "9.9"), "not known"),
        (("control", "--requests", "absent.log", "--out", "x"), "there is no such file"),
    ],
)
def test_bad_usage_leaves_with_2_and_one_line(
    words: tuple[str, ...],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert problem in captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
