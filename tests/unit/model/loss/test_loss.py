"""When acknowledged writes are lost, in small histories (docs/spec/loss.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jbod_model.formats.log import LogReader, MetadataLog
from jbod_model.formats.records import ConfigRecord, PartitionRecord, TopicRecord
from jbod_model.ids import Uuid
from jbod_model.loss.copies import Left
from jbod_model.loss.fate import Fate
from jbod_model.loss.log import MIN_ISR, fates
from tests.support.volume import lines_run
from tests.unit.fold.histories import log_of
from tests.unit.model.loss.loss_story import UNASSIGNED, A, B, C, D, Story, alone, pair

E, F = Uuid(9, 10), Uuid(9, 11)


def trio(min_isr: int = 2) -> Story:
    """Three copies in sync, on brokers 1 (A), 2 (C) and 3 (E)."""
    story = Story(min_isr).broker(1, A, B).broker(2, C, D).broker(3, E, F)
    return story.version({1: A, 2: C, 3: E}, isr=(1, 2, 3), leader=1)


# WHO HOLDS EVERYTHING


def test_first_version_names_who_holds_everything() -> None:
    """R-LOSS-1."""
    story = Story(2).version({1: A, 2: C, 3: E}, isr=(1,), elr=(2,), leader=1)
    assert story.complete == (1, 2)
    assert story.copy(3).level == "partial"


def test_first_version_without_lists_is_of_the_last_known_leader() -> None:
    """R-LOSS-1: a snapshot that was written while nobody was eligible."""
    story = Story().version({1: A, 2: C}, last_known=(2,), in_snapshot=True)
    assert story.complete == (2,)


def test_replica_that_leaves_the_in_sync_set_may_miss_writes() -> None:
    """R-LOSS-2: without eligible leaders, from the record on."""
    assert pair().version({1: A, 2: C}, isr=(1,), leader=1).complete == (1,)


def test_replica_that_leaves_misses_nothing_while_too_few_are_in_sync() -> None:
    """R-LOSS-2: whether or not the record calls it eligible."""
    assert pair(2).version({1: A, 2: C}, isr=(1,), elr=(2,), leader=1).complete == (1, 2)
    assert pair(2).version({1: A, 2: C}, isr=(1,), leader=1).complete == (1, 2)


def test_more_in_sync_replicas_are_never_needed_than_there_are() -> None:
    """R-LOSS-2: min.insync.replicas 3 on two replicas is 2."""
    story = trio(3).version({1: A, 2: C}, isr=(1, 2), leader=1).version({1: A, 2: C}, isr=(1,), leader=1)
    assert story.complete == (1, 2)
    assert Story(3).version({1: A}, isr=(1,), leader=1).complete == (1,)


def test_lower_minimum_lets_the_leader_acknowledge_alone() -> None:
    """R-LOSS-2: min.insync.replicas changes, and ClearElr empties the lists (R-CFG-4)."""
    story = pair(2).version({1: A, 2: C}, isr=(1,), elr=(2,), leader=1).min_isr(1)
    assert story.complete == (1, 2)
    assert story.version({1: A, 2: C}, isr=(1,), leader=1).complete == (1,)


def test_higher_minimum_changes_nothing_for_who_already_misses_writes() -> None:
    """R-LOSS-2."""
    assert pair().version({1: A, 2: C}, isr=(1,), leader=1).min_isr(2).complete == (1,)


@pytest.mark.parametrize("value", ["many", "0", ""])
def test_minimum_that_brokers_ignore_is_that_of_their_files(value: str, tmp_path: Path) -> None:
    """R-CFG-7."""
    topic = TopicRecord(name="t", topic_id=Uuid(7, 1))
    partition = PartitionRecord(topic_id=topic.topic_id, partition_id=0, replicas=(1, 2), isr=(1, 2), leader=1)
    of_all = [ConfigRecord(resource_type=4, name=MIN_ISR, value=each) for each in ("1", value)]
    log = log_of(tmp_path, of_all[1], topic, partition, *of_all)
    after = [
        of[topic.topic_id, 0].min_isr for _, of in fates(LogReader(MetadataLog.open(log)), default_min_isr=2) if of
    ]
    assert after == [2, 1, 2]


def test_lists_that_are_emptied_without_a_leader_do_not_matter() -> None:
    """R-LOSS-2: ClearElr, or an assignment of a directory (R-QUIRK-1), after an orderly shutdown."""
    story = alone().version({1: A}, elr=(1,), last_known=(1,)).version({1: A}, last_known=(1,))
    story.broker(1, A, B, process=2).version({1: A}, isr=(1,), leader=1, recovering=True)
    assert story.losses == ()


def test_replica_that_joins_holds_everything() -> None:
    """R-LOSS-3."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1, 2), leader=1)
    assert story.complete == (1, 2)


