"""Help and errors: no types of Python, no words of a library, one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from lab import __main__ as laboratory
from pipelines.cli.main import application
from tests.support.volume import amount

WRONG = {
    ("offline", "--at-offset", "x"): "'x' is not a valid integer.",
    ("offline", "--at-offset", "1.5"): "'1.5' is not a valid integer.",
    ("offline", "--limit", "-3"): "-3 is less than 0.",
    ("offline", "--format", "xml"): "'xml' is not one of 'table', 'json', 'ndjson', 'csv', 'parquet'.",
    ("check", "--fail-on", "all"): "'all' is not one of 'critical', 'warning', 'info'.",
    ("assignments", "--queue", "x"): "'x' is not a valid number.",
    ("incidents", "x"): "'x' is not a valid integer.",
    ("replay", "log", "--profile", "zookeeper"): "'zookeeper' is not one of 'kafka', 'kip858'.",
    ("replay", "log", "--ids", "none"): "'none' is not one of 'kafka', 'kip858'.",
    ("replay", "log", "--start", "x"): "'x' is not one of 'auto', 'log', 'snapshot'.",
    ("replay", "log", "--tail", "x"): "'x' is not one of 'wait', 'stop'.",
}
"""Words -> what is said of the wrong value."""

PYTHON = r"<[a-z][^>]*>|\[\[|\.\.\.[\]}]|\blist\[|[\[{](?!required)[a-z_]+[\]}](?!\n)"
"""A type of Python, a doubled bracket, or the name of a parameter in place of the name of its value."""


def commands(app: typer.Typer) -> Iterator[tuple[str, ...]]:
    """The words of every command, of every group, and none for the application itself."""
    yield ()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        yield (name,)
        for inner in getattr(command, "commands", ()):
            yield name, inner


@pytest.mark.parametrize("build", [application, lambda _=(): laboratory.application()], ids=["jbod", "lab"])
def test_help_of_every_command_shows_no_type_of_python_and_no_doubled_brackets(build: Callable[..., Any]) -> None:
    """``LOG_DIR <list[str]>``, ``--all <bool>``, ``[[SOURCE]...]...``, ``{log_dir}``"""
    for words in [*commands(build())][:: amount(3, 1)]:
        shown = CliRunner().invoke(build(words), [*words, "--help"], env={"COLUMNS": "200"}).stdout
        assert "Usage:" in shown
        assert not re.findall(PYTHON, shown), words


def test_help_of_every_option_is_a_sentence() -> None:
    """Those of ``replay`` began in lower case and ended without a full stop."""
    root = get_command(application())
    for words in commands(application()):
        command = root
        for word in words:
            command = command.commands[word]  # type: ignore[attr-defined]
        for parameter in command.params:
            help_text = getattr(parameter, "help", None)
            assert help_text is None or re.match(r"[A-Z0-9].*[.):=\d]$", help_text), (words, help_text)


def test_help_shows_the_type_of_a_value_and_none_of_a_flag() -> None:
    shown = CliRunner().invoke(application(), ["offline", "--help"], env={"COLUMNS": "200"}).stdout
    assert re.search(r"--lake +TEXT +The lake", shown)
    assert re.search(r"--at-offset +INTEGER +The state", shown)
    assert re.search(r"--format +\[table\|json\|ndjson\|csv\|parquet] +Columns", shown)
    assert re.search(r"--all +List all rows", shown)
    assert re.search(r"--help +-h +Show this", shown)


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_value_is_refused_in_one_sentence(words: tuple[str, ...]) -> None:
    """``Value error, 'xml' is not one of``, ``Input should be a valid integer, unable to parse string``"""
    ran = CliRunner().invoke(application(words), [*words], env={"COLUMNS": "200"})
    assert ran.exit_code == 2
    (line,) = [line for line in ran.stderr.splitlines() if "Invalid value" in line]
    assert re.fullmatch(r"│ Invalid value for '\S+': (.*?) *│", line), line
    assert WRONG[words] == re.fullmatch(r"│ Invalid value for '\S+': (.*?) *│", line)[1]  # type: ignore[index]
