"""What happens to the copies of a partition's log (docs/spec/loss.md)."""

from __future__ import annotations

import pytest

from jbod_model.ids import Uuid
from jbod_model.loss.fate import is_online
from tests.unit.model.loss.loss_story import LOST, MIGRATING, UNASSIGNED, A, B, C, D, Story, alone, pair


def left(story: Story) -> list[set[Uuid]]:
    """Where broker 1's copy lay before each of its undecided reports."""
    return [set(former_place.directories) for former_place in story.copy(1).left]


def test_copy_given_up_does_not_count_and_returned_copy_does() -> None:
    """R-COPY-1."""
    story = alone().unregister(1)
    assert story.copy(1).holds_everything
    assert not story.copy(1).usable
    assert story.broker(1, A, B, process=2).copy(1).usable


def test_unsure_copy_counts_as_holding_everything() -> None:
    """R-COPY-1: while its broker is merely restarting nothing is told."""
    story = alone().version({1: A}, last_known=(1,)).broker(1, A, B, process=2, unclean=True)
    assert story.copy(1).level == "unsure"
    assert story.complete == (1,)
    assert story.losses == ()


@pytest.mark.parametrize(
    ("assigned", "directory", "places"),
    [(A, A, frozenset()), (UNASSIGNED, None, frozenset({A, B})), (MIGRATING, None, frozenset())],
)
def test_new_copy_lies_where_the_record_says(assigned: Uuid, directory: Uuid | None, places: frozenset[Uuid]) -> None:
    """R-COPY-2."""
    copy = alone(assigned).copy(1)
    assert (copy.directory, copy.places, copy.level) == (directory, places, "complete")


def test_replica_that_is_added_has_an_empty_copy_until_somebody_leads() -> None:
    """R-COPY-2."""
    story = alone().broker(2, C).version({1: A, 2: C}, isr=(1,))
    assert story.copy(2).level == "empty"
    assert story.version({1: A, 2: C}, isr=(1,), leader=1).copy(2).level == "partial"


def test_directory_changes_while_the_old_one_is_listed_is_a_move() -> None:
    """R-COPY-3."""
    story = alone().version({1: B}, isr=(1,), leader=1)
    assert (story.copy(1).directory, story.copy(1).since, story.copy(1).level) == (B, 1, "complete")
    assert story.broker(1, B).losses == ()


def test_directory_changes_after_the_old_one_failed_is_a_recreation() -> None:
    """R-COPY-4."""
    story = alone().version({1: A}, isr=(1,)).broker(1, B).broker(1, B, D, process=2).version({1: D}, isr=(1,))
    assert (story.copy(1).level, story.copy(1).since) == ("empty", 5)
    assert [(copy.directory, copy.given_up, copy.away) for copy in story.fate.gone] == [(A, "recreated", 5)]


def test_directory_taken_out_of_the_configuration_while_sound_is_a_recreation() -> None:
    """R-COPY-4: nothing failed, and the data lies on the disk that was taken out."""
    story = alone().version({1: A}, isr=(1,)).broker(1, B, process=2).version({1: B}, isr=(1,))
    assert story.loss.kind == "lost"
    assert [copy.directory for copy in story.loss.copies] == [A]


def test_recreated_copy_under_a_leader_may_have_fetched() -> None:
    """R-COPY-4: the report came while broker 2 led, or after it had led since the registration."""
    story = pair().version({1: A, 2: C}, isr=(2,), leader=2).broker(1, B, process=2)
    story.version({1: A, 2: C}, isr=(2,), leader=2).version({1: B, 2: C}, isr=(2,))
    assert story.copy(1).level == "partial"


def test_copy_recreated_after_the_last_leader_is_empty() -> None:
    """R-COPY-4: broker 2 had stopped leading before broker 1 registered without its old directory."""
    story = pair().version({1: A, 2: C}, isr=(2,), leader=2).version({1: A, 2: C}, isr=(2,)).broker(1, B, process=2)
    assert story.version({1: B, 2: C}, isr=(2,)).copy(1).level == "empty"


