"""What jbod advises: nothing that gives up a last copy, and what saves it first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jbod_model.formats import records as r
from pipelines.ask.advice import Action, Advice
from pipelines.ask.advice_last_copies import wait_and_keep
from pipelines.ask.incident_list import incidents
from pipelines.ask.json_values import jsonable
from pipelines.ask.lake_status import status
from pipelines.ask.lost_data import losses
from pipelines.ask.offline_replicas import Offline, find_perhaps_offline, offline
from pipelines.ask.removal import safe_to_remove
from pipelines.ask.restart import safe_to_restart
from pipelines.ask.restart_waits import CATCHING_UP, Blocking
from pipelines.ask.risk import risk
from pipelines.ask.whatif import whatif
from pipelines.ask.whatif_places import find_place
from pipelines.check.catalogue import run_checks
from pipelines.cli import main
from pipelines.lake.reader import Lake
from pipelines.plan.answer import plan
from pipelines.plan.goals import drain
from tests.support.volume import lines_run, rare
from tests.unit.check.story import Story, disk, topic_id

KEPT = [Action.READ, Action.BRING_BACK, Action.REPLACE]
"""The steps for a disk with a last copy: the last one is forbidden."""


def one_copy() -> Story:
    """A partition of one replica, whose disk fails."""
    return Story().broker(1, "ab").topic("t", {1: "a"}).left(1, "b").change("t", 0, leader=-1)


def two_copies() -> Story:
    """The only complete copy is on a disk that failed; the follower, broker 2, is online and lacks writes."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"})
    return story.change("t", 0, isr=(1,)).left(1, "b").change("t", 0, leader=-1)


def elsewhere() -> Story:
    """A disk fails, and another broker has a complete copy."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"})
    return story.left(1, "b").change("t", 0, isr=(2,), leader=2)


def unclean_on(story: Story, value: str = "true") -> Story:
    record = r.ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value=value)
    return story.append(record, 0)


def actions(steps: Sequence[Advice]) -> list[Action]:
    return [step.action for step in steps]


def only_steps(answer: Offline) -> Sequence[Advice]:
    (cause,) = answer.causes
    return cause.steps


def forbids_to_replace(steps: Sequence[Advice]) -> bool:
    (last,) = [step for step in steps if step.action == Action.REPLACE]
    return last.forbidden and last.cost == ("t-0",) and "would be lost" in last.text


def test_failed_disk_with_the_last_copy_is_read_and_brought_back_and_not_replaced(tmp_path: Path) -> None:
    """It said "repair or replace it, then restart the broker" beside "do not wipe": the restart recreated it empty."""
    steps = only_steps(offline(one_copy().lake(tmp_path)))
    assert actions(steps) == KEPT
    assert forbids_to_replace(steps)
    assert steps[1].directories == (str(disk("a")),)


def test_failed_disk_without_a_last_copy_may_be_replaced(tmp_path: Path) -> None:
    steps = only_steps(offline(elsewhere().lake(tmp_path)))
    assert actions(steps) == [Action.REPLACE]
    assert not steps[0].forbidden


def test_failed_disk_of_a_broker_that_is_fenced_is_found_in_its_log_and_the_broker_started(tmp_path: Path) -> None:
    """It sent to kafka-log-dirs.sh, which a broker that is down does not answer, and said to restart it."""
    steps = offline(elsewhere().fence(1).lake(tmp_path)).causes[0].steps
    assert [step.text for step in steps] == [
        "find that disk (the log of broker 1 has its path) and look at the kernel log and its mount; repair or replace "
        "it, then start the broker"
    ]


def test_disk_that_is_mounted_again_needs_a_start_of_its_broker(tmp_path: Path) -> None:
    """It said only to mount it: a broker that runs does not look at it."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).broker(1, "b", process=2)
    lake = story.change("t", 0, isr=(2,), leader=2).lake(tmp_path / "runs")
    (step,) = only_steps(offline(lake))
    assert step.text.startswith("mount that disk again and restart broker 1; before the restart, ask jbod safe-to-rest")
    assert [incident.advice for incident in incidents(lake) if incident.directory_id and incident.going_on] == [
        step.text
    ]
    (cause, *_) = offline(story.fence(1).lake(tmp_path / "fenced")).causes
    assert cause.advice.startswith("mount that disk again and start broker 1; or let replicas be rebuilt")


def test_check_incidents_and_removal_keep_the_last_copy_as_offline_does(tmp_path: Path) -> None:
    """Each said to replace the disk, or to take it out of log.dirs "which recreates them"."""
    lake = one_copy().lake(tmp_path)
    advice = offline(lake).causes[0].advice
    assert [finding.advice for finding in run_checks(lake, ["B-03"])] == [advice]
    assert [incident.advice for incident in incidents(lake)] == [advice]
    removal = safe_to_remove(lake, f"1:{disk('a')}")
    assert removal.reasons[0].advice == advice
    assert not [
        step
        for reason in removal.reasons
        for step in reason.steps
        if step.action in (Action.REPLACE, Action.REASSIGN) and not step.forbidden
    ]


def test_failed_disk_that_may_have_the_log_of_a_leader_without_a_directory_is_not_replaced(tmp_path: Path) -> None:
    """It said "repair or replace it" and "take it out of log.dirs": the replica, which led, was recreated empty."""
    lake = Story().broker(1, "ab").topic("t", {1: "unassigned"}).left(1, "b").lake(tmp_path)
    (incident,) = incidents(lake)
    assert actions(incident.steps) == KEPT
    assert "may hold the only complete copy of t-0" in incident.steps[0].text
    assert [step.every_disk for step in incident.steps] == [False, True, False]
    assert incident.steps[-1].forbidden
    assert incident.steps[-1].cost == ("t-0",)
    removal = safe_to_remove(lake, f"1:{disk('a')}")
    assert not removal.safe
    assert removal.reasons[0].advice == incident.advice
    assert not offline(lake).data.at_risk


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_unclean_elections_are_forbidden_before_a_broker_with_the_last_copy_online_restarts(
    tmp_path: Path, value: str
) -> None:
    """While it restarted, Kafka elected the follower that lacked writes. Kafka takes the value in any case."""
    story = Story().broker(1, "abe").broker(2, "cd").topic("t", {1: "a", 2: "c"}).topic("u", {1: "b", 2: "d"})
    story = unclean_on(story.change("t", 0, isr=(1,)).left(1, "ae").change("u", 0, isr=(2,), leader=2), value)
    steps = only_steps(offline(story.lake(tmp_path)))
    assert actions(steps) == [Action.FORBID_UNCLEAN, Action.REPLACE]
    assert "--entity-name t " in steps[0].text


