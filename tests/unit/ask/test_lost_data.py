"""What questions say of lost data: which disk had the last copy, and what to do about it now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jbod_model.formats import records as r
from jbod_model.loss.copies import Event
from jbod_model.loss.fate import Fate
from pipelines.ask.advice import Action
from pipelines.ask.lake_status import status
from pipelines.ask.loss_sql import candidates
from pipelines.ask.lost_data import LOST, MAY_LACK, UNREACHABLE, Losses, count_lost, losses
from pipelines.ask.moves import moves
from pipelines.ask.offline_replicas import offline
from pipelines.ask.partition_history import history
from pipelines.ask.removal import safe_to_remove
from pipelines.ask.restart import safe_to_restart
from pipelines.ask.whatif import whatif
from pipelines.check.catalogue import run_checks
from pipelines.cli import main
from pipelines.lake.reader import Lake
from pipelines.settings import CheckSettings, Settings
from tests.support.paths import KAFKAS
from tests.support.tampering import Row, tamper
from tests.support.volume import rare, sampled
from tests.unit.check.story import Story, disk, topic_id


def one_copy() -> Story:
    """A partition of one replica, whose disk fails."""
    return Story().broker(1, "ab").topic("t", {1: "a"}).left(1, "b").change("t", 0, leader=-1)


def recreated() -> Story:
    """It leads again, empty, from another disk: every replica is online."""
    return one_copy().broker(1, "b", process=2).assign("t", 0, 1, "b").change("t", 0, leader=1)


def two_copies() -> Story:
    """Broker 2 is not in sync any more when broker 1 is fenced."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,))
    return story.fence(1).change("t", 0, leader=-1)


KINDS = (LOST, MAY_LACK, UNREACHABLE)


def unclean() -> Story:
    return two_copies().change("t", 0, leader=2, isr=(2,), leader_recovery_state=1)


