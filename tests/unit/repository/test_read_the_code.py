"""docs/read-the-code.md: its examples give what the page shows, and the files that it names exist."""

from __future__ import annotations

import doctest
import re
import shlex

import pytest

from pipelines.cli import main
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "read-the-code.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_examples_give_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", TEXT, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 40
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=failures.append)
    assert failures == []


def test_commands_print_what_the_page_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```console\n\$ jbod (.*?)\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for command, output in blocks:
        with pytest.raises(SystemExit) as left:
            main.main(shlex.split(command))
        assert left.value.code == 0
        assert capsys.readouterr().out == output


def test_files_that_the_page_names_exist() -> None:
    named = set(re.findall(r"\b(?:jbod_model|pipelines|tests|lab)/[\w/.-]+\.py\b", TEXT))
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []
    listed = re.findall(r"^\| \d+ \| \[([^]]+)\]\(\.\./\1\) \|", TEXT, re.MULTILINE)
    assert len(listed) == len(set(listed)) == len(re.findall(r"^\| \d+ \|", TEXT, re.MULTILINE)) == 12