def test_unclean_elections_are_forbidden_before_a_follower_starts_that_lacks_writes(tmp_path: Path) -> None:
    story = unclean_on(two_copies().fence(2))
    cause = next(candidate for candidate in offline(story.lake(tmp_path)).causes if candidate.broker_id == 2)
    assert actions(cause.steps) == [Action.FORBID_UNCLEAN, Action.START]


def test_unclean_elections_are_forbidden_before_a_running_follower_restarts_where_nobody_leads(tmp_path: Path) -> None:
    """It said to take a directory out and restart the broker: the restart elected its copy, which lacked writes."""
    story = Story().broker(1, "ab").broker(2, "cde").topic("t", {1: "a", 2: "c"}).topic("u", {1: "b", 2: "e"})
    story = story.change("t", 0, isr=(1,)).left(1, "b").change("t", 0, leader=-1)
    lake = unclean_on(story.left(2, "cd").change("u", 0, isr=(1,), leader=1)).lake(tmp_path)
    cause = next(candidate for candidate in offline(lake).causes if candidate.broker_id == 2)
    assert actions(cause.steps) == [Action.FORBID_UNCLEAN, Action.REPLACE]
    removal = safe_to_remove(lake, f"2:{disk('e')}")
    steps = [actions(reason.steps) for reason in removal.reasons if Action.REPLACE in actions(reason.steps)]
    assert steps
    assert all(first == Action.FORBID_UNCLEAN for first, *_ in steps)


def test_unclean_elections_are_forbidden_before_a_killed_broker_with_the_last_copy_starts(tmp_path: Path) -> None:
    """R-ACT-5: its registration took it off the lists, and the follower that lacked writes was elected."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,))
    steps = only_steps(offline(unclean_on(story.fence(1).change("t", 0, leader=-1)).lake(tmp_path)))
    assert actions(steps) == [Action.FORBID_UNCLEAN, Action.START, Action.ELECT]


def test_unclean_elections_are_forbidden_before_the_registration_of_a_broker_that_reported_its_last_copy_is_awaited(
    tmp_path: Path,
) -> None:
    """It said to wait until the broker registers first: with that the follower that lacks writes is elected."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,))
    steps = only_steps(
        offline(unclean_on(story.fence(1).change("t", 0, leader=-1).assign("t", 0, 1, "e")).lake(tmp_path))
    )
    assert actions(steps) == [Action.FORBID_UNCLEAN, Action.LOOK, Action.LOOK, Action.REPLACE]


def test_last_copy_that_is_online_and_in_no_list_is_saved_before_another_broker_starts(tmp_path: Path) -> None:
    """R-ACT-1: it said to mount a disk again, whose replica was elected and lacked the writes of the other."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,))
    empty = r.PartitionChangeRecord(
        topic_id=topic_id("t"), partition_id=0, isr=(), leader=-1, eligible_leader_replicas=(), last_known_elr=(2,)
    )
    story.append(empty, 2).left(2, "d")
    steps = only_steps(offline(story.lake(tmp_path)))
    assert (steps[0].action, steps[0].broker_id, steps[0].cost) == (Action.READ, 1, ("t-0",))
    assert "the controller elects broker 2, which lacks writes, when it is back" in steps[0].text


@pytest.mark.parametrize(("order", "first"), [((2, 3, 1), 3), ((2, 1, 3), 1)])
def test_election_is_advised_of_the_best_copy_online_and_names_what_kafka_elects_before_it(
    tmp_path: Path, order: tuple[int, ...], first: int
) -> None:
    """R-ELECT-5. It advised one election for each copy: Kafka elects the first replica, and this one lacked writes."""
    of = {1: "a", 2: "c", 3: "e"}
    story = Story().broker(1, "ab").broker(2, "cd").broker(3, "ef").topic("t", {broker: of[broker] for broker in order})
    story.configure("t", "2").change("t", 0, isr=(2, 3)).change("t", 0, isr=(2,)).left(2, "d").change("t", 0, leader=-1)
    (step,) = [step for step in only_steps(offline(story.lake(tmp_path))) if step.action == Action.ELECT]
    assert (step.broker_id, step.cost) == (3, () if first == 3 else ("t-0",))
    assert step.text.startswith("broker 3 has a complete copy of t-0 too, and is in no list: elect it")
    assert ("Kafka would elect broker 1, which has less" in step.text) == (first == 1)


def test_unclean_election_is_not_advised_while_a_replica_leads(tmp_path: Path) -> None:
    """The controller answers ELECTION_NOT_NEEDED: the leader of the log is in a directory that is offline."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,)).left(1, "b")
    assert actions(only_steps(offline(story.lake(tmp_path / "led")))) == KEPT
    unled = story.change("t", 0, leader=-1).lake(tmp_path / "unled")
    assert Action.ELECT in actions(only_steps(offline(unled)))


def test_unclean_elections_are_forbidden_before_any_broker_restarts_where_nobody_leads(tmp_path: Path) -> None:
    """The controller looks at every partition without a leader when a broker is unfenced, with or without a replica."""
    story = two_copies().broker(3, "ef")
    removal = safe_to_remove(unclean_on(story).lake(tmp_path / "on"), f"3:{disk('e')}")
    (step,) = [step for reason in removal.reasons for step in reason.steps if step.action == Action.FORBID_UNCLEAN]
    assert step.partitions == ("t-0",)
    assert step.text.endswith("as soon as any broker starts, a replica that lacks writes would lead")
    quiet = safe_to_remove(two_copies().broker(3, "ef").lake(tmp_path / "off"), f"3:{disk('e')}")
    assert Action.FORBID_UNCLEAN not in [step.action for reason in quiet.reasons for step in reason.steps]


