"""Tests run against mutants, each mutant in a fork.

The tests are collected once. A fork of that process gives the mutated function its other code and runs the tests that
cover it, until one fails. A mutant of what runs at import, a table or a default, is tried in a fork of a process that
has imported nothing yet.
"""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import os
import resource
import shutil
import signal
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from lab.mutation.mutants import Mutant
from tests.support.paths import ROOT

OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--capture=sys")
MEMORY = 4 << 30
MUTATED = (f"{ROOT}/jbod_model/", f"{ROOT}/lab/")
"""The trees whose functions are mutated."""
FIRST = 40

SURVIVED = "survived"
TOO_SLOW = "killed: a test does not end"


@dataclass(frozen=True)
class Trial:
    """A mutant with the tests to run, in order, and the seconds that each takes without it."""

    mutant: Mutant
    tests: tuple[str, ...]
    seconds: tuple[float, ...]


Verdict = tuple[Trial, str]
Attempt = Callable[[Trial], str]


class Stable:
    """A plugin of pytest: hypothesis tries the same examples in each run, keeps none, and does not shrink them."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Derive from the profile that tests/conftest.py loads."""
        settings.register_profile(
            "mutation",
            settings.get_profile("jbod"),
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
        )
        settings.load_profile("mutation")


def run_in_functions(suite: Sequence[str], trials: Iterable[Trial], jobs: int, done: Callable[..., None]) -> None:
    """Try mutants of functions. ``done`` is called with each trial and its verdict, in another process."""

    def run() -> int:
        plugin = _Warm(trials, jobs, done)
        pytest.main([*OPTIONS, *suite], plugins=[Stable(), plugin])
        return int(plugin.left)

    if in_fork(run):
        raise RuntimeError(f"the tests cannot be collected: pytest --collect-only {' '.join(suite)}")


def run_at_import(trials: Iterable[Trial], jobs: int, done: Callable[..., None]) -> None:
    """Try mutants of what runs at import. No module of theirs may have been imported."""
    for trial, verdict in _in_forks(trials, _fresh, jobs):
        done(trial, verdict)


# FORKS


def in_fork(run: Callable[[], int]) -> int:
    """The exit status of a fork that runs this. It prints to standard error."""
    child = os.fork()
    if not child:
        code = 1
        with suppress(Exception, SystemExit):
            os.dup2(2, 1)
            code = run()
        sys.stderr.flush()
        os._exit(code)
    return os.waitpid(child, 0)[1]


def _in_forks(trials: Iterable[Trial], attempt: Attempt, jobs: int) -> Iterator[Verdict]:
    running: dict[int, tuple[Trial, int, Path]] = {}
    for trial in trials:
        if len(running) >= jobs:
            yield _next(running)
        folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            with suppress(BaseException):
                os.write(writer, _alone(trial, attempt, folder).encode())
            os._exit(0)
        os.close(writer)
        running[child] = trial, reader, folder
    while running:
        yield _next(running)


def _next(running: dict[int, tuple[Trial, int, Path]]) -> Verdict:
    child, status = os.wait()
    trial, reader, folder = running.pop(child)
    with os.fdopen(reader, "rb") as pipe:
        verdict = pipe.read().decode()
    shutil.rmtree(folder, ignore_errors=True)
    if verdict:
        return trial, verdict
    ended = os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGPROF, signal.SIGALRM}
    return trial, TOO_SLOW if ended else "killed: the process ends"


def _alone(trial: Trial, attempt: Attempt, folder: Path) -> str:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    tempfile.tempdir = str(folder)
    return attempt(trial)


def _tried(items: dict[str, pytest.Item], tests: Sequence[str], seconds: Sequence[float]) -> str:
    """Run tests until one fails. A test that takes much longer than without the mutant ends the process."""
    for place, (test, usual) in enumerate(zip(tests, seconds, strict=True)):
        limit = 3 + 8 * usual
        signal.setitimer(signal.ITIMER_PROF, limit)
        signal.alarm(int(60 + 10 * limit))
        following = items[tests[place + 1]] if place + 1 < len(tests) else None
        if any(report.failed for report in runtestprotocol(items[test], log=False, nextitem=following)):
            return f"killed by {test}"
    return SURVIVED


# FUNCTIONS


@dataclass
class _Warm:
    """A plugin of pytest: instead of running the tests, forks for each mutant."""

    trials: Iterable[Trial]
    jobs: int
    done: Callable[..., None]
    left: bool = True
    functions: dict[tuple[str, str, int], list[types.FunctionType]] = field(default_factory=dict)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try every mutant."""
        items = {item.nodeid: item for item in session.items}
        for each in gc.get_objects():
            if isinstance(each, types.FunctionType) and each.__code__.co_filename.startswith(MUTATED):
                self.functions.setdefault(_place(each.__code__), []).append(each)
        gc.collect()
        gc.freeze()

        def attempt(trial: Trial) -> str:
            session.config._tmp_path_factory._basetemp = Path(tempfile.gettempdir())  # type: ignore[attr-defined]
            self._mutate(trial.mutant)
            return _tried(items, trial.tests, trial.seconds)

        for trial, verdict in _in_forks(self.trials, attempt, self.jobs):
            self.done(trial, verdict)
        self.left = False
        return True

    def _mutate(self, mutant: Mutant) -> None:
        """Give the function the code of the mutant, wherever it is already referred to."""
        path = str(ROOT / mutant.path)
        changed = False
        for code in _codes(_compiled(mutant)):
            if code.co_qualname == mutant.function:
                for function in self.functions.get(_place(code), ()):
                    function.__code__ = code
                    changed = True
        if not changed:
            raise LookupError(f"no function {mutant.function} of {path} is loaded")


def _place(code: types.CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _compiled(mutant: Mutant) -> types.CodeType:
    path = ROOT / mutant.path
    tree = mutant.tree(path.read_text(encoding="utf-8"))
    return compile(tree, str(path), "exec")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _codes(each)


# IMPORTS


def _fresh(trial: Trial) -> str:
    """Import the mutated module and collect the tests: first those of the quickest, then the rest."""
    sys.meta_path.insert(0, _Importer(trial.mutant))
    for part in (slice(0, FIRST), slice(FIRST, None)):
        tests, seconds = trial.tests[part], trial.seconds[part]
        if tests:
            files = sorted({test.partition("::")[0] for test in tests})
            only = _Only(tests, seconds)
            pytest.main([*OPTIONS, f"--basetemp={tempfile.gettempdir()}/pytest", *files], plugins=[Stable(), only])
            if only.verdict != SURVIVED:
                return only.verdict
    return SURVIVED


@dataclass
class _Only:
    """A plugin of pytest: runs these tests in this order."""

    tests: Sequence[str]
    seconds: Sequence[float]
    verdict: str = "killed at import"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run them, unless the collection failed."""
        items = {item.nodeid: item for item in session.items}
        if not session.testsfailed and items.keys() >= set(self.tests):
            self.verdict = _tried(items, self.tests, self.seconds)
        return True


class _Importer(importlib.machinery.SourceFileLoader):
    """Finds the mutated module in place of the file's."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        name = mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        importlib.machinery.SourceFileLoader.__init__(self, name, str(ROOT / mutant.path))

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The mutated module's place."""
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> types.CodeType:
        """Its code."""
        return _compiled(self.mutant)