def losses_of(story: Story, path: Path, accepted_until: int = -1) -> Losses:
    return losses(story.lake(path), accepted_until=accepted_until)


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 1))
def test_losses_are_the_same_if_all_partitions_are_followed_and_if_only_some_are(
    kafka: str, cluster_lakes: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Lake.open(cluster_lakes[kafka]).offset
    json_answers = []
    for states in (-1, 1_000_000):
        monkeypatch.setattr("pipelines.ask.loss_sql.FEW_STATES", states)
        lakes = [Lake.open(cluster_lakes[kafka], at_offset=end * part // 4) for part in (1, 2, 3, 4)]
        answers = [losses(lake) for lake in lakes]
        json_answers.append([answer.as_json() for answer in answers])
        for lake, answer in zip(lakes, answers, strict=True):
            counted = count_lost(lake)
            assert [counted[kind] for kind in KINDS] == [answer.count(kind) for kind in KINDS]
    assert json_answers[0] == json_answers[1]


def test_lost_data_is_reported_while_every_replica_is_online(tmp_path: Path) -> None:
    lake = recreated().lake(tmp_path)
    answer = offline(lake)
    assert not answer.replicas
    (loss,) = answer.data.losses
    assert (loss.name, loss.kind, loss.offset, loss.went_on_offset) == ("t-0", "lost", 7, 8)
    assert loss.finding == (
        f"the data is lost: the last complete copy was in directory {disk('a')} of broker 1, and its replica was "
        "recreated empty in another directory"
    )
    assert loss.advice.startswith(f"do not wipe directory {disk('a')} of broker 1: if that disk can still be read")
    assert answer.as_json()["losses"][0]["finding"] == loss.finding
    assert status(lake).partitions_data_lost == 1


def test_offline_and_check_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recreated().lake(tmp_path)
    for command, code, text in (
        (["offline"], 0, "every replica is online; but the data of 1 partition is lost."),
        (["status"], 0, "1 partition with lost data"),
        (["incidents"], 0, "Data of 1 partition lost: t-0."),
        (["check", "--only", "data-lost", "--no-keep"], 1, "CRITICAL B-32 data-lost"),
    ):
        with pytest.raises(SystemExit) as left:
            main.main([*command, "--lake", str(tmp_path)])
        assert left.value.code == code
        assert text in capsys.readouterr().out


def test_accepted_loss_is_reported_as_info_and_no_longer_counted(tmp_path: Path) -> None:
    lake = recreated().lake(tmp_path)
    for until, severity, count in ((6, "critical", 1), (7, "info", 0)):
        settings = Settings(check=CheckSettings(losses_accepted_until=until))
        assert [finding.severity for finding in run_checks(lake, ["B-32"], settings)] == [severity]
        assert losses(lake, accepted_until=until).count("lost") == count
        assert count_lost(lake, accepted_until=until)["lost"] == count


def test_partitions_that_can_have_lost_data_are_selected_once_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = two_copies().lake(tmp_path)
    asked_for = []

    def counted(opened_lake: Lake) -> str:
        asked_for.append(opened_lake.offset)
        return candidates(opened_lake)

    monkeypatch.setattr("pipelines.ask.loss.candidates", counted)
    assert safe_to_remove(lake, f"2:{disk('c')}").held
    assert asked_for == [lake.offset]


def test_partition_of_two_replicas_is_not_followed_after_restarts_of_its_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each restart leaves one replica in sync. Of 200,000 partitions all states were compared: an answer took 3 s."""
    monkeypatch.setattr("pipelines.ask.loss_sql.FEW_STATES", -1)
    story = Story().broker(1, "a").broker(2, "cd").topic("t", {1: "a", 2: "c"})
    story.change("t", 0, isr=(2,), leader=2).change("t", 0, isr=(1, 2))
    story.change("t", 0, isr=(1,), leader=1).change("t", 0, isr=(1, 2))
    lake = story.lake(tmp_path)
    assert lake.query(candidates(lake)) == []
    assert lake.query(f"SELECT count(*) FROM {lake.scan('partitions')} WHERE len(isr) = 1") == [(2,)]


@pytest.mark.parametrize("unclean_before", [rare(False), True])
def test_partition_without_a_leader_after_many_restarts_is_followed_as_one_after_few(
    unclean_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer about 2,000 partitions after 50 weekly restarts of 12 brokers took 75 s."""
    events: list[Event] = []
    after = Fate.after

    def counted(fate: Fate, event: Event) -> Fate:
        events.append(event)
        return after(fate, event)

    monkeypatch.setattr(Fate, "after", counted)

    def work(restarts: int) -> int:
        story = Story().broker(1, "a").broker(2, "c").topic("t", {1: "a", 2: "c"})
        if unclean_before:
            story.change("t", 0, isr=(1,)).change("t", 0, isr=(2,), leader=2).change("t", 0, isr=(1, 2))
        for process in range(2, restarts + 2):
            for broker, other, where in ((1, 2, "a"), (2, 1, "c")):
                story.change("t", 0, isr=(other,), leader=other).fence(broker)
                story.broker(broker, where, process=process, fenced=True).fence(broker, up=True)
                story.change("t", 0, isr=(1, 2))
        lake = story.change("t", 0, leader=-1).fence(1).lake(tmp_path / str(restarts))
        events.clear()
        losses(lake)
        return len(events)

    assert work(12) == work(4)


def test_answers_at_two_offsets_through_one_connection_are_those_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.ask.loss_sql.FEW_STATES", -1)
    after = unclean().lake(tmp_path)
    before = replace(after, offset=after.offset - 1)
    assert [len(losses(lake).losses) for lake in (after, before, after, before)] == [1, 0, 1, 0]


def test_row_without_a_topic_id_changes_no_answer_about_losses(tmp_path: Path) -> None:
    """It failed with AttributeError when topic ids came to be quoted in SQL."""

    def append_damage(rows: list[Row]) -> None:
        rows.append(rows[0] | {"topic_id": None})

    answer = losses_of(unclean(), tmp_path).as_json()
    tamper(tmp_path, "partitions", append_damage)
    assert losses(Lake.open(tmp_path)).as_json() == answer
    assert answer["losses"]


def test_loss_ends_with_its_topic(tmp_path: Path) -> None:
    assert losses_of(recreated().remove("t"), tmp_path).losses == []


def test_copy_whose_disk_is_offline_is_at_risk_and_not_lost(tmp_path: Path) -> None:
    answer = losses_of(one_copy(), tmp_path)
    assert not answer.losses
    (partition,) = answer.at_risk
    assert [(copy.broker_id, copy.directory_id, copy.place) for copy in partition.copies] == [
        (1, str(disk("a")), "offline")
    ]


def test_copy_that_is_online_and_in_no_list_is_at_risk_beside_the_one_that_is_offline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said "directory a of broker 1 holds the only complete copy", and to elect the complete one of broker 2."""
    story = Story().broker(1, "a").broker(2, "c").topic("t", {1: "a", 2: "c"}).fence(1)
    eligible = r.PartitionChangeRecord(
        topic_id=topic_id("t"), partition_id=0, isr=(), leader=-1, eligible_leader_replicas=(1,)
    )
    (partition,) = losses_of(story.append(eligible, 2), tmp_path).at_risk
    assert [(copy.broker_id, copy.place) for copy in partition.copies] == [(1, "offline"), (2, "online")]
    with pytest.raises(SystemExit):
        main.main(["offline", "--lake", str(tmp_path)])
    hold = f"directory {disk('a')} of broker 1 and directory {disk('c')} of broker 2 hold the only complete copies of"
    assert hold in " ".join(capsys.readouterr().out.split())


def test_unregistered_broker_is_to_be_started_again(tmp_path: Path) -> None:
    story = one_copy().append(r.UnregisterBrokerRecord(broker_id=1, broker_epoch=1), 0)
    (loss,) = losses_of(story, tmp_path).losses
    assert loss.advice.endswith("start broker 1 again with that disk")
    assert loss.copies[0].place == "unregistered"


def test_copy_that_will_be_truncated_is_to_be_saved_before_its_broker_starts(tmp_path: Path) -> None:
    (loss,) = losses_of(unclean(), tmp_path).losses
    assert loss.kind == "may lack writes"
    assert loss.advice.startswith(f"save directory {disk('a')} of broker 1 before broker 1 starts with it")


def test_copy_of_a_broker_that_came_back_was_truncated(tmp_path: Path) -> None:
    (loss,) = losses_of(unclean().fence(1, up=True).change("t", 0, isr=(1, 2)), tmp_path).losses
    assert "was truncated" in loss.advice


@pytest.mark.parametrize("followed", [False, True])
def test_disk_whose_copy_followed_nobody_before_it_failed_is_not_safe_to_remove(followed: bool, tmp_path: Path) -> None:
    """R-LOSS-11: the copy was said to be truncated as soon as its broker was back, also by a leader that was dead."""
    story = unclean().fence(1, up=True)
    if followed:
        story.change("t", 0, isr=(1, 2)).change("t", 0, isr=(2,))
    else:
        story.fence(2).change("t", 0, leader=-1)
        (loss,) = losses_of(story, tmp_path / "online").losses
        assert loss.advice.startswith(f"copy the partition's folder from directory {disk('a')} of broker 1 at once")
        story.fence(2, up=True).change("t", 0, leader=2)
    story.broker(1, "b", process=2).assign("t", 0, 1, "b").change("t", 0, isr=(1, 2))
    answer = safe_to_remove(story.lake(tmp_path), f"1:{disk('a')}")
    assert answer.safe == followed, answer.reasons


def test_broker_whose_copy_led_between_two_leaders_without_its_writes_is_not_safe_to_start(tmp_path: Path) -> None:
    """R-LOSS-11: it was safe to start, and its copy, the only one with the writes, was truncated to the leader's."""
    story = Story().broker(1, "a").broker(2, "c").broker(3, "e").topic("t", {1: "a", 2: "c", 3: "e"})
    story.configure("t", "2").change("t", 0, isr=(1, 3)).fence(3).fence(2).fence(1).change("t", 0, leader=-1)
    for leader in (2, 1, 2):
        story.fence(leader, up=True).change("t", 0, leader=leader, isr=(leader,), leader_recovery_state=1)
        if leader == 1:
            (loss,) = losses_of(story, tmp_path / "between").losses
            assert loss.advice.startswith("broker 1 leads now, with the copy in directory")  # it sent to a backup
        story.fence(leader).change("t", 0, leader=-1)
    lake = story.fence(2, up=True).change("t", 0, leader=2).lake(tmp_path)
    answer = safe_to_restart(lake, [1])
    assert (answer.verdict, answer.steps[0].text[:37]) == ("not safe", "copy the folder of t-0 from the disks")


def test_writes_that_are_lost_again_after_their_loss_was_accepted_are_reported(tmp_path: Path) -> None:
    """R-LOSS-12: the broker with the writes led, so their loss was accepted; then the other one was elected again, and
    every replica was online."""
    story = two_copies().configure("t", "2").change("t", 0, leader=2, isr=(2,), leader_recovery_state=1)
    story.change("t", 0, leader=-1).change("t", 0, leader=1, isr=(1,), leader_recovery_state=1)
    accepted = len(story.entries) - 1
    lake = story.change("t", 0, leader=-1).change("t", 0, leader=2, isr=(2,), leader_recovery_state=1).lake(tmp_path)
    (loss,) = [loss for loss in losses(lake, accepted_until=accepted).losses if not loss.accepted]
    assert (loss.offset, loss.leader, loss.copies[0].directories) == (lake.offset, 2, (str(disk("a")),))


def test_disk_of_a_leader_with_the_writes_that_another_led_without_is_not_safe_to_remove(tmp_path: Path) -> None:
    """R-LOSS-12: the copy that had led without the writes counted as complete after they were back."""
    story = two_copies().configure("t", "2").change("t", 0, leader=2, isr=(2,), leader_recovery_state=1)
    story.change("t", 0, leader=-1).fence(1, up=True)
    story.change("t", 0, leader=1, isr=(1,), leader_recovery_state=1).change("t", 0, leader_recovery_state=0)
    lake = story.lake(tmp_path)
    answer = safe_to_remove(lake, f"1:{disk('a')}", accepted_until=lake.offset)
    assert "it holds the last complete copy of 1 partition" in answer.reasons[1].finding


def test_tiered_topic_lost_what_was_not_uploaded(tmp_path: Path) -> None:
    tiered = r.ConfigRecord(resource_type=2, resource_name="t", name="remote.storage.enable", value="true")
    (loss,) = losses_of(recreated().append(tiered, 0), tmp_path).losses
    assert loss.tiered
    assert loss.finding.startswith("the local part of the log that was not uploaded yet is lost")


def test_disk_with_the_last_copy_is_not_safe_to_remove(tmp_path: Path) -> None:
    answer = safe_to_remove(recreated().lake(tmp_path), f"1:{disk('a')}")
    assert not answer.safe
    assert (
        answer.reasons[0].finding == "it held the last complete copy of 1 partition whose data is lost or lacks writes"
    )
    assert answer.reasons[0].partitions == ("t-0",)


@pytest.mark.parametrize("ends", ["crash", "truncated"])
def test_disk_whose_copy_holds_nothing_that_the_partition_lacks_can_be_removed(tmp_path: Path, ends: str) -> None:
    """It was not safe for good, and the partition was to be saved from the disk, while ``check`` said that no disk
    holds more. Any kill of a broker of a real Kafka did that to its disks."""
    if ends == "crash":
        story = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1, isr=())
        story.broker(1, "ab", process=2).change("t", 0, leader=1, isr=(1,), leader_recovery_state=1)
    else:
        story = unclean().broker(1, "ab", process=2).change("t", 0, isr=(2, 1))
    lake = story.assign("t", 0, 1, "b").lake(tmp_path)
    assert [loss.kind for loss in losses(lake).losses] == [MAY_LACK]
    answer = safe_to_remove(lake, f"1:{disk('a')}")
    assert answer.safe, answer.reasons


def lost_beside_an_older_copy() -> Story:
    """Broker 2 is behind when its disk c fails; then disk a of broker 1, which comes back and leads, empty."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,)).left(2, "d")
    story.left(1, "b").change("t", 0, leader=-1)
    return story.broker(1, "b", process=2).assign("t", 0, 1, "b").change("t", 0, leader=1)


def test_older_copy_of_lost_data_is_to_be_kept_and_copied_before_its_broker_starts(tmp_path: Path) -> None:
    """The disk with what remained was to be repaired and its broker started, which truncated the copy to nothing."""
    lake = lost_beside_an_older_copy().lake(tmp_path)
    (loss,) = losses(lake).losses
    assert [step.text.partition(":")[0] for step in loss.steps] == [
        f"do not wipe directory {disk('a')} of broker 1",
        f"do not wipe directory {disk('c')} of broker 2 either",
    ]
    assert [copy.directory_id for copy in loss.kept] == [str(disk("c"))]
    (saved,) = (step for step in offline(lake).causes[0].steps if step.action == Action.READ)
    assert saved.text.startswith("copy the folder of t-0 from the disks of broker 2 before it starts with them")


@pytest.mark.parametrize("older", ["recreated elsewhere", "truncated"])
def test_disk_with_an_older_copy_of_lost_data_is_safe_to_remove_once_that_copy_was_truncated(
    tmp_path: Path, older: str
) -> None:
    story = lost_beside_an_older_copy()
    if older == "truncated":
        story.broker(2, "cd", process=2).change("t", 0, isr=(1, 2)).left(2, "d")
    lake = story.broker(2, "d", process=3).assign("t", 0, 2, "d").lake(tmp_path)
    answer = safe_to_remove(lake, f"2:{disk('c')}")
    assert answer.safe == (older == "truncated")
    held = [reason.finding for reason in answer.reasons if reason.finding.startswith("it held")]
    assert held == ["it held an older copy of 1 partition whose data is lost or lacks writes"] * (not answer.safe)


def test_disk_is_not_safe_where_the_replica_online_is_not_complete(tmp_path: Path) -> None:
    (held,) = safe_to_remove(two_copies().lake(tmp_path), f"1:{disk('a')}").held
    assert held.last_complete
    assert not held.only_online


def test_failure_of_the_last_complete_copy_is_reported_although_another_replica_stays_online(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,))
    (leader_change,) = whatif(story.lake(tmp_path), ["1"]).changes
    assert leader_change.last_complete
    assert not leader_change.all_offline


def test_history_calls_a_move_a_move_and_a_recreation_a_recreation(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").topic("t", {1: "a"}).assign("t", 0, 1, "b").left(1, "a").change("t", 0, leader=-1)
    story.broker(1, "a", process=2).assign("t", 0, 1, "a")
    lines = [event.what for event in history(story.lake(tmp_path), "t-0").events]
    assert f"replica on 1 moved: {disk('a')} -> {disk('b')}" in lines
    assert f"replica on 1 recreated empty in {disk('a')} (its data was in {disk('b')})" in lines
    assert any(what.startswith("the data is lost") for what in lines)


def test_report_that_comes_before_its_process_registers_is_no_move(tmp_path: Path) -> None:
    """R-COPY-12."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1).assign("t", 0, 1, "b")
    lake: Lake = story.broker(1, "b", process=2).lake(tmp_path)
    lines = [event.what for event in history(lake, "t-0").events]
    assert f"replica on 1 recreated empty in {disk('b')} (its data was in {disk('a')})" in lines
    assert [loss.kind for loss in losses(lake).losses] == ["lost"]


def test_replica_whose_old_disk_is_back_before_anybody_led_is_in_it_again(tmp_path: Path) -> None:
    """R-COPY-13: history said "recreated empty in" the directory that has the log."""
    story = one_copy().broker(1, "b", process=2).assign("t", 0, 1, "b").broker(1, "a", process=3).assign("t", 0, 1, "a")
    lake = story.lake(tmp_path)
    (last,) = (event.what for event in history(lake, "t-0").events if event.what.startswith("replica on 1 is in"))
    assert (
        last == f"replica on 1 is in {disk('a')} again, with the log there: the disk is back (was {disk('b')}, empty)"
    )
    assert [move.outcome for move in moves(lake)] == ["recreated", "returned"]
    assert losses(lake).losses == []


def test_replica_that_was_lost_and_is_in_its_directory_again_is_not_called_empty(tmp_path: Path) -> None:
    """R-COPY-13: history said "recreated empty in" at the offset where "a complete copy is back"."""
    story = one_copy().assign("t", 0, 1, "lost").broker(1, "ab", process=2).assign("t", 0, 1, "a")
    lines = [event.what for event in history(story.lake(tmp_path), "t-0").events]
    assert f"replica on 1 is in {disk('a')} (was lost)" in lines
    assert "a complete copy is back: the data is no longer lost" in lines


def test_replica_that_was_lost_and_is_in_another_directory_is_empty_there(tmp_path: Path) -> None:
    story = one_copy().assign("t", 0, 1, "lost").broker(1, "b", process=2).assign("t", 0, 1, "b")
    lines = [event.what for event in history(story.lake(tmp_path), "t-0").events]
    assert f"replica on 1 recreated empty in {disk('b')} (its data was in {disk('a')}, which failed: LOST)" in lines


def test_replica_whose_old_disk_is_back_is_in_it_again_although_an_append_elected_it_and_took_it_back(
    tmp_path: Path,
) -> None:
    """R-LOSS-10: history said "recreated empty in" and "a complete copy is back" at one offset."""
    story = one_copy().broker(1, "b", process=2).assign("t", 0, 1, "b").change("t", 0, leader=1)
    elected, unled = story.entries[-1], story.change("t", 0, leader=-1).entries[-1]
    story.entries[-1] = replace(unled, time=elected.time, batch_offset=elected.batch_offset)
    lake = story.broker(1, "a", process=3).assign("t", 0, 1, "a").lake(tmp_path)
    assert [move.outcome for move in moves(lake)] == ["recreated", "returned"]
    assert losses(lake).losses == []
    story.entries[unled.offset] = unled
    story.lake(tmp_path / "apart")
    assert [move.outcome for move in moves(Lake.open(tmp_path / "apart"))] == ["recreated", "recreated"]


def test_replica_whose_old_disk_is_back_after_somebody_led_is_empty_in_it(tmp_path: Path) -> None:
    story = recreated().broker(1, "a", process=3).assign("t", 0, 1, "a")
    assert [move.outcome for move in moves(story.lake(tmp_path))] == ["recreated", "recreated"]


BEFORE_IT_LEADS = {
    "named before the registration": ("assign", "register", "unfence", "lead"),
    "named while the broker is fenced": ("register", "assign", "unfence", "lead"),
    "named after it leads": ("register", "unfence", "lead", "assign"),
    "never without a leader": ("register", "unfence", "assign"),
}


@pytest.mark.parametrize("kind", ["unassigned", "migrating"])
@pytest.mark.parametrize("order", sampled(map(pytest.param, BEFORE_IT_LEADS.values()), 2), ids=BEFORE_IT_LEADS)
def test_disk_that_was_away_when_an_unplaced_copy_led_is_not_said_to_hold_nothing(
    tmp_path: Path, kind: str, order: tuple[str, ...]
) -> None:
    """It said "after an unclean shutdown" and "no other disk holds more; then accept it", and that the disk can be
    removed."""
    story = Story(20).broker(1, "abc").topic("t", {1: kind}).left(1, "ac")
    story = (story.change("t", 0, leader=-1) if "lead" in order else story).fence(1)
    steps = {
        "assign": lambda: story.assign("t", 0, 1, "a"),
        "register": lambda: story.broker(1, "ac", process=2, fenced=True),
        "unfence": lambda: story.fence(1, up=True),
        "lead": lambda: story.change("t", 0, leader=1),
    }
    for step in order:
        steps[step]()
    lake = story.lake(tmp_path)
    (loss,) = losses(lake).losses
    where = f"directory {disk('b')} of broker 1"
    assert loss.finding == f"the data may lack writes: broker 1 leads, and they may be in {where}"
    assert loss.advice.startswith(f"do not wipe {where}: ")
    assert not safe_to_remove(lake, f"1:{disk('b')}").safe


@pytest.mark.parametrize("kind", ["unassigned", "migrating"])
@pytest.mark.parametrize("order", ["aru", rare("rau"), "rua"])
def test_disk_that_was_away_when_an_unplaced_copy_was_placed_is_not_safe_to_remove_before_somebody_leads(
    tmp_path: Path, kind: str, order: str
) -> None:
    """The replica may have been recreated empty where it is now. It said that the old disk can be removed."""
    story = Story(20).broker(1, "abc").topic("t", {1: kind}).left(1, "ac").change("t", 0, leader=-1).fence(1)
    steps = {
        "a": lambda: story.assign("t", 0, 1, "a"),
        "r": lambda: story.broker(1, "ac", process=2, fenced=True),
        "u": lambda: story.fence(1, up=True),
    }
    for step in order:
        steps[step]()
    lake = story.lake(tmp_path)
    removal = safe_to_remove(lake, f"1:{disk('b')}")
    assert not removal.safe
    assert removal.reasons[0].partitions == ("t-0",)
    assert removal.reasons[0].finding.startswith("it may hold the last complete copy of 1 partition: ")
    (partition,) = losses(lake).perhaps
    assert [copy.where for copy in partition.copies] == [f"directory {disk('b')} of broker 1"]
    assert safe_to_remove(lake, f"1:{disk('c')}").safe
