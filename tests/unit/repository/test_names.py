"""Names are nouns of things: a variable that is called by a participle says nothing about what it holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT

WORDS = {"found", "said", "one", "told", "asked"}
MODULES = [
    path
    for package in ("jbod_model", "pipelines", "lab", "tests", "benchmarks")
    for path in sorted((ROOT / package).rglob("*.py"))
]


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The variables, parameters, fields, functions and classes of a module, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def test_no_name_of_a_module_is_a_participle_or_one() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in MODULES
        for name, line in names_in(ast.parse(path.read_text()))
        if name.strip("_").lower() in WORDS
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "code", ["for one in rows: pass", "def f(found): pass", "class Found: x = 1", "self._said = 1", "asked: int = 1"]
)
def test_each_kind_of_name_is_looked_at(code: str) -> None:
    assert WORDS & {name.strip("_").lower() for name, _ in names_in(ast.parse(code))}
