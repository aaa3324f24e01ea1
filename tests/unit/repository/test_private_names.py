"""No module takes a private name of another library, but the one for Spark, and one option of numba."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FOR_SPARK = ROOT / "pipelines" / "spark" / "jvm.py"
MODULES = sorted(path for package in ("jbod_model", "pipelines") for path in (ROOT / package).rglob("*.py"))
OURS = ("jbod_model", "pipelines")
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
"""The public names of a named tuple."""
PRIVATE = re.compile(r"_(?!_)\w*")
NRT = ("pipelines/formats/kernels.py", "hasattr(DefaultOptions, '_nrt')")
"""The one exception. numba counts references at each call of a helper unless this option is off, and no public option
does it: without it the fold takes 1.5 times as long."""
SCALA = re.compile(r"MODULE\$|_\$eq")
REFLECTION = {"getattr", "setattr", "hasattr", "delattr"}


def defined(tree: ast.Module) -> Iterator[str]:
    """The private names that a module of ours defines: functions, classes, variables, attributes and fields."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Attribute(attr="__setattr__"), args=[_, ast.Constant(value=str(name)), _]):
                yield name


def used(tree: ast.Module, ours: set[str]) -> Iterator[tuple[int, str]]:
    """The lines of a module that take a private name that is not ``ours``, or replace a part of another module."""
    modules = set(imported(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if PRIVATE.fullmatch(name) and name not in ours | OF_TUPLES:
                yield node.lineno, ast.unparse(node)
            case ast.Import() | ast.ImportFrom():
                yield from ((node.lineno, name) for name in private_imports(node))
            case ast.Call(func=ast.Name(id=function), args=[_, ast.Constant(value=str(name)), *_]) if (
                function in REFLECTION and PRIVATE.fullmatch(name) and name not in ours | OF_TUPLES
            ):
                yield node.lineno, ast.unparse(node)
            case ast.Constant(value=str(text)) if SCALA.search(text):
                yield node.lineno, text
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name in modules - {"sys"}:
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id="setattr" | "vars"), args=[ast.Name(id=name), *_]) if name in modules:
                yield node.lineno, ast.unparse(node)
            case ast.Subscript(value=ast.Attribute(attr="modules"), ctx=ast.Store() | ast.Del()):
                yield node.lineno, ast.unparse(node)
            case ast.Attribute(value=ast.Name(id="sys"), attr="meta_path" | "path_hooks"):
                yield node.lineno, ast.unparse(node)


def imported(tree: ast.Module) -> Iterator[str]:
    """The names that imports of other libraries bind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] not in OURS:
            yield from (alias.asname or alias.name for alias in node.names)


def private_imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The private names of an import. ``_typeshed`` is for type checkers only."""
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        name = f"{module}.{alias.name}".strip(".")
        parts = name.split(".")
        if parts[0] not in (*OURS, "_typeshed", "__future__") and any(map(PRIVATE.fullmatch, parts)):
            yield name


def test_modules_take_no_private_name_of_another_library() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    ours = {name for path, tree in trees.items() if path != FOR_SPARK for name in defined(tree)}
    taken = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path, tree in trees.items()
        if path != FOR_SPARK
        for line, what in used(tree, ours)
        if (str(path.relative_to(ROOT)), what) != NRT
    ]
    assert taken == []


@pytest.mark.parametrize(
    "program",
    [
        "session.sparkContext._jvm.org",
        "from pyspark import SparkContext\nSparkContext._gateway = None",
        "getattr(jvm.org.apache.spark.DataSourceManager, 'MODULE$')",
        "hasattr(options, '_nrt')",
        "from typer._coercion import build_runtime_param",
        "import pyarrow._dataset",
        "import typer.core\ntyper.core = 1",
        "import typer\nvars(typer)['x'] = 1",
        "import sys\nsys.modules['scipy'] = None",
        "import sys\nsys.meta_path.insert(0, finder)",
        "import os\nos._exit(0)",
    ],
)
def test_private_name_is_noticed(program: str) -> None:
    assert list(used(ast.parse(program), set()))


@pytest.mark.parametrize(
    "program",
    ["self._ours = 1\nother._ours", "row._replace(a=1)", "import os\nos.environ['A'] = 'b'", "x.__class__"],
)
def test_own_and_public_names_are_not_taken_for_private_ones(program: str) -> None:
    tree = ast.parse(program)
    assert list(used(tree, set(defined(tree)))) == []


def test_the_module_for_spark_is_needed() -> None:
    assert list(used(ast.parse(FOR_SPARK.read_text(encoding="utf-8")), set()))
    assert isinstance(FOR_SPARK, Path)