def test_copy_may_have_been_recreated_by_an_earlier_process_than_the_one_that_reports() -> None:
    """R-COPY-4: the second process registered while broker 2 led, the third one reports."""
    story = pair().version({1: A, 2: C}, isr=(2,), leader=2).broker(1, B, process=2)
    story.version({1: A, 2: C}, isr=(2,)).broker(1, B, process=3).version({1: B, 2: C}, isr=(2,))
    assert story.copy(1).level == "partial"


def test_directory_listed_again_was_not_recreated() -> None:
    """R-COPY-4: the disk came back before anything was recreated; the next absence counts from its own start."""
    story = pair().version({1: A, 2: C}, isr=(2,), leader=2).broker(1, B, process=2).broker(1, A, B, process=3)
    assert story.copy(1).missed is None


def test_first_directory_of_an_unassigned_copy_is_a_placement() -> None:
    """R-COPY-5."""
    story = alone(UNASSIGNED).version({1: B}, isr=(1,), leader=1)
    assert (story.copy(1).directory, story.copy(1).since, story.copy(1).level) == (B, 1, "complete")


def test_unassigned_copy_placed_in_a_new_directory_was_recreated() -> None:
    """R-COPY-5: the directory was not online when the copy was created."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, B, C, process=2)
    assert story.version({1: C}, isr=(1,)).loss.kind == "lost"


def test_unassigned_copy_placed_in_a_new_directory_after_every_place_was_listed_was_moved() -> None:
    """R-COPY-5: the process found it in A or B, and moved it before it reported it for the first time."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, A, B, C, process=2)
    story.broker(1, B, C, process=2).version({1: C}, isr=(1,))
    assert (story.losses, story.copy(1).level, story.copy(1).directory) == ((), "complete", C)


def test_unassigned_copy_reported_in_a_new_directory_while_fenced_is_decided_by_the_next_registration() -> None:
    """R-COPY-5, R-COPY-12: moved if the next process lists its places, recreated if not."""
    for listed, kinds in (((A, B, C), []), ((C,), ["lost"])):
        story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, A, B, fenced=True)
        story.version({1: C}, isr=(1,))
        assert (story.losses, left(story)) == ((), [{A, B}])
        story.broker(1, *listed, process=2, fenced=True)
        assert [loss.kind for loss in story.losses] == kinds
    assert [(copy.directory, copy.places) for copy in story.loss.copies] == [(None, frozenset({A, B}))]


def test_unassigned_copy_whose_broker_restarted_without_a_directory_is_unsure() -> None:
    """R-COPY-5: it lay in B all the time, or in A, and was recreated in B."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, B, process=2).version({1: B}, isr=(1,))
    assert story.copy(1).level == "unsure"
    assert story.losses == ()
    assert story.version({1: B}, isr=(1,), leader=1).loss.kind == "may lack writes"


def test_unassigned_copy_whose_broker_restarted_with_all_directories_is_complete() -> None:
    """R-COPY-5."""
    story = alone(UNASSIGNED).broker(1, A, B, D, process=2).version({1: B}, isr=(1,), leader=1)
    assert story.copy(1).level == "complete"


def test_unassigned_copy_that_a_failed_directory_may_hold_is_found_in_the_same_process() -> None:
    """R-COPY-5: nothing is recreated without a restart."""
    story = alone(UNASSIGNED).broker(1, B).version({1: B}, isr=(1,), leader=1)
    assert story.copy(1).level == "complete"


def test_unassigned_leader_may_lie_in_a_directory_that_failed_before_it_was_elected() -> None:
    """R-COPY-5: the controller takes an unassigned replica to be online."""
    story = pair().version({1: A, 2: UNASSIGNED}, isr=(1,), leader=1)
    story = Story().broker(1, A, B).broker(2, C).version({1: UNASSIGNED, 2: C}, isr=(2,), leader=2)
    story.broker(1, B).version({1: UNASSIGNED, 2: C}, isr=(1,), leader=1, recovering=True)
    assert [loss.kind for loss in story.losses] == ["may lack writes"]
    story.version({1: UNASSIGNED, 2: C}, isr=(1,)).broker(1, B, process=2).version({1: B, 2: C}, isr=(1,), leader=1)
    assert [loss.kind for loss in story.losses] == ["may lack writes", "may lack writes"]


def test_unassigned_leader_never_led_from_a_directory_that_the_append_of_its_election_takes_away() -> None:
    """R-LOSS-10: a blank disk takes the place of B, and fails before the broker is unfenced."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, A, C, process=2, fenced=True)
    story.version({1: UNASSIGNED}, isr=(1,), leader=1, recovering=True).broker(1, A, process=2, first=story.offset - 1)
    assert story.loss.kind == "may lack writes"
    assert story.copy(1).places == {A, B}
    story.version({1: UNASSIGNED}, isr=(1,)).broker(1, A, B, process=3)
    story.version({1: UNASSIGNED}, isr=(1,), leader=1)
    assert len(story.losses) == 1


