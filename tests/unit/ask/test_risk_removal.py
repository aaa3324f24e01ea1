"""Whether a directory can be taken out, and how the commands say so."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import ELR_FEATURE
from jbod_model.formats.records import FeatureLevelRecord, PartitionChangeRecord
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.replay.image import Image
from pipelines.ask.lost_data import losses
from pipelines.ask.removal import Removal, safe_to_remove
from pipelines.ask.restart import NOT_SAFE, safe_to_restart
from pipelines.ask.risk import risk
from pipelines.ask.whatif import whatif
from pipelines.cli.main import application, main
from pipelines.fleet.answers import ask_all
from pipelines.fleet.clusters import read_fleet
from pipelines.lake.names import Statement
from pipelines.lake.reader import Lake
from pipelines.report.content import gather
from pipelines.report.page import page
from pipelines.settings import Settings
from tests.support.images import brokers, lake_of, one_topic, partition
from tests.support.volume import rare
from tests.unit.check.story import Story, disk, topic_id

A, B, C = Uuid(1, 1000), Uuid(1, 1001), Uuid(2, 1000)
REGISTERED = brokers((A, B), (C,))


def ask(path: Path, image: Image, text: str = f"1:{A}") -> Removal:
    return safe_to_remove(Lake.open(lake_of(path / "lake", image)), text)


def blocking(answer: Removal) -> list[str]:
    return [reason.finding for reason in answer.reasons if reason.blocks]


def test_directory_without_replicas_is_safe_and_the_answer_lists_unknown_facts(tmp_path: Path) -> None:
    answer = ask(tmp_path, one_topic(partition((1, B), (2, C)), registered=REGISTERED))
    assert answer.safe
    assert not answer.held
    text = " ".join(reason.finding + reason.advice for reason in answer.reasons)
    assert "metadata log directory" in text
    assert "not cordoned" in text


def test_directory_that_is_safe_to_remove_is_asked_about_again_for_the_restart_without_it(tmp_path: Path) -> None:
    """It was safe, and the restart with a blank disk in its place was not: no answer led from one to the other."""
    story = Story().broker(1, "ab").topic("t", {1: "a"})
    lake = story.append(FeatureLevelRecord(name=ELR_FEATURE, feature_level=1), 0).lake(tmp_path)
    answer = safe_to_remove(lake, f"1:{disk('b')}")
    assert answer.safe
    (restart,) = [reason for reason in answer.reasons if reason.finding == "without it broker 1 has to restart"]
    assert f"safe-to-restart 1 --gone {disk('b')}" in restart.advice
    assert safe_to_restart(lake, [1], blank=[str(disk("b"))]).verdict == "not safe"


def test_directory_with_replicas_is_not_safe_and_comes_with_a_plan(tmp_path: Path) -> None:
    image = one_topic(partition((2, C), (1, A)), partition((1, A)), partition((1, B)), registered=REGISTERED)
    answer = ask(tmp_path, image)
    assert blocking(answer) == ["2 replicas in it, 1 of them leading and 1 with no other replica online"]
    assert answer.reasons[0].partitions == ("t-0", "t-1")
    assert answer.plan == f"jbod plan drain 1:{A}"
    assert answer.plan in answer.reasons[0].advice


def test_plan_names_the_path_of_a_directory_that_has_one(tmp_path: Path) -> None:
    lake = Lake.open(lake_of(tmp_path / "lake", one_topic(partition((1, A)), registered=REGISTERED)))
    label_and_path = {"label": "rack 7", "path": "/data/disk 1"}
    for name, place in (({"label": "rack 7"}, str(A)[:8]), (label_and_path, "/data/disk 1")):
        statement = Statement("labels file", "f", 1, str(A), name.get("path"), name["label"], datetime.now(UTC))
        answer = safe_to_remove(replace(lake, named=[statement]), f"1:{A}")
        assert answer.plan == f"jbod plan drain {quote(f'1:{place}')}"


@pytest.mark.parametrize(
    ("directory", "finding"),
    [
        (KAFKA_IDS.unassigned, "1 replica of broker 1 in no directory yet (UNASSIGNED): they may be in this one"),
        (KAFKA_IDS.migrating, "1 replica of broker 1 from before directories were recorded (MIGRATING)"),
    ],
)
def test_replica_in_no_known_directory_of_the_broker_blocks(tmp_path: Path, directory: Uuid, finding: str) -> None:
    image = one_topic(partition((1, directory), (2, C)), partition((1, B)), registered=REGISTERED)
    (reason,) = blocking(ask(tmp_path, image))
    assert reason.startswith(finding)


def test_last_copy_that_is_online_and_in_no_list_is_kept(tmp_path: Path) -> None:
    """It said that this copy, of an online directory, is offline, and had no step about it."""
    story = Story().broker(1, "a").broker(2, "cd").topic("t", {1: "a", 2: "c"}).fence(1)
    eligible = PartitionChangeRecord(
        topic_id=topic_id("t"), partition_id=0, isr=(), leader=-1, eligible_leader_replicas=(1,)
    )
    reason = safe_to_remove(story.append(eligible, 2).lake(tmp_path), f"2:{disk('c')}").reasons[0]
    assert reason.finding == "without it broker 2 gives up the last complete copy of 1 partition, which is not in use"
    assert reason.advice == "keep it: jbod offline says what brings a complete copy into use again"


def test_replica_that_is_not_reported_is_reported_at_the_next_restart_of_its_broker(tmp_path: Path) -> None:
    """It said to look at the log of the broker: Kafka reports no replica that joined an existing partition (B-01)."""
    image = one_topic(partition((1, KAFKA_IDS.unassigned), (2, C)), registered=REGISTERED)
    (reason,) = [reason for reason in ask(tmp_path, image).reasons if "UNASSIGNED" in reason.finding]
    assert reason.advice.endswith("if they stay, its next restart reports them: jbod safe-to-restart 1")


def test_replica_in_no_known_directory_of_another_broker_does_not_matter(tmp_path: Path) -> None:
    image = one_topic(partition((1, B), (2, KAFKA_IDS.unassigned)), registered=REGISTERED)
    assert ask(tmp_path, image).safe


def test_lost_replica_blocks_only_a_directory_that_failed(tmp_path: Path) -> None:
    image = one_topic(partition((1, KAFKA_IDS.lost), (2, C)), partition((1, Uuid(1, 7))), registered=REGISTERED)
    assert ask(tmp_path, image).safe
    (tmp_path / "second").mkdir()
    failed = ask(tmp_path / "second", image, f"1:{Uuid(1, 7)}")
    assert [finding.split(",")[0] for finding in blocking(failed)] == [
        "without it broker 1 gives up the last complete copy of 1 partition",
        "1 replica in it",
        "1 replica of broker 1 in a directory that failed",
    ]


def test_reassignments_into_and_out_of_the_directory_are_waited_for(tmp_path: Path) -> None:
    image = one_topic(
        partition((2, C), (1, A), adding_replicas=(1,), isr=(2,)),
        partition((1, A), (2, C), removing_replicas=(1,), adding_replicas=(2,), isr=(1,)),
        registered=REGISTERED,
    )
    answer = ask(tmp_path, image)
    assert [finding.split(",")[0] for finding in blocking(answer)] == [
        "1 replica in it",
        "1 replica that a reassignment is bringing to the broker",
    ]
    assert all("wait until the reassignment is done" in reason.advice for reason in answer.reasons if reason.blocks)
    assert answer.plan is None


def test_directory_that_is_online_with_a_last_copy_is_kept_until_another_copy_is_complete(tmp_path: Path) -> None:
    """It is in use; the advice was to bring it back."""
    answer = ask(tmp_path, one_topic(partition((1, A), (2, C), isr=(1,)), registered=REGISTERED))
    (advice,) = [reason.advice for reason in answer.reasons if reason.finding.startswith("it holds the last complete")]
    assert "until" in advice
    assert "bring it back" not in advice


def test_only_directory_of_a_broker_is_never_safe(tmp_path: Path) -> None:
    answer = ask(tmp_path, one_topic(partition((1, A)), registered=REGISTERED), f"2:{C}")
    assert blocking(answer) == ["it is the only directory that broker 2 has online: the broker stops without it"]


def test_directory_of_a_fenced_broker_is_not_known_to_be_safe(tmp_path: Path) -> None:
    registered = {**REGISTERED, 1: replace(REGISTERED[1], fenced=True)}
    answer = ask(tmp_path, one_topic(partition((2, C)), registered=registered))
    assert blocking(answer) == ["broker 1 is fenced: what it does with its directories now is not known"]


def test_directory_that_moved_is_asked_about_where_it_is(tmp_path: Path) -> None:
    moved = Uuid(9, 9)
    image = one_topic(partition((1, moved)), registered=brokers((A, B), (C, moved)))
    answer = ask(tmp_path, image, f"1:{moved}")
    assert "the directory is on broker 2 now" in blocking(answer)
    assert f"ask about it there: 2:{moved}" in [reason.advice for reason in answer.reasons]


def test_directory_that_moved_keeps_what_its_first_broker_has_in_it(tmp_path: Path) -> None:
    """It was safe: no replica of the second broker was in it."""
    answer = ask(tmp_path, one_topic(partition((1, A)), registered=brokers((B,), (C, A))), f"2:{A}")
    assert not answer.safe
    (reason,) = [reason for reason in answer.reasons if reason.blocks]
    assert (reason.finding, reason.partitions) == ("1 replica of broker 1 in it: it was a disk of broker 1", ("t-0",))
    assert "bring the disk back to broker 1" in reason.advice


def test_broker_without_a_directory_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="write BROKER:DIRECTORY"):
        ask(tmp_path, one_topic(partition((1, A)), registered=REGISTERED), "1")


def test_safe_to_remove_leaves_with_0_when_safe_and_1_when_not(tmp_path: Path) -> None:
    path = lake_of(tmp_path / "lake", one_topic(partition((1, A)), registered=REGISTERED, name="[b]"))
    run = CliRunner().invoke(application(["safe-to-remove"]), ["safe-to-remove", f"1:{A}", "--lake", str(path)])
    assert run.exit_code == 1
    assert run.stdout.startswith(f"Not safe to remove: directory {A} of broker 1")
    assert "    [b]-0\n" in run.stdout
    run = CliRunner().invoke(application(["safe-to-remove"]), ["safe-to-remove", f"1:{B}", "--lake", str(path)])
    assert run.exit_code == 0
    assert run.stdout.startswith(f"Safe to remove: directory {B} of broker 1")
    run = CliRunner().invoke(
        application(["safe-to-remove"]), ["safe-to-remove", f"1:{A}", "--lake", str(path), "--json"]
    )
    answer = json.loads(run.stdout)
    assert (run.exit_code, answer["safe"], answer["held"][0]["topic"]) == (1, False, "[b]")
    assert answer["plan"] == f"jbod plan drain 1:{A}"


def test_risk_on_the_command_line_answers_first(tmp_path: Path) -> None:
    image = one_topic(partition((1, A)), partition((1, B), (2, C)), registered=REGISTERED)
    path = lake_of(tmp_path / "lake", image)
    run = CliRunner().invoke(application(["risk"]), ["risk", "--lake", str(path)])
    assert run.exit_code == 0
    assert run.stdout.splitlines()[0].endswith("1 of 2 brokers and 1 of 3 directories cannot fail without loss.")
    assert "jbod whatif --fail 1" in run.stdout
    run = CliRunner().invoke(application(["risk"]), ["risk", "--lake", str(path), "--json"])
    worst = json.loads(run.stdout)["directories"][0]
    assert (worst["directory_id"], worst["without_leader"], worst["last_replicas"]) == (str(A), 1, 1)


def test_risk_of_partitions_of_one_replica_names_the_plan_that_adds_one(tmp_path: Path) -> None:
    """It named Kafka's tool, which takes a file that nobody has."""
    path = lake_of(tmp_path / "lake", one_topic(partition((1, A)), registered=REGISTERED))
    output = CliRunner().invoke(application(["risk"]), ["risk", "--lake", str(path)]).stdout
    assert "Partitions of one replica need a second one: jbod plan replicas TOPIC=2." in output


