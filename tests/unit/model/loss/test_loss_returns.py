"""Copies that come back with their disk (docs/spec/loss.md)."""

from __future__ import annotations

import pytest

from tests.unit.model.loss.loss_story import LOST, UNASSIGNED, A, B, C, D, Story, alone


def test_replica_assigned_back_to_the_disk_with_its_given_up_copy_has_that_copy() -> None:
    """R-COPY-13, R-LOSS-4: the old disk is mounted again before anybody led."""
    story = alone().version({1: A}, isr=(1,)).broker(1, B, process=2).version({1: B}, isr=(1,))
    assert story.loss.kind == "lost"
    story.broker(1, A, B, process=3).version({1: A}, isr=(1,))
    assert (story.loss.until, story.complete, story.copy(1).since) == (6, (1,), 1)


def test_replica_recreated_after_its_broker_was_unregistered_has_its_copy_again_with_its_disk() -> None:
    """Cause: the copy counted as given up with the registration, and so did not return."""
    story = alone().version({1: A}, isr=(1,)).unregister(1).broker(1, B, process=2).version({1: B}, isr=(1,))
    assert [loss.kind for loss in story.losses] == ["unreachable", "lost"]
    story.broker(1, A, process=3).version({1: A}, isr=(1,))
    assert (story.complete, story.losses[-1].until is not None) == ((1,), True)


def test_replica_recreated_after_it_was_lost_has_its_copy_again_with_its_disk() -> None:
    story = alone().version({1: A}, isr=(1,)).version({1: LOST}, isr=(1,)).broker(1, B, process=2)
    story.version({1: B}, isr=(1,)).broker(1, A, process=3).version({1: A}, isr=(1,))
    assert (story.complete, story.loss.until is not None) == ((1,), True)


def test_replica_assigned_back_after_another_log_was_written_has_lost_the_old_copy() -> None:
    """R-COPY-13, R-LOSS-6."""
    story = alone().version({1: A}, isr=(1,)).broker(1, B, process=2).version({1: B}, isr=(1,))
    story.version({1: B}, isr=(1,), leader=1).broker(1, A, B, process=3).version({1: A}, isr=(1,))
    assert (story.losses[0].until, story.copy(1).since) == (None, 4)


def test_replica_assigned_back_to_a_place_of_its_given_up_copy_has_that_copy_if_all_places_are_listed() -> None:
    """R-COPY-13: no record ever named A, where the log lies."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, B, C, process=2).version({1: C}, isr=(1,))
    assert story.loss.kind == "lost"
    story.broker(1, A, B, process=3).version({1: A}, isr=(1,))
    assert (story.loss.until, story.complete, story.copy(1).directory) == (6, (1,), A)
    assert story.copy(1).level == "unsure"  # since the registration without A


@pytest.mark.parametrize("first", ["report", "registration"])
def test_replica_placed_where_its_copy_can_lie_has_that_copy_although_the_disk_of_its_newer_one_is_there(
    first: str,
) -> None:
    """Cause: the newer log counted as moved, after an operator had moved its folder away as the advice says."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, C, process=2).version({1: C}, isr=(1,))
    assert story.loss.kind == "lost"
    if first == "report":
        story.broker(1, C, process=2, starting=True).version({1: A}, isr=(1,)).broker(1, A, B, C, process=3)
    else:
        story.broker(1, A, B, C, process=3).version({1: A}, isr=(1,))
    story.version({1: A}, isr=(1,), leader=1)
    assert (story.losses[0].until is not None, story.copy(1).since, story.copy(1).directory) == (True, 1, A)


def test_replica_recreated_again_in_a_place_of_its_given_up_copy_may_be_that_copy() -> None:
    """R-COPY-5, R-COPY-13: the log lies in A, which is away, and another one in B; or in B all the time."""
    story = Story().broker(1, A, B).broker(2, D).version({1: UNASSIGNED, 2: D}, isr=(1, 2), leader=2)
    story.version({1: UNASSIGNED, 2: D}, isr=(1,), leader=1).version({1: UNASSIGNED, 2: D}, isr=(1,))
    story.broker(1, A, B, starting=True).version({1: C, 2: D}, isr=(1,)).broker(1, C, process=2)
    assert story.loss.kind == "lost"
    story.broker(1, B, process=3).version({1: B, 2: D}, isr=(1,))
    assert story.copy(1).level == "unsure"
    assert story.version({1: B, 2: D}, isr=(1,), leader=1).losses[-1].kind == "may lack writes"