def test_migrating_copy_is_found_anywhere() -> None:
    """R-COPY-2, R-COPY-5: nothing was known of its place."""
    story = alone(MIGRATING).broker(1, A, B, C, process=2).version({1: C}, isr=(1,), leader=1)
    assert (story.copy(1).level, story.losses) == ("complete", ())


def test_migrating_copy_may_lie_in_the_directory_that_its_broker_lacks() -> None:
    """R-COPY-2, R-COPY-5: it counted as online whatever failed."""
    story = alone(MIGRATING).broker(1, B)
    assert (story.copy(1).places, is_online(story.fate, story.copy(1))) == (frozenset({A, B}), False)
    story.broker(1, B, process=2).version({1: B}, isr=(1,), leader=1)
    assert [loss.kind for loss in story.losses] == ["may lack writes"]
    again = alone(MIGRATING).broker(1, B).broker(1, B, C, process=2).version({1: C}, isr=(1,), leader=1)
    assert [loss.kind for loss in again.losses] == ["lost"]


def test_lost_directory_gives_the_copy_up() -> None:
    """R-COPY-6."""
    story = alone().version({1: LOST}, isr=(1,))
    assert (story.loss.kind, story.loss.offset, story.copy(1).given_up) == ("lost", 2, "lost")


def test_replica_created_as_lost_has_nothing() -> None:
    """R-COPY-6."""
    story = alone().version({1: A, 2: LOST}, isr=(1,), leader=1)
    assert not story.copy(2).usable


@pytest.mark.parametrize("reserved", [UNASSIGNED, MIGRATING])
def test_reserved_id_after_a_directory_has_no_effect(reserved: Uuid) -> None:
    """R-COPY-7: and the copy is still known to lie in A when the next directory comes."""
    story = alone().version({1: reserved}, isr=(1,), leader=1)
    assert (story.copy(1).directory, story.losses) == (A, ())
    assert story.version({1: reserved}, isr=(1,)).broker(1, B).version({1: B}, isr=(1,)).loss.kind == "lost"


def test_copy_assigned_again_to_its_directory_was_not_lost() -> None:
    """R-COPY-8."""
    story = alone().version({1: LOST}, isr=(1,)).version({1: A}, isr=(1,))
    assert (story.loss.until, story.complete) == (3, (1,))


def test_lost_copy_in_another_directory_is_a_recreation() -> None:
    """R-COPY-4, R-COPY-6: although the broker lists the old directory."""
    story = alone().version({1: LOST}, isr=(1,)).version({1: B}, isr=(1,), leader=1)
    assert (story.loss.kind, story.loss.offset, story.loss.went_on) == ("lost", 2, 3)


def test_unregistered_broker_gives_its_copies_up_until_its_directory_registers() -> None:
    """R-COPY-9."""
    story = alone().version({1: A}, isr=(1,)).unregister(1)
    assert (story.loss.kind, story.loss.offset, story.copy(1).given_up) == ("unreachable", 3, "unregistered")
    story.broker(1, B, process=2)
    assert [(loss.kind, loss.offset, loss.until) for loss in story.losses] == [("unreachable", 3, 4), ("lost", 4, None)]
    assert story.broker(1, A, B, process=3).losses[-1].until == 5


def test_unregistered_broker_that_returns_after_the_partition_went_on_misses_writes() -> None:
    """R-COPY-9, R-LOSS-6."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,)).unregister(1)
    story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True).broker(1, A, B, process=2)
    away, lost = story.losses
    assert (away.kind, away.offset, away.went_on, away.until) == ("unreachable", 5, None, 6)
    assert (lost.kind, lost.offset, lost.went_on, lost.until) == ("lost", 6, 6, None)
    assert (story.copy(1).level, story.copy(2).level) == ("partial", "complete")


def test_unassigned_copy_of_an_unregistered_broker_returns_with_any_of_its_places() -> None:
    """R-COPY-9."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).unregister(1)
    assert story.broker(1, D, process=2).losses[-1].until is None
    assert story.broker(1, B, D, process=3).losses[-1].until == 5


