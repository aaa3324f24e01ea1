"""What may import what, and the house rules a reader relies on."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

JVM = {"pyspark", "delta", "py4j"}
HEAVY = (*sorted(JVM), "numba", "pandas", "pyarrow", "great_expectations")
LONGEST = 400


def modules(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


def imported(module: Path) -> Iterator[str]:
    """Top-level names of everything imported anywhere in the module, relative imports as the package itself."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module if node.level == 0 and node.module else module.relative_to(ROOT).parts[0]


def tracked() -> list[Path]:
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in out.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def test_model_imports_only_the_standard_library() -> None:
    foreign = {
        f"{module.relative_to(ROOT)}: {name}"
        for module in modules("jbod_model")
        for name in imported(module)
        if name.split(".")[0] not in {*sys.stdlib_module_names, "jbod_model"}
    }
    assert foreign == set()


@pytest.mark.parametrize("package", ["ask", "formats"])
def test_package_never_imports_spark(package: str) -> None:
    offenders = {
        f"{module.relative_to(ROOT)}: {name}"
        for module in modules(f"pipelines/{package}")
        for name in imported(module)
        if name.split(".")[0] in JVM or name == "pipelines.session"
    }
    assert offenders == set()


@pytest.mark.parametrize("module", ["pipelines.cli", "pipelines.ask", "pipelines.ask.lake", "pipelines.ask.offline"])
def test_questions_start_without_heavy_modules(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


def test_modules_stay_readable_in_one_sitting() -> None:
    lengths = {
        str(module.relative_to(ROOT)): module.read_text(encoding="utf-8").count("\n")
        for module in modules("jbod_model", "pipelines")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_tracked_files_hold_no_path_of_one_machine() -> None:
    path = re.compile(rb"(?<![\w.$-])/(?:work|root|home/[a-z]+)/|\.\./shared|/tmp/(?:v|o)/")
    text = {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".java", ".xml", ".sh", ".json", ".ipynb", ".svg", ""}
    offenders = [
        str(file.relative_to(ROOT))
        for file in tracked()
        if file.suffix in text and file != Path(__file__) and path.search(file.read_bytes())
    ]
    assert offenders == []