@pytest.mark.parametrize("in_session", [True, False])
def test_replica_recreated_beside_one_place_of_its_copy_lay_in_the_other(in_session: bool) -> None:
    """Cause: the copy counted as back when B was named, though the process that recreated it listed B all the time."""
    story = Story().broker(1, A, B).broker(2, D).version({1: UNASSIGNED, 2: D}, isr=(1, 2), leader=2)
    story.version({1: UNASSIGNED, 2: D}, isr=(1,), leader=1).version({1: UNASSIGNED, 2: D}, isr=(1,))
    if in_session:
        story.broker(1, A, B, starting=True).version({1: C, 2: D}, isr=(1,)).broker(1, B, C, process=2)
    else:
        story.broker(1, B, C, process=2).version({1: C, 2: D}, isr=(1,))
    assert (story.loss.kind, [copy.directory for copy in story.loss.copies]) == ("lost", [A])
    story.broker(1, B, process=3).version({1: B, 2: D}, isr=(1,))
    assert (story.copy(1).level, story.loss.until) == ("empty", None)
    assert story.broker(1, A, process=4).version({1: A, 2: D}, isr=(1,)).loss.until is not None


def test_copy_that_was_left_for_the_old_disk_returns_with_its_own_disk() -> None:
    """Cause: the copy in B was forgotten when A was mounted again. It led, and nothing was acknowledged since."""
    story = Story(2).broker(1, A).broker(2, D).version({1: A, 2: D}, isr=(1, 2), leader=1)
    story.version({1: A, 2: D}, isr=(1,)).broker(1, B, process=2).version({1: B, 2: D}, isr=(1,))
    since = story.version({1: B, 2: D}, isr=(1,), leader=1).copy(1).since
    story.version({1: B, 2: D}, isr=(1,)).broker(1, A, process=3).version({1: A, 2: D}, isr=(1,))
    story.broker(1, B, process=4).version({1: B, 2: D}, isr=(1,))
    assert (story.copy(1).since, story.copy(1).level) == (since, "complete")


def test_replica_that_moves_to_a_place_of_its_given_up_copy_does_not_have_that_copy() -> None:
    """Cause: the loss ended when the new, empty log moved from C to B, where the old one might have been."""
    story = Story().broker(1, A, B).broker(2, D).version({1: UNASSIGNED, 2: D}, isr=(1, 2), leader=2)
    story.version({1: UNASSIGNED, 2: D}, isr=(1,), leader=1).version({1: UNASSIGNED, 2: D}, isr=(1,))
    story.broker(1, B, process=2, fenced=True).version({1: C, 2: D}, isr=(1,)).broker(1, B, C, process=3)
    story.version({1: B, 2: D}, isr=(1,))
    assert (story.copy(1).level, story.loss.until) == ("empty", None)


def test_disk_of_an_earlier_copy_that_is_mounted_again_is_not_empty() -> None:
    """R-COPY-14. Cause: it followed a leader from B, so A lacks writes; but A counted as empty, and they as lost."""
    story = Story().broker(1, A).broker(2, D).version({1: A, 2: D}, isr=(1, 2), leader=2)
    story.broker(1, B, process=2).version({1: B, 2: D}, isr=(2,), leader=2).version({1: B, 2: D}, isr=(2,))
    story.broker(1, A, process=3).version({1: A, 2: D}, isr=(2,))
    assert story.copy(1).level == "partial"
    assert story.version({1: A, 2: D}, isr=(1,), leader=1).loss.kind == "may lack writes"


def test_disk_of_an_earlier_copy_that_was_empty_is_empty_when_it_is_mounted_again() -> None:
    """R-COPY-14."""
    story = Story().broker(1, A).broker(2, D).version({1: A, 2: D}, isr=(2,)).version({1: A, 2: D}, isr=(2,))
    story.broker(1, B, process=2).version({1: B, 2: D}, isr=(2,)).broker(1, A, process=3)
    assert story.version({1: A, 2: D}, isr=(2,)).copy(1).level == "empty"


def test_disk_that_comes_back_after_its_process_was_killed_may_lack_writes() -> None:
    """R-COPY-13, R-LOSS-5: the process that recreated the replica registered uncleanly."""
    story = alone().version({1: A}, isr=(1,)).broker(1, A, B, starting=True).version({1: C}, isr=(1,))
    story.broker(1, B, C, process=2, unclean=True).broker(1, A, B, process=3).version({1: A}, isr=(1,))
    assert (story.loss.until, story.copy(1).level) == (7, "unsure")
    story.version({1: A}, isr=(1,), leader=1)
    assert [loss.kind for loss in story.losses] == ["lost", "may lack writes"]