def test_replica_that_leaves_an_unregistered_broker_is_lost() -> None:
    """R-COPY-11, R-LOSS-4: when its broker registers, it deletes the copy."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,)).unregister(1)
    story.version({2: C}, isr=(1,))
    assert [(loss.kind, loss.copies[0].given_up) for loss in story.losses] == [
        ("unreachable", "unregistered"),
        ("lost", "removed"),
    ]


def test_copy_in_sync_with_a_leader_without_its_writes_is_overwritten() -> None:
    """R-LOSS-11: broker 1 returns, is truncated, and stops again."""
    story = (
        pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,)).broker(1, A, B, fenced=True)
    )
    story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True)
    assert story.loss.copies[0].overwritten is None
    story.broker(1, A, B, process=2).version({1: A, 2: C}, isr=(1, 2), leader=2)
    story.version({1: A, 2: C}, isr=(2,), leader=2).broker(1, A, B, process=2, fenced=True)
    assert story.loss.copies[0].overwritten == 8


def test_copy_that_could_follow_a_leader_that_was_dead_is_not_overwritten() -> None:
    """R-LOSS-11: the disk of the copy counted as one with nothing that the partition lacks."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,))
    story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True).broker(2, C, fenced=True)
    story.version({1: A, 2: C}, isr=(2,))
    assert story.loss.copies[0].overwritten is None


def test_copy_behind_when_the_data_is_lost_is_an_older_one_until_it_is_in_sync() -> None:
    """R-LOSS-4, R-LOSS-11: of writes that may be missing there is none."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,)).broker(1, B, process=2)
    story.version({1: B, 2: C}, isr=(1,)).version({1: B, 2: C}, isr=(1,), leader=1)
    assert [(copy.broker_id, copy.directory, copy.overwritten) for copy in story.loss.older] == [(2, C, None)]
    story.version({1: B, 2: C}, isr=(1, 2), leader=1)
    assert [copy.overwritten for copy in story.loss.older] == [8]
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,))
    assert story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True).loss.older == ()


def test_copy_that_led_again_is_not_overwritten_by_a_leader_that_was_not_in_sync_since() -> None:
    """R-LOSS-11: it counted as overwritten since it led, and nothing was to be saved when its broker started."""
    where = {1: A, 2: B, 3: C}
    story = Story(2).broker(1, A).broker(2, B).broker(3, C).version(where, isr=(1, 2, 3), leader=1)
    story.version(where, isr=(1, 2), leader=1).version(where, isr=(1, 2))
    for leader in (3, 1):
        story.version(where, isr=(leader,), leader=leader, recovering=True).version(where, isr=(leader,))
    assert [copy.overwritten for copy in story.loss.copies] == [None, None]
    story.version(where, isr=(3,), leader=3, recovering=True)
    for loss in story.losses:
        assert [(copy.broker_id, copy.overwritten) for copy in loss.copies] == [(1, None), (2, None)]


def test_copy_that_led_again_is_overwritten_once_all_replicas_are_in_sync() -> None:
    """R-LOSS-11: each of them has the same log."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,))
    story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True).version({1: A, 2: C}, isr=(2,))
    story.version({1: A, 2: C}, isr=(1,), leader=1, recovering=True).version({1: A, 2: C}, isr=(1, 2), leader=1)
    story.version({1: A, 2: C}, isr=(2,), leader=2)
    assert [copy.overwritten for copy in story.losses[0].copies] == [8]


@pytest.mark.parametrize("joins", [True, False])
def test_copy_in_one_of_several_places_is_not_overwritten_in_those_that_its_broker_lacks(joins: bool) -> None:
    """R-LOSS-11, R-COPY-5: its replica is in sync with a log in B, or leads with it, and the copy may lie in A."""
    where = {1: UNASSIGNED, 2: C}
    story = Story().broker(1, A, B).broker(2, C).version(where, isr=(1, 2), leader=1).version(where, isr=(1,), leader=1)
    story.version(where, isr=(1,)).version(where, isr=(2,), leader=2, recovering=True).broker(1, B, process=2)
    if joins:
        story.version({1: B, 2: C}, isr=(2,), leader=2).version({1: B, 2: C}, isr=(1, 2), leader=2)
    else:
        story.version({1: B, 2: C}, isr=(2,)).version({1: B, 2: C}, isr=(1,), leader=1, recovering=True)
    (copy,) = story.losses[0].copies
    assert copy.overwritten is None
    assert (copy.directory, copy.given_up) == (A, "recreated") if joins else A in copy.where


