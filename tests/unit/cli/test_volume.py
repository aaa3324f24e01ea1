"""``-q`` and ``-v``: what a command prints on standard error beside errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.main import get_command

from pipelines.cli import progress
from pipelines.cli.main import GROUPS, application, main
from tests.support.paths import metadata_dir

LOG = str(metadata_dir("kafka-4.1.2"))
QUESTION = ("status", LOG, "--format", "csv", "--limit", "1", "--at-time", "2026-11-21 02:23:00")


def leave(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as left:
        main(words)
    output = capsys.readouterr()
    return int(left.value.code or 0), output.out, output.err


def test_every_command_takes_quiet_and_verbose() -> None:
    commands = get_command(application()).commands  # type: ignore[attr-defined]
    groups = [commands.pop(name).commands for name in GROUPS]
    for name, command in [*commands.items(), *(subcommand for group in groups for subcommand in group.items())]:
        options = {option for parameter in command.params for option in parameter.opts}
        assert options >= {"-q", "--quiet", "-v", "--verbose"}, name


def test_quiet_command_prints_the_answer_alone_and_a_verbose_one_its_decisions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, answer, notices = leave(capsys, *QUESTION)
    assert code == 0
    notice_lines = [line for line in notices.splitlines() if line.startswith("jbod: ")]  # the others are progress
    assert [line.split()[1] for line in notice_lines] == ["--at-time", "1"]
    assert leave(capsys, *QUESTION, "-q") == leave(capsys, "-q", *QUESTION) == (0, answer, "")
    _, same, decisions = leave(capsys, *QUESTION, "-v")
    assert same == answer
    assert f"jbod: replayed the log {LOG} in memory by " in decisions
    assert {*notice_lines} < {*decisions.splitlines()}


def test_quiet_command_prints_its_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, problem = leave(capsys, "status", "--lake", str(tmp_path), "-q")
    assert code == 2
    assert "no lake there" in problem
    for words in (("status", "-q", "-v"), ("-q", "status", "-v"), ("-vq", "status")):
        assert leave(capsys, *words)[::2] == (2, "jbod: --quiet and --verbose: give one of them\n")


def test_quiet_work_has_no_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for quiet, lines in ((False, "\r\033[Kat work"), (True, "")):
        progress.set_volume(quiet=quiet, verbose=False)
        progress.say("at work")
        assert capsys.readouterr().err == lines
    progress.set_volume(quiet=False, verbose=False)
