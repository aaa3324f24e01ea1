"""``kafka://`` in place of a log: questions, the main job, and the mirror on the command line."""

from __future__ import annotations

import gc
import json
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines import read_log
from pipelines.cli.main import main
from pipelines.quorum.state import read_state
from tests.support.controller import Controller, Log, quorum_of, url_of
from tests.support.paths import metadata_dir

SOURCE = metadata_dir("kafka-4.4.0")
LOG = "__cluster_metadata-0"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "1")


@pytest.fixture
def log() -> Log:
    return Log(b"".join(path.read_bytes() for path in sorted((SOURCE / LOG).glob("*.log"))))


@pytest.fixture
def peers(log: Log) -> Iterator[dict[int, Controller]]:
    controllers = quorum_of(log)
    yield controllers
    for peer in controllers.values():
        peer.close()


def leave(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as left:
        main(words)
    output = capsys.readouterr()
    return int(left.value.code or 0), output.out, output.err


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
    code, output, _ = leave(capsys, "offline", url_of(peers))
    assert (code, output.partition(",")[0]) == (0, f"At offset {log.high_watermark - 1}")


def test_replay_of_a_quorum_keeps_its_mirror_beside_the_lake(
    capsys: pytest.CaptureFixture[str],
    peers: dict[int, Controller],
    log: Log,
    tmp_path: Path,
) -> None:
    log.high_watermark = log.batches[-9][1]
    code, output, problem = leave(capsys, "replay", url_of(peers), "--lake", "lake")
    assert code == 0, problem
    assert f"replayed offsets 0 to {log.high_watermark - 1}" in output
    log.commit()
    code, output, _ = leave(capsys, "replay", url_of(peers), "--lake", "lake")
    assert f"to {log.end - 1}" in output
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
        (["mirror", "kafka://a:1", "--into", "m", "--lake", "l"], "jbod: --lake: says what --keep must not delete"),
        (["mirror", "kafka://a:1", "--into", "m", "--keep", "x"], "jbod: --keep x: not an age: write 30d"),
        (["mirror", "kafka://a:1", "--into", "s3://b/m"], "jbod: s3://b/m: a mirror is on a disk"),
        (["mirror", "kafka://a:1", "--into", "m", "--command-config", "none"], "jbod: none: cannot be read"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], line: str, tmp_path: Path
) -> None:
    code, output, problem = leave(capsys, *words)
    assert (code, output) == (2, "")
    assert problem.startswith(line)
    assert len(problem.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_question_that_is_repeated_sees_what_the_quorum_has_committed_since(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, peers: dict[int, Controller], log: Log
) -> None:
    """--watch showed its first copy again and again, and plan watch --follow took no quorum."""
    moved = '{"version": 1, "partitions": [{"topic": "solo", "partition": 2, "replicas": [2]}]}'
    Path("plan.json").write_text(moved)
    before = max(end for _, end, *_ in log.batches if end <= 193)
    for module, words, first in (
        ("question", ["offline", "--watch", "1s"], [before - 1]),
        ("plan", ["plan", "watch", "plan.json", "--follow"], []),
    ):
        log.high_watermark = before
        pauses: Iterator[Callable[[], None]] = iter((log.commit, partial(signal.raise_signal, signal.SIGINT)))
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _, pauses=pauses: next(pauses)())
        monkeypatch.setattr(f"pipelines.cli.{module}.time", clock)
        _, output, _ = leave(capsys, *words, "--log", url_of(peers), "--json")
        assert [json.loads(line)["offset"] for line in output.splitlines()] == [*first, log.end - 1]


def test_live_quorum_is_how_far_each_node_is_behind(
    capsys: pytest.CaptureFixture[str], peers: dict[int, Controller], log: Log
) -> None:
    log.voters, log.observers = {1: log.end, 2: log.end - 7, 3: -1}, {9: log.end - 1}
    code, output, _ = leave(capsys, "quorum", "--live", url_of(peers), "--json")
    answer = json.loads(output)
    assert (code, answer["leader_id"], answer["high_watermark"]) == (0, 1, log.end)
    behind = [(follower["kind"], follower["node_id"], follower["lag"]) for follower in answer["followers"]]
    assert behind == [("voter", 1, 0), ("voter", 2, 7), ("voter", 3, None), ("observer", 9, 1)]
    code, output, _ = leave(capsys, "quorum", "--live", url_of(peers))
    assert f"controller 1 leads, epoch {log.epoch}; committed up to offset {log.end - 1}." in output
    assert leave(capsys, "quorum", "--live", url_of(peers), "--lake", "l")[0] == 2