def test_copy_that_is_offline_while_another_leads_without_its_writes_is_not_overwritten() -> None:
    """R-LOSS-11."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,)).broker(1, B)
    story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True).broker(1, B, process=2)
    assert story.loss.copies[0].overwritten is None


def test_copy_that_the_append_of_the_election_takes_offline_is_not_overwritten() -> None:
    """R-LOSS-11, R-LOSS-10: the election stands before the failure or the fencing. kafka-4.0.1, offsets 354 and 356."""
    for gone in ({"fenced": True}, {}):
        story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,), leader=1)
        story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True).broker(1, B, first=4, **gone)
        assert [(loss.went_on, loss.copies[0].overwritten) for loss in story.losses] == [(5, None)]


def test_replica_that_joins_without_its_directory_joins_with_a_new_copy() -> None:
    """R-COPY-10: kafka-3.7.2, offsets 466 and 471."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).broker(2, D, process=2)
    story.version({1: A, 2: C}, isr=(1, 2), leader=1)
    assert (story.copy(2).directory, story.copy(2).level, story.copy(2).since) == (None, "complete", 5)
    story.version({1: A, 2: D}, isr=(1, 2), leader=1)
    assert (story.copy(2).directory, story.copy(2).level, story.copy(2).since) == (D, "complete", 5)
    assert story.losses == ()


def test_replica_that_joins_with_its_directory_joins_with_the_copy_it_had() -> None:
    """R-COPY-10."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1, 2), leader=1)
    assert (story.copy(2).since, story.copy(2).level) == (2, "complete")


def test_replica_that_leaves_gives_its_copy_up() -> None:
    """R-COPY-11: the last complete one by a record that names another leader."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({2: C}, isr=(2,), leader=2, recovering=True)
    assert (story.loss.kind, [copy.given_up for copy in story.loss.copies]) == ("lost", ["removed"])


def test_report_of_a_process_that_registers_without_the_old_directory_was_a_recreation() -> None:
    """R-COPY-12: kafka-4.1.2, offsets 471 to 487; the registration of the process before still listed A."""
    story = alone().version({1: A}, elr=(1,)).broker(1, A, B, fenced=True).version({1: B}, last_known=(1,))
    assert (story.losses, left(story)) == ((), [{A}])
    story.broker(1, B, process=2, fenced=True)
    assert (story.loss.kind, story.loss.offset) == ("lost", 5)
    assert [(copy.directory, copy.given_up, copy.away) for copy in story.loss.copies] == [(A, "recreated", 5)]
    assert story.version({1: B}, isr=(1,), leader=1).loss.went_on == 6


