"""Questions to a log in place of a lake, on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipelines.cli.afterwards import refusals
from pipelines.cli.main import main
from pipelines.source.log_dir import LOG_NAME as LOG
from tests.support import local
from tests.support.paths import metadata_dir

SOURCE = str(metadata_dir("kafka-4.1.2"))


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    refusals.clear()


def leave(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as left:
        main(words)
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err


def test_question_to_a_log_answers_as_its_lake_does(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    local.replay(Path(SOURCE), tmp_path / "lake")
    of_lake = leave(capsys, "offline", "--lake", "lake", "--at-offset", "200", "--json")
    assert of_lake[0] == 0
    for words in (["offline", SOURCE], ["offline", "--log", SOURCE]):
        assert leave(capsys, *words, "--at-offset", "200", "--json") == of_lake


def test_question_about_a_partition_takes_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = leave(capsys, "history", "solo-6", "--log", SOURCE, "--at-offset", "231", "--json")
    assert (code, json.loads(said)["offset"]) == (0, 231)


def test_check_of_a_log_leaves_with_1_for_findings_and_keeps_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, said, _ = leave(capsys, "check", "--log", SOURCE, "--json")
    assert code == 1
    assert json.loads(said)["findings"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["offline", SOURCE, "--lake", "lake"], "jbod: --lake and --log: give one of them\n"),
        (["check", SOURCE, "--validate"], "jbod: --validate reads the tables of a lake: jbod replay"),
        (["offline", "nowhere"], "jbod: nowhere"),
    ],
)
def test_question_that_a_log_cannot_answer_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    code, said, problem = leave(capsys, *words)
    assert (code, said) == (2, "")
    assert problem.startswith(line)
    assert problem.count("\n") == 1


def test_damaged_log_answers_and_then_leaves_with_2_and_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(SOURCE, tmp_path / "log")
    segment = sorted((tmp_path / "log" / LOG).glob("*.log"))[-1]
    data = bytearray(segment.read_bytes())
    data[-10] ^= 1
    segment.write_bytes(data)
    code, said, problem = leave(capsys, "offline", "log", "--json")
    assert code == 2
    assert json.loads(said)["offset"] < 629
    assert "answered from the records up to offset" in problem
    assert segment.name in problem


@pytest.mark.parametrize(("tail", "code"), [("wait", 0), ("stop", 2)])
def test_question_to_a_log_that_is_cut_off_does_as_the_settings_say(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tail: str, code: int
) -> None:
    """replay.tail: an incomplete batch at the end is left for later, or it is an error after the answer."""
    shutil.copytree(SOURCE, tmp_path / "log")
    newest = max((tmp_path / "log" / LOG).glob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-5])
    monkeypatch.setenv("JBOD_REPLAY__TAIL", tail)
    found, out, _ = leave(capsys, "offline", "--log", "log", "--json")
    assert found == code
    assert json.loads(out)["offset"] > 0
