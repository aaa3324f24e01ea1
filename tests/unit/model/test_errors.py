"""An error that crosses to another process arrives as what it was."""

from __future__ import annotations

import pickle
import traceback

import pytest

from jbod_model.broker.disks import IllegalMove, MoveEvent, MoveState
from jbod_model.errors import (
    JbodError,
    LogChanged,
    MalformedLog,
    ReplayViolation,
    UsageError,
    crossing,
    first_line_of,
    marked,
    restored,
)
from jbod_model.storage.problems import StorageProblem

ERRORS = (
    JbodError("plain"),
    UsageError("two\nlines, ü and {braces}"),
    MalformedLog("a/b.log", 7, 'batch "cut" off (R-LOG-5)'),
    LogChanged("a/b.log", -1, "gone"),
    ReplayViolation(12, "names a topic that does not exist (R-TOPIC-2, R-PART-1)"),
)


def contents(problem: JbodError) -> tuple[object, ...]:
    return type(problem), str(problem), {name: getattr(problem, name) for name in problem.FIELDS}, problem.rules


@pytest.mark.parametrize("problem", ERRORS)
def test_error_restored_from_its_mark_is_the_error(problem: JbodError) -> None:
    again = restored(marked(problem))
    assert again is not None
    assert contents(again) == contents(problem)
    assert contents(pickle.loads(pickle.dumps(problem))) == contents(problem)
    assert len(marked(problem).splitlines()) == 1


@pytest.mark.parametrize("problem", ERRORS)
def test_error_restored_from_a_report_of_its_traceback_is_the_error(problem: JbodError) -> None:
    def fails() -> None:
        with crossing():
            raise problem

    try:
        fails()
    except JbodError as caught:
        report = "".join(traceback.format_exception(caught))
    again = restored(f"[STREAM_FAILED] Query terminated: {report}\tat org.apache.spark.Something(File.scala:1)\n")
    assert again is not None
    assert contents(again) == contents(problem)


def test_error_that_cannot_be_made_of_its_fields_arrives_as_the_class_above_it() -> None:
    for problem in (IllegalMove(MoveState.NONE, MoveEvent.CONFIRMED), StorageProblem("/disk1", "is not formatted")):
        again = restored(marked(problem))
        assert again is not None
        assert (type(again), str(again)) == (JbodError, str(problem))


def test_text_without_a_mark_restores_nothing() -> None:
    assert restored("jbod_model.errors.MalformedLog: a: offset 3: cut") is None


def test_error_cites_its_rules() -> None:
    assert ERRORS[-1].rules == ("R-TOPIC-2", "R-PART-1")


def test_message_of_another_program_is_quoted_by_its_first_line_or_by_its_class() -> None:
    assert first_line_of(OSError("no space left\nat write()")) == "no space left"
    assert first_line_of(KeyboardInterrupt()) == "KeyboardInterrupt"