def test_broker_whose_disk_with_the_last_copy_is_back_starts_with_all_its_disks(tmp_path: Path) -> None:
    """It only said to start the broker: somebody took that disk out meanwhile."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}).left(1, "b").change("t", 0, leader=-1, isr=(1,))
    story.broker(1, "b", process=2).assign("t", 0, 1, "b").broker(1, "ab", process=3, fenced=True)
    (step,) = [step for cause in offline(story.lake(tmp_path)).causes for step in cause.steps if step.every_disk]
    assert (step.action, step.broker_id, step.partitions) == (Action.START, 1, ("t-0",))
    assert "start it with every disk that it registered last and the same log.dirs" in step.text


def readded() -> Story:
    """Broker 2 leads alone. Broker 3 left the partition while it was eligible, is a replica again, and has nothing."""
    story = Story().broker(1, "a").broker(2, "cd").broker(3, "e").topic("t", {2: "c", 1: "a", 3: "e"})
    story.configure("t", "2")

    def step(replicas: tuple[int, ...], isr: tuple[int, ...], eligible: tuple[int, ...]) -> None:
        of = {1: "a", 2: "c", 3: "e"}
        change = r.PartitionChangeRecord(
            topic_id=topic_id("t"),
            partition_id=0,
            replicas=replicas,
            directories=tuple(disk(of[broker]) for broker in replicas),
            isr=isr,
            leader=2,
            eligible_leader_replicas=eligible,
        )
        story.append(change, 2)

    step((2, 1), (2,), (1, 3))
    step((3, 2, 1), (2,), (1, 3))
    return story


def test_restart_waits_for_an_eligible_replica_that_was_removed_and_added_again(tmp_path: Path) -> None:
    """R-QUIRK-3. It said that a directory of the leader can be removed: the restart elected the empty replica."""
    lake = readded().lake(tmp_path)
    removal = safe_to_remove(lake, f"2:{disk('d')}")
    (step,) = [step for reason in removal.reasons for step in reason.steps if "into sync" in step.text]
    assert (step.action, step.broker_id, step.partitions) == (Action.LOOK, 3, ("t-0",))
    answer = safe_to_restart(lake, [2])
    assert answer.exit_code == 1
    assert [stake.name for stake in answer.stakes if "unclean_election" in stake.harms] == ["t-0"]


def test_failure_after_which_a_replica_without_writes_is_elected_cleanly_loses_writes(tmp_path: Path) -> None:
    """R-QUIRK-3. risk and whatif counted the replica that was added again as a copy like any other."""
    lake = readded().lake(tmp_path)
    (change,) = whatif(lake, ["2"]).changes
    assert (change.leader_after, change.unclean, change.last_complete) == (3, True, False)
    exposures = {exposure.broker_id: exposure.unclean for exposure in risk(lake).brokers}
    assert exposures == {1: 0, 2: 1, 3: 0}


def test_plan_counts_an_eligible_replica_that_was_added_again_as_one_that_lacks_writes(tmp_path: Path) -> None:
    """R-QUIRK-3. It counted the replica as a copy like any other."""
    out_of_sync = r.PartitionChangeRecord(
        topic_id=topic_id("t"), partition_id=0, isr=(2,), leader=2, eligible_leader_replicas=(1,)
    )
    whole = Story().broker(1, "a").broker(2, "cd").topic("t", {2: "c", 1: "a"}).configure("t", "2")
    for story, unclean in ((readded(), 1), (whole.append(out_of_sync, 2), 0)):
        lake = story.broker(4, "f").lake(tmp_path / f"{unclean}")
        answer = plan(lake, partial(drain, place=find_place(lake, "1")))
        assert [(failure.last_replicas, failure.unclean) for failure in answer.now] == [(0, unclean)] * 2
        assert [step.broker.unclean for step in answer.steps] == [0]


@pytest.mark.parametrize("states", [-1, 1_000])
def test_election_of_an_eligible_replica_that_was_removed_and_added_again_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: int
) -> None:
    """R-QUIRK-3. With many partitions it was not reported: the election is clean."""
    monkeypatch.setattr("pipelines.ask.loss_sql.FEW_STATES", states)
    story = readded().change("t", 0, isr=(3,), leader=3)
    assert [(loss.name, loss.leader) for loss in losses(story.lake(tmp_path)).losses] == [("t-0", 3)]


def test_last_copy_is_saved_before_its_killed_broker_starts_if_the_last_known_leader_lacks_writes(
    tmp_path: Path,
) -> None:
    """It said to start the broker: when it registers, it leaves the eligible leaders, and the other one is elected."""
    story = Story().broker(1, "a").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,)).fence(1)
    eligible = r.PartitionChangeRecord(
        topic_id=topic_id("t"), partition_id=0, isr=(), leader=-1, eligible_leader_replicas=(1,), last_known_elr=(2,)
    )
    steps = only_steps(offline(story.append(eligible, 2).lake(tmp_path)))
    assert (steps[0].action, steps[0].broker_id, steps[0].cost) == (Action.READ, 1, ("t-0",))
    assert "and if broker 1 was killed, the controller elects broker 2, which lacks writes" in steps[0].text


def test_unregistered_broker_that_is_an_eligible_leader_starts_without_a_last_copy_saved_from_another(
    tmp_path: Path,
) -> None:
    """It said that the controller elects broker 2, which leaves the eligible leaders when it registers again."""
    story = Story().broker(1, "a").broker(2, "c").topic("t", {1: "a", 2: "c"}).fence(2).unregister(2).fence(1)
    eligible = r.PartitionChangeRecord(
        topic_id=topic_id("t"), partition_id=0, isr=(), leader=-1, eligible_leader_replicas=(1, 2)
    )
    lake = story.append(eligible, 2).lake(tmp_path)
    steps = [step for cause in offline(lake).causes for step in cause.steps]
    assert [(step.action, step.broker_id) for step in steps] == [(Action.START, 1), (Action.REASSIGN, 2)]


def test_last_copy_is_saved_before_any_broker_starts_if_its_replica_was_recreated_and_nobody_leads(
    tmp_path: Path,
) -> None:
    """It said to start the other broker: when that is unfenced, the controller elects the empty replica cleanly."""
    story = Story().broker(1, "ab").broker(3, "ef").topic("t", {1: "a"}).left(1, "b")
    story.change("t", 0, leader=-1, isr=(1,)).broker(1, "b", process=2).assign("t", 0, 1, "b")
    removal = safe_to_remove(story.lake(tmp_path), f"3:{disk('e')}")
    (step,) = [step for reason in removal.reasons for step in reason.steps if step.cost]
    assert (step.action, step.broker_id, step.cost) == (Action.READ, 1, ("t-0",))
    assert "and the controller elects broker 1, which lacks writes, when broker 3 is back" in step.text


def test_removed_last_copy_is_saved_before_a_replica_in_sync_that_lacks_writes_starts(tmp_path: Path) -> None:
    """It said to forbid unclean elections, and to start the broker: the controller elects it cleanly."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,))
    story.fence(2).change("t", 0, replicas=(2,), isr=(2,), leader=-1, directories=(disk("c"),))
    steps = only_steps(offline(story.lake(tmp_path)))
    assert actions(steps)[-1] == Action.START
    assert (steps[0].action, steps[0].broker_id, steps[0].cost) == (Action.READ, 1, ("t-0",))
    assert steps[0].text.endswith(
        "they have the last complete copy, and the controller elects broker 2, which lacks writes, when it is back; "
        "after that the writes do not return by themselves"
    )


