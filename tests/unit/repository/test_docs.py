"""Pages link to what exists, and show what commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from pipelines.cli import main
from tests.support.doc_blocks import PAGES
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import ROOT, metadata_dir


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_links_to_files_that_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_links_to_headings_that_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*\.md)?#(?!L\d+\))([^)\s]+)\)", page.read_text(encoding="utf-8"))
    missing = [(name, anchor) for name, anchor in links if anchor not in anchors(page.parent / name if name else page)]
    assert missing == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_paths_that_the_page_names_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:jbod_model|pipelines|tests|lab|docs|conf|notebooks|benchmarks)/[\w/.-]+)`", text))
    assert len(named) > 5
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_page_for_each_subject_and_no_more_than_eighteen() -> None:
    pages = sorted((ROOT / "docs").glob("*.md"))
    assert len(pages) <= 18
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in pages if f"]({page.name})" not in index and page.name != "README.md"] == []


def test_release_has_at_most_twenty_lines_in_the_changelog() -> None:
    sections = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert sections
    assert [section.partition("\n")[0] for section in sections if section.rstrip().count("\n") >= 20] == []


@pytest.mark.parametrize("tree", ["jbod_model", "pipelines", "lab"])
def test_tree_of_contributing_has_every_package(tree: str) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(f"\n{tree}/ ")[2].partition("\n```")[0]
    packages = [folder.name for folder in (ROOT / tree).iterdir() if folder.is_dir() and any(folder.glob("*.py"))]
    assert packages
    assert [name for name in packages if not re.search(rf"\b{name}/ ", text)] == []


def test_readme_fits_three_screens() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 130


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page; the second of one name ends with -1."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    page_anchors: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        page_anchors.append(f"{anchor}-{page_anchors.count(anchor)}" if anchor in page_anchors else anchor)
    return set(page_anchors)


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
        if page.name == "CHANGELOG.md":
            continue  # it names what is gone
        named = set(re.findall(r"(?:`|bin/|\$ )jbod ([a-z][a-z-]*)", page.read_text(encoding="utf-8")))
        assert named <= commands, page


def test_readme_says_which_commands_take_which_options() -> None:
    """Each was said to take --lake, filters, --format and --watch; audit, dump, report and image do not."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(r"\| question \| command \|\n(.*?)\n\n", text, re.DOTALL)
    assert table
    commands = set(re.findall(r"`jbod ([a-z-]+)", table[1]))
    first = re.search(
        r"All except (.*?) take (.*?)\. All of these except (.*?) also take (.*?) and the filters", text, re.S
    )
    assert first
    no_state, state, no_rows, rows = (set(re.findall(r"`([a-z-]+)", part)) for part in first.groups())
    taken = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in get_command(main.application()).commands.items()  # type: ignore[attr-defined]
    }
    assert state == {"--lake", "--log", "--at-offset", "--at-time"}
    assert rows == {"--format", "--sort", "--limit", "--watch"}
    assert {name for name in commands if state <= taken[name]} == commands - no_state
    assert {name for name in commands if rows <= taken[name]} == commands - no_state - no_rows


def test_options_of_disks_have_a_word_where_the_command_is_described() -> None:
    """Cause: --metadata-dir, --node-id and --cluster-id were in its help only."""
    (command,) = (each for name, each in get_command(main.application()).commands.items() if name == "disks")  # type: ignore[attr-defined]
    text = (ROOT / "docs" / "spec" / "storage.md").read_text(encoding="utf-8")
    common = {"--json", "--quiet", "-q", "--verbose", "-v", "-c", "directories"}
    assert not [option for parameter in command.params for option in {*parameter.opts} - common if option not in text]