def test_reassignment_that_completes_in_one_record_loses_nothing() -> None:
    """R-LOSS-3: the new replica joins, the old one leaves and the new one leads."""
    story = Story().broker(1, A, B).broker(2, C, D).version({1: A}, isr=(1,), leader=1)
    story.version({2: UNASSIGNED, 1: A}, isr=(1,), leader=1)
    _reassigning(story, adding=(2,), removing=(1,))
    story.version({2: UNASSIGNED}, isr=(2,), leader=2)
    assert (story.losses, story.complete) == ((), (2,))


def test_cancelled_reassignment_that_names_another_in_sync_set_may_lack_writes() -> None:
    """R-LOSS-3, R-LOSS-6: only the added replica was in sync; the record does not say RECOVERING."""
    story = pair().version({2: C, 1: A}, isr=(2,), leader=2).version({1: A}, isr=(1,), leader=1)
    assert (story.loss.kind, story.loss.leader) == ("lost", 1)
    story = trio(1).version({1: A, 2: C, 3: E}, isr=(2,), leader=2).version({1: A, 2: C, 3: E}, isr=(1,), leader=1)
    assert (story.loss.kind, story.loss.leader) == ("may lack writes", 1)


def test_cancelled_reassignment_of_a_replica_that_was_added_and_removed_completes_nothing() -> None:
    """R-LOSS-3: Kafka keeps broker 1 among the added replicas when another reassignment removes it. So the record that
    cancels leaves the replicas that would stay, of which only one is in sync, or none leads."""
    for isr, directories in (((2,), {2: C, 3: E}), ((2,), {2: C})):
        story = trio(1).version({**directories, 1: A}, isr=(1,), leader=1)
        _reassigning(story, adding=(1,), removing=(1,))
        story.version(directories, isr=isr, leader=2 if len(directories) > 1 else -1)
        assert (story.loss.kind, [copy.broker_id for copy in story.loss.copies]) == ("lost", [1])


def test_completed_reassignment_of_a_replica_that_was_added_and_removed_loses_nothing() -> None:
    """R-LOSS-3: the replica that stays joins, and leads."""
    story = trio(1).version({2: C, 1: A}, isr=(1,), leader=1)
    _reassigning(story, adding=(1,), removing=(1,))
    story.version({2: C}, isr=(2,), leader=2)
    assert (story.losses, story.complete) == ((), (2,))


def test_reassignment_that_completes_while_nobody_can_lead_loses_nothing() -> None:
    """R-LOSS-3: only broker 2 was added and only broker 1 removed, so the record cannot be a cancellation."""
    story = Story().broker(1, A, B).broker(2, C, D).version({2: C, 1: A}, isr=(1,), leader=1)
    _reassigning(story, adding=(2,), removing=(1,))
    assert story.version({2: C}, isr=(2,)).complete == (2,)


