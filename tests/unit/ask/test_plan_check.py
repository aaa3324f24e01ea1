"""A reassignment file before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from jbod_model.formats import records as r
from pipelines.ask.plan_check import NEVER_ENDS, PlanCheck, Planned, check_plan
from pipelines.cli.main import application
from pipelines.lake.names import Names, Statement
from pipelines.lake.reader import Lake
from tests.support.volume import rare
from tests.unit.check.story import START, Story, disk, topic_id


def cluster() -> Story:
    """Brokers 1 to 4; t-0 on 1 and 2, u-0 on 1."""
    story = Story().broker(1, "ab").broker(2, "c").broker(3, "d").broker(4, "e")
    return story.topic("t", {1: "a", 2: "c"}).topic("u", {1: "b"})


def file(path: Path, **partitions: Any) -> str:
    """``t_0=[1, 2]``, or ``t_0=([1, 2], ["any", "/data/x"])``."""
    listed = []
    for name, wanted in partitions.items():
        topic, _, number = name.rpartition("_")
        replicas, log_dirs = wanted if isinstance(wanted, tuple) else (wanted, None)
        reassignment = {"topic": topic, "partition": int(number), "replicas": replicas}
        listed.append(reassignment if log_dirs is None else {**reassignment, "log_dirs": log_dirs})
    path.mkdir(parents=True, exist_ok=True)
    (path / "plan.json").write_text(json.dumps({"version": 1, "partitions": listed}))
    return str(path / "plan.json")


def check(path: Path, story: Story, **partitions: Any) -> dict[str, Planned]:
    return {partition.name: partition for partition in answer_of(path, story, **partitions).partitions}


def answer_of(path: Path, story: Story, **partitions: Any) -> PlanCheck:
    return check_plan(story.lake(path / "lake"), file(path, **partitions))


def test_plan_that_can_be_done_has_its_copies_and_leaders(tmp_path: Path) -> None:
    answer = answer_of(tmp_path, cluster(), t_0=[3, 2], u_0=[1])
    t, u = answer.partitions[1], answer.partitions[0]
    assert answer.ok and not t.findings
    assert (t.adds, t.removes, t.leader, t.leader_after, t.in_sync_after) == ([3], [1], 1, 3, 2)
    assert (u.findings, answer.copies) == (("nothing to do",), {3: 1})


def test_what_the_controller_refuses_blocks(tmp_path: Path) -> None:
    """R-REASSIGN-7, R-CREATE-4."""
    partitions = check(tmp_path, cluster(), t_0=[9, 2], u_0=[], no_0=[1])
    assert {name: partition.findings for name, partition in partitions.items()} == dict.fromkeys(
        ("t-0", "u-0", "no-0"), ("refused",)
    )
    assert "broker 9 is not registered" in partitions["t-0"].refused


def test_fenced_broker_never_copies(tmp_path: Path) -> None:
    partitions = check(tmp_path, cluster().fence(3), t_0=[1, 3], u_0=[2])
    assert (partitions["t-0"].findings, partitions["t-0"].blocks, partitions["u-0"].blocks) == (
        ("never done",),
        True,
        False,
    )


def test_what_is_refused_is_not_counted_as_work_of_the_plan(tmp_path: Path) -> None:
    wanted = {"t_0": ([3, 9, 1], ["any", "any", "/data/b"]), "no_0": [1, 2], "u_0": [4]}
    answer = answer_of(tmp_path, cluster(), **wanted)
    assert [partition.name for partition in answer.groups["refused"]] == ["no-0", "t-0"]
    assert (answer.copies, answer.leaders_move, answer.disk_moves) == ({4: 1}, 1, 0)
    assert {key: answer.as_json()[key] for key in ("copies", "leaders_move", "disk_moves")} == {
        "copies": {"4": 1},
        "leaders_move": 1,
        "disk_moves": 0,
    }


@pytest.mark.parametrize(("level", "swap"), [rare(26, "never done"), (31, "refused")])
def test_file_with_a_broker_that_is_down_is_refused_by_the_tool(tmp_path: Path, level: int, swap: str) -> None:
    """Nothing blocked another order, or a swap beside it: the controller would do it, and the tool begins nothing."""
    story = Story(level).broker(1, "ab").broker(2, "c").broker(3, "d").topic("t", {1: "a", 2: "c"}).topic("u", {1: "b"})
    story = story.fence(2).change("t", 0, isr=(1,))
    order = check(tmp_path / "order", story, t_0=[2, 1], u_0=[3])
    assert (order["t-0"].findings, order["u-0"].blocks) == (("refused",), False)
    assert order["t-0"].reason == "kafka-reassign-partitions takes no file with broker 2: fenced"
    assert swap in check(tmp_path / "swap", story, t_0=[3, 2])["t-0"].findings
    story.lake(tmp_path / "lake")
    line = ["plan", "check", file(tmp_path, t_0=[2, 1]), "--lake", str(tmp_path / "lake")]
    # It said that the controller refuses it.
    assert (
        "1 partition would be refused by the controller or by Kafka's tool:"
        in CliRunner().invoke(application(line), line).output
    )


def test_copy_for_a_topic_that_wants_more_in_sync_than_its_replicas_would_refuse_writes_until_it_is_done(
    tmp_path: Path,
) -> None:
    """``Partition.effectiveMinIsr``: the replica that is added counts at once, and is in sync at the end only."""
    story = cluster().topic("w", {1: "a"}).configure("w", "2")
    partitions = check(tmp_path / "one", story, w_0=[3], t_0=[1, 3])
    assert (partitions["w-0"].blocks, partitions["t-0"].blocks) == (True, False)
    assert "set min.insync.replicas of w to 1 before it begins" in partitions["w-0"].reason
    eligible = r.PartitionChangeRecord(
        topic_id=topic_id("w"), partition_id=0, isr=(), leader=-1, eligible_leader_replicas=(1,)
    )
    partitions = check(
        tmp_path / "eligible", cluster().topic("w", {1: "a"}, {1: "b"}).configure("w", "2").append(eligible, 2), w_1=[3]
    )
    assert "before it begins, once the eligible leaders of w-0 are back in sync" in partitions["w-1"].reason
    story = story.configure("w", "1")
    assert not check(tmp_path / "after", story, w_0=[3])["w-0"].blocks


@pytest.mark.parametrize(("level", "done"), [(26, False), (31, True)])
def test_swap_beside_a_replica_in_a_directory_that_failed_is_done_from_release_4_3_on(
    tmp_path: Path, level: int, done: bool
) -> None:
    """R-RELEASE-4: "Nothing blocks it", and then it never ended: the replica that stays cannot come into sync."""
    story = Story(level).broker(1, "ab").broker(2, "cd").broker(3, "ef").broker(4, "gh")
    story = story.topic("t", {1: "a", 2: "d", 3: "e"}).left(2, "c").change("t", 0, isr=(1, 3))
    swap = check(tmp_path / "swap", story, t_0=[1, 2, 4])["t-0"]
    assert swap.findings == (() if done else ("never done",))
    assert done or "the replica on broker 2 is in a directory that is not online: jbod plan repair" in swap.reason
    assert check(tmp_path / "alone", story, t_0=[2])["t-0"].blocks, "it has more to remove than to add"
    assert not check(tmp_path / "repair", story, t_0=[1, 4, 3])["t-0"].blocks


@pytest.mark.parametrize(("level", "done"), [(26, True), (31, False)])
def test_reassignment_back_while_the_replica_is_added_is_never_done_from_release_4_3_on(
    tmp_path: Path, level: int, done: bool
) -> None:
    """R-RELEASE-4: "a replica that stays is not in sync", which it was, and "start these brokers". Kafka's own class
    says so (``PartitionReassignmentReplicas.maybeCompleteReassignment``): the added replica is never in sync."""
    story = Story(level).broker(1, "a").broker(2, "b").broker(3, "c").topic("t", {3: "c", 2: "b", 1: "a"})
    story.change("t", 0, isr=(1, 2), leader=1, adding_replicas=(3,), removing_replicas=(1,))
    back = check(tmp_path / "back", story, t_0=[1, 2])["t-0"]
    assert (back.blocks, back.why.get("never done")) == ((False, None) if done else (True, NEVER_ENDS))
    assert not check(tmp_path / "on", story, t_0=[3, 2])["t-0"].blocks


def test_move_between_disks_of_a_broker_that_has_lost_one_is_refused_by_the_broker(tmp_path: Path) -> None:
    """R-HOST-5: "Nothing blocks it", and the tool failed after it had begun."""
    story = Story().broker(1, "abc").broker(2, "d").topic("t", {1: "a"}).left(1, "ab")
    partitions = check(tmp_path, story, t_0=([1], ["/data/b"]))
    assert "broker 1 has lost a disk" in partitions["t-0"].reason and partitions["t-0"].blocks


@pytest.mark.parametrize("path", ["data/b", "", "ANY"])
def test_path_that_is_not_absolute_is_none_of_a_broker(tmp_path: Path, path: str) -> None:
    partition = check(tmp_path, cluster(), t_0=([1, 2], [path, "any"]))["t-0"]
    assert partition.findings == ("directory",) and "not the whole path" in partition.reason


def test_broker_whose_directories_are_all_cordoned_gets_no_new_replica(tmp_path: Path) -> None:
    """R-QUIRK-8, R-DISK-7: metadata.version 4.3 accepts it, and a cordoned disk that was emptied fills again."""
    story = Story(31).broker(1, "a").broker(2, "c").broker(3, "ef", cordoned="ef").topic("t", {1: "a", 2: "c"})
    partition = check(tmp_path, story, t_0=[1, 3])["t-0"]
    assert partition.findings == ("directory",) and "every directory of broker 3 is cordoned" in partition.reason


def test_partition_without_a_leader_is_never_done_because_there_is_nothing_to_copy_from(tmp_path: Path) -> None:
    """It said "brokers  cannot copy", and to start these brokers, none of which was named."""
    story = Story().broker(1, "ab").broker(2, "cd").broker(3, "ef").topic("t", {1: "a", 2: "c"})
    story = story.change("t", 0, isr=(1,)).fence(1).change("t", 0, leader=-1)
    partition = check(tmp_path, story, t_0=[2, 3])["t-0"]
    assert "no replica leads, so there is nothing to copy from: in sync or eligible is broker 1" in partition.reason


def test_partition_without_a_complete_copy_online_is_not_reassigned(tmp_path: Path) -> None:
    """R-ACT-6: with unclean elections, the empty new replica leads at once."""
    story = cluster().left(1, "a").change("u", 0, leader=-1)
    assert "no complete copy" in check(tmp_path, story, u_0=[2])["u-0"].findings
    allow = r.ConfigRecord(resource_type=2, resource_name="u", name="unclean.leader.election.enable", value="true")
    partition = check(tmp_path / "again", story.append(allow, 0), u_0=[2])["u-0"]
    assert {"no complete copy", "unclean election"} <= {*partition.findings}


def test_replica_is_not_removed_while_no_complete_copy_can_be_elected(tmp_path: Path) -> None:
    """R-ACT-1, R-ACT-6: nothing blocked it. Broker 3 has every write, as too few are in sync without it, and would
    delete its log at once."""
    story = Story().broker(1, "ab").broker(3, "d").configure("t", "2").topic("t", {1: "a", 3: "d"})
    story.change("t", 0, isr=(1,)).left(1, "b").change("t", 0, leader=-1)
    partition = check(tmp_path, story, t_0=[1])["t-0"]
    assert (partition.blocks, partition.findings[0]) == (True, "no complete copy")


def test_replicas_are_not_removed_beside_one_that_may_be_in_a_directory_which_failed(tmp_path: Path) -> None:
    """R-ACT-1, R-LOCAL-4: nothing blocked it. Broker 1 leads from a directory that no record names, and lost one."""
    story = Story().broker(1, "ab").broker(2, "c").broker(3, "d").topic("t", {1: "unassigned", 2: "c"})
    assert not check(tmp_path / "1", story, t_0=[1])["t-0"].blocks
    story.left(1, "b")
    partition = check(tmp_path / "2", story, t_0=[1])["t-0"]
    assert partition.why["no complete copy"] == "broker 1 may have it in a directory that is not online"
    assert not check(tmp_path / "3", story, t_0=[2])["t-0"].blocks
    assert not check(tmp_path / "4", story, t_0=[1, 3])["t-0"].blocks


def test_election_of_an_empty_replica_of_a_partition_that_is_recovering_already_blocks_it(tmp_path: Path) -> None:
    """R-ELECT-5: nothing blocked it, as the record of such an election does not change the recovery state."""
    story = Story().broker(1, "a").broker(2, "c").broker(3, "d").topic("t", {2: "c"}).join("t", 0, 3, "d")
    allow = r.ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")
    story.join("t", 0, 1, "a").append(allow, 0).fence(2)
    story.change("t", 0, isr=(), leader=-1, leader_recovery_state=1, adding_replicas=(1, 3))
    assert {"no complete copy", "unclean election"} <= {*check(tmp_path, story, t_0=[3, 1])["t-0"].findings}


def test_replicas_that_are_not_in_sync_leave_it_under_min_isr(tmp_path: Path) -> None:
    story = cluster().topic("w", {1: "a", 2: "c", 3: "d"}).configure("w", "2").change("w", 0, isr=(1, 2)).fence(3)
    partition = check(tmp_path, story, w_0=[1, 3])["w-0"]
    assert partition.blocks and "never done" in partition.findings


def test_racks_and_replicas_that_become_fewer_are_said(tmp_path: Path) -> None:
    story = Story()
    for broker, name, rack in ((1, "a", "x"), (2, "b", "y"), (3, "c", "x")):
        story.epochs[broker] = len(story.entries)
        record = r.RegisterBrokerRecord(
            broker_id=broker, broker_epoch=len(story.entries), rack=rack, fenced=False, log_dirs=(disk(name),)
        )
        story = story.append(record, 3)
    story = story.topic("t", {1: "a", 2: "b"}, {1: "a", 2: "b"})
    partitions = check(tmp_path, story, t_0=[1, 3], t_1=[1])
    assert (partitions["t-0"].findings, partitions["t-0"].racks, partitions["t-0"].racks_after) == (
        ("fewer racks",),
        2,
        1,
    )
    assert partitions["t-1"].findings == ("fewer racks", "fewer replicas")
    assert not partitions["t-0"].blocks


def test_reassignment_under_way_is_replaced(tmp_path: Path) -> None:
    story = cluster().join("t", 0, 3, "d").change("t", 0, adding_replicas=(3,), removing_replicas=(1, 2))
    assert "replaces a reassignment" in check(tmp_path, story, t_0=[3, 4])["t-0"].findings


def test_copy_of_a_broker_that_the_new_file_names_too_is_not_lost(tmp_path: Path) -> None:
    """It said so of the same file, executed again to end a reassignment (R-REASSIGN-4): the broker kept all it had."""
    story = cluster().join("t", 0, 3, "d").change("t", 0, adding_replicas=(3,), removing_replicas=(1, 2))
    lost = "broker 3 may have copied already"
    for number, (target, why) in enumerate([([3], ""), ([3, 4], ""), ([1, 4], lost)]):
        assert check(tmp_path / str(number), story, t_0=target)["t-0"].why["replaces a reassignment"] == why


@pytest.mark.parametrize(
    ("target", "kept"), [([1, 2, 3], "brokers 1, 2"), ([3, 1, 2, 4], "brokers 1, 2"), ([1, 3], "")]
)
def test_file_that_removes_nothing_does_not_keep_what_the_reassignment_under_way_removes(
    tmp_path: Path, target: list[int], kept: str
) -> None:
    """R-REASSIGN-7: nothing blocked the first two files, and both left broker 3, or 3 and 4, with the only replicas."""
    story = cluster().join("t", 0, 3, "d").change("t", 0, adding_replicas=(3,), removing_replicas=(1, 2), isr=(1, 2))
    partition = check(tmp_path, story, t_0=target)["t-0"]
    assert partition.blocks == bool(kept)
    assert not kept or f"the reassignment under way removes {kept}, and a file that" in partition.why["never done"]


def test_cancellation_needs_a_replica_of_before_that_is_in_sync(tmp_path: Path) -> None:
    """R-REASSIGN-3, R-REASSIGN-5."""
    partitions = check(tmp_path, cluster(), t_0=[3, 4], u_0=[2])
    assert (partitions["t-0"].findings, partitions["u-0"].findings) == ((), ("one replica to go back to",))
    assert partitions["u-0"].reason == "only broker 1"


def test_directories_that_the_file_names_are_online_and_not_cordoned(tmp_path: Path) -> None:
    story = cluster().left(1, "a")
    lake = story.lake(tmp_path / "lake")
    named(lake, {"/data/a": "a", "/data/b": "b"})
    plan = file(
        tmp_path,
        t_0=([1, 2], ["/data/b", "any"]),
        u_0=([1], ["/data/nowhere"]),
    )
    partitions = {partition.name: partition for partition in check_plan(lake, plan).partitions}
    assert (partitions["t-0"].findings, partitions["t-0"].disk_moves) == (("directory",), 1)
    assert "/data/b of broker 1 is not online" in partitions["t-0"].reason
    assert "unknown path" in partitions["u-0"].findings


def test_paths_that_sizes_are_certain_of_are_known(tmp_path: Path) -> None:
    story = cluster().sized(1, a=1, b=1, _x=1)
    plan = file(tmp_path, t_0=([1, 2], ["/data/b", "any"]), u_0=([1], ["/data/_x"]))
    findings = {
        partition.name: partition.findings for partition in check_plan(story.lake(tmp_path / "lake"), plan).partitions
    }
    assert findings == {"t-0": (), "u-0": ("unknown path",)}
    lake = story.left(1, "a").lake(tmp_path / "again")
    assert "directory" in {partition.name: partition.findings for partition in check_plan(lake, plan).partitions}["t-0"]


@pytest.mark.parametrize("new", [rare("A"), "z"])
def test_path_of_a_disk_that_was_replaced_is_that_of_the_new_one(tmp_path: Path, new: str) -> None:
    """The last of the labels, in any order, was taken; and those of before the replacement for newer sizes."""
    lake = replaced(new).lake(tmp_path / "lake")
    plan = file(tmp_path, t_0=([1, 2], ["/data/a", "any"]))
    named(lake, {"/data/a": f"a{new}", "/data/b": "b"})
    assert check_plan(lake, plan).partitions[0].findings == ()
    assert check_plan(Lake.open(lake.path, at_offset=lake.offset - 1), plan).partitions[0].findings == ()
    lake = sized_since(replaced(new), new).lake(tmp_path / "sized")
    named(lake, {"/data/a": "a"})
    assert check_plan(lake, plan).partitions[0].findings == ()


def test_path_of_a_disk_that_is_gone_is_not_online(tmp_path: Path) -> None:
    lake = replaced("z").lake(tmp_path / "lake")
    named(lake, {"/data/a": "a"})
    (partition,) = check_plan(lake, file(tmp_path, t_0=([1, 2], ["/data/a", "any"]))).partitions
    assert partition.reason == "/data/a of broker 1 is not online"


def replaced(new: str) -> Story:
    """Broker 1 has started with another disk in the place of a. t-0 is on b and c."""
    story = Story().broker(1, "ab").broker(2, "c").topic("t", {1: "b", 2: "c"})
    return story.broker(1, f"{new}b", process=2)


def sized_since(story: Story, new: str) -> Story:
    """jbod sizes --keep has seen the new disk at the path of the old one."""
    story.sized(1, **{new: 1}).sizes[-1]["path"] = "/data/a"
    return story


def named(lake: Lake, paths: dict[str, str]) -> None:
    """The lake knows these paths, each of one disk, or of several that had it in turn."""
    from datetime import UTC, datetime

    from pipelines.lake.labels import write_statements

    time = datetime.fromtimestamp(START, UTC)
    kept = [
        Statement("meta.properties", path, 1, str(disk(name)), path, None, time)
        for path, names in paths.items()
        for name in names
    ]
    write_statements(lake.path, kept)
    assert Names.of(kept).by_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"partitions": 1}',
        '{"partitions": [{"topic": "t"}]}',
        '{"partitions": [["t", 0, [1]]]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": "12"}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [2147483648]}]}',
        '{"partitions": [{"topic": "t", "partition": 2147483648, "replicas": [1]}]}',
        '{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}',
        r'{"partitions": [{"topic": "\ud800", "partition": 0, "replicas": [1]}]}',
        r'{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/\ud800"]}]}',
    ],
)
def test_file_that_is_no_reassignment_is_bad_usage(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UsageError, match="kafka-reassign-partitions"):
        check_plan(cluster().lake(tmp_path / "lake"), str(tmp_path / "plan.json"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"partitions": []}', "names no partition"),
        ('Current partition replica assignment\n{"version": 1, "partitions": []}\n', "keep only the line below"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any"]}]}',
            "t-0 has 1 log_dirs for 2 replicas",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": []}]}',
            "t-0 has 0 log_dirs for 2 replicas",
        ),
        ('{"version": 2, "partitions": []}', "takes version 1"),
        ("t 0 1,2", r"takes: Expecting value: line 1 column 1"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "takes: 'replicas' is missing"),
        ('{"partitions": ' + "[" * 200_000 + "]" * 200_000 + "}", "not a file that kafka-reassign-partitions takes"),
    ],
)
def test_file_that_kafka_refuses_as_a_whole_is_bad_usage(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UsageError, match=why):
        check_plan(cluster().lake(tmp_path / "lake"), str(tmp_path / "plan.json"))


def test_command_has_the_exit_code_and_says_what_to_do(tmp_path: Path) -> None:
    cluster().fence(3).lake(tmp_path / "lake")
    line = ["plan", "check", file(tmp_path, t_0=[1, 3]), "--lake", str(tmp_path / "lake")]
    run = CliRunner().invoke(application(line), line)
    assert run.exit_code == 1, run.output
    assert "1 partition would never be done:" in run.output
    assert "broker 3 cannot copy: fenced, or shutting down" in run.output
    # Of several findings, it left open which "them" each step is about.
    assert "1. never done: start these brokers, or move what is in a directory that is not online" in run.output
    answer = json.loads(CliRunner().invoke(application(line), [*line, "--json"]).stdout)
    assert (answer["ok"], answer["findings"], answer["partitions"][0]["blocks"]) == (False, {"never_done": 1}, True)
    run = CliRunner().invoke(application(["plan"]), ["plan", "check", file(tmp_path, t_0=[1, 4]), *line[3:]])
    assert (run.exit_code, run.output.splitlines()[0][:18]) == (0, "Nothing blocks it:")


def test_sentences_about_one_partition_have_the_verb_of_one(tmp_path: Path) -> None:
    lake = ("--lake", str(tmp_path / "lake"))
    cluster().fence(3).lake(tmp_path / "lake")

    def output_of(*words: str) -> str:
        return CliRunner().invoke(application(["plan"]), ["plan", *words, *lake]).output

    checked = output_of("check", file(tmp_path, t_0=[1, 3], u_0=[1]))
    assert "1 of 2 partitions is blocked, at offset" in checked
    assert "1 partition is as the file says already:" in checked
    assert "1 of 1 partition is blocked, at offset" in output_of("check", file(tmp_path, t_0=[1, 3]))
    assert "1 partition no longer there, or never there: no-0" in output_of("watch", file(tmp_path, no_0=[1]))
    assert "are 1 leader apart" in output_of("balance", "--by", "leaders")
