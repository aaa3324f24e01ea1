"""What an operator's action gives up (docs/spec/loss.md, Actions)."""

from __future__ import annotations

from jbod_model.ids import Uuid
from jbod_model.loss.fate import OperatorAction, given_up_by, last_copies
from tests.unit.model.loss.loss_story import UNASSIGNED, A, B, C, D, Story, alone, pair


def given_up(story: Story, kind: str, broker: int | None = None, directory: Uuid | None = None) -> list[int]:
    action = OperatorAction(kind=kind, broker_id=broker, directory=directory)  # type: ignore[arg-type]
    return [copy.broker_id for copy in given_up_by(action, story.fate)]


def failed() -> Story:
    """The disk with the only copy failed while its broker runs."""
    return alone().broker(1, B).version({1: A}, isr=(1,))


def test_last_copies_are_those_that_hold_everything_while_none_of_them_is_online() -> None:
    """R-ACT-1."""
    assert last_copies(pair().fate) == ()
    assert [copy.broker_id for copy in last_copies(failed().fate)] == [1]
    both_down = pair().broker(1, A, B, fenced=True).broker(2, C, D, fenced=True).version({1: A, 2: C}, isr=(1, 2))
    assert [copy.broker_id for copy in last_copies(both_down.fate)] == [1, 2]
    one_up = both_down.broker(2, C, D)
    assert last_copies(one_up.fate) == ()


def test_copy_that_a_starting_process_reported_is_a_last_copy_and_may_lie_where_it_lay() -> None:
    """R-ACT-1, R-ACT-3, R-COPY-12: the old directory was said to be safe to remove. kafka-4.0.1, offset 530."""
    story = alone().broker(1, A, B, starting=True).version({1: B}, isr=(1,), leader=1)
    assert [copy.broker_id for copy in last_copies(story.fate)] == [1]
    assert given_up(story, "replace", 1, A) == [1]
    assert given_up(story, "replace", 1, B) == [1]
    story = story.broker(1, A, B, process=2)
    assert last_copies(story.fate) == ()
    assert given_up(story, "replace", 1, A) == []


def test_partition_that_went_on_has_no_last_copies_offline() -> None:
    """R-ACT-1."""
    story = failed().broker(1, B, process=2).version({1: B}, isr=(1,))
    assert [copy.given_up for copy in last_copies(story.fate)] == ["recreated"]
    assert last_copies(story.version({1: B}, isr=(1,), leader=1).fate) == ()


def test_restart_with_the_broken_disk_in_log_dirs_gives_up_no_copy_that_was_placed() -> None:
    """R-ACT-2."""
    assert given_up(failed(), "restart", 1) == []
    assert given_up(failed(), "bring back", 1, A) == []


def test_restart_gives_up_a_copy_that_no_record_has_placed_and_that_may_be_on_the_broken_disk() -> None:
    """R-ACT-2."""
    story = alone(UNASSIGNED, A, B).broker(1, B, fenced=True).version({1: UNASSIGNED}, isr=(1,))
    assert given_up(story, "restart", 1) == [1]
    assert given_up(story, "bring back", 1, A) == []


def test_copy_that_no_record_has_placed_is_online_only_if_all_its_places_are() -> None:
    """R-ACT-1: its broker led, and a blank disk in the place of the failed one lost the data."""
    story = alone(UNASSIGNED, A, B)
    assert last_copies(story.fate) == ()
    story = story.broker(1, B)
    assert [copy.broker_id for copy in last_copies(story.fate)] == [1]
    assert given_up(story, "replace", 1, A) == [1]
    assert given_up(story, "restart", 1) == [1]
    assert given_up(story, "bring back", 1, A) == []


def test_blank_disk_gives_up_the_copy_in_its_place_and_those_in_other_directories_that_are_offline() -> None:
    """R-ACT-3."""
    assert given_up(failed(), "replace", 1, A) == [1]
    assert given_up(failed(), "replace", 1, B) == []
    two_gone = alone(A, A, B, C).broker(1, C).version({1: A}, isr=(1,))
    assert given_up(two_gone, "replace", 1, B) == [1]
    assert given_up(two_gone, "replace", 2, A) == []


def test_unregistration_gives_up_the_copies_of_the_broker() -> None:
    """R-ACT-4."""
    assert given_up(failed(), "unregister", 1) == [1]
    assert given_up(failed(), "unregister", 2) == []


def test_unclean_election_gives_up_every_last_copy() -> None:
    """R-ACT-5."""
    assert given_up(failed(), "elect") == [1]
    assert given_up(pair(), "elect") == []


def test_reassignment_gives_up_every_last_copy() -> None:
    """R-ACT-6: where unclean elections are on, an added, empty replica is elected."""
    assert given_up(failed(), "reassign") == [1]
