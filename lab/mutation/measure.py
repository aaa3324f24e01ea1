"""Which lines each test runs, and how long it takes."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import coverage
import pytest

from lab.mutation.mutants import Mutant, digest
from lab.mutation.session import OPTIONS, Stable, Trial, in_fork
from tests.support.paths import ROOT


@dataclass
class Measured:
    """What a run without a mutant showed.

    ``lines``: of each test, by node id, the lines that it runs of each module. ``imported``: the lines that run while
    modules are imported and tests collected. ``seconds``: the processor's time of each test. ``files``, ``modules``:
    the digests of test files and modules at that time.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    imported: dict[str, list[int]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)

    def covering(self, mutant: Mutant) -> list[str]:
        """The tests that run one of the mutant's lines, the quickest first.

        A mutant of what runs at import may affect every test that runs a line of the module, or that reads a table of
        it, which runs no line: those of the files that name the module.
        """
        if self.on_import(mutant):
            naming = {file for file in self.files if _imports(mutant.path, (ROOT / file).read_text(encoding="utf-8"))}
            tests = [
                test for test, lines in self.lines.items() if mutant.path in lines or test.partition("::")[0] in naming
            ]
        else:
            wanted = set(mutant.lines)
            tests = [test for test, lines in self.lines.items() if not wanted.isdisjoint(lines.get(mutant.path, ()))]
        return sorted(tests, key=lambda test: self.seconds[test])

    def trial(self, mutant: Mutant, tests: Sequence[str], budget: float) -> Trial:
        """The mutant with its tests in this order, as many as ``budget`` seconds allow."""
        chosen: list[str] = []
        total = 0.0
        for test in tests:
            total += self.seconds[test]
            if chosen and total > budget:
                break
            chosen.append(test)
        return Trial(mutant, tuple(chosen), tuple(self.seconds[test] for test in chosen))

    def on_import(self, mutant: Mutant) -> bool:
        """Whether a line of the mutant runs while modules are imported and tests collected."""
        return not mutant.in_function or not set(mutant.lines).isdisjoint(self.imported.get(mutant.path, ()))

    def without(self, stale: set[str]) -> Measured:
        """What is known of the tests of other files."""
        kept = {test for test in self.seconds if test.partition("::")[0] in self.files.keys() - stale}
        return replace(
            self,
            seconds={test: each for test, each in self.seconds.items() if test in kept},
            lines={test: each for test, each in self.lines.items() if test in kept},
            files={file: each for file, each in self.files.items() if file not in stale},
        )


def measured(suite: Sequence[str], sources: Sequence[str], path: Path) -> Measured:
    """What each test of the suite runs. The result is kept in ``path``; only test files that changed, or that run a
    module that changed, run again.

    Raises RuntimeError if a test fails: every mutant would seem to be noticed.
    """
    files, modules = _digests(suite, "test_*.py"), _digests(sources, "*.py")
    known = Measured(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Measured()
    changed = {module for module in modules if known.modules.get(module) != modules[module]}
    outdated = {test.partition("::")[0] for test, lines in known.lines.items() if not changed.isdisjoint(lines)}
    outdated |= {file for file in known.files if not (ROOT / file).exists()}
    stale = {file for file in files if file in outdated or known.files.get(file) != files[file]}
    if stale:
        print(f"running the tests of {len(stale)} files, to see which lines each runs", file=sys.stderr)
        known = known.without(stale | outdated)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".new")
        if in_fork(lambda: _measure(sorted(stale), sources, part)):
            raise RuntimeError("a test fails without any mutant")
        new = json.loads(part.read_text(encoding="utf-8"))
        known.seconds |= new["seconds"]
        known.lines |= new["lines"]
        for module, lines in new["imported"].items():
            before = () if module in changed else known.imported.get(module, ())
            known.imported[module] = sorted({*lines, *before})
        known.modules = modules
        known.files |= {file: files[file] for file in stale}
        part.write_text(json.dumps(asdict(known)), encoding="utf-8")
        part.replace(path)
    return known


def _imports(path: str, text: str) -> bool:
    """Whether a test file imports the module at ``path``, or names of it."""
    package, _, name = path.removesuffix(".py").replace("/", ".").rpartition(".")
    return bool(
        re.search(rf"^(from|import) {package}\.{name}\b|^from {package} import .*\b{name}\b", text, re.MULTILINE)
    )


def _digests(folders: Sequence[str], pattern: str) -> dict[str, str]:
    paths = [ROOT / each for each in folders]
    files = [each for path in paths for each in (sorted(path.rglob(pattern)) if path.is_dir() else [path])]
    return {each.relative_to(ROOT).as_posix(): digest(each.read_text(encoding="utf-8")) for each in files}


def _measure(files: Sequence[str], sources: Sequence[str], path: Path) -> int:
    recorder = coverage.Coverage(data_file=None, source=[str(ROOT / each) for each in sources], config_file=False)
    timer = _Timer(recorder)
    recorder.start()
    code = pytest.main([*OPTIONS, "-x", *files], plugins=[Stable(), timer])
    recorder.stop()
    if code:
        return int(code)
    lines: dict[str, dict[str, list[int]]] = {test: {} for test in timer.seconds}
    imported: dict[str, list[int]] = {}
    data = recorder.get_data()
    for file in data.measured_files():
        name = Path(file).relative_to(ROOT).as_posix()
        for line, tests in sorted(data.contexts_by_lineno(file).items()):
            for test in tests:
                of = lines[test] if test else imported
                of.setdefault(name, []).append(line)
    path.write_text(json.dumps({"seconds": timer.seconds, "lines": lines, "imported": imported}), encoding="utf-8")
    return 0


@dataclass
class _Timer:
    """A plugin of pytest: tells the recorder which test runs, and takes its time."""

    recorder: coverage.Coverage
    seconds: dict[str, float] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record under the name of the test."""
        self.recorder.switch_context(item.nodeid)
        began = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - began
        self.recorder.switch_context("")
        return result