def test_winner_of_an_unclean_election_did_not_join() -> None:
    """R-LOSS-3, R-LOSS-6: although the record names it in sync."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1)
    story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True)
    assert (story.loss.kind, story.loss.offset, story.loss.leader, story.loss.went_on) == ("may lack writes", 4, 2, 4)
    assert [copy.broker_id for copy in story.loss.copies] == [1]


# LOST


def test_one_copy_recreated_and_elected_cleanly_from_the_eligible_leaders_is_lost() -> None:
    """R-LOSS-4: the disk failed, the replica was recreated on the other; its broker stayed eligible by name."""
    story = alone().version({1: A}, elr=(1,), last_known=(1,)).broker(1, B).broker(1, B, process=2)
    assert story.losses == ()
    story.version({1: B}, elr=(1,), last_known=(1,))
    assert (story.loss.kind, story.loss.offset, story.loss.leader) == ("lost", 5, None)
    assert [(copy.broker_id, copy.directory, copy.since) for copy in story.loss.copies] == [(1, A, 1)]
    story.version({1: B}, isr=(1,), leader=1)
    assert (story.loss.offset, story.loss.leader, story.loss.went_on, story.loss.until) == (5, 1, 6, None)


def test_all_copies_offline_and_none_recreated_loses_nothing() -> None:
    """R-LOSS-4: unavailable, at risk."""
    story = pair().broker(1, B).version({1: A, 2: C}, isr=(2,), leader=2).version({1: A, 2: C}, isr=(2,)).broker(2, D)
    assert (story.losses, story.complete) == ((), (2,))


def test_loss_ends_when_a_complete_copy_returns_before_another_leads() -> None:
    """R-LOSS-4."""
    story = alone().version({1: A}, isr=(1,)).unregister(1).broker(1, A, B, process=2)
    assert (story.loss.until, story.loss.went_on) == (4, None)
    assert story.version({1: A}, isr=(1,), leader=1).loss.until == 4


def test_second_of_two_complete_copies_keeps_the_data() -> None:
    """R-LOSS-4: broker 1 was recreated, broker 2 is eligible and merely offline."""
    story = pair(2).version({1: A, 2: C}, isr=(1,), elr=(2,), leader=1).version({1: A, 2: C}, elr=(1, 2))
    story.broker(1, B, process=2).version({1: B, 2: C}, elr=(1, 2))
    assert (story.losses, story.complete) == ((), (2,))
    assert story.version({1: B, 2: C}, isr=(2,), elr=(1,), leader=2).losses == ()


def test_recreated_copy_that_leads_by_name_loses_data_that_another_copy_still_holds() -> None:
    """R-LOSS-6: when broker 2 starts it is truncated to the empty log of broker 1, so its data must be saved before."""
    story = pair(2).version({1: A, 2: C}, isr=(1,), elr=(2,), leader=1).version({1: A, 2: C}, elr=(1, 2))
    story.broker(1, B, process=2).version({1: B, 2: C}, elr=(1, 2)).version({1: B, 2: C}, isr=(1,), elr=(2,), leader=1)
    assert (story.loss.kind, story.loss.leader, story.loss.went_on) == ("lost", 1, 7)
    copies = [(copy.broker_id, copy.directory, copy.given_up) for copy in story.loss.copies]
    assert copies == [(2, C, None), (1, A, "recreated")]


def test_copies_reported_as_the_last_are_those_that_still_lack_nothing() -> None:
    """R-LOSS-4: broker 2 gave its copy up while broker 1 went on acknowledging; only broker 1's is the last."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).broker(2, D, process=2)
    story.version({1: A, 2: D}, isr=(1,), leader=1).version({1: A, 2: D}, isr=(1,)).unregister(1)
    assert [(copy.broker_id, copy.directory) for copy in story.loss.copies] == [(1, A)]


# MAY LACK WRITES


def test_unclean_restart_of_a_copy_that_no_list_names_may_lack_writes() -> None:
    """R-LOSS-5."""
    story = alone().version({1: A}, last_known=(1,)).broker(1, A, B, process=2, unclean=True)
    assert story.losses == ()
    story.version({1: A}, isr=(1,), leader=1, recovering=True)
    assert (story.loss.kind, story.copy(1).level) == ("may lack writes", "complete")