def test_copy_that_moves_to_the_directory_of_one_that_was_given_up_stays_the_same_copy() -> None:
    """R-COPY-3, R-COPY-13: broker 1 leads from B with too few in sync, lists both, and moves its log to A."""
    story = Story(2).broker(1, A).broker(2, D).version({1: A, 2: D}, isr=(1, 2), leader=1)
    story.version({1: A, 2: D}, isr=(1,)).broker(1, B, process=2).version({1: B, 2: D}, isr=(1,))
    story.version({1: B, 2: D}, isr=(1,), leader=1)
    since = story.copy(1).since
    story.broker(1, A, B, process=2).version({1: A, 2: D}, isr=(1,), leader=1)
    assert (story.copy(1).since, story.copy(1).level, len(story.losses)) == (since, "complete", 1)


def test_disk_that_comes_back_after_a_leader_that_acknowledged_nothing_holds_everything() -> None:
    """R-COPY-13, R-LOSS-6: the empty replica led, and with two in sync required no write was acknowledged."""
    story = Story(2).broker(1, A).broker(2, D).version({1: A, 2: D}, isr=(1, 2), leader=1)
    story.version({1: A, 2: D}, isr=(1,)).broker(1, B, process=2).version({1: B, 2: D}, isr=(1,))
    story.version({1: B, 2: D}, isr=(1,), leader=1).version({1: B, 2: D}, isr=(1,))
    story.broker(1, A, process=3).version({1: A, 2: D}, isr=(1,))
    assert (story.copy(1).since, story.complete) == (2, (1, 2))


def test_replica_of_a_broker_that_registered_without_its_unplaced_copy_leads_with_a_new_one() -> None:
    """R-COPY-9, R-COPY-5: the copy was given up with the registration, and its places are not listed."""
    story = Story().broker(1, A).broker(2, D).version({1: UNASSIGNED, 2: D}, isr=(1, 2), leader=2)
    story.version({1: UNASSIGNED, 2: D}, isr=(2,), leader=2).unregister(1).broker(1, B, process=2)
    story.version({1: UNASSIGNED, 2: D}, isr=(1,), leader=1)
    assert (story.loss.kind, story.loss.leader, story.copy(1).places) == ("may lack writes", 1, frozenset({B}))


def test_copy_recreated_beside_a_directory_lay_in_none_that_its_running_broker_lists() -> None:
    """R-COPY-14, R-COPY-13: a broker does not start with two folders of a partition, so B had no log before."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, B, C, process=2, fenced=True)
    story.version({1: C}, isr=(1,)).broker(1, B, C, process=2)
    assert story.copy(1).earlier == {A}
    assert [copy.directory for copy in story.fate.gone] == [A]
    story.version({1: C}, isr=(1,), leader=1).version({1: C}, isr=(1,)).broker(1, B, process=3, fenced=True)
    story.version({1: B}, isr=(1,)).version({1: B}, isr=(1,), leader=1)
    assert [loss.kind for loss in story.losses] == ["lost", "lost"]


def test_copy_that_may_lack_writes_and_was_placed_before_its_process_registered_may_lie_in_its_other_place() -> None:
    """R-COPY-12: only a copy that was complete for certain kept its other place, and A was safe to remove."""
    story = Story(2).broker(1, A, B).broker(2, C).version({1: UNASSIGNED, 2: C}, isr=(1, 2), leader=2)
    story.version({1: UNASSIGNED, 2: C}, isr=(2,), leader=2).broker(1, A, B, process=2, unclean=True)
    assert story.copy(1).level == "unsure"
    story.broker(1, B, process=2, fenced=True).version({1: B, 2: C}, isr=(2,), leader=2).broker(1, B, process=3)
    assert (story.copy(1).directory, story.copy(1).places) == (B, frozenset({A}))


def test_copy_that_moves_after_it_may_have_been_recreated_may_still_lie_in_its_other_place() -> None:
    """R-COPY-5: the move to C made B certain, and A was safe to remove."""
    story = Story(2).broker(1, A, B, C).broker(2, D).version({1: UNASSIGNED, 2: D}, isr=(1, 2), leader=2)
    story.version({1: UNASSIGNED, 2: D}, isr=(2,), leader=2).broker(1, B, C, process=2)
    story.version({1: B, 2: D}, isr=(2,), leader=2).version({1: C, 2: D}, isr=(2,), leader=2)
    assert (story.copy(1).directory, story.copy(1).places) == (C, frozenset({A}))