def test_risk_with_every_broker_fenced_lets_nobody_wipe_a_disk(tmp_path: Path) -> None:
    """It said "nothing more can be lost" of disks that held the only copies. So did the fleet, and the report."""
    lake = Story().broker(1, "a").broker(2, "b").topic("t", {1: "a"}, {2: "b"}).fence(1).fence(2).lake(tmp_path / "l")
    output = CliRunner().invoke(application(["risk"]), ["risk", "--lake", str(tmp_path / "l")]).stdout
    assert output.partition(": ")[2].startswith("no broker is unfenced: all is offline already. Wipe no disk: jbod off")
    (tmp_path / "fleet.yaml").write_text("clusters: [{name: one, log: logs/one, lake: l}]\n")
    (answer,) = ask_all("risk", read_fleet(tmp_path / "fleet.yaml"))
    assert answer.what == "no broker is unfenced: all is offline already"
    assert "all is offline already. Wipe no disk." in page(gather(lake, Settings()))


def test_risk_with_nothing_at_stake_reports_it(tmp_path: Path) -> None:
    path = lake_of(tmp_path / "lake", one_topic(partition((1, A), (2, C)), registered=REGISTERED))
    run = CliRunner().invoke(application(["risk"]), ["risk", "--lake", str(path)])
    assert run.stdout.splitlines()[0].endswith("any one broker or directory can fail: only leaders would move.")
    assert "What to do" not in run.stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["safe-to-remove", "1:zz"], "jbod: 1:zz: broker 1 has no such directory; it has, or had: "),
        (["safe-to-remove", "9:a"], "jbod: 9:a: broker 9 never had a directory, up to offset"),
        (["safe-to-remove", "9:"], "jbod: 9: broker 9 never had a directory, up to offset"),  # of 9::
        (["safe-to-remove", "1"], "jbod: 1: no directory: write BROKER:DIRECTORY"),
        (["whatif", "--fail", "1,2"], "jbod: 1,2: no broker: write one BROKER or BROKER:DIRECTORY at a time"),
        (["incidents", "1"], "jbod: incident 1: no such incident"),
        (["risk", "--at-offset", "99"], "offset 99 is after the newest published one"),
    ],
)
def test_what_is_not_there_leaves_with_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    path = lake_of(tmp_path / "lake", one_topic(partition((1, A)), registered=REGISTERED))
    with pytest.raises(SystemExit) as left:
        main([*words, "--lake", str(path)])
    assert left.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert problem in output.err
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("command", ["risk", "incidents"])
def test_lake_that_is_not_there_leaves_with_2(tmp_path: Path, command: str) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--lake", str(tmp_path / "none")])
    assert left.value.code == 2