def test_unclean_restart_of_a_copy_that_stays_in_sync_is_not_reported() -> None:
    """R-LOSS-5: without eligible leaders Kafka keeps the last in-sync replica, and says nothing."""
    story = alone().version({1: A}, isr=(1,)).broker(1, A, B, process=2, unclean=True)
    assert story.version({1: A}, isr=(1,), leader=1).losses == ()


def test_unclean_restart_while_another_leads_is_healed_when_the_replica_joins() -> None:
    """R-LOSS-3, R-LOSS-5."""
    story = pair(2).version({1: A, 2: C}, isr=(1,), leader=1).broker(2, C, D, process=2, unclean=True)
    assert story.copy(2).level == "unsure"
    assert story.version({1: A, 2: C}, isr=(1, 2), leader=1).copy(2).level == "complete"


def test_orderly_shutdown_of_everything_loses_nothing() -> None:
    """R-LOSS-5: the leader comes from the last known one, as a wiped list made Kafka forget who was eligible."""
    story = pair(2).version({1: A, 2: C}, isr=(2,), elr=(1,), leader=2).version({1: A, 2: C}, last_known=(2,))
    story.broker(1, A, B, process=2).broker(2, C, D, process=2)
    assert story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True).losses == ()


def test_copy_that_holds_everything_keeps_doing_so_until_the_lesser_leader_can_acknowledge() -> None:
    """R-LOSS-6: broker 1 leads alone, below the minimum; broker 2 returns untruncated by any new write."""
    story = pair(2).version({1: A, 2: C}, isr=(2,), elr=(1,), leader=2).version({1: A, 2: C}, isr=(2,), elr=(1,))
    story.broker(1, A, B, process=2, unclean=True).version({1: A, 2: C}, elr=(2,))
    story.broker(1, A, B, process=3, unclean=True).version({1: A, 2: C}, isr=(1,), leader=1, recovering=True)
    assert (story.loss.kind, story.complete) == ("may lack writes", (1, 2))
    assert story.min_isr(1).complete == (1,)


