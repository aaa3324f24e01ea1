"""Each class of harm of a restart, what is so already, what ends it, the quorum, and the command."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jbod_model.formats.metadata_version import ELR_FEATURE
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.replay.image import BrokerRegistration, Image, Partition
from pipelines.ask.restart import RestartVerdict, safe_to_restart
from pipelines.ask.restart_plan import restart_plan
from pipelines.ask.risk import risk
from pipelines.ask.whatif import whatif
from pipelines.cli.main import application
from pipelines.lake.reader import Lake
from tests.support.images import brokers, in_memory_of, lake_of, one_topic, partition
from tests.support.volume import rare
from tests.unit.check.story import Story, disk, topic_id

UNCLEAN = "unclean.leader.election.enable"
A, B, C, D = Uuid(1, 1000), Uuid(2, 1000), Uuid(3, 1000), Uuid(4, 1000)
REGISTERED = brokers((A,), (B,), (C,), (D,))


def image(*partitions: Partition, registered: dict[int, BrokerRegistration] | None = None, **configs: str) -> Image:
    """Four brokers, and a topic with these settings."""
    made = one_topic(*partitions, registered=registered or REGISTERED)
    values = {name.replace("_", "."): value for name, value in configs.items()}
    return replace(made, configs={(2, "t"): values} if values else {})


def with_elr(made: Image) -> Image:
    return replace(made, features={**made.features, ELR_FEATURE: 1})


def ask(made: Image, *nodes: int, kill: bool = False) -> RestartVerdict:
    return safe_to_restart(in_memory_of(made), nodes or (1,), kill=kill)


def fenced(broker: int) -> dict[int, BrokerRegistration]:
    return {**REGISTERED, broker: replace(REGISTERED[broker], fenced=True)}


def reasons(answer: RestartVerdict) -> dict[str, tuple[int, ...]]:
    """Reason -> the brokers that are waited for."""
    return {blocker.reason: tuple(blocker.waits_for) for blocker in answer.blocking}


# CLASSES OF HARM (R-RESTART-4)


def test_partition_with_enough_replicas_in_sync_can_spare_a_broker() -> None:
    answer = ask(image(partition((1, A), (2, B), (3, C)), min_insync_replicas="2"))
    assert (answer.verdict, answer.exit_code, answer.next_leaders) == ("safe", 0, {2: 1})
    assert not answer.stakes


def test_partition_of_one_replica_loses_its_leader_its_last_replica_and_its_last_copy() -> None:
    answer = ask(image(partition((1, A))))
    assert answer.verdict == "not safe"
    assert [stake.harms for stake in answer.stakes] == [["last_complete_copy", "last_replica_offline", "no_leader"]]
    assert reasons(answer) == {"one replica": ()}


def test_partition_whose_other_replica_is_not_in_sync_loses_its_leader_and_its_last_complete_copy() -> None:
    answer = ask(image(partition((1, A), (2, B), isr=(1,))))
    assert [stake.harms for stake in answer.stakes] == [["last_complete_copy", "no_leader"]]
    assert (answer.verdict, reasons(answer)) == ("not now", {"catching up": (2,)})


def test_writes_are_refused_when_fewer_than_min_insync_replicas_stay() -> None:
    answer = ask(image(partition((1, A), (2, B)), min_insync_replicas="2"), 2)
    assert [stake.harms for stake in answer.stakes] == [["writes_refused"]]
    assert (answer.verdict, reasons(answer)) == ("not safe", {"min.insync.replicas": ()})


def test_min_insync_replicas_of_the_topic_comes_before_that_of_all_brokers() -> None:
    made = image(partition((1, A), (2, B)), min_insync_replicas="1")
    assert ask(replace(made, configs={**made.configs, (4, ""): {"min.insync.replicas": "2"}})).verdict == "safe"
    stricter = image(partition((1, A), (2, B)), min_insync_replicas="2")
    stricter = replace(stricter, configs={**stricter.configs, (4, ""): {"min.insync.replicas": "1"}})
    assert ask(stricter).verdict == "not safe"


def test_min_insync_replicas_counts_as_the_number_of_replicas_at_most() -> None:
    answer = ask(image(partition((2, B), (1, A)), partition((1, A), (2, B), (3, C)), min_insync_replicas="3"))
    assert {stake.partition: stake.min_isr for stake in answer.stakes} == {0: 2, 1: 3}


def test_replica_that_lacks_writes_may_lead_where_the_topic_allows_it() -> None:
    made = image(partition((1, A), (2, B), isr=(1,)), unclean_leader_election_enable="true")
    answer = ask(made)
    assert [stake.harms for stake in answer.stakes] == [["last_complete_copy", "unclean_election"]]
    assert answer.stakes[0].leader_down == 2
    waiting = image(partition((1, A), (2, B), isr=(1,)), registered=fenced(2), unclean_leader_election_enable="true")
    assert "unclean_election" in ask(waiting).stakes[0].harms


def test_kill_puts_writes_with_acks_1_at_risk_and_that_does_not_decide() -> None:
    made = image(partition((1, A), (2, B), (3, C)), partition((2, B), (1, A), (3, C)))
    answer = ask(made, kill=True)
    assert answer.verdict == "safe"
    assert [(stake.partition, stake.harms, stake.leader_down) for stake in answer.stakes] == [(0, ["acks1_at_risk"], 2)]
    assert not ask(made).stakes


def test_eligible_leader_takes_over_only_while_nobody_else_is_in_sync() -> None:
    """With eligible leaders, broker 2 has every acknowledged write and leads: only writes with acks=all wait."""
    made = image(partition((1, A), (2, B), isr=(1,), eligible_leader_replicas=(2,)), min_insync_replicas="2")
    answer = ask(with_elr(made))
    assert (answer.verdict, answer.stakes[0].already, answer.stakes[0].leader_down) == ("safe", ["writes_refused"], 2)


def test_eligible_leader_that_is_down_does_not_take_over() -> None:
    made = image(
        partition((1, A), (2, B), isr=(1,), eligible_leader_replicas=(2,)),
        registered=fenced(2),
        min_insync_replicas="2",
    )
    answer = ask(with_elr(made))
    assert "no_leader" in answer.stakes[0].harms
    assert reasons(answer) == {"broker down": (2,)}


def test_min_insync_replicas_is_no_reason_while_the_partition_would_have_no_leader() -> None:
    """It said to accept that writes with acks=all are refused: they were already, and the partition went down."""
    lagging = image(partition((1, A), (2, B), isr=(1,)), min_insync_replicas="2")
    assert (ask(lagging).verdict, reasons(ask(lagging))) == ("not now", {"catching up": (2,)})


def test_reason_during_a_reassignment_is_that_of_the_replicas_that_stay() -> None:
    """It said to wait, and was not safe after the wait; or the reverse."""
    moving = partition((3, C), (2, B), (1, A), isr=(1, 2), leader=1, adding_replicas=(3,), removing_replicas=(1,))
    assert reasons(ask(image(moving, min_insync_replicas="2"), 2)) == {"min.insync.replicas": ()}
    alone = partition((2, B), (1, A), isr=(1,), leader=1, adding_replicas=(2,), removing_replicas=(1,))
    answer = ask(image(alone, min_insync_replicas="2"), 1)
    assert (answer.verdict, reasons(answer)) == ("not now", {"reassignment": (2,)})


def test_kill_takes_the_only_eligible_leader_off_the_lists_when_it_is_back() -> None:
    """R-RESTART-5: the disk may have everything, but the controller no longer says so."""
    lost = KAFKA_IDS.lost
    made = image(partition((1, lost), (2, B), isr=(), eligible_leader_replicas=(1,), leader=-1))
    for kill in (False, True):
        answer = ask(with_elr(made), kill=kill)
        assert [stake.harms for stake in answer.stakes] == [["last_complete_copy"]]
        assert reasons(answer) == {"return": ()}


@pytest.mark.parametrize("eligible", [(1,), ()])
def test_broker_that_was_killed_with_the_only_complete_copy_may_start(eligible: tuple[int, ...]) -> None:
    """R-RESTART-5: it said not safe, and sent to jbod offline, which says to start the broker: nothing else helps."""
    killed = partition((1, A), (2, B), isr=(), leader=-1, eligible_leader_replicas=eligible, last_known_elr=(1,))
    made = with_elr(image(killed, registered=fenced(1)))
    answer = ask(made)
    assert (answer.verdict, answer.steps) == ("safe", [])
    assert [(stake.harms, stake.already) for stake in answer.stakes] == [([], ["last_complete_copy", "no_leader"])]
    other = replace(made, brokers={**made.brokers, 2: replace(REGISTERED[2], fenced=True)})
    assert ask(other, 2).verdict == "safe"
    uncleanly = replace(made, configs={(2, "t"): {UNCLEAN: "true"}}, brokers=other.brokers)
    assert (ask(uncleanly, 2).verdict, reasons(ask(uncleanly, 2))) == ("not safe", {"election": ()})


def test_directory_that_is_offline_makes_the_return_unclean() -> None:
    """R-RESTART-3: a restart in order is clean only if every directory has the mark."""
    away = Uuid(1, 2000)
    held = partition((1, A), isr=(), eligible_leader_replicas=(1,), leader=-1)
    spared = partition((1, away), (2, B), (3, C), isr=(2, 3), leader=2)
    registered = {**REGISTERED, 1: replace(REGISTERED[1], fenced=True, in_controlled_shutdown=True)}
    assert ask(with_elr(image(held, registered=registered))).verdict == "safe"
    answer = ask(with_elr(image(held, spared, registered=registered)))
    assert [(stake.partition, stake.harms) for stake in answer.stakes if stake.harms] == [(0, ["last_complete_copy"])]


def test_directory_that_failed_makes_the_return_unclean_after_its_replicas_were_moved_away(tmp_path: Path) -> None:
    """R-RESTART-3, R-RESTART-5: it said safe, and t-0 came back without a leader."""
    story = Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a"})
    story = story.append(FeatureLevelRecord(name=ELR_FEATURE, feature_level=1), 0)
    lake = story.lake(tmp_path / "both")
    assert reasons(safe_to_restart(lake, [1])) == {"one replica": ()}
    lake = story.left(1, "a").lake(tmp_path / "failed")
    assert reasons(safe_to_restart(lake, [1])) == {"return": ()}
    assert reasons(safe_to_restart(lake, [1], gone=[str(disk("b"))])) == {"one replica": ()}
    stopping = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=story.epochs[1], in_controlled_shutdown=1)
    eligible = PartitionChangeRecord(
        topic_id=topic_id("t"), partition_id=0, isr=(), leader=-1, eligible_leader_replicas=(1,)
    )
    story.append(stopping, 1).append(eligible, 2).fence(1)
    lake = story.lake(tmp_path / "stopped")
    answer = safe_to_restart(lake, [1])
    assert (answer.verdict, reasons(answer)) == ("not safe", {"return": ()})
    # R-ACT-6: it said to add a replica, to which nothing is copied.
    assert answer.blocking[0].end.startswith(
        "add a replica of t-0 on another broker (kafka-reassign-partitions) where one leads: without a leader nothing "
    )
    assert [(start.gone, start.without_leader) for start in answer.starts[0].starts] == [
        ([], ["t-0"]),
        ([], ["t-0"]),
        ([str(disk("b"))], []),
        ([], ["t-0"]),
    ]
    assert safe_to_restart(lake, [1], gone=[str(disk("b"))]).verdict == "safe"


def test_broker_in_controlled_shutdown_is_not_said_to_have_come_back(tmp_path: Path) -> None:
    """It said "while broker 2 is down (broker 2 came back 0 s before)"."""
    story = Story().broker(1, "a").broker(2, "c").topic("t", {1: "a", 2: "c"})
    stopping = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=story.epochs[2], in_controlled_shutdown=1)
    lake = story.change("t", 0, isr=(1,)).append(stopping, 1).lake(tmp_path)
    (reason,) = safe_to_restart(lake, [1]).blocking
    assert reason.since[0].startswith("broker 2 is shutting down since ")


def test_broker_that_was_unregistered_is_not_said_to_have_come_back(tmp_path: Path) -> None:
    """It said "while broker 2 is down (broker 2 came back 3 s before)"."""
    story = Story().broker(1, "a").broker(2, "c").topic("t", {1: "a", 2: "c"}).change("t", 0, isr=(1,))
    (reason,) = safe_to_restart(story.unregister(2).lake(tmp_path), [1]).blocking
    assert list(reason.since) == ["broker 2 is not registered since 2023-11-14 22:13:27 UTC"]


def test_broker_of_a_snapshot_is_not_said_to_have_come_back_or_stopped_with_it(tmp_path: Path) -> None:
    """A log that begins with a snapshot: it said "broker 2 came back 0 s before", and that 3 is down since then."""
    story = Story().broker(1, "a").broker(2, "c").broker(3, "e").fence(3)
    story.topic("t", {1: "a", 2: "c"}, {1: "a", 3: "e"}, isr=(1,))
    end = story.entries[-1]
    story.entries = [
        replace(entry, offset=end.offset, time=end.time, snapshot_index=index)
        for index, entry in enumerate(story.entries)
    ]
    since = {reason.waits_for: reason.since for reason in safe_to_restart(story.lake(tmp_path), [1]).blocking}
    assert since == {(2,): [], (3,): ["broker 3 is down since 2023-11-14 22:13:28 UTC or earlier"]}


def test_blank_disk_makes_the_return_unclean(tmp_path: Path) -> None:
    """R-RESTART-3: no disk that is blank has the mark of a shutdown in order."""
    story = Story().broker(1, "ab").topic("t", {1: "a"})
    story = story.append(FeatureLevelRecord(name=ELR_FEATURE, feature_level=1), 0)
    answer = safe_to_restart(story.lake(tmp_path), [1], blank=[str(disk("b"))])
    assert (answer.verdict, reasons(answer)) == ("not safe", {"return": ()})


def test_copy_that_a_start_gives_up_and_a_replica_that_catches_up_saves_is_waited_for(tmp_path: Path) -> None:
    """--wait gave up at once, and restart-plan --next said that nothing was left."""
    story = Story().broker(1, "ab").broker(2, "c").broker(3, "e").topic("t", {1: "a", 2: "c"}, {1: "b", 3: "e"})
    unclean = ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")
    story.append(unclean, 0).change("t", 1, isr=(3,), leader=3).left(1, "a").change("t", 0, isr=(1,))
    lake = story.lake(tmp_path / "lags")
    answer = safe_to_restart(lake, [1])
    assert (answer.verdict, reasons(answer)) == ("not now", {"catching up": (2,)})
    assert [start.gives_up for start in answer.starts] == [["t-0"]]
    following = restart_plan(lake, [1]).next
    assert (following.state, following.why) == (
        "wait",
        ["1 partition can be spared a replica when broker 2 is in sync again: t-0"],
    )
    lake = story.change("t", 0, isr=(1, 2)).lake(tmp_path / "caught up")
    assert (safe_to_restart(lake, [1]).verdict, restart_plan(lake, [1]).next.batch) == ("safe", [1])


# WHO COUNTS


def test_replica_in_a_directory_that_is_offline_does_not_count() -> None:
    answer = ask(image(partition((1, A), (2, Uuid(2, 9)))))
    assert "no_leader" in answer.stakes[0].harms
    assert reasons(answer) == {"directory offline": (2,)}


def test_replica_on_a_broker_that_is_down_does_not_count() -> None:
    answer = ask(image(partition((1, A), (2, B)), registered=fenced(2)))
    assert (answer.verdict, reasons(answer)) == ("not now", {"broker down": (2,)})


def test_replica_on_a_broker_that_is_shutting_down_does_not_count() -> None:
    registered = {**REGISTERED, 2: replace(REGISTERED[2], in_controlled_shutdown=True)}
    answer = ask(image(partition((1, A), (2, B)), registered=registered))
    assert reasons(answer) == {"broker down": (2,)}


def test_replica_on_a_broker_that_is_not_registered_does_not_count() -> None:
    registered = {number: registration for number, registration in REGISTERED.items() if number != 2}
    assert reasons(ask(image(partition((1, A), (2, B)), registered=registered))) == {"broker down": (2,)}


def test_replica_that_a_reassignment_adds_is_waited_for() -> None:
    moving = partition((2, B), (1, A), isr=(1,), leader=1, adding_replicas=(2,), removing_replicas=(1,))
    answer = ask(image(moving))
    assert (answer.verdict, reasons(answer), answer.in_flight.reassigning) == ("not now", {"reassignment": (2,)}, 1)


def test_two_brokers_at_once_can_be_too_many_where_each_alone_is_not() -> None:
    made = image(partition((1, A), (2, B), (3, C)), min_insync_replicas="2")
    assert ask(made, 1).verdict == ask(made, 2).verdict == "safe"
    answer = ask(made, 1, 2)
    assert (answer.verdict, reasons(answer)) == ("not safe", {"together": ()})
    assert "restart-plan" in answer.steps[0].text


# WHAT IS SO ALREADY


def test_what_is_so_already_is_not_caused_by_the_restart() -> None:
    leaderless = partition((1, A), (2, B), (3, C), isr=(2,), leader=-1)
    refusing = partition((3, C), (1, A), (4, D), isr=(3,))
    answer = ask(image(refusing, leaderless, registered=fenced(2), min_insync_replicas="2"))
    assert answer.verdict == "safe"
    assert {stake.partition: (stake.harms, stake.already) for stake in answer.stakes} == {
        0: ([], ["writes_refused"]),
        1: ([], ["last_complete_copy", "no_leader"]),
    }


def test_return_of_a_broker_elects_uncleanly_for_partitions_of_others() -> None:
    """R-RESTART-3: when a broker is unfenced, every partition without a leader holds an election."""
    waiting = partition((2, B), (3, C), isr=(2,), leader=-1)
    answer = ask(image(waiting, registered=fenced(2), unclean_leader_election_enable="true"), 4)
    assert (answer.verdict, answer.partitions, reasons(answer)) == ("not safe", 0, {"election": ()})
    assert [(stake.partition, stake.harms, stake.leader) for stake in answer.stakes] == [(0, ["unclean_election"], -1)]
    assert "set it to false until then" in answer.steps[0].text
    assert ask(image(waiting, registered=fenced(2)), 4).verdict == "safe"
    last_known = replace(waiting, isr=(), last_known_elr=(3,))  # R-ELECT-4
    assert reasons(ask(with_elr(image(last_known, registered=fenced(2))), 4)) == {"election": ()}


def test_broker_that_is_down_only_comes_back() -> None:
    answer = ask(image(partition((2, B), (1, A), isr=(2,)), registered=fenced(1)))
    assert (answer.verdict, answer.down) == ("safe", [1])


# WHAT IS KNOWN


def test_unregistered_broker_is_no_unknown_node(tmp_path: Path) -> None:
    """It said that no broker had the id, where jbod offline says to start it again."""
    story = Story().broker(1, "a").broker(2, "b").topic("t", {1: "a", 2: "b"}).unregister(2)
    lake = story.lake(tmp_path)
    since = f"broker 2 is not registered since offset {lake.offset}: see jbod offline"
    assert since in safe_to_restart(lake, [2]).undecided


def test_unknown_node_is_not_decidable() -> None:
    answer = ask(image(partition((1, A), (2, B))), 9)
    assert (answer.verdict, answer.as_known, answer.exit_code) == ("not decidable", "not decidable", 2)
    assert answer.undecided == ["no broker and no controller has the id 9; known: 1, 2, 3, 4"]


@pytest.mark.parametrize(("age", "verdict"), [(59, "safe"), (61, "not decidable"), (-61, "not decidable")])
def test_old_knowledge_and_knowledge_of_the_future_allow_nothing(age: int, verdict: str) -> None:
    lake = in_memory_of(image(partition((1, A), (2, B))))
    answer = safe_to_restart(lake, [1], max_age=60, now=lake.time + timedelta(seconds=age))
    assert (answer.verdict, answer.as_known) == (verdict, "safe")


# CONTROLLERS (R-RESTART-6)


def voters(tmp_path: Path, *ids: int) -> Path:
    story = Story().broker(1, "a").broker(2, "b").lead(*ids)
    story.lake(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("ids", "node_ids", "verdict"),
    [
        ((3000, 3001, 3002), [3001], "safe"),
        ((3000, 3001, 3002), [3001, 3002], "not safe"),
        ((3000,), [3000], "not safe"),
        ((3000, 3001), [3001], "not safe"),
        ((1, 3001, 3002), [1], "safe"),
        ((1, 2, 3002), [1, 2], "not safe"),
    ],
)
def test_quorum_keeps_its_majority(tmp_path: Path, ids: tuple[int, ...], node_ids: list[int], verdict: str) -> None:
    answer = safe_to_restart(Lake.open(voters(tmp_path, *ids)), node_ids)
    assert answer.verdict == verdict
    assert answer.quorum is not None
    assert answer.quorum.leader_stops == (ids[0] in node_ids)
    assert answer.controllers == [node_id for node_id in node_ids if node_id > 2]


def test_safe_restart_of_a_controller_says_where_to_look_whether_the_other_voters_run(tmp_path: Path) -> None:
    """With one controller of three down, which no record tells, "2 of 3 voters would be left" was all that it said."""
    lake = voters(tmp_path, 3000, 3001, 3002)
    offset = str(Lake.open(lake).offset)
    words = ["safe-to-restart", "3001", "--lake", str(lake), "--at-offset", offset]
    answer = CliRunner().invoke(application(words), words).stdout
    assert "Whether these voters run, no record says: jbod quorum --live kafka://CONTROLLER:PORT" in answer


def test_voter_whose_broker_is_fenced_does_not_count(tmp_path: Path) -> None:
    """It counted as a voter that is left: the restart of a second node of three took the majority, and was safe."""
    story = Story().broker(1, "a").broker(2, "b").broker(3, "c").lead(1, 2, 3).fence(2)
    answer = safe_to_restart(story.lake(tmp_path), [3])
    assert answer.quorum is not None
    assert (answer.verdict, answer.quorum.left, answer.quorum.fenced) == ("not now", [1], [2])
    assert safe_to_restart(story.lake(tmp_path / "its own"), [2]).verdict == "safe"


def test_voter_that_is_not_registered_does_not_count(tmp_path: Path) -> None:
    story = Story().broker(1, "a").lead(3000, 3001, 3002).controller(3000, 20).controller(3001, 20)
    answer = safe_to_restart(story.lake(tmp_path), [3001])
    assert answer.quorum is not None
    assert (answer.verdict, answer.quorum.unregistered) == ("not now", [3002])


# THE COMMAND


def run(*words: str) -> tuple[int, str]:
    left = CliRunner().invoke(application(["safe-to-restart"]), ["safe-to-restart", *words])
    return left.exit_code, left.output


def test_command_says_the_verdict_first_and_leaves_with_its_code(tmp_path: Path) -> None:
    made = image(partition((1, A), (2, B), (3, C)), partition((3, C)))
    path = ("--lake", str(lake_of(tmp_path / "lake", made)))
    code, output = run("1", *path, "--at-offset", "6")
    assert (code, output.partition(" (")[0]) == (0, "Safe: broker 1 can be restarted in order")
    code, output = run("3", *path, "--at-offset", "7", "--kill")
    assert (code, output.partition(" (")[0]) == (1, "Not safe: broker 3 cannot be killed without harm")
    assert "1 partition has one replica: t-1" in output
    code, output = run("3", *path)
    assert code == 2
    assert output.startswith("Not decidable: whether broker 3 can be restarted in order")
    assert "older than --max-age 60 s; ask the log of a controller that runs (--log), or replay it first" in output
    assert "As of then: not safe." in output
    code, output = run("9", *path, "--at-offset", "6")
    assert code == 2
    assert output.endswith("no broker and no controller has the id 9; known: 1, 2, 3, 4\n")  # and an empty line


def test_ids_with_blanks_between_restart_at_once_as_with_commas(tmp_path: Path) -> None:
    """``jbod restart-plan`` takes both, and a second word was an unexpected argument here."""
    path = ("--lake", str(lake_of(tmp_path / "lake", image(partition((1, A), (2, B), (3, C))))), "--at-offset", "6")
    code, output = run("1", "2", *path)
    assert output.startswith("Safe: brokers 1, 2 can be restarted in order")
    assert (code, output) == run("1,2", *path)


def test_json_of_the_command_has_the_documented_names(tmp_path: Path) -> None:
    path = lake_of(tmp_path / "lake", image(partition((1, A), (2, B), isr=(1,))))
    code, output = run("1", "--lake", str(path), "--at-offset", "6", "--json")
    answer = json.loads(output)
    assert (code, answer["verdict"], answer["as_known"]) == (1, "not_now", "not_now")
    assert answer["harms"] == {
        "no_leader": 1,
        "writes_refused": 0,
        "last_replica_offline": 0,
        "last_complete_copy": 1,
        "unclean_election": 0,
        "acks1_at_risk": 0,
    }
    assert answer["blocking"][0]["waits_for"] == [2]
    assert answer["stakes"][0]["harms"] == ["last_complete_copy", "no_leader"]


def test_wait_looks_again_until_it_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lake"
    story = Story()
    story.time = int(datetime.now(UTC).timestamp())
    story.broker(1, "a").broker(2, "b").topic("t", {1: "a", 2: "b"}, isr=(1,)).lake(path)

    def sleep(_: float) -> None:
        story.change("t", 0, isr=(1, 2)).lake(path)

    monkeypatch.setattr(time, "sleep", sleep)
    code, output = run("1", "--lake", str(path), "--wait", "1m")
    assert output.startswith("Not now: broker 1 cannot be restarted in order without harm: 1 partition can be spared")
    assert "Safe: broker 1 can be restarted in order" in output
    assert code == 0


def test_wait_about_the_past_and_ids_that_are_none_are_refused(tmp_path: Path) -> None:
    path = ("--lake", str(lake_of(tmp_path / "lake", image(partition((1, A))))))
    left = CliRunner().invoke(application(["x"]), ["safe-to-restart", "1", *path, "--wait", "1m", "--at-offset", "5"])
    assert "leave out --at-offset" in str(left.exception)
    left = CliRunner().invoke(application(["x"]), ["safe-to-restart", "one", *path])
    assert "not ids of brokers" in str(left.exception)


# WHAT A START TRUNCATES, AND WHAT MAY BE OFFLINE (R-LOSS-11, R-ACT-1)


def without_writes() -> Story:
    """Broker 2 was elected without the writes that only broker 1 has."""
    story = Story().append(ConfigRecord(resource_type=2, resource_name="t", name=UNCLEAN, value="true"), 0)
    return story.broker(1, "ac").broker(2, "b").topic("t", {1: "a", 2: "b"}, isr=(1,))


def test_start_of_a_broker_with_the_only_copy_of_lost_writes_is_not_safe(tmp_path: Path) -> None:
    """It was safe, while offline said to save the copy before that start truncates it."""
    lake = without_writes().fence(1).change("t", 0, isr=(2,), leader=2, leader_recovery_state=1).lake(tmp_path)
    answer = safe_to_restart(lake, [1])
    assert (answer.verdict, reasons(answer)) == ("not safe", {"truncated": (1,)})
    assert "copy the folder of t-0 from the disks of broker 1 before it starts" in answer.steps[0].text
    assert safe_to_restart(lake, [1], accepted_until=lake.offset).verdict == "safe"
    assert "jbod offline says what its start needs" in restart_plan(lake).next.why[0]


def test_failed_disk_with_the_only_copy_of_lost_writes_forbids_the_restart_until_it_is_taken_out(
    tmp_path: Path,
) -> None:
    story = without_writes().left(1, "c").change("t", 0, isr=(2,), leader=2, leader_recovery_state=1)
    lake = story.lake(tmp_path)
    failed = str(disk("a"))
    assert reasons(safe_to_restart(lake, [1])) == {"truncated": (1,)}
    assert safe_to_restart(lake, [1], blank=[failed]).verdict == "not safe"
    assert safe_to_restart(lake, [1], gone=[failed]).verdict == "safe"
    assert restart_plan(lake).impossible[0].reason == "truncated"


def test_unclean_election_at_the_stop_waits_for_the_followers(tmp_path: Path) -> None:
    """It was not safe, as if the partition had no leader and the election came with the return."""
    story = Story().append(ConfigRecord(resource_type=2, resource_name="t", name=UNCLEAN, value="true"), 0)
    story = story.configure("t", "2").broker(1, "a").broker(2, "b").broker(3, "c")
    lake = story.topic("t", {1: "a", 2: "b", 3: "c"}).change("t", 0, isr=(1,)).lake(tmp_path)
    answer = safe_to_restart(lake, [1])
    assert (answer.verdict, reasons(answer)) == ("not now", {"catching up": (2, 3)})


@pytest.mark.parametrize("where", ["unassigned", rare("migrating")])
def test_copy_that_may_be_in_a_failed_directory_spares_no_other(tmp_path: Path, where: str) -> None:
    """The controller counts it as online, whichever directory of its broker failed: safe, and the data was lost."""
    story = Story().broker(1, "a").broker(2, "bc").topic("t", {2: where, 1: "a"})
    assert safe_to_restart(story.lake(tmp_path / "before"), [1]).verdict == "safe"
    lake = story.left(2, "b").lake(tmp_path / "after")
    answer = safe_to_restart(lake, [1])
    assert (answer.verdict, reasons(answer)) == ("not now", {"unplaced": (2,)})
    assert [stake.harms for stake in answer.stakes] == [["last_complete_copy"]]
    assert safe_to_restart(lake, [1], blank=[str(disk("a"))]).verdict == "not now"
    assert {node.node_id: node.reason for node in restart_plan(lake).impossible}[1] == "unplaced"
    assert [change.last_complete for change in whatif(lake, ["1"]).changes] == [True]
    assert [exposure.broker_id for exposure in risk(lake).brokers if exposure.last_replicas] == [1]


@pytest.mark.parametrize("where", [rare("unassigned"), "migrating"])
def test_restart_that_makes_a_replica_lead_which_may_be_in_a_failed_directory_waits(tmp_path: Path, where: str) -> None:
    """It was safe. On a real cluster, upgraded from before directories, the replica led and answered nobody."""
    story = Story().configure("t", "2").broker(1, "a").broker(2, "bc").broker(3, "d")
    story = story.topic("t", {1: "a", 2: where, 3: "d"})
    assert safe_to_restart(story.lake(tmp_path / "before"), [1]).verdict == "safe"
    lake = story.left(2, "b").lake(tmp_path / "after")
    for kill in (False, True):
        answer = safe_to_restart(lake, [1], kill=kill)
        assert (answer.verdict, reasons(answer), answer.stakes[0].leader_down) == ("not now", {"unplaced": (2,)}, 2)
        assert "no_leader" in answer.stakes[0].harms
    answer = safe_to_restart(lake, [3])
    assert (answer.verdict, reasons(answer)) == ("not now", {"unplaced": (2,)})
    assert answer.stakes[0].harms == ["writes_refused"]
    assert safe_to_restart(lake, [2]).verdict == "safe"


def test_enough_other_replicas_in_sync_do_not_help_if_an_unread_one_would_lead(tmp_path: Path) -> None:
    story = Story().configure("t", "2").broker(1, "a").broker(2, "bc").broker(3, "d").broker(4, "e")
    lake = story.topic("t", {1: "a", 2: "unassigned", 3: "d", 4: "e"}).left(2, "b").lake(tmp_path)
    answer = safe_to_restart(lake, [1])
    assert (answer.verdict, reasons(answer)) == ("not now", {"unplaced": (2,)})
    assert answer.stakes[0].harms == ["no_leader"]
    assert safe_to_restart(lake, [3]).verdict == "safe"


def test_complete_copy_that_is_online_and_in_no_list_of_a_leaderless_partition_counts(tmp_path: Path) -> None:
    """R-RESTART-4: its broker was safe, as if no complete copy had been online. With two in sync needed, nothing was
    acknowledged after broker 1 left the in-sync set."""
    story = Story().broker(1, "a").broker(2, "b").broker(3, "c").topic("t", {2: "b", 1: "a", 3: "c"})
    story.configure("t", "2").change("t", 0, isr=(2, 1)).change("t", 0, isr=(2,))
    lake = story.fence(2).change("t", 0, leader=-1).lake(tmp_path)
    answer = safe_to_restart(lake, [1])
    assert (answer.verdict, answer.stakes[0].harms) == ("not now", ["last_complete_copy"])
    assert safe_to_restart(lake, [3]).verdict == "safe"


def test_copy_of_a_replica_that_left_its_broker_forbids_no_restart(tmp_path: Path) -> None:
    """It was not safe for good: the folder is a stray, and no start truncates it."""
    story = without_writes().broker(3, "d").fence(1).change("t", 0, isr=(2,), leader=2, leader_recovery_state=1)
    story = story.change("t", 0, replicas=(2, 3), directories=(disk("b"), disk("d")), isr=(2, 3))
    assert safe_to_restart(story.lake(tmp_path), [1]).verdict == "safe"


def test_start_of_any_broker_elects_a_replica_that_was_recreated_empty(tmp_path: Path) -> None:
    """R-ACT-1: it was safe, and the start of another broker of a real Kafka elected the empty replica, although the old
    disk could still have come back."""
    story = Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a"}).change("t", 0, leader=-1).fence(1)
    lake = story.broker(1, "b", process=2).assign("t", 0, 1, "b").lake(tmp_path)
    for broker in (1, 2):
        answer = safe_to_restart(lake, [broker])
        assert (answer.verdict, reasons(answer)) == ("not safe", {"election": ()})
        assert [stake.name for stake in answer.caused("unclean_election")] == ["t-0"]


def test_restart_that_completes_a_reassignment_before_directories_are_recorded_is_judged(tmp_path: Path) -> None:
    """It ended in a traceback, "1 replicas keep 2 directories": the judged image said UNASSIGNED, not MIGRATING."""
    story = Story(version=14).broker(1).broker(2).topic("t", {1: "migrating", 2: "migrating"})
    lake = story.change("t", 0, removing_replicas=(2,), isr=(1,)).lake(tmp_path)
    assert safe_to_restart(lake, [1]).verdict == "not safe"


def test_steps_of_a_restart_do_not_send_to_the_question_that_they_answer() -> None:
    """Cause: a step of ``offline``, which names this question, was a step of its answer."""
    steps = " ".join(step.text for step in ask(image(partition((1, Uuid(1, 9))))).steps)
    assert "restart broker 1 with the same log.dirs: the copy is then in use again" in steps
    assert "ask jbod safe-to-restart" not in steps