def test_broker_that_is_not_registered_starts_with_all_its_disks(tmp_path: Path) -> None:
    """A disk had been replaced while it was down: its replica was recreated empty, and elected."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).fence(2).change("t", 0, isr=(1,))
    (step,) = only_steps(offline(story.append(r.UnregisterBrokerRecord(broker_id=2, broker_epoch=2), 0).lake(tmp_path)))
    assert (step.action, step.every_disk) == (Action.REASSIGN, True)
    assert "start that broker again with all its disks" in step.text


def test_failed_directory_is_not_taken_out_while_a_replica_of_its_broker_has_no_directory(tmp_path: Path) -> None:
    """The restart for it recreated the replica, whose disk had failed and was not reported yet."""
    placed = Story().broker(1, "abc").left(1, "bc").topic("t", {1: "b"})
    removal = safe_to_remove(placed.lake(tmp_path / "placed"), f"1:{disk('a')}")
    assert [step.action for reason in removal.reasons for step in reason.steps] == [Action.REPLACE]
    unplaced = Story().broker(1, "abc").left(1, "bc").topic("t", {1: "unassigned"})
    removal = safe_to_remove(unplaced.lake(tmp_path / "unplaced"), f"1:{disk('a')}")
    assert not removal.safe
    assert [step.action for reason in removal.reasons for step in reason.steps] == [Action.LOOK]


def test_unregistered_broker_with_an_unplaced_last_copy_starts_with_all_its_disks(tmp_path: Path) -> None:
    """It said "start broker 1 again with that disk", of a directory that no record named."""
    story = Story().broker(1, "ab").topic("t", {1: "unassigned"}).fence(1).change("t", 0, leader=-1)
    lake = story.append(r.UnregisterBrokerRecord(broker_id=1, broker_epoch=1), 0).lake(tmp_path)
    answer = offline(lake)
    lists = [cause.steps for cause in answer.causes] + [loss.steps for loss in answer.data.losses]
    steps = [step for steps in lists for step in steps]
    starts = [step for step in steps if step.action == Action.BRING_BACK]
    assert all(step.every_disk for step in starts)
    assert any("start broker 1 again with all its disks" in step.text for step in starts)


def test_last_copy_in_one_of_many_directories_forbids_to_wipe_any_of_them(tmp_path: Path) -> None:
    """It said "do not wipe one of 5 directories of broker 1", as if the others could be wiped."""
    story = Story().broker(1, "abcdf").topic("t", {1: "unassigned"}).fence(1).change("t", 0, leader=-1)
    (loss,) = offline(story.unregister(1).lake(tmp_path)).data.losses
    assert "one of 5 directories of broker 1 holds the last complete copy" in loss.finding
    assert [step.text for step in loss.steps] == [
        "do not wipe any of 5 directories of broker 1: one holds the last copy; start broker 1 again with all its disks"
    ]


def test_failed_disk_of_a_broker_that_is_fenced_since_is_told_first(tmp_path: Path) -> None:
    """It said only "broker 1 is stopped: start that broker"; the start recreated the replicas of the disk empty."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}, {1: "b"}).left(1, "b").change("t", 0, leader=-1)
    answer = offline(story.fence(1).change("t", 1, leader=-1).lake(tmp_path))
    first, second = answer.causes
    assert first.finding == (f"directory {disk('a')} of broker 1 failed at offset 5, and broker 1 is fenced besides")
    assert second.finding.startswith("broker 1 is fenced")
    assert first.steps == second.steps
    assert actions(first.steps) == KEPT
    assert sum(cause.replicas for cause in answer.causes) == len(answer.replicas)


def test_failed_disk_of_a_broker_that_is_unregistered_since_is_told_first(tmp_path: Path) -> None:
    story = one_copy().append(r.UnregisterBrokerRecord(broker_id=1, broker_epoch=1), 0)
    (cause,) = offline(story.lake(tmp_path)).causes
    assert cause.finding.endswith("failed at offset 4, and broker 1 is not registered besides")
    assert forbids_to_replace(cause.steps)


def test_disk_that_was_taken_out_of_a_broker_that_is_stopped_is_told_first(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1).broker(1, "b", process=2)
    (cause,) = offline(story.fence(1).lake(tmp_path)).causes
    assert "came back without directory" in cause.finding
    assert "is fenced besides" in cause.finding
    assert forbids_to_replace(cause.steps)


def test_partial_copy_that_lives_is_elected_only_if_the_disk_cannot_be_read_and_before_it_is_replaced(
    tmp_path: Path,
) -> None:
    """It said "repair or replace": the blank disk's empty replica led, and truncated the follower."""
    steps = only_steps(offline(two_copies().lake(tmp_path)))
    assert actions(steps) == [Action.READ, Action.BRING_BACK, Action.ELECT, Action.REPLACE]
    elect = steps[2]
    assert "kafka-leader-election.sh --bootstrap-server HOST:PORT --election-type unclean --topic t --partition 0" in (
        elect.text
    )
    assert elect.cost == ("t-0",)
    assert forbids_to_replace(steps)


def test_disk_comes_back_without_the_folder_that_was_recreated_elsewhere(tmp_path: Path) -> None:
    """R-ACT-7: Kafka does not start with two folders of a partition ("Duplicate log directories")."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}, {1: "a", 2: "c"})
    story.fence(1).change("t", 0, isr=(2,), leader=2).change("t", 1, isr=(2,), leader=2)
    story.broker(1, "b", process=2).assign("t", 0, 1, "b")
    lake = story.lake(tmp_path)
    (cause,) = offline(lake).causes
    assert "move the folder of t-0 away from this disk" in cause.advice


def test_disk_comes_back_without_the_folder_that_was_recreated_elsewhere_within_a_session(tmp_path: Path) -> None:
    """R-ACT-7, R-COPY-12: the report came before the registration without the disk, and the advice left two folders."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}, {1: "a", 2: "c"})
    story.change("t", 0, isr=(2,), leader=2).change("t", 1, isr=(2,), leader=2).assign("t", 0, 1, "e")
    (cause,) = offline(story.broker(1, "be", process=2).lake(tmp_path)).causes
    assert "move the folder of t-0 away from this disk" in cause.advice


