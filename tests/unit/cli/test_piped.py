"""``-`` in place of a log: a tar stream on standard input."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pipelines.cli.main import main
from tests.live.kafka import wait_for
from tests.support.paths import ROOT, metadata_dir
from tests.support.volume import rare

SOURCE = metadata_dir("kafka-4.1.2")
LOG = "__cluster_metadata-0"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def packed(source: Path, *, short_by: int = 0) -> bytes:
    """``tar cf -`` of a log whose newest segment lacks its last bytes."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(source / "meta.properties", "meta.properties")
        segments = sorted((source / LOG).glob("*.log"))
        for path in segments:
            content = path.read_bytes()
            content = content[: len(content) - short_by * (path == segments[-1])]
            info = tarfile.TarInfo(f"{LOG}/{path.name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def leave(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: bytes, *words: str
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command that reads ``data``."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(SystemExit) as left:
        main(words)
    output = capsys.readouterr()
    return int(left.value.code or 0), output.out, output.err


@pytest.mark.parametrize("words", [["offline", "-"], rare(["history", "solo-6", "--log", "-"]), rare(["check", "-"])])
def test_question_to_a_pipe_answers_as_the_folder_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    at = ("--at-offset", "231", "--json")
    of_folder = leave(capsys, monkeypatch, b"", *(str(SOURCE) if word == "-" else word for word in words), *at)
    assert leave(capsys, monkeypatch, packed(SOURCE), *words, *at) == of_folder


def test_append_while_tar_reads_is_a_torn_tail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output, problem = leave(capsys, monkeypatch, packed(SOURCE, short_by=10), "status", "-")
    assert (code, "JBODtestCluster0123456" in output) == (0, True)
    assert "the log ends within a batch at offset 629" in problem
    assert len(problem.splitlines()) == 1


def test_audit_takes_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    of_folder = leave(capsys, monkeypatch, b"", "audit", str(SOURCE), "--invariants", "--json")
    assert leave(capsys, monkeypatch, packed(SOURCE), "audit", "-", "--invariants", "--json") == of_folder


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["offline", "-"], "jbod: standard input: the stream ends before tar's end mark"),
        (["replay", "-", "--lake", "lake"], "jbod: standard input: the stream ends before tar's end mark"),
    ],
)
def test_cut_stream_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], line: str
) -> None:
    code, output, problem = leave(capsys, monkeypatch, packed(SOURCE)[:9000], *words)
    assert (code, output) == (2, "")
    assert problem.startswith(line)
    assert len(problem.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_pipe_cannot_be_followed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, problem = leave(capsys, monkeypatch, packed(SOURCE), "replay", "-", "--lake", "lake", "--follow")
    assert (code, problem.partition(":")[2]) == (
        2,
        " --follow: a pipe holds the log as it was: leave out --follow, or name a folder\n",
    )


def test_pipe_cannot_be_watched(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It showed the same answer again and again."""
    refused = "jbod: --watch: a pipe holds the log as it was: leave out --watch, or name a folder\n"
    assert leave(capsys, monkeypatch, packed(SOURCE), "offline", "-", "--watch", "1s") == (2, "", refused)


@pytest.mark.parametrize("number", [signal.SIGTERM, rare(signal.SIGINT), rare(signal.SIGHUP)])
def test_folder_is_removed_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    reading = subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli.main", "offline", "-"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reading.stdin is not None
    try:
        reading.stdin.write(packed(SOURCE)[:20000])
        reading.stdin.flush()
        wait_for("the folder", lambda: [*tmp_path.glob("jbod-pipe-*/stdin/*/*.log")], 60)
        reading.send_signal(number)
        assert reading.wait(30) == 128 + number
    finally:
        reading.kill()
        reading.communicate()
    assert list(tmp_path.iterdir()) == []
