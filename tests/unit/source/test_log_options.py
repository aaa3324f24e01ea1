"""The options of the data source ``kraft_metadata``."""

from __future__ import annotations

import pytest

from jbod_model.errors import UsageError
from pipelines.source.log_options import Options


@pytest.mark.parametrize(
    ("given", "tail"),
    [
        ({}, "wait"),
        ({"tail": "stop"}, "stop"),
        ({"cutTail": "stop"}, "stop"),
        ({"cutTail": "fail"}, "stop"),
        ({"tail": "wait", "cutTail": "fail"}, "wait"),
    ],
)
def test_option_tail_has_its_value_under_both_names_and_the_new_name_wins(given: dict[str, str], tail: str) -> None:
    assert Options.read({"path": "log", **given}).tail == tail


@pytest.mark.parametrize("name", ["tail", "cutTail"])
def test_option_tail_with_an_unknown_value_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"option {name} is 'go', not one of wait, stop, fail"):
        Options.read({"path": "log", name: "go"})
