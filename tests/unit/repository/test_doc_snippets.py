"""Snippets of the pages run as they are printed, or are at least such that the tools accept them.

Those that need Spark run in tests/integration/test_doc_snippets.py.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import sqlglot
import yaml
from typer.main import get_command

from pipelines.cli import main
from pipelines.spark import versions
from tests.support import local
from tests.support.doc_blocks import PAGES, Block, blocks, commands, with_paths
from tests.support.paths import ROOT, metadata_dir
from tests.support.volume import sampled

KAFKA = "kafka-4.1.2"
SPARK = re.compile(r"spark", re.IGNORECASE)
PATHS = {"/srv/jbod/lake": "lake", "/var/lib/kafka/metadata": "metadata", "/var/lib/node_exporter": "."}
"""A path of the pages, and that in the folder of the test."""
ELSEWHERE = (
    " replay ",
    " jobs run ",
    "jbod fleet ",
    "--listen",
    "--conf ",
    "--docs",
    "--validate",
    "/data/",
    "LOG_DIR",
    "LAKE",
    "clicks-6 ",
)
"""Commands with these start Spark, serve, need disks or a request log, or are a pattern: they are only parsed."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def cases(*languages: str) -> list[Any]:
    """All blocks of all pages in one of the languages, as parameters."""
    return [
        pytest.param(block, id=f"{name(page)}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, *languages))
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lake and the log of the pages, as the tests find it one after the other."""
    directory = tmp_path_factory.mktemp("docs")
    local.replay(metadata_dir(KAFKA), directory / "lake")
    copytree(metadata_dir(KAFKA), directory / "metadata")
    copytree(metadata_dir("kafka-4.4.0", "controller-101"), directory / "controller-101")
    (directory / "tests").symlink_to(ROOT / "tests")
    return directory


@pytest.fixture
def place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That folder, as the working directory."""
    monkeypatch.chdir(folder)
    return folder


def test_page_about_python_runs_without_spark_until_spark_begins(place: Path) -> None:
    """The page says the same of pandas, Arrow, DuckDB and polars as the libraries do."""
    names: dict[str, Any] = {}
    page = ROOT / "docs" / "python.md"
    texts = [block.text for block in blocks(page, "python") if not SPARK.search(block.text)]
    assert len(texts) >= 4
    for text in texts[:4]:
        exec(compile(with_paths(text, PATHS), name(page), "exec"), names)
    assert names["partitions"].height == names["lake"].table("partitions").to_arrow().num_rows


@pytest.mark.parametrize("block", cases("python"))
def test_python_compiles_and_imports_names_that_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in ("pipelines", "jbod_model"):
            module = importlib.import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("block", cases("sql"))
def test_sql_can_be_parsed(block: Block) -> None:
    assert all(sqlglot.parse(block.text, dialect="databricks"))


@pytest.mark.parametrize("block", cases("yaml"))
def test_yaml_can_be_read(block: Block) -> None:
    assert yaml.safe_load(block.text)


def test_settings_of_sessions_with_delta_lake_are_those_of_our_own() -> None:
    """The line of spark-submit left them out, and no page had them for a session of one's own."""
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    own, submit = text.partition("\n## Streams\n")[::2]
    package = f"io.delta:delta-spark_{version('pyspark').rpartition('.')[0]}_2.13:{versions.DELTA}"
    assert package in own
    assert package in submit
    for setting, value in versions.SETTINGS.items():
        assert f'"{setting}", "{value}"' in own
        assert f"{setting}={value}" in submit
    assert "## A session with Delta Lake\n" in own


def lines(block: Block) -> Iterator[str]:
    """The command lines of jbod in a block, without what the shell does with the output."""
    if block.language == "console":
        command_lines = [line for line in commands(block.text) if re.match(r"(\.venv/bin/)?jbod ", line)]
    else:
        command_lines = [f"jbod {rest}" for rest in re.findall(r'bin/jbod ([^">&|\n]*)', block.text)]
    for line in command_lines:
        yield re.split(r" [>|&]", line)[0].removeprefix(".venv/bin/").translate({ord("["): None, ord("]"): None})


LINES = [
    pytest.param(line, id=f"{name(page)}-{number}-{line[5:35].strip()}")
    for page in PAGES
    for number, block in enumerate(blocks(page, "console", "cron", "ini", "python", "yaml"))
    for line in lines(block)
]


@cache
def every_command() -> Any:
    return get_command(main.application())


@pytest.mark.parametrize("line", LINES)
def test_command_line_has_only_options_and_arguments_that_the_command_takes(line: str) -> None:
    words = shlex.split(line)[1:]
    if words[0] == "--conf":
        del words[:2]
    command = every_command()
    while hasattr(command, "commands"):
        # A group may take the arguments of one of its commands: jbod fleet FILE.
        command = command.commands[words.pop(0) if words[0] in command.commands else "replay"]
    command.make_context(line, words)


@pytest.mark.parametrize(
    "line",
    sampled([parameter for parameter in LINES if not any(mark in f"{parameter.values[0]} " for mark in ELSEWHERE)], 8),
)
def test_command_line_runs(line: str, place: Path) -> None:
    with pytest.raises(SystemExit) as left:
        main.main(shlex.split(with_paths(line, PATHS))[1:])
    assert left.value.code in (0, 1), line