# WHAT ONLY OTHER RECORDS SAY


def test_disks_that_may_hold_the_only_copy_of_lost_data_are_not_safe_to_remove(tmp_path: Path) -> None:
    """No record had placed the copy: each of its two dead disks was safe to remove, and no answer named them."""
    story = Story().broker(2, "abc").topic("t", {2: "unassigned"}).left(2, "ac").left(2, "a").change("t", 0, leader=-1)
    story = story.fence(2).broker(2, "an", process=2, fenced=True).assign("t", 0, 2, "n").fence(2, up=True)
    lake = story.change("t", 0, leader=2).lake(tmp_path)
    for name in "bc":
        answer = safe_to_remove(lake, f"2:{disk(name)}")
        assert blocking(answer) == ["it held the last complete copy of 1 partition whose data is lost or lacks writes"]
    assert f"in directory {disk('b')} or {disk('c')} of broker 2" in losses(lake).losses[0].finding


def test_restart_with_a_blank_disk_in_place_of_the_only_copy_of_lost_data_is_not_safe(tmp_path: Path) -> None:
    """R-ACT-9. It was safe: the start gives up nothing that is in use, and who followed the answer wiped the disk."""
    story = Story().broker(2, "ab").broker(3, "c").topic("t", {2: "b"}).change("t", 0, leader=-1).left(2, "a")
    story = story.fence(2).broker(2, "a", process=2, fenced=True).assign("t", 0, 2, "a").fence(2, up=True)
    lake = story.change("t", 0, leader=2).lake(tmp_path)
    answer = safe_to_restart(lake, [2], blank=[str(disk("b"))])
    assert (answer.verdict, [reason.reason for reason in answer.blocking]) == (NOT_SAFE, ["needed disk", "one replica"])
    assert any(f"do not wipe {disk('b')}: save these partitions from it first" in step.text for step in answer.steps)