def test_election_of_a_replica_that_was_recreated_comes_after_its_older_folder_is_saved(tmp_path: Path) -> None:
    """R-COPY-14: the older disk of the replica to elect may have all that the broken one has, and nothing named it."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).left(2, "d").change("t", 0, isr=(1,))
    story.broker(2, "d", process=2).assign("t", 0, 2, "d").left(1, "b").change("t", 0, leader=-1)
    (step,) = (step for step in only_steps(offline(story.lake(tmp_path))) if step.action == Action.ELECT)
    older = f"first save the folder of t-0 from directory {disk('c')} of broker 2, which may have more"
    assert older in step.text and step.text.index(older) < step.text.index("kafka-leader-election.sh")


def test_newer_folder_leaves_where_the_older_one_is_the_last_copy(tmp_path: Path) -> None:
    """R-ACT-7."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1, isr=(1,))
    (loss,) = offline(story.broker(1, "b", process=2, fenced=True).assign("t", 0, 1, "b").lake(tmp_path)).data.losses
    (step,) = loss.steps
    assert (step.action, step.newer_leaves) == (Action.BRING_BACK, ("t-0",))
    assert "move the partition's newer folder away" in step.text


def test_disk_whose_replicas_were_recreated_is_not_to_be_wiped(tmp_path: Path) -> None:
    """It said that to replace it would recreate the replicas empty, which had happened. kafka-4.0.1, offset 236."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}).left(1, "b").change("t", 0, leader=-1, isr=(1,))
    story.broker(1, "b", process=2).assign("t", 0, 1, "b")
    steps = offline(story.lake(tmp_path)).leaderless[0].steps
    assert actions(steps) == KEPT
    assert steps[-1].forbidden
    assert "has recreated the replicas empty" in steps[-1].text


def test_log_of_a_broker_that_crashed_while_it_led_is_not_saved_from_its_own_leadership(tmp_path: Path) -> None:
    """It said to copy its folders before it starts, as "the present leader" lacks writes. kafka-4.1.2, offset 629."""
    story = Story().broker(1, "a").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1, isr=())
    story.broker(1, "a", process=2).change("t", 0, leader=1, isr=(1,), leader_recovery_state=1)
    steps = only_steps(offline(story.fence(1).change("t", 0, leader=-1).lake(tmp_path)))
    assert actions(steps) == [Action.START]


def test_stopped_broker_that_reported_a_move_between_disks_that_it_has_is_started_with_both(tmp_path: Path) -> None:
    """R-COPY-12: the report may be of the process that was fenced."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1).assign("t", 0, 1, "b")
    (step,) = only_steps(offline(story.lake(tmp_path)))
    assert (step.action, step.every_disk) == (Action.START, True)


def test_loss_before_the_broker_was_unregistered_says_since_when_the_rest_is_unreachable(tmp_path: Path) -> None:
    """It said that more was lost, beside "unreachable, not lost". kafka-4.4.0, offset 767."""
    story = Story().broker(1, "a").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1, isr=())
    story.broker(1, "a", process=2).change("t", 0, leader=1, isr=(1,), leader_recovery_state=1)
    first, second = offline(story.fence(1).change("t", 0, leader=-1).unregister(1).lake(tmp_path)).data.losses
    assert (first.kind, second.kind) == ("may lack writes", "unreachable")
    assert first.finding.endswith(f"; unreachable since offset {second.offset}")


def test_failed_disk_of_a_stopped_broker_may_be_replaced_and_the_registered_one_with_the_last_copy_not(
    tmp_path: Path,
) -> None:
    """The second step forbade what the first one said: "replace or format none of" all its disks."""
    story = Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a", 2: "c"}).topic("u", {1: "b"})
    story.left(1, "b").change("t", 0, isr=(2,), leader=2).fence(1).change("u", 0, leader=-1)
    replace, start = (step for cause in offline(story.lake(tmp_path)).causes for step in cause.steps)
    assert (replace.action, replace.directories) == (Action.REPLACE, (str(disk("a")),))
    assert (start.action, start.partitions) == (Action.START, ("u-0",))
    assert start.text.endswith(
        "every disk that it registered last and the same log.dirs, and replace or format none of these"
    )


def test_stopped_broker_with_the_last_copy_starts_with_all_its_disks(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1)
    (step,) = only_steps(offline(story.lake(tmp_path)))
    assert (step.action, step.every_disk) == (Action.START, True)
    assert "start it with every disk that it registered last" in step.text


def test_disk_that_is_back_with_the_last_copy_is_not_replaced_while_its_broker_is_fenced(tmp_path: Path) -> None:
    """The incident of the failed disk lasted, and said "repair or replace it, then restart the broker"."""
    story = one_copy().fence(1).broker(1, "ab", process=2, fenced=True)
    steps = [step for incident in incidents(story.lake(tmp_path)) for step in incident.steps]
    assert steps
    assert {(step.action, step.every_disk) for step in steps} == {(Action.START, True)}


def test_partition_without_a_leader_whose_replicas_are_online_is_reported_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``offline`` said "every replica is online" while ``status`` counted it and pointed back to ``offline``."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, leader=-1)
    lake = story.lake(tmp_path)
    answer = offline(lake)
    assert [partition.name for group in answer.leaderless for partition in group.partitions] == ["t-0"]
    assert answer.as_json()["partitions_without_leader"] == ["t-0"]
    assert status(lake).partitions_without_leader == 1
    assert actions(answer.leaderless[0].steps) == [Action.RESTART]
    with pytest.raises(SystemExit):
        main.main(["offline", "--lake", str(tmp_path)])
    assert "every replica is online; but 1 partition has no leader." in capsys.readouterr().out


