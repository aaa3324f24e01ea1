"""Pages link to what exists, and show what commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from pipelines.cli import main
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import ROOT, metadata_dir

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
    ROOT / "notebooks" / "README.md",
    *sorted((ROOT / "lab").rglob("README.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_links_to_files_that_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_readme_shows_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lake(tmp_path / "lake", read_log(metadata_dir("kafka-4.1.2")))
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = [block for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) if block.startswith("$ jbod ")]
    assert shown
    for block in shown:
        command, _, output = block.partition("\n")
        with pytest.raises(SystemExit) as left:
            main.main(shlex.split(command)[2:])
        assert left.value.code == 0
        assert capsys.readouterr().out == output


def test_pages_name_only_commands_that_exist() -> None:
    commands = set(get_command(main.application()).commands)  # type: ignore[attr-defined]
    for page in PAGES:
        named = set(re.findall(r"(?:`|bin/|\$ )jbod ([a-z][a-z-]*)", page.read_text(encoding="utf-8")))
        assert named <= commands, page