def test_disk_with_the_only_copy_of_lost_data_is_not_safe_to_remove_from_its_new_broker(tmp_path: Path) -> None:
    """It was safe there, and not at the broker that it came from."""
    story = Story().broker(2, "ab").broker(3, "c").topic("t", {2: "b"}).change("t", 0, leader=-1).left(2, "a")
    story = story.fence(2).broker(2, "a", process=2, fenced=True).assign("t", 0, 2, "a").fence(2, up=True)
    story = story.change("t", 0, leader=2).fence(3).broker(3, "bc", process=2)
    lake = story.lake(tmp_path)
    for broker in (2, 3):
        assert "it held the last complete copy of 1 partition whose data is lost or lacks writes" in blocking(
            safe_to_remove(lake, f"{broker}:{disk('b')}")
        )


@pytest.mark.parametrize("placed", ["unassigned", "migrating"])
def test_disk_that_may_hold_the_only_copy_of_a_broker_that_is_down_is_not_safe_to_remove_from_its_new_broker(
    tmp_path: Path, placed: str
) -> None:
    """It was safe there: no record names the disk for the replica, and its broker started without it and died."""
    story = Story().broker(2, "ab").broker(3, "c").topic("t", {2: placed}).change("t", 0, leader=-1).fence(2)
    story = story.broker(2, "a", process=2, fenced=True).fence(3).broker(3, "bc", process=2)
    (reason,) = blocking(safe_to_remove(story.lake(tmp_path), f"3:{disk('b')}"))
    assert reason.startswith("it may hold the last complete copy of 1 partition")