def test_partition_with_too_few_in_sync_whose_replicas_are_online_is_reported_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``offline`` said in green "every replica is online", or counted fewer partitions than ``status``, ``risk`` and
    the report, and B-17 sent its reader to it."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).topic("u", {1: "b"})
    lake = story.configure("t", "2").change("t", 0, isr=[1]).lake(tmp_path)
    answer = offline(lake)
    assert [partition.name for partition in answer.too_few_in_sync] == ["t-0"]
    assert len(answer.as_json()["partitions_under_min_isr"]) == status(lake).partitions_under_min_isr == 1
    for option, shown in (("t", True), ("u", False)):
        with pytest.raises(SystemExit):
            main.main(["offline", "--lake", str(tmp_path), "--topic", option])
        assert ("wait until the others are in sync again" in capsys.readouterr().out) is shown


def test_disk_whose_copy_another_broker_reports_stays_where_it_is(tmp_path: Path) -> None:
    """On a real cluster the advice was to put the disk of the broker that used it into the other one."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).fence(2)
    (cause,) = offline(story.assign("t", 0, 2, "a").lake(tmp_path / "copy")).causes
    assert cause.finding == f"directory {disk('a')} is that of broker 1, and no record has it on broker 2"
    assert cause.advice.startswith("leave the disk of broker 1 where it is")
    assert "put back the disk that was there before" in cause.advice
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"})
    story.broker(2, "d", process=2).broker(1, "abc", process=2)
    (cause,) = offline(story.lake(tmp_path / "moved")).causes
    assert cause.finding == f"directory {disk('c')} is now on broker 1"
    assert "the disk was moved from broker 2 to 1: put it back" in cause.advice


def test_moved_disk_with_the_last_copy_is_taken_out_of_the_broker_that_has_it_before_it_is_brought_back(
    tmp_path: Path,
) -> None:
    """The advice was to look for the disk on the broker that lacks it, and to start that broker with it."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {2: "c"})
    story.broker(2, "d", process=2).broker(1, "abc", process=2)
    (moved_cause,) = offline(story.lake(tmp_path / "runs")).causes
    assert actions(moved_cause.steps) == [Action.READ, Action.LOOK, Action.BRING_BACK, Action.REPLACE]
    assert moved_cause.steps[1].text.startswith("the disk is in broker 1 now")
    assert f"safe-to-restart 1 --gone {disk('c')}" in moved_cause.steps[1].text
    (gone_cause,) = offline(story.fence(2).unregister(2).lake(tmp_path / "unregistered")).causes
    assert moved_cause.steps[1] in gone_cause.steps


@pytest.mark.parametrize("level", [rare(14), rare(16), 17])
def test_answers_below_directories_say_that_no_record_tells_of_a_failed_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], level: int
) -> None:
    """A disk of a real broker failed at 3.6-IV2: "every replica is online", and nothing else."""
    story = Story(level).broker(1).broker(2).topic("t", {1: "migrating", 2: "migrating"})
    lake = story.lake(tmp_path)
    reasons = (offline(lake).unseen_disks, safe_to_restart(lake, [1]).unseen_disks)
    assert all(("records no directories" in why) == (level < 17) for why in reasons)
    assert offline(lake).as_json()["unseen_disks"] == safe_to_restart(lake, [1]).as_json()["unseen_disks"] == reasons[0]
    for question in (["offline"], ["safe-to-restart", "1", "--at-offset", str(lake.offset)]):
        with pytest.raises(SystemExit):
            main.main([*question, "--lake", str(tmp_path)])
        printed = " ".join(capsys.readouterr().out.split())
        assert ("a disk that failed is not in the log, and its replicas count as online" in printed) == (level < 17)


