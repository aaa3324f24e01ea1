"""The switch of the start-up tricks."""

from __future__ import annotations

import pytest

from pipelines.settings import load
from pipelines.start.process import TRICKS, VARIABLE, choose, is_on


@pytest.fixture(autouse=True)
def _variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "true")


@pytest.mark.parametrize(("chosen", "on"), [(True, set(TRICKS)), (False, set()), (("home", "jvm"), {"home", "jvm"})])
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
    assert not is_on("jvm")