def test_unclean_leader_is_the_measure() -> None:
    """R-LOSS-6: the older, longer copy is truncated to it, and no second loss is told."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1)
    story.version({1: A, 2: C}, isr=(2,), leader=2, recovering=True).version({1: A, 2: C}, isr=(2, 1), leader=2)
    assert (len(story.losses), story.complete) == (1, (1, 2))


@pytest.mark.parametrize(("unclean", "level"), [(False, "partial"), (True, "unsure")])
def test_leader_without_writes_that_led_since_loses_them_again(*, unclean: bool, level: str) -> None:
    """R-LOSS-12: below the minimum nothing is acknowledged, so that broker 1 leads with everything."""
    where = {1: A, 2: C}
    story = pair().version(where, isr=(1, 2) if unclean else (1,), leader=1).min_isr(2).version(where)
    story.broker(2, C, D, process=2, unclean=unclean).version(where, isr=(2,), leader=2, recovering=True).version(where)
    story.version(where, isr=(1,), leader=1, recovering=True)
    assert (story.loss.leader, story.complete, story.copy(2).level) == (2, (1, 2) if unclean else (1,), level)
    story.version(where).version(where, isr=(2,), leader=2, recovering=True)
    assert [(loss.kind, loss.leader) for loss in story.losses] == [("may lack writes", 2)] * 2


def test_leader_that_may_lack_writes_itself_leaves_it_open_whether_others_lack_them() -> None:
    """R-LOSS-12: the machine of broker 1 can have died before it flushed them."""
    where = {1: A, 2: C}
    story = pair().version(where, isr=(1,), leader=1).min_isr(2).version(where)
    story.version(where, isr=(2,), leader=2, recovering=True).version(where).broker(1, A, B, process=2, unclean=True)
    story.version(where, isr=(1,), leader=1, recovering=True)
    assert (story.losses[-1].leader, story.copy(1).level, story.copy(2).level) == (1, "complete", "unsure")


def test_replica_in_sync_with_the_leader_that_has_the_writes_again_does_not_lose_them() -> None:
    """R-LOSS-12."""
    where = {1: A, 2: C}
    story = pair().version(where, isr=(1,), leader=1).min_isr(2).version(where)
    story.version(where, isr=(2,), leader=2, recovering=True).version(where)
    story.version(where, isr=(1,), leader=1, recovering=True).version(where, isr=(1, 2), leader=1)
    assert story.version(where, isr=(2,), leader=2).loss.leader == 2


# LEADERS OF ONE APPEND


def test_leader_that_the_same_append_replaces_is_fetched_from_by_nobody() -> None:
    """R-LOSS-10: broker 1 is unfenced and elected, then its directory fails; broker 2 has an empty copy."""
    story = Story().broker(1, A, B).broker(2, C).broker(3, E).version({1: A, 3: E}, isr=(1, 3), leader=3)
    story.version({1: A, 3: E}, isr=(3,), leader=3).version({1: A, 3: E}, isr=(3,)).version(
        {1: A, 3: E, 2: C}, isr=(3,)
    )
    story.version({1: A, 3: E, 2: C}, isr=(1,), leader=1, recovering=True, superseded=True)
    assert (story.losses, story.copy(2).level) == ((), "empty")
    story.version({1: A, 3: E, 2: C}, isr=(2,), leader=2, recovering=True)
    assert (story.loss.kind, story.loss.leader, [copy.broker_id for copy in story.loss.copies]) == ("lost", 2, [3])


def test_leader_that_the_same_append_replaces_acknowledges_nothing() -> None:
    """R-LOSS-10, R-LOSS-2: the other copy misses nothing, and leads."""
    story = pair().version({1: A, 2: C}, isr=(1, 2)).version({1: A, 2: C}, isr=(1,), leader=1, superseded=True)
    assert story.complete == (1, 2)
    assert story.version({1: A, 2: C}, isr=(2,), leader=2).losses == ()


def test_leader_that_the_same_append_replaces_adds_no_replica_to_the_in_sync_set() -> None:
    """R-LOSS-10, R-LOSS-3: it has not learned that it was elected."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1).version({1: A, 2: C}, isr=(1,))
    story.version({1: A, 2: C}, isr=(1,), leader=1, superseded=True).version({1: A, 2: C}, isr=(1, 2), leader=1)
    assert story.complete == (1,)


# NOTHING TO LOSE


def test_partition_that_never_had_a_leader_has_nothing_to_lose() -> None:
    """R-LOSS-7: created while its broker was fenced, recreated before the first leader."""
    story = Story().broker(1, A).version({1: A}, isr=(1,)).broker(1, B, process=2).version({1: B}, isr=(1,))
    assert (story.losses, story.copy(1).level) == ((), "empty")
    story.unregister(1).broker(1, B, process=3).version({1: B}, isr=(1,), leader=1)
    assert (story.losses, story.complete) == ((), (1,))


def test_state_of_a_snapshot_had_a_leader() -> None:
    """R-LOSS-7, R-LOSS-8: the records before it are not known."""
    story = Story().broker(1, A).version({1: A}, isr=(1,), in_snapshot=True).unregister(1)
    assert story.loss.kind == "unreachable"


def test_snapshot_that_bridges_a_gap_decides_with_its_lists() -> None:
    """R-LOSS-8: broker 2 must have joined in records that were not read."""
    story = pair().version({1: A, 2: C}, isr=(1,), leader=1)
    story.version({1: A, 2: C}, isr=(2,), leader=2, in_snapshot=True)
    assert (story.losses, story.complete) == ((), (2,))


def test_snapshot_does_not_bring_back_a_copy_that_was_given_up() -> None:
    """R-LOSS-8."""
    story = alone().version({1: A}, isr=(1,)).broker(1, B, process=2).version({1: B}, isr=(1,))
    story.version({1: B}, isr=(1,), leader=1, in_snapshot=True)
    assert (story.loss.kind, story.loss.went_on) == ("lost", 5)
    story = alone().version({1: A}, isr=(1,)).unregister(1).version({1: A}, in_snapshot=True)
    assert (story.loss.kind, story.loss.until) == ("unreachable", None)


