"""Completion in real shells, --version, and jbod without a command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cli import main
from tests.support.paths import ROOT, metadata_dir
from tests.support.volume import rare
from tests.unit.check.story import Story, disk

BIN = Path(sys.executable).parent
JBOD = (sys.executable, "-m", "pipelines.cli.main")
PATH = f"{BIN}{os.pathsep}{os.environ['PATH']}"

BASH = """
eval "$(jbod --show-completion)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_jbod_completion jbod
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
autoload -U compinit; compinit -u -D
eval "$(jbod --show-completion)"
[[ $_comps[jbod] == _jbod_completion ]] || {{ echo not registered; exit 1 }}
_arguments() {{ print -r -- "$@" }}
words=({words}); CURRENT=$#words
_jbod_completion
"""
FISH = """
jbod --show-completion | source
complete -C '{line}'
"""


def in_shell(shell: str, script: str) -> str:
    done = subprocess.run(
        [shell, *(["-f"] if shell == "zsh" else []), "-c", script],
        env=os.environ | {"PATH": PATH},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COMPLETED = {"jbod offl": "offline", "jbod offline --brok": "--broker", "jbod offline --format nd": "ndjson"}
USUAL = dict(zip(("bash", "zsh", "fish"), COMPLETED, strict=True))
"""Each shell, and each kind of word, once."""


@pytest.mark.parametrize(
    ("shell", "words", "completion"),
    [
        (shell, words, completion) if USUAL[shell] == words else rare(shell, words, completion)
        for shell in USUAL
        for words, completion in COMPLETED.items()
    ],
)
def test_shell_completes_commands_options_and_values(shell: str, words: str, completion: str) -> None:
    if shutil.which(shell) is None:
        assert shell != "bash"
        pytest.skip(f"no {shell} here: its completion is not tested (apt-get install {shell})")
    script = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell].format(words=words, line=words)
    assert completion in in_shell(shell, script)


def leave(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main.main(words)
    return int(left.value.code or 0), capsys.readouterr().out


def test_every_command_has_one_place_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    placed = [command for commands in main.PANELS.values() for command in commands]
    assert sorted(placed) == sorted(command for commands in main.MODULES.values() for command in commands)
    output = leave(capsys, "--help")[1]
    assert output.index(" offline ") < output.index(" replay ") < output.index(" audit ")


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = leave(capsys, "--version")
    assert (code, output.startswith("jbod "), output.count("\n")) == (0, True, 1)


def test_jbod_without_a_command_says_what_it_can_tell_of_the_log_in_sight(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = metadata_dir("kafka-4.1.2")
    (tmp_path / "some where").symlink_to(log)
    monkeypatch.chdir(tmp_path)
    code, output = leave(capsys)
    assert code == 0
    assert output.splitlines()[0] == "A metadata log: some where"
    assert "jbod offline --log 'some where'" in output
    assert leave(capsys, str(log)) == (0, output.replace("'some where'", str(log)).replace("some where", str(log)))


def test_jbod_without_a_command_and_nothing_in_sight_prints_the_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = leave(capsys)
    assert code == 0
    assert "Usage: jbod" in output
    assert leave(capsys, str(tmp_path))[0] == 2


def test_path_of_neither_a_lake_nor_a_log_is_refused_with_what_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Cause: "No such command" with a path, although ``jbod DIR`` says what a folder is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("text")
    for word, what in (
        (str(tmp_path), "holds no segment or snapshot of a metadata log (__cluster_metadata-0/*.log): it holds file"),
        ("./nowhere", "no such directory; give a metadata.log.dir or its __cluster_metadata-0"),
        ("file", "is a file (text); give a metadata.log.dir or its __cluster_metadata-0; jbod dump reads files"),
    ):
        with pytest.raises(SystemExit) as left:
            main.main([word])
        assert (left.value.code, capfd.readouterr().err) == (2, f"jbod: {word}: {what}\n")


def test_output_that_finds_no_room_is_2_and_a_line_for_text_as_for_json() -> None:
    """Cause: "[Errno 28] No space left on device" for text, which names nothing."""
    for words in (["settings"], ["settings", "--json"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*JBOD, *words], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (
            2,
            "jbod: the answer could not be written: No space left on device\n",
        )


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", "/data/d\\xefsk\\u2713"),
        ("ascii:surrogateescape", "/data/d\\xefsk\\u2713"),  # as in the locale C
        rare("latin-1", "/data/dïsk\\u2713"),
    ],
)
@pytest.mark.parametrize("form", ["table", rare("csv")])
def test_character_that_the_encoding_of_the_output_lacks_is_an_escape(
    tmp_path: Path, encoding: str, shown: str, form: str
) -> None:
    """Cause: a traceback of UnicodeEncodeError, and exit code 3."""
    Story().broker(1, "a").lake(tmp_path / "lake")
    (tmp_path / "labels").write_text(f"{disk('a')} = /data/dïsk✓\n", encoding="utf-8")
    done = subprocess.run(
        [*JBOD, "directories", "--lake", tmp_path / "lake", "--labels", tmp_path / "labels", "--format", form],
        env=os.environ | {"PYTHONIOENCODING": encoding},
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert shown in done.stdout.decode(encoding.partition(":")[0])
