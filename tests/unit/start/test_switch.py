"""The switch of the start-up tricks, and what stands in for something private that is not there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pipelines.settings import load
from pipelines.start.switch import TRICKS, VARIABLE, choose, is_on
from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def _variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "true")


@pytest.mark.parametrize(("chosen", "on"), [(True, set(TRICKS)), (False, set()), (("home", "exit"), {"home", "exit"})])
def test_switch_turns_on_all_none_or_the_named_tricks(chosen: object, on: set[str]) -> None:
    choose(chosen)  # type: ignore[arg-type]
    assert {trick for trick in TRICKS if is_on(trick)} == on


@pytest.mark.parametrize("text", ["true", "TRUE", "certainly", ""])
def test_switch_counts_as_on_where_the_variable_is_not_false(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert is_on("home")


@pytest.mark.parametrize(("text", "setting"), [("false", False), ('["home"]', ("home",)), ("0", False)])
def test_switch_and_setting_read_the_variable_alike(
    monkeypatch: pytest.MonkeyPatch, text: str, setting: object
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert load().spark.fast_start == setting
    assert is_on("home") == (setting == ("home",))
    assert not is_on("exit")


def _run(program: str, **env: str) -> list[str]:
    clean = {name: text for name, text in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=clean | env, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


KERNEL = """
import sys
from pipelines.start.numba_import import import_numba
import_numba()
import numba, numpy
assert numba.njit(lambda column: column[0])(numpy.ones(1)) == 1
print("scipy.linalg" in sys.modules)
"""


def test_first_kernel_loads_scipy_only_without_the_trick() -> None:
    assert _run(KERNEL) == ["False"]
    assert _run(KERNEL, **{VARIABLE: "false"}) == ["True"]


def test_numba_without_the_private_flag_is_used_as_it_is() -> None:
    hidden = "import sys; sys.modules['numba.np'] = None\nfrom pipelines.start.numba_import import import_numba\n"
    assert _run(hidden + "import_numba(); print('scipy.linalg' in sys.modules)") == ["False"]