def test_loss_reported_before_a_report_turns_out_to_be_a_recreation_is_lost_and_names_the_old_directory() -> None:
    """R-COPY-12, R-LOSS-6: broker 1 recreates its replica, reports, and loses the election before it registers."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,))
    story.broker(1, A, B, fenced=True).version({1: B, 2: C}, isr=(1,))
    story.version({1: B, 2: C}, isr=(2,), leader=2, recovering=True)
    assert (story.loss.kind, story.loss.offset, story.loss.copies[0].directory) == ("may lack writes", 7, B)
    story.broker(1, B, process=2, fenced=True)
    assert (story.loss.kind, story.loss.offset) == ("lost", 7)
    assert [(copy.directory, copy.given_up, copy.away) for copy in story.loss.copies] == [(A, "recreated", 8)]


def test_loss_reported_before_a_report_turns_out_to_be_a_recreation_stays_if_another_copy_is_complete() -> None:
    """R-COPY-12, R-LOSS-6."""
    story = Story().broker(1, A, B).broker(2, C).broker(3, D).version({1: A, 2: C, 3: D}, isr=(1, 3), leader=1)
    story.version({1: A, 2: C, 3: D}, isr=(1, 3)).broker(1, A, B, fenced=True).version({1: B, 2: C, 3: D}, isr=(1, 3))
    story.version({1: B, 2: C, 3: D}, isr=(2,), leader=2, recovering=True).broker(1, B, process=2, fenced=True)
    assert story.loss.kind == "may lack writes"
    assert {(copy.broker_id, copy.directory) for copy in story.loss.copies} == {(1, A), (3, D)}


@pytest.mark.parametrize(("directories", "process"), [((A, B), 2), ((A, B), 1), ((B,), 1)])
def test_report_while_fenced_of_a_process_that_had_both_directories_was_a_move(
    directories: tuple[Uuid, ...], process: int
) -> None:
    """R-COPY-12: the next process lists the old directory, or the same one is unfenced, with or without it."""
    story = alone().broker(1, A, B, fenced=True).version({1: B}, isr=(1,)).broker(1, *directories, process=process)
    assert (story.losses, left(story), story.copy(1).level) == ((), [], "complete")


def test_failure_of_a_directory_while_fenced_decides_nothing() -> None:
    """R-COPY-12."""
    story = alone().broker(1, A, B, fenced=True).version({1: B}, isr=(1,)).broker(1, B, fenced=True)
    assert (story.losses, left(story)) == ((), [{A}])


@pytest.mark.parametrize("first", [A, UNASSIGNED])
def test_second_report_while_fenced_decides_nothing_and_keeps_what_the_first_left(first: Uuid) -> None:
    """R-COPY-12: broker 1 is never unfenced; its next process reports B, and registers without A, which the first
    report named."""
    story = alone(first).version({1: first}, isr=(1,)).broker(1, A, B, fenced=True)
    story.version({1: B if first == A else A}, isr=(1,)).version({1: A if first == A else B}, isr=(1,))
    gone = B if first == A else A
    assert (story.losses, left(story)) == ((), [{gone}])
    story.broker(1, *({A, B} - {gone}), process=2, fenced=True)
    assert [(loss.kind, loss.copies[0].directory) for loss in story.losses] == [("lost", gone)]
    assert story.copy(1).level == "empty"


def test_copy_recreated_after_each_of_two_reports_names_where_it_lay_before_the_first() -> None:
    """R-COPY-12: the process that registers lists neither A nor B, so that the last complete log lies in A."""
    story = alone().version({1: A}, isr=(1,)).broker(1, A, B, C, fenced=True)
    story.version({1: B}, isr=(1,)).version({1: C}, isr=(1,))
    assert left(story) == [{A}, {B}]
    story.broker(1, C, process=2, fenced=True)
    assert (story.loss.kind, [copy.directory for copy in story.loss.copies]) == ("lost", [A])


def test_copy_recreated_after_the_second_of_two_reports_is_empty_if_nobody_led_since() -> None:
    """R-COPY-4, R-COPY-12: broker 2 led between the reports. The process that registers lists neither A nor B."""
    story = Story().broker(1, A, B, D).broker(2, C).version({1: A, 2: C}, isr=(1, 2), leader=2)
    story.version({1: A, 2: C}, isr=(2,), leader=2).broker(1, A, B, D, fenced=True)
    story.version({1: B, 2: C}, isr=(2,), leader=2).version({1: B, 2: C}, isr=(2,)).version({1: D, 2: C}, isr=(2,))
    assert story.broker(1, D, process=2, fenced=True).copy(1).level == "empty"


def test_loss_of_a_copy_that_was_reported_in_a_new_directory_names_all_its_places() -> None:
    """R-COPY-5, R-COPY-12, R-LOSS-6: broker 2 leads before the process that recreated the copy registers."""
    story = Story().broker(1, A, B).broker(2, D).version({1: UNASSIGNED, 2: D}, isr=(1,), leader=1)
    story.version({1: UNASSIGNED, 2: D}, isr=(1,)).broker(1, A, B, fenced=True).version({1: C, 2: D}, isr=(1,))
    story.version({1: C, 2: D}, isr=(2,), leader=2, recovering=True).broker(1, C, process=2, fenced=True)
    assert story.loss.kind == "lost"
    assert [(copy.directory, copy.places) for copy in story.loss.copies] == [(None, frozenset({A, B}))]


def test_first_report_while_fenced_stays_undecided_after_a_second_one() -> None:
    """R-COPY-12: the log lay in D, which the next process lacks, or in A all the time."""
    story = alone(UNASSIGNED, A, B, D).version({1: UNASSIGNED}, isr=(1,)).broker(1, A, B, D, fenced=True)
    story.version({1: A}, isr=(1,)).version({1: B}, isr=(1,))
    assert left(story) == [{D}, {A}]
    assert story.broker(1, A, B, process=2, fenced=True).copy(1).level == "unsure"
    assert story.losses == ()


def test_copy_recreated_at_a_report_before_the_last_leader_may_have_fetched_although_a_disk_failed_since() -> None:
    """R-COPY-4, R-COPY-12: the failure of D, by the same process, does not hide when the report came."""
    story = Story().broker(1, A, B, D).broker(2, C).version({1: A, 2: C}, isr=(1, 2), leader=2)
    story.version({1: A, 2: C}, isr=(2,), leader=2).broker(1, A, B, D, fenced=True)
    story.version({1: B, 2: C}, isr=(2,), leader=2).broker(1, A, B, fenced=True).broker(1, B, process=2, fenced=True)
    assert story.copy(1).level == "partial"


def test_first_report_while_fenced_of_a_process_without_another_place_is_unsure() -> None:
    """R-COPY-12."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, A, B, fenced=True).version({1: B}, isr=(1,))
    assert story.broker(1, B, process=2, fenced=True).copy(1).level == "unsure"