def test_tables_in_python_are_those_of_the_files(
    peers: dict[int, Controller], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for table in ("offline_replicas", "records"):
        of_quorum, of_files = read_log(url_of(peers)).table(table), read_log(SOURCE).table(table)
        assert of_quorum.to_arrow().equals(of_files.to_arrow())
    del of_quorum
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_status_metrics_and_check_know_how_far_the_quorum_is_and_since_when_it_is_silent(
    capsys: pytest.CaptureFixture[str], peers: dict[int, Controller], log: Log, tmp_path: Path
) -> None:
    log.high_watermark = log.batches[-9][1]
    lake = ("--lake", "lake")
    assert leave(capsys, "replay", url_of(peers), *lake, "--mirror", "elsewhere/m")[0] == 0
    published = log.high_watermark
    log.commit()
    assert leave(capsys, "mirror", url_of(peers), "--into", "elsewhere/m")[0] == 0
    quorum = json.loads(leave(capsys, "status", *lake, "--json")[1])["quorum"]
    assert (quorum["high_watermark"], quorum["leader_id"], quorum["silent_since"]) == (log.end, 1, None)
    behind = log.end - published
    shown = leave(capsys, "status", *lake)[1]
    assert f"{behind} committed records behind; high watermark {log.end}; controller 127.0.0.1:{peers[1].port}" in shown
    samples = leave(capsys, "metrics", *lake)[1].splitlines()
    assert f"jbod_quorum_unread_records {behind}.0" in samples
    assert not any(line.startswith("jbod_quorum_silent_since") and line[0] != "#" for line in samples)
    only = ("check", *lake, "--only", "B-41")
    assert leave(capsys, *only)[0] == 0

    state = read_state(tmp_path / "elsewhere" / "m")
    assert state is not None
    state.silent(datetime.now(UTC) - timedelta(minutes=5)).write(tmp_path / "elsewhere" / "m")
    assert "no leader answers for 5 min, since" in leave(capsys, "status", *lake)[1]
    assert "\njbod_quorum_silent_since_timestamp_seconds 1" in leave(capsys, "metrics", *lake)[1]
    code, shown, _ = leave(capsys, *only)
    assert (code, bool(re.search(r"no leader has answered for 3\d\d seconds", " ".join(shown.split())))) == (1, True)
    assert leave(capsys, *only, "--at-offset", "100")[0] == 0


def test_other_mirror_than_the_lakes_own_is_refused(
    capsys: pytest.CaptureFixture[str], peers: dict[int, Controller]
) -> None:
    assert leave(capsys, "replay", url_of(peers), "--lake", "lake")[0] == 0
    code, _, problem = leave(capsys, "replay", url_of(peers), "--lake", "lake", "--mirror", "m")
    assert (code, "jbod: --mirror m: lake.mirror is this lake's mirror" in problem) == (2, True)


def test_history_that_a_lake_has_not_read_is_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pipelines.mirror.folder.ROLL_BYTES", 2_000)
    metadata = metadata_dir("kafka-4.1.2") / LOG
    log = Log(b"".join(path.read_bytes() for path in sorted(metadata.glob("*.log"))))
    controller = Controller(log)
    controller.max_bytes = 2_000
    copy, keep = ("mirror", controller.url, "--into", "m"), ("--keep", "0.001s", "--lake", "lake")
    log.high_watermark = 300
    assert leave(capsys, *copy)[0] == 0
    assert leave(capsys, "replay", "m", "--lake", "lake")[0] == 0
    log.commit()
    log.snapshots[(406, 1)] = (metadata / "00000000000000000406-0000000001.checkpoint").read_bytes()

    def first() -> int:
        return min(int(path.stem) for path in (tmp_path / "m" / LOG).glob("*.log"))

    for words in ((*copy, *keep), (*copy, *keep), (*copy, *keep, "--lake", "none")):
        assert leave(capsys, *words)[0] == 0
        assert first() == 0
    assert leave(capsys, "replay", "m", "--lake", "lake")[0] == 0
    assert leave(capsys, *copy, *keep)[0] == 0
    assert 0 < first() <= 406
    controller.close()


def test_mirror_says_what_it_has_and_why(
    capsys: pytest.CaptureFixture[str], peers: dict[int, Controller], log: Log
) -> None:
    code, output, _ = leave(capsys, "mirror", url_of(peers), "--into", "m")
    assert (code, output) == (0, f"m: offsets 0 to {log.end - 1}; all history, from offset 0 on\n")
