"""Kafka's tools in what jbod prints: a command to be typed stands whole, a tool in passing is a name without .sh."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT

TOOL = re.compile(r"kafka-[a-z-]+\.sh")


def texts_in(tree: ast.Module) -> Iterator[str]:
    """The texts of a module that are no docstrings, with {} for what is filled in."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def cut_off(text: str) -> list[str]:
    """The commands in a text that do not say which cluster they are for."""
    tools, commands = TOOL.findall(text), TOOL.split(text)[1:]
    return [tool for tool, rest in zip(tools, commands, strict=True) if "--bootstrap-server " not in rest]


def test_command_that_jbod_prints_names_its_cluster() -> None:
    """Some were typed as they stood, and some were not: kafka-acls.sh and kafka-log-dirs.sh had no server."""
    wrong = [
        f"{path.relative_to(ROOT)}: {tool}"
        for path in sorted((ROOT / "pipelines").rglob("*.py"))
        for text in texts_in(ast.parse(path.read_text(encoding="utf-8")))
        for tool in cut_off(text)
    ]
    assert wrong == []


@pytest.mark.parametrize("code", ['f"kafka-acls.sh --add {x}"', '"kafka-log-dirs.sh " "--describe"'])
def test_command_without_a_server_is_noticed(code: str) -> None:
    assert [cut_off(text) for text in texts_in(ast.parse(f"x = {code}"))] != [[]]