def test_disk_with_a_complete_copy_is_not_safe_to_remove_when_an_empty_replica_leads_and_another_copy_was_in_use(
    tmp_path: Path,
) -> None:
    """Only the copy in use counted, of a broker that was down. It was truncated at the broker's start, and then the old
    disk of the leader had the only complete copy: it was safe to remove, and the advice was to restore from a backup.
    """
    story = Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a", 2: "c"}).configure("t", "2").fence(2)
    story = story.change("t", 0, isr=(1,)).fence(1).change("t", 0, leader=-1).broker(1, "b", process=2, fenced=True)
    story = story.assign("t", 0, 1, "b").fence(1, up=True)
    (reason,) = blocking(safe_to_remove(story.lake(tmp_path / "leaderless"), f"1:{disk('a')}"))
    assert reason.startswith("without it broker 1 gives up the last complete copy of 1 partition")
    story.change("t", 0, leader=1)
    for name in ("before", "after"):
        lake = story.lake(tmp_path / name)
        (loss,) = losses(lake).losses
        assert [(copy.broker_id, copy.directories) for copy in loss.copies] == [
            (2, (str(disk("c")),)),
            (1, (str(disk("a")),)),
        ]
        assert f"do not wipe directory {disk('a')} of broker 1" in loss.advice
        assert "it holds a complete copy of what was lost" in loss.advice  # it was "the only copy"
        assert not safe_to_remove(lake, f"1:{disk('a')}").safe
        story.fence(2, up=True)