def test_copy_placed_by_a_report_while_fenced_misses_its_directory_from_the_registration_without_it() -> None:
    """R-COPY-4, R-COPY-12: somebody led after the report, nobody after the registration."""
    story = Story().broker(1, A, B).broker(2, C).version({1: UNASSIGNED, 2: C}, isr=(2,), leader=2)
    story.broker(1, A, B, fenced=True).version({1: A, 2: C}, isr=(2,), leader=2).version({1: A, 2: C}, elr=(2,))
    story.broker(1, D, process=2, fenced=True).version({1: D, 2: C})
    assert story.copy(1).level == "empty"
    story.version({1: D, 2: C}, isr=(1,), leader=1)
    assert (story.loss.kind, story.loss.leader) == ("lost", 1)


def test_copy_recreated_before_its_process_registered_may_have_fetched() -> None:
    """R-COPY-4, R-COPY-12: broker 2 led at the report."""
    story = pair().version({1: A, 2: C}, isr=(2,), leader=2).broker(1, A, B, fenced=True)
    story.version({1: B, 2: C}, isr=(2,), leader=2).broker(1, B, process=2, fenced=True)
    assert story.copy(1).level == "partial"


def test_unplaced_copy_that_leads_where_none_of_its_places_is_listed_was_recreated() -> None:
    """R-COPY-5: the controller takes it to be online, and it never reports."""
    story = alone(UNASSIGNED).version({1: UNASSIGNED}, isr=(1,)).broker(1, C, D, process=2)
    story.version({1: UNASSIGNED}, isr=(1,), leader=1)
    assert (story.loss.kind, story.loss.leader) == ("lost", 1)


def test_unplaced_copy_that_joins_where_none_of_its_places_is_listed_is_new() -> None:
    """R-COPY-10."""
    story = Story().broker(1, A, B).broker(2, C).version({1: A, 2: UNASSIGNED}, isr=(1,), leader=1)
    story.broker(2, D, process=2).version({1: A, 2: UNASSIGNED}, isr=(1, 2), leader=1)
    assert (story.copy(2).since, story.copy(2).level, story.copy(2).places) == (4, "complete", frozenset({D}))


def test_report_of_a_directory_that_no_registration_listed_is_of_a_process_that_has_not_registered() -> None:
    """R-COPY-12: Kafka 4.0.1, a kill and a restart within the session, with a blank disk in the place of the old one.

    The broker is never fenced.
    """
    story = alone().broker(1, A, B, starting=True).version({1: C}, isr=(1,))
    assert (story.losses, left(story)) == ((), [{A}])
    story.broker(1, B, C, process=2)
    assert [(loss.kind, loss.copies[0].directory) for loss in story.losses] == [("lost", A)]
