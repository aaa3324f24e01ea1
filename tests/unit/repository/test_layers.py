"""What may import what, and the house rules a reader relies on."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

JVM = {"pyspark", "delta", "py4j"}
HEAVY = (*sorted(JVM), "numba", "pandas", "pyarrow", "great_expectations")
SHORTEST, LONGEST = 30, 500


# From the lowest to the highest. Each package may import those of lower layers, and nothing else of ours.
LAYERS = (
    {"jbod_model.errors", "jbod_model.ids", "jbod_model.java"},
    {"jbod_model.wire"},
    {"jbod_model.formats", "jbod_model.profiles", "jbod_model.storage"},
    {"jbod_model.replay"},
    {"jbod_model.loss", "jbod_model.controller", "jbod_model.broker"},
    {"jbod_model.audit", "jbod_model.whatif"},
    {"jbod_model.next_start", "jbod_model.plan", "jbod_model.restart"},
    {"pipelines.java"},
    {"pipelines.start"},
    {"pipelines.storage"},
    {"pipelines.settings"},
    {"pipelines.formats", "pipelines.lake", "pipelines.quorum"},
    {"pipelines.fold", "pipelines.spark"},
    {"pipelines.ask", "pipelines.mirror"},
    {"pipelines.plan", "pipelines.source"},
    {"pipelines.run"},
    {"pipelines.frames"},
    {"pipelines.upkeep", "pipelines.audit"},
    {"pipelines.check"},
    {"pipelines.check.expectations"},
    {"pipelines.show"},
    {"pipelines.report", "pipelines.metrics"},
    {"pipelines.fleet"},
    {"pipelines.cli"},
)
MOST_AT_ROOT = {"pipelines": 4, "jbod_model": 10}


def modules(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


@cache
def imports(module: Path) -> list[ast.Import | ast.ImportFrom]:
    """All imports of the module, those of functions included."""
    nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(module: Path) -> Iterator[str]:
    """Top-level names of everything imported anywhere in the module, relative imports as the package itself."""
    for node in imports(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module if node.level == 0 and node.module else module.relative_to(ROOT).parts[0]


def module_name(module: Path) -> str:
    parts = module.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(module): module for module in modules("jbod_model", "pipelines")}


def package_of(name: str) -> str:
    """The package of a module; a module at the root of a tree stands for itself."""
    is_package = NAMES[name].name == "__init__.py"
    return name if is_package or name.count(".") == 1 else name.rpartition(".")[0]


def imported_modules(module: Path) -> Iterator[str]:
    """Our modules that are imported anywhere in the module, functions and TYPE_CHECKING included."""
    for node in imports(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in NAMES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in NAMES or node.module in NAMES:
                    yield full if full in NAMES else node.module


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


def test_product_never_imports_the_laboratory() -> None:
    """It is outside the wheel."""
    offenders = {
        f"{module.relative_to(ROOT)}: {name}"
        for module in modules("jbod_model", "pipelines")
        for name in imported(module)
        if name.split(".")[0] in {"lab", "tests"}
    }
    assert offenders == set()


def test_fold_knows_neither_spark_nor_the_files_of_a_lake() -> None:
    """Of a lake it has the schemas."""
    ours = ("jbod_model", "pipelines.fold", "pipelines.formats", "pipelines.lake.tables")
    allowed = {*sys.stdlib_module_names, "numpy", "pyarrow", "jbod_model", "pipelines"}
    offenders = {
        f"{module.relative_to(ROOT)}: {name}"
        for module in modules("pipelines/fold")
        for name in {*(name.split(".")[0] for name in imported(module)), *imported_modules(module)}
        if (name not in allowed if "." not in name else not name.startswith(ours))
    }
    assert offenders == set()


def test_laboratory_has_at_most_10_000_lines() -> None:
    assert sum(module.read_text(encoding="utf-8").count("\n") for module in modules("lab")) <= 10_000


def test_public_classes_have_names_of_their_own() -> None:
    """A name means one thing in the whole product."""
    homes: dict[str, list[str]] = {}
    for name, module in NAMES.items():
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_every_package_has_its_layer() -> None:
    roots = {"jbod_model", "pipelines"}
    assert {package_of(name) for name in NAMES} - roots == set().union(*LAYERS)


def test_package_imports_only_packages_of_lower_layers() -> None:
    layer = {package: level for level, packages in enumerate(LAYERS) for package in packages}
    wrong = {
        f"{name} -> {other}"
        for name, module in NAMES.items()
        if name not in {"jbod_model", "pipelines"}
        for other in imported_modules(module)
        if package_of(other) != package_of(name)
        and layer.get(package_of(other), -1) >= layer.get(package_of(name), len(LAYERS))
    }
    assert wrong == set()


def test_modules_import_one_another_without_a_circle() -> None:
    imports = {name: set(imported_modules(module)) - {name} for name, module in NAMES.items()}
    while free := {name for name, others in imports.items() if not others & imports.keys()}:
        for name in free:
            del imports[name]
    assert {name: others & imports.keys() for name, others in imports.items()} == {}


@pytest.mark.parametrize("tree", MOST_AT_ROOT)
def test_tree_has_few_modules_at_its_root(tree: str) -> None:
    at_root = [module.name for module in (ROOT / tree).glob("*.py") if module.name != "__init__.py"]
    assert len(at_root) <= MOST_AT_ROOT[tree], at_root


@pytest.mark.parametrize("package", ["ask", "formats", "lake"])
def test_package_never_imports_spark(package: str) -> None:
    offenders = {
        f"{module.relative_to(ROOT)}: {name}"
        for module in modules(f"pipelines/{package}")
        for name in imported(module)
        if name.split(".")[0] in JVM or name == "pipelines.spark.session"
    }
    assert offenders == set()


@pytest.mark.parametrize("module", ["pipelines.cli.main", "pipelines.lake.reader", "pipelines.ask.offline_replicas"])
def test_questions_start_without_heavy_modules(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


def test_modules_stay_readable_in_one_sitting() -> None:
    lengths = {
        str(module.relative_to(ROOT)): module.read_text(encoding="utf-8").count("\n")
        for module in modules("jbod_model", "pipelines", "lab")
        if module.name != "__init__.py"
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}
    assert [name for name, length in lengths.items() if length < SHORTEST and not name.startswith("lab/")] == []


def test_tracked_files_hold_no_path_of_one_machine() -> None:
    path = re.compile(rb"(?<![\w.$-])/(?:work|root|home/[a-z]+)/|\.\./shared|/tmp/(?:v|o)/")
    text = {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".java", ".xml", ".sh", ".json", ".ipynb", ".svg", ""}
    offenders = [
        str(file.relative_to(ROOT))
        for file in tracked()
        if file.suffix in text and file != Path(__file__) and path.search(file.read_bytes())
    ]
    assert offenders == []