@pytest.mark.parametrize("placed", ["unassigned", rare("migrating")])
def test_disk_of_a_follower_is_not_safe_to_remove_while_the_leader_may_be_on_a_disk_that_failed(
    tmp_path: Path, placed: str
) -> None:
    """No record had placed the replicas, and the leader counted as online: the follower's old disk was safe to remove,
    and if the leader was on the disk that failed, it had the only copy."""
    story = Story().broker(2, "ab").broker(3, "cd").topic("t", {2: placed, 3: placed})
    story = story.left(2, "a").fence(3).change("t", 0, isr=(2,)).broker(3, "c", process=2, fenced=True)
    story = story.assign("t", 0, 3, "c").fence(3, up=True)
    (reason,) = blocking(safe_to_remove(story.lake(tmp_path / "perhaps"), f"3:{disk('d')}"))
    assert reason.startswith("without it broker 3 gives up the last complete copy of 1 partition")
    lake = story.assign("t", 0, 2, "a").lake(tmp_path / "placed")  # the leader was on the other disk
    (reason,) = blocking(safe_to_remove(lake, f"3:{disk('d')}"))
    assert reason.endswith("and only the leader is in sync")
    lake = story.change("t", 0, isr=(2, 3)).lake(tmp_path / "in sync")
    assert safe_to_remove(lake, f"3:{disk('d')}").safe


def test_directory_of_the_metadata_log_stops_its_broker(tmp_path: Path) -> None:
    """The answer said that no record names it, and that its broker starts with a blank disk in its place."""
    story = Story(27).voters({1: "m", 2: "n", 3: "o"}).broker(1, "am").broker(2, "bn").broker(3, "co")
    lake = story.topic("t", {1: "a", 2: "b", 3: "c"}).lake(tmp_path)
    metadata = str(disk("m"))
    (reason,) = blocking(safe_to_remove(lake, f"1:{metadata}"))
    assert reason.startswith("it has the metadata log of node 1")
    assert "metadata log" not in " ".join(reason.finding for reason in safe_to_remove(lake, f"1:{disk('a')}").reasons)
    for answer in (safe_to_restart(lake, [1], blank=[metadata]), safe_to_restart(lake, [1], gone=[metadata])):
        assert (answer.verdict, answer.starts[0].starts[0].refused) == (
            "not safe",
            f"{metadata} has the metadata log of node 1",
        )
    assert [change.leader_after for change in whatif(lake, [f"1:{metadata}"]).changes] == [2]
    assert {exposure.directory_id for exposure in risk(lake).directories if exposure.stops_broker} == {
        str(disk(name)) for name in "mno"
    }


@pytest.mark.parametrize("kind", ["unassigned", "migrating"])
def test_disk_of_a_replica_that_no_record_had_placed_and_that_left_is_not_safe_to_remove_while_its_data_is_lost(
    tmp_path: Path, kind: str
) -> None:
    """Broker 1 was down when its replica left: it finds a stray, which Kafka renames. The disks were safe to remove as
    soon as they were online again."""
    story = Story().broker(1, "ab").broker(2, "c").topic("t", {1: kind}).join("t", 0, 2, "c").fence(1)
    story.change("t", 0, leader=2, isr=(2,), leader_recovery_state=1)
    story.change("t", 0, replicas=(2,), directories=(disk("c"),)).fence(1, up=True)
    lake = story.lake(tmp_path)
    for name in "ab":
        (reason,) = blocking(safe_to_remove(lake, f"1:{disk(name)}"))
        assert reason == "it held the last complete copy of 1 partition whose data is lost or lacks writes"
        assert safe_to_remove(lake, f"1:{disk(name)}", accepted_until=lake.offset).safe


def test_disk_whose_lost_data_is_accepted_can_be_removed(tmp_path: Path) -> None:
    """Only removal did not know that the loss was accepted: a dead disk could never be removed."""
    story = Story().broker(2, "ab").topic("t", {2: "b"}).change("t", 0, leader=-1).left(2, "a")
    story = story.fence(2).broker(2, "a", process=2, fenced=True).assign("t", 0, 2, "a").fence(2, up=True)
    lake = story.change("t", 0, leader=2).lake(tmp_path)
    assert not safe_to_remove(lake, f"2:{disk('b')}").safe
    assert safe_to_remove(lake, f"2:{disk('b')}", accepted_until=lake.offset).safe