def test_partition_record_for_an_existing_partition_is_its_next_version() -> None:
    """R-LOSS-3, R-PART-1: a whole state, as any other change."""
    story = pair().version({1: A, 2: C}, isr=(2,), leader=2).version({1: A, 2: C}, isr=(2, 1), leader=1)
    assert (story.losses, story.complete) == ((), (1, 2))


def test_deleted_topic_ends_its_losses() -> None:
    """R-LOSS-9."""
    story = alone().version({1: A}, isr=(1,)).unregister(1).delete()
    assert (story.loss.until, story.fate.copies) == (4, {})


def test_topic_created_again_has_nothing_of_the_old_one_to_lose() -> None:
    """R-LOSS-9."""
    story = alone().delete().version({1: B}).broker(1, C, process=2).version({1: C})
    assert story.losses == ()


def _unregistered_again_and_again(times: int) -> Story:
    story = alone()
    for process in range(2, 2 + times):
        story.version({1: A}).unregister(1).broker(1, A, B, process=process).version({1: A}, isr=(1,), leader=1)
    return story


def _recreated_again_and_again(times: int) -> Story:
    story, where = alone(), {1: A}
    for number in range(times):
        blank = Uuid(10, number)
        story.version(where).broker(1, B, blank, process=2 + number)
        where = {1: blank}
        story.version(where, isr=(1,)).version(where, isr=(1,), leader=1)
    return story


@pytest.mark.parametrize(
    ("happens", "kind", "overs"),
    [(_unregistered_again_and_again, "unreachable", 40), (_recreated_again_and_again, "lost", 0)],
)
def test_partition_that_loses_data_twice_as_often_takes_twice_the_work(
    happens: Callable[[int], Story], kind: str, overs: int
) -> None:
    """Cause: each event looked at every loss so far, to find copies that are overwritten (R-LOSS-11)."""
    story = happens(40)
    assert [loss.kind for loss in story.losses] == [kind] * 40
    assert sum(loss.until is not None for loss in story.losses) == overs
    once, twice = (lines_run(partial(happens, times), "jbod_model.loss") for times in (40, 80))
    assert twice < 2.1 * once


@pytest.mark.parametrize(
    "unlike",
    [
        {"level": "unsure"},
        {"level": "partial"},
        {"directory": None, "places": frozenset({C, D})},
        {"directory": D},
        {"missed": 3},
        {"left": (Left(directories=frozenset({D}), report=3, placement=False),)},
        {"given_up": "lost", "away": 3},
    ],
)
def test_partition_rests_if_every_copy_is_complete_in_its_place(unlike: dict[str, Any]) -> None:
    fate = pair().fate
    assert fate.rests
    assert not replace(fate, copies={**fate.copies, 2: replace(fate.copies[2], **unlike)}).rests


@pytest.mark.parametrize(
    "other",
    [
        lambda story: story.broker(2, C, D, fenced=True),
        lambda story: story.broker(2, C, D, starting=True),
        lambda story: story.broker(2, D),
        lambda story: story.unregister(2),
    ],
)
def test_partition_does_not_rest_while_a_broker_is_away(other: Callable[[Story], Story]) -> None:
    assert not other(pair()).fate.rests


def test_partition_does_not_rest_while_a_copy_can_return_or_be_overwritten() -> None:
    fate = pair().fate
    assert not replace(fate, gone=(fate.copies[2].give_up("recreated", 3),)).rests
    assert not replace(fate, waiting=(0,)).rests
    assert not Fate().rests


def _reassigning(story: Story, *, adding: tuple[int, ...], removing: tuple[int, ...]) -> None:
    """The same state, with replicas that a reassignment adds and removes."""
    assert story.fate.state is not None
    state = replace(story.fate.state, adding_replicas=adding, removing_replicas=removing)
    story.fate = replace(story.fate, state=state)