@pytest.mark.parametrize("where", ["unassigned", rare("migrating")])
def test_replica_that_may_be_in_a_failed_directory_is_named_although_kafka_counts_it_as_online(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    """``offline`` said "every replica is online". On a real cluster, upgraded from before directories, the leader
    answered nobody."""
    story = Story().broker(1, "a").broker(2, "bc").topic("t", {2: where, 1: "a"}).topic("u", {1: "a", 2: where})
    story.topic("v", {2: "c", 1: "a"})
    assert not offline(story.lake(tmp_path / "before")).perhaps
    lake = story.left(2, "c").lake(tmp_path / "after")
    (unread,) = offline(lake).perhaps
    assert (unread.broker_id, unread.directories) == (2, [str(disk("b"))])
    assert (unread.partitions, unread.leads) == (["t-0", "u-0"], ["t-0"])
    assert actions(unread.steps) == [Action.LOOK, Action.RESTART]
    assert offline(lake).as_json()["perhaps_offline"][0]["leads"] == ["t-0"]
    with pytest.raises(SystemExit):
        main.main(["offline", "--lake", str(tmp_path / "after")])
    printed = " ".join(capsys.readouterr().out.split())
    assert "every replica is online; but 2 replicas may be in a failed directory." in printed
    assert "the broker leads 1 of them, and nobody can read or write these if they are there: t-0" in printed
    assert "then restart broker 2 with the same log.dirs" in printed
    (again,) = offline(story.broker(2, "c", process=2).lake(tmp_path / "restarted")).perhaps
    assert (again.directories, again.since_start) == ([str(disk("b"))], True)
    assert "bring the disk back" in again.steps[0].text


def test_replica_that_may_be_in_a_directory_of_another_broker_now_is_not_looked_for_on_its_own(tmp_path: Path) -> None:
    """It said "bring the disk back, or replace it": the disk is in use there."""
    story = Story().broker(1, "a").broker(2, "bcx").broker(3, "d").topic("t", {2: "unassigned", 1: "a"})
    story.broker(2, "cx", process=2).broker(3, "bd", process=2)
    (moved,) = offline(story.lake(tmp_path / "moved")).perhaps
    assert [step.text for step in moved.steps] == [
        "the disk was moved from broker 2 to 3: put it back, or reassign the replicas"
    ]
    assert jsonable(moved)["holders"] == {str(disk("b")): 3}
    story.broker(2, "c", process=3)
    (both,) = offline(story.lake(tmp_path / "both")).perhaps
    assert both.directories == sorted(map(str, (disk("b"), disk("x"))))
    assert [step.directories for step in both.steps] == [(str(disk("b")),), ()]
    assert "bring the disk back" in both.steps[1].text


def test_sentences_about_one_thing_have_no_plural_and_lists_name_each_directory_once(tmp_path: Path) -> None:
    """They had "the broker leads 1 of them", "brokers 4 or 5 is in sync" and "wipe none of A and B and A and B"."""
    story = Story().broker(1, "a").broker(2, "bc").topic("t", {2: "unassigned", 1: "a"}).left(2, "c")
    (unread,) = offline(story.lake(tmp_path / "unread")).perhaps
    assert unread.finding.endswith("; the broker leads t-0, and nobody can read or write it if it is there")
    waits = Blocking(CATCHING_UP, 1, ["t-0"], (4, 5))
    assert waits.finding == "1 partition can be spared a replica when broker 4 or 5 is in sync again"
    assert waits.end.startswith("wait until broker 4 or 5 has caught up")
    assert wait_and_keep(1, ["A", "B"], ["B", "C"], ["t-0"])[-1].directories == ("B", "C", "A")


def test_replica_that_may_be_offline_is_only_in_a_directory_that_its_broker_had_while_it_was_there(
    tmp_path: Path,
) -> None:
    """Cause: every replica of a broker was said to be in whatever its process lost, or in all that it ever lost."""
    story = Story().broker(1, "a").broker(2, "bc").topic("t", {2: "unassigned", 1: "a"}).broker(2, "cx", process=2)
    story.topic("u", {2: "unassigned", 1: "a"}).left(2, "c")
    failed, gone = offline(story.lake(tmp_path / "both")).perhaps
    assert (failed.directories, failed.since_start, failed.partitions) == ([str(disk("x"))], False, ["u-0"])
    assert (gone.directories, gone.since_start, gone.partitions) == ([str(disk("b"))], True, ["t-0"])
    story = Story().broker(1, "a").broker(2, "bc").left(2, "c").broker(2, "cx", process=2)
    story.topic("u", {2: "unassigned", 1: "a"}).left(2, "c").broker(2, "c", process=3)
    (gone,) = offline(story.lake(tmp_path / "replaced")).perhaps
    assert (gone.directories, gone.since_start) == ([str(disk("x"))], True)


def test_sql_about_replicas_that_may_be_in_a_failed_directory_is_as_long_for_many_partitions_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: the SQL listed every partition. DuckDB parsed that of 300,000 for 6 s; it joins parameters in 0.3 s."""
    texts: list[str] = []
    query = Lake.query

    def noted(lake: Lake, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        texts.append(sql)
        return query(lake, sql, parameters)

    monkeypatch.setattr(Lake, "query", noted)
    longest = []
    for count in (1, 200):
        story = Story().broker(1, "a").broker(2, "bc").topic("t", *[{2: "unassigned", 1: "a"}] * count).left(2, "c")
        lake = story.lake(tmp_path / str(count))
        texts.clear()
        (unread,) = find_perhaps_offline(lake)
        assert len(unread.leads) == count
        longest.append(max(map(len, texts)))
    assert longest[1] < longest[0] + 100


@pytest.mark.exhaustive
def test_offline_of_a_cluster_without_power_with_twice_the_brokers_and_partitions_takes_twice_the_work(
    tmp_path: Path,
) -> None:
    """Cause: the advice for each broker looked at the last copies of all brokers, eight times: 24 s for 40 brokers with
    10,000 partitions."""
    work = []
    for brokers in (15, 30):
        story = Story()
        for broker in range(brokers):
            story.broker(broker, chr(1000 + broker))
        story.topic("t", *({broker: chr(1000 + broker)} for broker in range(brokers)))
        for broker in range(brokers):
            story.change("t", broker, leader=-1).fence(broker)
        lake = story.lake(tmp_path / str(brokers))
        assert [cause.steps[0].partitions for cause in offline(lake).causes] == [(f"t-{n}",) for n in range(brokers)]
        again = Lake.open(lake.path)
        work.append(lines_run(partial(offline, again)))
    assert work[1] < 2.1 * work[0]


def test_offline_with_twice_the_partitions_that_nobody_leads_takes_twice_the_work(tmp_path: Path) -> None:
    """Cause: the steps for a broker were made again for each of its partitions, from all of them: 126 s for 3,000
    partitions that were recreated on blank disks."""
    work = []
    for partitions in (20, 40):
        story = Story().broker(1, "ab").topic("t", *[{1: "b"}] * partitions).left(1, "a")
        for number in range(partitions):
            story.change("t", number, leader=-1)
        story.broker(1, "ac", process=2)
        for number in range(partitions):
            story.assign("t", number, 1, "c")
        lake = story.lake(tmp_path / str(partitions))
        (finding,) = {group.finding for group in offline(lake).leaderless}
        assert finding == f"no replica leads: the last complete copy is in directory {disk('b')} of broker 1"
        again = Lake.open(lake.path)
        work.append(lines_run(partial(offline, again)))
    assert work[1] < 2.1 * work[0]


def test_folder_on_the_disk_that_a_broker_serves_again_is_copied_before_the_restart_that_elects_an_empty_replica(
    tmp_path: Path,
) -> None:
    """Cause: a disk of the broker that restarts counted as one that comes back with it, although it is in use already:
    the only step was the restart."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}).assign("t", 0, 1, "lost").change("t", 0, leader=-1)
    (group,) = offline(story.assign("t", 0, 1, "b").lake(tmp_path)).leaderless
    assert actions(group.steps) == [Action.READ, Action.RESTART]


def test_json_of_twice_the_partitions_that_nobody_leads_is_twice_as_long(tmp_path: Path) -> None:
    """Cause: each partition had the steps, which name all of them: 444 MB for 3,000 partitions."""
    lengths = []
    for partitions in (20, 40):
        story = Story().broker(1, "ab").broker(2, "d").topic("t", *[{1: "b"}] * partitions, {2: "d"}).left(1, "a")
        for number in range(partitions + 1):
            story.change("t", number, leader=-1)
        story.broker(1, "ac", process=2)
        for number in range(partitions):
            story.assign("t", number, 1, "c")
        shared, alone = offline(story.lake(tmp_path / str(partitions))).as_json()["leaderless"]
        assert [partition["partition"] for partition in shared["partitions"]] == [*range(partitions)]
        assert [partition["partition"] for partition in alone["partitions"]] == [partitions]
        lengths.append(len(str(shared)))
    assert lengths[1] < 2.1 * lengths[0]


def test_partition_whose_only_replica_that_could_lead_is_being_shut_down_needs_no_restart(tmp_path: Path) -> None:
    """It blamed the controller, and said to restart the broker that somebody was shutting down."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"})
    stopping = r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=story.epochs[1], in_controlled_shutdown=1)
    story.append(stopping, 1).change("t", 0, isr=(1,), leader=-1)
    (group,) = offline(story.lake(tmp_path)).leaderless
    assert "broker 1 is being shut down in order" in group.finding
    assert actions(group.steps) == [Action.START]


def test_group_of_losses_names_a_partition_once(tmp_path: Path) -> None:
    """A partition with two losses of one cause was counted twice ("5 of 3")."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,))
    for leader, other in ((2, 1), (1, 2), (2, 1)):
        story.fence(other).change("t", 0, leader=-1).change("t", 0, leader=leader, isr=(leader,))
        story.fence(other, up=True)
    answer = offline(story.lake(tmp_path))
    assert len(answer.data.losses) == 3
    assert all(len(group) == len({loss.name for loss in group}) for group in answer.data.groups)


def test_whatif_names_the_partitions_whose_last_copy_is_offline_on_the_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = one_copy().lake(tmp_path)
    assert [partition.name for partition in whatif(lake, ["1"]).last_offline] == ["t-0"]
    with pytest.raises(SystemExit):
        main.main(["whatif", "--fail", "1", "--lake", str(tmp_path)])
    assert "holds the last complete copy of 1 partition, offline already" in capsys.readouterr().out


def test_sentence_about_a_crash_says_who_leads_now(tmp_path: Path) -> None:
    """It said "broker 1 leads" of a partition that nobody leads."""
    story = Story().broker(1, "a").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1, isr=())
    story.broker(1, "a", process=2).change("t", 0, leader=1, isr=(1,), leader_recovery_state=1)
    story.fence(1).change("t", 0, leader=-1)
    (loss,) = offline(story.lake(tmp_path)).data.losses
    assert loss.finding.startswith("broker 1 led after an unclean shutdown")
    assert loss.finding.endswith("no replica leads now")
    assert "accept" not in loss.advice