def test_offline_names_the_disk_that_may_hold_the_only_copy(tmp_path: Path) -> None:
    """It said "every replica is online" and nothing else, while whatif and safe-to-remove named the disk."""
    story = Story().broker(1, "abc").topic("t", {1: "unassigned"})
    assert not losses(story.lake(tmp_path / "before")).perhaps
    lake = story.left(1, "bc").lake(tmp_path / "after")
    assert [(partition.name, partition.copies[0].directories) for partition in losses(lake).perhaps] == [
        ("t-0", (str(disk("a")),))
    ]
    run = CliRunner().invoke(application(["offline"]), ["offline", "--lake", str(tmp_path / "after")])
    assert f"directory {disk('a')} of broker 1 may hold the only complete copy of 1 partition: t-0" in run.stdout
    assert not losses(story.assign("t", 0, 1, "b").lake(tmp_path / "placed")).perhaps


def test_disk_of_a_replica_recreated_elsewhere_is_not_safe_to_remove_until_its_partition_does_not_need_it(
    tmp_path: Path,
) -> None:
    """R-ACT-8. Broker 1 was dead when the disk c failed, and the controller did not know: nothing was acknowledged
    since, and c had the only copy that could be read. It was safe to remove all the time."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"}).left(2, "d").change("t", 0, isr=(1,))
    story.broker(2, "d", process=2).assign("t", 0, 2, "d")

    def against(name: str, accepted_until: int = -1) -> list[str]:
        return blocking(safe_to_remove(story.lake(tmp_path / name), f"2:{disk('c')}", accepted_until=accepted_until))

    late = "1 replica recreated elsewhere may have left a log in it, and only the leader is in sync"
    part = "it may hold a part of 1 partition whose complete copies are lost or not in use"
    assert against("unnoticed") == [late]
    story.fence(1).change("t", 0, leader=-1)
    assert against("noticed") == [part]
    story.broker(1, "b", process=2).assign("t", 0, 1, "b")
    assert against("lost") == [part]
    story.change("t", 0, leader=1)
    assert against("went on") == [part]
    (loss,) = losses(story.lake(tmp_path / "advice")).losses
    assert "it holds the only complete copy of what was lost" in loss.advice  # it was "the only copy"
    story.change("t", 0, isr=(1, 2))
    assert (against("in sync"), against("accepted", 99)) == ([part], [])


def test_disk_of_a_replica_recreated_elsewhere_is_safe_to_remove_while_others_are_in_sync(tmp_path: Path) -> None:
    """R-ACT-8: more than the leader would have to be dead."""
    story = Story().broker(1, "ab").broker(2, "cd").broker(3, "e").topic("t", {1: "a", 2: "c", 3: "e"})
    story.left(2, "d").change("t", 0, isr=(1, 3)).broker(2, "d", process=2).assign("t", 0, 2, "d")
    assert safe_to_remove(story.lake(tmp_path), f"2:{disk('c')}").safe


@pytest.mark.parametrize("kind", ["unassigned", "migrating"])
@pytest.mark.parametrize("early", [False, True], ids=["registered first", "reported first"])
def test_disk_of_a_replica_that_no_record_had_placed_is_not_safe_to_remove_while_only_the_leader_is_in_sync(
    tmp_path: Path, kind: str, *, early: bool
) -> None:
    """R-ACT-8. The leader may be dead, and the replica was recreated: its log may be in the disk c."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: kind})
    if early:
        story.change("t", 0, isr=(1,)).fence(2).assign("t", 0, 2, "d").broker(2, "d", process=2)
    else:
        story.left(2, "d").change("t", 0, isr=(1,)).broker(2, "d", process=2).assign("t", 0, 2, "d")
    late = "1 replica recreated elsewhere may have left a log in it, and only the leader is in sync"
    assert blocking(safe_to_remove(story.lake(tmp_path / "alone"), f"2:{disk('c')}")) == [late]
    story.change("t", 0, isr=(1, 2))
    assert safe_to_remove(story.lake(tmp_path / "in sync"), f"2:{disk('c')}").safe
