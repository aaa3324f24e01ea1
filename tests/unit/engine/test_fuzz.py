"""A few thousand mutated inputs for every reader of foreign bytes; docs/reliability.md has the counts of long runs."""

from __future__ import annotations

import pytest

from tests.fuzz.run import fuzz
from tests.fuzz.targets import targets


@pytest.mark.parametrize("name", sorted(targets()))
def test_reader_of_mutated_input_reads_it_or_refuses_it_with_one_error(name: str) -> None:
    assert fuzz(name, inputs=1500, seed="2026") is not None


@pytest.mark.parametrize("name", sorted(targets()))
def test_target_reads_what_it_starts_from(name: str) -> None:
    target = targets()[name]
    assert any(target.run(good) for good in target.seeds)