def test_leader_whose_copy_was_one_of_the_last_is_not_said_to_lack_them(tmp_path: Path) -> None:
    """It said that the leader's copy was truncated to the leader's, and sent to a backup. A real Kafka lost nothing."""
    story = Story().broker(1, "a").broker(2, "b").topic("t", {1: "a", 2: "b"}).configure("t", "2")

    def eligible(*brokers: int, **fields: Any) -> None:
        record = r.PartitionChangeRecord(
            topic_id=topic_id("t"), partition_id=0, eligible_leader_replicas=brokers, **fields
        )
        story.append(record, 2)

    story.fence(2)
    eligible(2, isr=(1,))
    story.fence(1)
    eligible(1, 2, isr=(), leader=-1)
    eligible(1)
    story.broker(2, "b", process=2)
    eligible()
    story.broker(1, "a", process=2)
    eligible(isr=(1,), leader=1, leader_recovery_state=1)
    (loss,) = offline(story.lake(tmp_path)).data.losses
    assert loss.finding.startswith("broker 1 leads after an unclean shutdown: what it had not flushed from directory")
    assert loss.finding.endswith(f"may be missing, and may have been in directory {disk('b')} of broker 2")
    assert "truncated" not in loss.advice
    assert "accept" in loss.advice


def test_broken_disk_with_a_last_copy_is_not_formatted_where_nothing_is_mounted(tmp_path: Path) -> None:
    """R-STORE-10: it said that the broker can be restarted. A real Kafka refused a mount point that is empty, and asked
    for the format that gives up the copy."""
    (cause,) = offline(one_copy().lake(tmp_path)).causes
    (forbidden,) = [step.text for step in cause.steps if step.forbidden]
    assert forbidden.startswith("until then do not replace or format it")
    assert "unless nothing is mounted there: Kafka refuses to start then, and asks for a format" in forbidden


def test_unclean_election_is_named_before_the_crashes_of_processes(tmp_path: Path) -> None:
    """Crashes that lose nothing came first, and the loss of a real Kafka was among the groups that are not printed."""
    story = Story().broker(1, "a").broker(2, "b").topic("t", {1: "a", 2: "b"}).topic("u", {1: "a"}, {1: "a"})
    story.change("t", 0, isr=(1,)).fence(1)
    story.change("u", 0, leader=-1, isr=()).change("u", 1, leader=-1, isr=()).broker(1, "a", process=2)
    story.change("u", 0, leader=1, isr=(1,)).change("u", 1, leader=1, isr=(1,))
    story.change("t", 0, leader=2, isr=(2,), leader_recovery_state=1)
    groups = losses(story.lake(tmp_path)).groups
    assert [[loss.name for loss in group] for group in groups] == [["t-0"], ["u-0", "u-1"]]


def test_directory_of_a_stopped_broker_with_last_copies_is_not_emptied_by_a_reassignment(tmp_path: Path) -> None:
    """R-ACT-6: it said to reassign the replicas to other brokers, while no complete copy was online."""
    lake = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1).lake(tmp_path)
    removal = safe_to_remove(lake, f"1:{disk('a')}")
    steps = [step for reason in removal.reasons for step in reason.steps]
    assert [step.action for step in steps if step.action != Action.LOOK] == [Action.START, Action.START]


def test_every_step_that_restarts_a_running_broker_names_what_says_what_that_costs(tmp_path: Path) -> None:
    """Cause: "restart broker 1", while safe-to-restart knew that nobody else had the complete copy of another one."""

    def needed(story: Story, name: str) -> Lake:
        lake = story.topic("busy", {1: "b"}).lake(tmp_path / name)
        assert safe_to_restart(lake, [1]).verdict != "safe"
        return lake

    kept, replaced = needed(one_copy(), "kept"), needed(elsewhere(), "replaced")
    led = Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a", 2: "c"}).change("t", 0, leader=-1)
    old = needed(Story().broker(1, "ab").broker(2, "c").topic("t", {1: "migrating", 2: "c"}), "old")
    steps = [
        only_steps(offline(kept)),
        only_steps(offline(replaced)),
        incidents(replaced)[0].steps,
        offline(needed(led, "led")).leaderless[0].steps,
        safe_to_remove(replaced, f"1:{disk('a')}").reasons[0].steps,
        safe_to_remove(old, f"1:{disk('a')}").reasons[0].steps,
    ]
    for each in steps:
        (restart,) = [step for step in each if "restart broker 1" in step.text or "then restart the" in step.text]
        assert "before the restart, ask jbod safe-to-restart 1 what it costs other partitions" in restart.text
    unmounted = one_copy().fence(1).lake(tmp_path / "fenced")
    assert not any("safe-to-restart" in step.text for cause in offline(unmounted).causes for step in cause.steps)
