"""The options of the data source ``kraft_metadata``."""

from __future__ import annotations

import pytest

from jbod_model.errors import UsageError
from pipelines.source.log_options import LogOptions


@pytest.mark.parametrize(
    ("given", "tail"),
    [
        ({}, "wait"),
        ({"tail": "stop"}, "stop"),
    ],
)
def test_option_tail_is_read_and_waits_by_default(given: dict[str, str], tail: str) -> None:
    assert LogOptions.read({"path": "log", **given}).tail == tail


@pytest.mark.parametrize("value", ["go", "fail"])
def test_option_tail_with_an_unknown_value_is_refused_by_its_name(value: str) -> None:
    with pytest.raises(UsageError, match=f"option tail is '{value}', not one of wait, stop"):
        LogOptions.read({"path": "log", "tail": value})
