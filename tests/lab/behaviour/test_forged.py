"""Logs with one record that the controller did not write: refused, and where."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest

from jbod_model.formats.log import LogEntry
from jbod_model.formats.records import BrokerRegistrationChangeRecord, VersionedRecord
from lab.behaviour import Behaviour, Refusal, Step, Verdict
from tests.support.behaviours import guessed, log_of, with_request_logs
from tests.support.forged import CHANGES, Forged, forgeries, swapped
from tests.support.volume import amount, sampled

SMALL = "kafka-3.9.2-upgrade"
LARGE = "kafka-3.7.2"

ALWAYS = ("another directory", "another epoch", "another leader", "other directories left")
"""What no action of the specification explains, whoever asks for whatever."""


@cache
def first_free(kafka: str) -> int:
    """The place after the bootstrap transaction, whose content is free."""
    return 1 + max(
        place
        for place, entry in enumerate(log_of(kafka))
        if isinstance(entry.record, VersionedRecord) and type(entry.record.record).__name__ == "EndTransactionRecord"
    )


@cache
def begun(kafka: str) -> frozenset[int]:
    """The offsets at which actions of the real log begin."""
    entries = log_of(kafka)
    return frozenset(step.from_offset for step in Behaviour(lambda: entries) if isinstance(step, Step))


def some(kafka: str, what: str, most: int) -> list[tuple[int, Forged]]:
    entries = log_of(kafka)
    made = swapped(entries) if what == "swapped" else forgeries(entries, what)
    cases = [case for case in made if case[0] >= first_free(kafka)]
    return random.Random(16).sample(cases, min(len(cases), most))


def where(verdict: Verdict, forged: LogEntry) -> str:
    """The place of the refusal beside that of the record that was changed."""
    if verdict.end is None:
        return "accepted"
    assert isinstance(verdict.end, Refusal)
    if verdict.end.offset < forged.header.base_offset:
        return "too early"
    return "there" if verdict.end.offset <= forged.header.last_offset else "later"


@pytest.mark.parametrize("what", sampled(ALWAYS, 2))
def test_without_requests_it_is_refused_in_its_batch(what: str) -> None:
    """R-BEHAVE-1, R-BEHAVE-3."""
    for kafka, most in ((SMALL, amount(5, 10_000)), (LARGE, amount(1, 40))):
        cases = some(kafka, what, most)
        assert cases
        assert {where(guessed(log), log_of(kafka)[at]) for at, log in cases} == {"there"}


@pytest.mark.parametrize("what", sampled(sorted({*CHANGES, "swapped"} - set(ALWAYS)), 2))
def test_without_requests_what_could_have_been_asked_for_shows_later_or_never(what: str) -> None:
    """An assignment or an in-sync set that is missing or another one is a behaviour, until something depends on it."""
    places: Counter[str] = Counter()
    for kafka, most in ((SMALL, amount(8, 10_000)), (LARGE, amount(1, 40))):
        places += Counter(where(guessed(log), log_of(kafka)[at]) for at, log in some(kafka, what, most))
    assert "too early" not in places
    assert places["there"] >= places.total() / 4


@pytest.mark.parametrize("what", sampled([*CHANGES, "swapped"], 3))
def test_with_requests_it_is_refused_before_the_next_request_is_over(what: str) -> None:
    """R-BEHAVE-7, but for a broker that is fenced again, which nobody asks for, and for records of two actions."""
    for kafka, most in ((SMALL, amount(6, 10_000)), (LARGE, amount(1, 40))):
        for at, log in some(kafka, what, most):
            forged = log_of(kafka)[at]
            verdict = with_request_logs(kafka, log)
            if verdict.end is None and what == "swapped":
                assert log_of(kafka)[at + 1].offset in begun(kafka)
                continue
            if verdict.end is None:
                assert what == "a record less"
                assert isinstance(forged.record, VersionedRecord)
                assert isinstance(forged.record.record, BrokerRegistrationChangeRecord)
                continue
            assert isinstance(verdict.end, Refusal)
            assert forged.header.base_offset <= verdict.end.offset <= forged.header.last_offset + 4


def test_a_refusal_names_the_nearest_action_and_what_it_would_have_written() -> None:
    """R-BEHAVE-10."""
    entries = log_of(LARGE)
    at, log = next(case for case in forgeries(entries, "another directory") if case[0] > first_free(LARGE))
    end = with_request_logs(LARGE, log).end
    assert isinstance(end, Refusal)
    assert end.nearest is not None
    assert entries[at].record in end.expected
    assert log[at].record not in end.expected
    alone = guessed(log).end
    assert isinstance(alone, Refusal)
    assert (alone.nearest, alone.offset) == ("topics created", log[at].offset)
    assert log[at].record in alone.written
    end = guessed(next(forgeries(entries, "another epoch"))[1]).end
    assert isinstance(end, Refusal)
    assert (end.nearest, end.offset) == ("registration", entries[next(forgeries(entries, "another epoch"))[0]].offset)
