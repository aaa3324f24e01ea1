"""``kafka://`` in place of a log: questions, the main job, and the mirror on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jbod_model.errors import UsageError
from pipelines import read_log
from pipelines.cli.main import main
from tests.support.controller import Controller, Log, quorum_of, url_of
from tests.support.paths import metadata_dir

SOURCE = metadata_dir("kafka-4.4.0")
LOG = "__cluster_metadata-0"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def log() -> Log:
    return Log(b"".join(path.read_bytes() for path in sorted((SOURCE / LOG).glob("*.log"))))


@pytest.fixture
def peers(log: Log) -> Iterator[dict[int, Controller]]:
    found = quorum_of(log)
    yield found
    for peer in found.values():
        peer.close()


def leave(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as left:
        main(words)
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err


def test_question_to_a_quorum_answers_as_its_files_do(
    capsys: pytest.CaptureFixture[str], peers: dict[int, Controller], tmp_path: Path
) -> None:
    for words in (["offline"], ["directories", "--log"]):
        of_files = leave(capsys, *words, str(SOURCE), "--json")
        assert leave(capsys, *words, url_of(peers), "--json")[:2] == of_files[:2]
    assert list(tmp_path.iterdir()) == []


def test_answer_is_of_what_is_committed(
    capsys: pytest.CaptureFixture[str], peers: dict[int, Controller], log: Log
) -> None:
    log.high_watermark = log.batches[-9][1]
    code, said, _ = leave(capsys, "offline", url_of(peers))
    assert (code, said.partition(",")[0]) == (0, f"At offset {log.high_watermark - 1}")


def test_replay_of_a_quorum_keeps_its_mirror_beside_the_lake(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    peers: dict[int, Controller],
    log: Log,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "1")
    log.high_watermark = log.batches[-9][1]
    code, said, problem = leave(capsys, "replay", url_of(peers), "--lake", "lake")
    assert code == 0, problem
    assert f"replayed offsets 0 to {log.high_watermark - 1}" in said
    log.commit()
    code, said, _ = leave(capsys, "replay", url_of(peers), "--lake", "lake")
    assert f"to {log.end - 1}" in said
    assert b"".join(path.read_bytes() for path in (tmp_path / "lake.mirror" / LOG).glob("*.log")) == log.data()
    of_files = leave(capsys, "offline", str(SOURCE), "--json")
    assert leave(capsys, "offline", "--lake", "lake", "--json")[1] == of_files[1]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["replay", "kafka://a:1", "--lake", "l", "--settle", "2s"], "jbod: --settle: what comes from the quorum is"),
        (["replay", str(SOURCE), "--lake", "l", "--mirror", "m"], "jbod: --mirror: is for the log of a quorum"),
        (["offline", "kafka://a"], "jbod: kafka://a: write kafka://HOST:PORT"),
        (["mirror", "a:9093", "--into", "m"], "jbod: a:9093: write kafka://HOST:PORT"),
        (["mirror", "kafka://a:1", "--into", "m", "--keep", "x"], "jbod: --keep x: not an age: write 30d"),
        (["mirror", "kafka://a:1", "--into", "s3://b/m"], "jbod: s3://b/m: a mirror is on a disk"),
        (["mirror", "kafka://a:1", "--into", "m", "--command-config", "none"], "jbod: none: cannot be read"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], line: str, tmp_path: Path
) -> None:
    code, said, problem = leave(capsys, *words)
    assert (code, said) == (2, "")
    assert problem.startswith(line)
    assert len(problem.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_live_quorum_is_how_far_each_node_is_behind(
    capsys: pytest.CaptureFixture[str], peers: dict[int, Controller], log: Log
) -> None:
    log.voters, log.observers = {1: log.end, 2: log.end - 7, 3: -1}, {9: log.end - 1}
    code, said, _ = leave(capsys, "quorum", "--live", url_of(peers), "--json")
    answer = json.loads(said)
    assert (code, answer["leader_id"], answer["high_watermark"]) == (0, 1, log.end)
    behind = [(one["kind"], one["node_id"], one["lag"]) for one in answer["followers"]]
    assert behind == [("voter", 1, 0), ("voter", 2, 7), ("voter", 3, None), ("observer", 9, 1)]
    code, said, _ = leave(capsys, "quorum", "--live", url_of(peers))
    assert f"controller 1 leads, epoch {log.epoch}; committed up to offset {log.end - 1}." in said
    assert leave(capsys, "quorum", "--live", url_of(peers), "--lake", "l")[0] == 2


def test_python_names_the_way_to_a_quorum() -> None:
    with pytest.raises(UsageError, match="jbod mirror kafka://a:1 --into DIR keeps its log in DIR"):
        read_log("kafka://a:1")


def test_mirror_says_what_it_has_and_why(
    capsys: pytest.CaptureFixture[str], peers: dict[int, Controller], log: Log
) -> None:
    code, said, _ = leave(capsys, "mirror", url_of(peers), "--into", "m")
    assert (code, said) == (0, f"m: offsets 0 to {log.end - 1}; all history, from offset 0 on\n")
