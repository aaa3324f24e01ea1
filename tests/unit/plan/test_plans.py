"""jbod plan fill, balance, repair, replicas and undo."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import LEVELS
from pipelines.ask.json_values import jsonable
from pipelines.ask.whatif_places import find_place
from pipelines.cli.main import application
from pipelines.lake.reader import Lake
from pipelines.plan.answer import BESIDE, CHOICE, MovePlan, plan, undo
from pipelines.plan.goals import Goal, balance, drain, fill, refuse_replicas, repair, replicas
from pipelines.plan.problem import Problem
from pipelines.plan.steps import Limits
from tests.support.planned import Broker, Cluster, disk_id, replicas_of
from tests.support.volume import rare, sampled
from tests.unit.check.story import Story
from tests.unit.plan.test_drain import targets

CHANGES = ("--add-config", "--delete-config")


def made(
    path: Path, cluster: Cluster, goal: Callable[[Problem], Goal], limits: Limits | None = None, *, sized: bool = True
) -> MovePlan:
    return plan(cluster.lake(), goal, [cluster.sizes(path / "sizes.txt")] if sized else [], limits)


def filled(lake: Lake, broker: int, disk: int) -> Callable[[Problem], Goal]:
    place = find_place(lake, f"{broker}:{disk_id(broker, disk)}")
    return lambda it: fill(it, place)


def skewed() -> Cluster:
    """Broker 1: 400, 200 and 0 bytes of 1,000, in pieces of 20; the last disk has one of 1 byte."""
    cluster = Cluster({1: Broker(3)}).put("small-0", {1: 2}, 1)
    for number in range(20):
        cluster.put(f"t-{number}", {1: 0}, 20)
    for number in range(10):
        cluster.put(f"u-{number}", {1: 1}, 20)
    return cluster


def test_balance_of_a_broker_moves_no_more_than_the_bound_and_a_replica(tmp_path: Path) -> None:
    answer = made(tmp_path, skewed(), lambda it: balance(it, 1, "bytes"))
    assert answer.by_size and answer.spread[0] == pytest.approx(0.399) and answer.spread[1] <= 0.02
    assert answer.bytes is not None and answer.bound <= answer.bytes <= answer.bound + 20
    assert 180 <= answer.bound <= 200 and {*targets(answer)} <= {f"t-{number}" for number in range(20)}


def test_balance_of_replicas_that_are_too_large_for_even_disks_leaves_them_less_apart(tmp_path: Path) -> None:
    """It said "No move would even broker 1 any further" of 24 % and 8 %: one makes them 12 % and 20 %."""
    cluster = Cluster({1: Broker(2)}).put("t-0", {1: 0}, 120).put("t-1", {1: 1}, 80).put("t-2", {1: 0}, 120)
    answer = made(tmp_path, cluster, lambda it: balance(it, 1, "bytes"))
    assert answer.replicas == 1 and answer.spread == pytest.approx((0.16, 0.08))
    cluster = Cluster({1: Broker(2)}).put("t-0", {1: 0}, 160).put("t-1", {1: 1}, 80)
    answer = made(tmp_path, cluster, lambda it: balance(it, 1, "bytes"))
    assert answer.replicas == 0 and len(answer.ends) == 2


def test_fill_brings_a_new_disk_to_the_level_of_the_fullest(tmp_path: Path) -> None:
    cluster = skewed()
    answer = made(tmp_path, cluster, filled(cluster.lake(), 1, 2))
    moved = targets(answer)
    assert {name.split("-")[0] for name in moved} == {"t"} and {*map(str, moved.values())} == {"{1: '/data/2'}"}
    assert answer.bytes is not None and 180 <= answer.bytes <= 220


def test_fill_of_a_disk_that_takes_nothing_says_why(tmp_path: Path) -> None:
    cluster = skewed()
    cluster.brokers[1] = Broker(3, cordoned=(2,))
    with pytest.raises(UsageError, match=r"/data/2 of broker 1: it is cordoned, see cordoned.log.dirs of its broker$"):
        made(tmp_path, cluster, filled(cluster.lake(), 1, 2))


def test_fill_of_a_new_broker_takes_from_all(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(1), 2: Broker(1), 3: Broker(1)})
    for number in range(10):
        cluster.put(f"t-{number}", {1: 0}, 30).put(f"u-{number}", {2: 0}, 30)
    answer = made(tmp_path, cluster, filled(cluster.lake(), 3, 0))
    assert answer.bytes is not None and 180 <= answer.bytes <= 210
    assert {name[0] for name in targets(answer)} == {"t", "u"}


def test_balance_that_ends_uneven_says_which_disks_are_apart_and_why(tmp_path: Path) -> None:
    cluster = skewed()
    cluster.brokers[1] = Broker(3, cordoned=(1, 2))
    answer = made(tmp_path, cluster, lambda it: balance(it, 1, "bytes"))
    assert answer.steps == [] and answer.ends[0] == "/data/0 of broker 1"
    assert answer.ends[1] == "/data/2 of broker 1: it is cordoned, see cordoned.log.dirs of its broker"
    cluster.lake(tmp_path / "lake")
    run = run_plan(tmp_path, "balance", "1")
    assert run.exit_code == 0 and run.output.startswith("No move would even broker 1 any further; ")
    assert made(tmp_path, skewed(), lambda it: balance(it, 1, "bytes")).ends == ()


def test_balance_of_what_cannot_be_compared_is_bad_usage(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(2, fenced=True), 2: Broker(1)}).put("t-0", {1: 0, 2: 0}).put("t-1", {1: 1, 2: 0})
    for broker, by, why in (
        (None, "bytes", "the cluster: fewer than two .* /data/1 of broker 1: its broker is down"),
        (2, "bytes", "broker 2: fewer than two of its disks can be compared: the log names no other$"),
        (2, "leaders", "leave out BROKER"),
    ):
        with pytest.raises(UsageError, match=why.replace("/data/1", ".*")):
            made(tmp_path, cluster, lambda it, broker=broker, by=by: balance(it, broker, by))  # type: ignore[misc]


def test_balance_where_the_log_has_no_directories_does_not_say_how_many_there_are(tmp_path: Path) -> None:
    """Below metadata version 3.7-IV2, which records none, it said that the broker has one."""
    lake = Story(LEVELS["3.7-IV1"]).broker(1).broker(2).topic("t", {1: "migrating", 2: "migrating"}).lake(tmp_path)
    with pytest.raises(UsageError, match=r"broker 1: fewer than two .*: the log names no other$"):
        plan(lake, lambda it: balance(it, 1, "replicas"))


def test_sizes_of_another_cluster_are_bad_usage(tmp_path: Path) -> None:
    other = Cluster({1: Broker(2)}).put("x-0", {1: 0}).put("x-1", {1: 1})
    with pytest.raises(UsageError, match=r"none of its 2 replicas is in the log .* of another cluster"):
        plan(skewed().lake(), repair, [other.sizes(tmp_path / "sizes.txt")])


def test_plan_says_that_room_is_not_checked_where_no_source_says_how_large_the_disks_are(tmp_path: Path) -> None:
    cluster = skewed()
    source = cluster.sizes(tmp_path / "sizes.txt", capacity=False)
    answer = plan(cluster.lake(), lambda it: balance(it, 1, "bytes"), [source])
    assert [note.partition(",")[0] for note in answer.notes] == ["room is not checked on /data/2 of broker 1"]
    assert not made(tmp_path, cluster, lambda it: balance(it, 1, "bytes")).notes


def test_balance_over_brokers_keeps_racks_and_never_puts_two_replicas_on_a_broker(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(1, "x"), 2: Broker(1, "y"), 3: Broker(1, "x"), 4: Broker(1, "y")})
    cluster.put("e-0", {3: 0}, 1).put("e-1", {4: 0}, 1)
    for number in range(20):
        cluster.put(f"t-{number}", {1: 0, 2: 0}, 20)
    answer = made(tmp_path, cluster, lambda it: balance(it, None, "bytes"))
    assert answer.spread[1] <= 0.02
    for placed in targets(answer).values():
        assert len({cluster.brokers[broker].rack for broker in placed}) == 2


def test_balance_by_replicas_needs_no_sizes_and_balance_by_bytes_does(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(1), 2: Broker(1)})
    for number in range(10):
        cluster.put(f"t-{number}", {1: 0})
    cluster.put("e-0", {2: 0})
    answer = made(tmp_path, cluster, lambda it: balance(it, None, "replicas"), sized=False)
    assert (answer.spread, answer.replicas, answer.bound) == ((9, 1), 4, 4)
    with pytest.raises(UsageError, match="--sizes"):
        made(tmp_path, cluster, lambda it: balance(it, None, "bytes"), sized=False)


def test_balance_of_leaders_copies_nothing(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(1), 2: Broker(1)})
    for number in range(10):
        cluster.put(f"t-{number}", {1: 0, 2: 0})
    answer = made(tmp_path, cluster, lambda it: balance(it, None, "leaders"), sized=False)
    assert answer.replicas == 0 and answer.partitions == 5 and answer.spread == (10, 0)
    assert {*map(str, targets(answer).values())} == {"{2: 'any', 1: 'any'}"}


def test_balance_of_leaders_that_are_not_the_first_replicas_elects_these(tmp_path: Path) -> None:
    """It said "Nothing has to be done", and 0 leaders apart, of a broker that leads all since another was restarted."""
    cluster = Cluster({1: Broker(1), 2: Broker(1)})
    for number in range(6):
        cluster.put(f"t-{number}", {1 + number % 2: 0, 2 - number % 2: 0}).leaders["t", number] = 1
    answer = made(tmp_path, cluster, lambda it: balance(it, None, "leaders"), sized=False)
    assert (answer.spread, answer.replicas, answer.partitions, answer.bound) == ((6, 0), 0, 3, 3)
    assert {name: [*where] for name, where in targets(answer).items()} == {f"t-{odd}": [2, 1] for odd in (1, 3, 5)}
    assert answer.commands[-1].endswith("--election-type preferred --path-to-json-file step-1.json")


def test_balance_of_leaders_that_are_not_divisible_by_the_brokers_moves_the_least_possible(tmp_path: Path) -> None:
    """It said "20 % more than the least possible (2)" of two leaders that move: the bound was 1.67."""
    cluster = Cluster({1: Broker(1), 2: Broker(1), 3: Broker(1)})
    for number in range(8):
        cluster.put(f"t-{number}", {1: 0, 2: 0, 3: 0})
    answer = made(tmp_path, cluster, lambda it: balance(it, None, "leaders"), sized=False)
    assert (answer.spread, answer.partitions, answer.bound) == ((8, 1), 5, 5)


def test_balance_of_leaders_with_a_first_replica_down_elsewhere_elects_only_the_partitions_of_its_files(
    tmp_path: Path,
) -> None:
    """An election of all partitions fails while a first replica anywhere is down: the plan was done, and exited 1."""
    cluster = Cluster({1: Broker(1), 2: Broker(1), 3: Broker(1, fenced=True)})
    for number in range(10):
        cluster.put(f"t-{number}", {1: 0, 2: 0})
    cluster.put("down-0", {3: 0, 1: 0, 2: 0})
    answer = made(tmp_path, cluster, lambda it: balance(it, None, "leaders"), sized=False)
    assert "down-0" not in targets(answer)
    for commands, name in ((answer.commands, "step-1.json"), (answer.undo, "undo-1.json")):
        elections = [command for command in commands if command.startswith("kafka-leader-election.sh")]
        assert elections == [commands[-1]] and shlex.split(elections[0])[-2:] == ["--path-to-json-file", name]


def test_repair_makes_replicas_anew_with_dead_brokers_and_throttles_only_the_living(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(2, failed=(1,)), 2: Broker(1, fenced=True), 3: Broker(1), 4: Broker(1)})
    cluster.put("t-0", {1: 0, 2: 0}).put("t-1", {3: 0, 1: 1}).put("u-0", {4: 0, 3: 0}).put("gone-0", {2: 0})
    answer = made(tmp_path, cluster, repair)
    placements = targets(answer)
    assert sorted(placements["t-1"]) == [3, 4], "the broker cannot copy from the disk that it lost"
    assert sorted(placements["t-0"]) in ([1, 3], [1, 4])
    (lack,) = answer.lacks
    assert (answer.exit_code, lack.example) == (1, "gone-0") and "no complete copy" in lack.reason
    text = "\n".join(answer.commands)
    assert (
        "--throttle" not in text and "--entity-name 2 " not in text and "--entity-type brokers --entity-name 3" in text
    )
    assert not [name for name in answer.documents if name.startswith("undo")], "nothing can go back"
    assert not [note for note in answer.notes if "undone" in note]


def test_throttles_that_a_plan_sets_stay_until_its_last_step_is_done(tmp_path: Path) -> None:
    """The tool's --verify took them away after the first step: the others copied at full speed."""
    cluster = Cluster({1: Broker(1, fenced=True), 2: Broker(1), 3: Broker(1), 4: Broker(1)})
    cluster.put("t-0", {1: 0, 2: 0}).put("t-1", {1: 0, 2: 0})
    commands = made(tmp_path, cluster, repair, Limits(moves=1)).commands
    steps = [command for command in commands if "kafka-reassign-partitions" in command]
    assert len(steps) == 4 and not [command for command in steps if "throttle " in command]
    assert all("--preserve-throttles" in command for command in steps if "--verify" in command)
    for change in CHANGES:
        assert [c for c in commands if f"{change} leader.replication.throttled.rate" in c], change


def test_plan_beside_another_reassignment_is_executed_in_addition(tmp_path: Path) -> None:
    """Kafka's tool refuses it otherwise."""
    cluster = Cluster({1: Broker(1, fenced=True), 2: Broker(1), 3: Broker(1), 4: Broker(1)})
    cluster.put("t-0", {1: 0, 2: 0}).put("u-0", {2: 0, 3: 0})
    (alone, _) = [c for c in made(tmp_path, cluster, repair).commands if "kafka-reassign-partitions" in c]
    cluster.adding["u", 0] = (3,)
    (beside, _) = [c for c in made(tmp_path, cluster, repair).commands if "kafka-reassign-partitions" in c]
    assert "--execute --additional" in beside and "--additional" not in alone


def test_plan_beside_another_reassignment_says_that_its_throttle_stays(tmp_path: Path) -> None:
    """All four brokers of a real cluster kept it: the tool looks whether any reassignment is under way."""
    cluster = skewed()
    cluster.brokers |= {2: Broker(1), 3: Broker(1)}
    cluster.put("v-0", {2: 0, 3: 0})
    assert BESIDE not in made(tmp_path, cluster, lambda it: balance(it, 1, "bytes")).notes
    cluster.adding["v", 0] = (3,)
    beside = made(tmp_path, cluster, lambda it: balance(it, 1, "bytes"))
    assert BESIDE in beside.notes and any("throttle" in command for command in beside.commands)
    assert BESIDE not in made(tmp_path, cluster, lambda it: balance(it, None, "leaders")).notes


def test_undo_first_ends_what_is_under_way(tmp_path: Path) -> None:
    """R-RELEASE-4: while the step was under way, a controller of 4.3 never ended what undid it."""
    cluster = Cluster({1: Broker(1), 2: Broker(1), 3: Broker(1)}).put("t-0", {1: 0, 2: 0})
    answer = made(tmp_path, cluster, lambda it: drain(it, find_place(cluster.lake(), "1")))
    cancel, execute, _ = (command for command in answer.undo if "kafka-reassign-partitions" in command)
    assert cancel.endswith("--cancel --preserve-throttles --reassignment-json-file undo-1.json")
    assert "--execute --additional" in execute
    (tmp_path / "step.json").write_text(json.dumps(answer.documents["step-1.json"]))
    undone = undo(cluster.lake(), str(tmp_path / "step.json"))
    assert "--cancel" in undone.cancel and jsonable(undone)["cancel"] == undone.cancel


def test_undo_takes_back_a_removal_that_is_under_way(tmp_path: Path) -> None:
    """R-REASSIGN-7: without a cancellation the file that undoes it keeps no replica that is being removed."""
    cluster = Cluster({1: Broker(1), 2: Broker(1), 3: Broker(1)}).put("t-0", {1: 0, 2: 0, 3: 0})
    answer = made(tmp_path, cluster, lambda it: replicas(it, {"t": 2}))
    assert "--cancel" in answer.undo[0] and "--execute" in answer.undo[1]


def test_undo_that_copies_is_throttled_as_the_plan_is(tmp_path: Path) -> None:
    """It copied everything back as fast as brokers and disks could."""
    across, inside = "--throttle 50000000", "--replica-alter-log-dirs-throttle 50000000"
    cluster = Cluster({1: Broker(2), 2: Broker(1), 3: Broker(1)})
    cluster.put("t-0", {1: 0, 2: 0}, 300).put("anchor-0", {1: 1}, 1).put("u-0", {3: 0}, 1)
    place = find_place(cluster.lake(), f"1:{disk_id(1, 0)}")
    for goal, options in (
        (lambda it: drain(it, place), inside),
        (lambda it: replicas(it, {"t": 1}), across),
        (lambda it: drain(it, find_place(cluster.lake(), "3")), across),
        (lambda it: replicas(it, {"t": 3}), across),
    ):
        (back,) = [command for command in made(tmp_path, cluster, goal).undo if "--execute" in command]
        assert back.endswith(f"--reassignment-json-file undo-1.json {options}")
    cluster = Cluster({1: Broker(1), 2: Broker(1)}).put("t-0", {1: 0, 2: 0}).put("t-1", {1: 0, 2: 0})
    leaders = made(tmp_path, cluster, lambda it: balance(it, None, "leaders"), sized=False)
    assert leaders.undo and "throttle" not in " ".join(leaders.undo)


def test_repair_of_a_healthy_cluster_has_nothing_to_do(tmp_path: Path) -> None:
    answer = made(tmp_path, skewed(), repair)
    assert (answer.exit_code, answer.steps, answer.lacks) == (0, [], [])


def test_repair_leaves_an_online_replica_alone_whose_directory_is_not_known(tmp_path: Path) -> None:
    """R-INV-22. With sizes it recreated the replica elsewhere: the reserved id counted as an offline disk."""
    cluster = skewed()
    (partition, placed) = next(iter(cluster.placed.items()))
    cluster.unassigned.add((partition, next(iter(placed))))
    answer = made(tmp_path, cluster, repair)
    assert (answer.exit_code, answer.steps, answer.lacks) == (0, [], [])


def test_replicas_are_raised_into_new_racks_and_lowered_without_their_leader(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(1, "x"), 2: Broker(1, "x"), 3: Broker(1, "y"), 4: Broker(1, "z")})
    cluster.put("t-0", {1: 0}).put("t-1", {2: 0}).put("u-0", {1: 0, 2: 0, 3: 0}).put("e-0", {3: 0, 4: 0})
    placements = targets(made(tmp_path, cluster, lambda it: replicas(it, {"t": 3, "u": 2})))
    assert sorted(placements["t-0"]) == [1, 3, 4] and sorted(placements["t-1"]) == [2, 3, 4]
    assert placements["u-0"] == {1: "any", 3: "any"}
    with pytest.raises(UsageError, match="more replicas than brokers that run, 4"):
        refuse_replicas(cluster.lake(), {"t": 5})


def test_replicas_are_lowered_into_no_fewer_racks_than_needed(tmp_path: Path) -> None:
    """It removed the only replica in rack y, as the other one, in no rack, was not the last. One that lags goes first:
    what stays holds every write."""
    cluster = Cluster({1: Broker(1, "x"), 2: Broker(1, "x"), 3: Broker(1, "y"), 4: Broker(1)})
    cluster.put("t-0", {1: 0, 2: 0, 3: 0}).put("u-0", {1: 0, 4: 0, 3: 0}).put("v-0", {1: 0, 2: 0, 3: 0})
    cluster.out_of_sync["v", 0] = (3,)
    placements = targets(made(tmp_path, cluster, lambda it: replicas(it, {"t": 2, "u": 2, "v": 2})))
    wanted = {"t-0": {1, 3}, "u-0": {1, 3}, "v-0": {1, 2}}
    assert {name: {*placed} for name, placed in placements.items()} == wanted


def test_leader_in_no_rack_is_removed_before_the_last_replica_of_a_rack(tmp_path: Path) -> None:
    """All that was left could be in one rack. A follower in no rack goes first, and one that lags."""
    cluster = Cluster({1: Broker(1), 2: Broker(1, "x"), 3: Broker(1, "y"), 4: Broker(1)})
    cluster.put("t-0", {1: 0, 2: 0, 3: 0}).put("u-0", {1: 0, 4: 0, 3: 0}).put("v-0", {1: 0, 2: 0, 3: 0})
    cluster.out_of_sync["v", 0] = (3,)
    placements = targets(made(tmp_path, cluster, lambda it: replicas(it, dict.fromkeys("tuv", 2))))
    wanted = {"t-0": {2, 3}, "u-0": {1, 3}, "v-0": {1, 2}}
    assert {name: {*placed} for name, placed in placements.items()} == wanted


def test_undo_that_may_fill_a_disk_says_which_and_what_to_do(tmp_path: Path) -> None:
    """The replica that broker 2 loses would come back to it by way of its full disk, which has the fewest replicas."""
    cluster = Cluster({1: Broker(1), 2: Broker(2)}).put("t-0", {1: 0, 2: 1}, 150).put("u-0", {2: 0}, 800)
    cluster.put("v-0", {2: 1}, 1)
    lower = made(tmp_path, cluster, lambda it: replicas(it, {"t": 1}))
    assert {*targets(lower)} == {"t-0"} and CHOICE.format("/data/0 of broker 2") in "".join(lower.notes)
    assert [note for note in lower.notes if note.startswith("undo-1.json: ")]
    cluster.put("v-1", {2: 0}, 1)
    assert made(tmp_path, cluster, lambda it: replicas(it, {"t": 1})).notes == []


def test_repair_recreates_a_replica_of_which_a_move_from_the_dead_disk_was_under_way(tmp_path: Path) -> None:
    """The copy between the disks never ends, and Kafka describes it for ever."""
    cluster = Cluster({1: Broker(2, failed=(0,)), 2: Broker(1), 3: Broker(1)})
    cluster.put("t-0", {2: 0, 1: 0}).put("u-0", {1: 1}).put("u-1", {3: 0})
    cluster.future[("t", 0), 1] = (1, 5)
    answer = made(tmp_path, cluster, repair)
    assert (sorted(targets(answer)["t-0"]), answer.lacks) == ([2, 3], [])


def test_undo_of_a_file_has_what_is_now(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(2), 2: Broker(1), 3: Broker(1, fenced=True)})
    cluster.put("t-0", {1: 0, 2: 0}).put("t-1", {2: 0, 3: 0}).put("u-0", {1: 1})
    wanted = [{"topic": topic, "partition": at, "replicas": [2]} for topic, at in (("t", 0), ("t", 1), ("no", 0))]
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": wanted}))
    sources = [cluster.sizes(tmp_path / "sizes.txt")]
    answer = undo(cluster.lake(), str(tmp_path / "plan.json"), sources, str(tmp_path / "files"))
    assert answer.left_out == ["t-1", "no-0"]
    assert replicas_of(json.loads((tmp_path / "files" / "undo.json").read_text())) == {
        "t-0": {1: "/data/0", 2: "/data/0"}
    }


def test_undo_of_a_file_is_throttled_to_the_rate_until_it_is_verified(tmp_path: Path) -> None:
    """There was no --rate: it copied everything back as fast as brokers and disks could."""
    cluster = Cluster({1: Broker(2), 2: Broker(1), 3: Broker(1)}).put("t-0", {1: 0, 2: 0}).put("u-0", {1: 1})
    sizes, lake = cluster.sizes(tmp_path / "sizes.txt"), cluster.lake(tmp_path / "lake")
    entry = {"topic": "t", "partition": 0, "replicas": [2, 3]}
    (tmp_path / "file.json").write_text(json.dumps({"version": 1, "partitions": [entry]}))
    for options, rates in (
        ([], "--throttle 50000000"),
        (["--rate", "10M"], "--throttle 10000000"),
        (["--rate", "9M", "--sizes", sizes], "--throttle 9000000 --replica-alter-log-dirs-throttle 9000000"),
    ):
        line = ["plan", "undo", str(tmp_path / "file.json"), "--lake", str(lake.path), "--json", *options]
        undone = json.loads(CliRunner().invoke(application(line), line).stdout)
        assert undone["command"].endswith(f"--reassignment-json-file undo.json {rates}")
        assert undone["verify"].endswith("--verify --reassignment-json-file undo.json")


def test_undo_leaves_out_a_partition_that_is_being_reassigned(tmp_path: Path) -> None:
    """Its file had all replicas of the move under way: neither those of before nor those of after."""
    story = Story().broker(1, "a").broker(2, "c").broker(3, "d").topic("t", {1: "a", 2: "c", 3: "d"})
    story.change("t", 0, isr=(1, 2), adding_replicas=(3,), removing_replicas=(1,))
    (tmp_path / "plan.json").write_text(
        '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}'
    )
    answer = undo(story.lake(tmp_path / "lake"), str(tmp_path / "plan.json"))
    assert (answer.partitions, answer.left_out) == ([], ["t-0"])


def test_replica_that_lags_is_removed_before_one_in_sync(tmp_path: Path) -> None:
    """Removing one in sync waits until the other one has caught up, on every release."""
    story = Story().broker(1, "a").broker(2, "c").broker(3, "d").topic("t", {1: "a", 2: "c", 3: "d"})
    lake = story.change("t", 0, isr=(1, 3)).lake(tmp_path)
    answer = plan(lake, lambda it: replicas(it, {"t": 2}))
    assert [*targets(answer)["t-0"]] == [1, 3]


def run_plan(path: Path, *words: str) -> Result:
    """A command on the lake and the sizes in ``path``."""
    more = ["--lake", str(path / "lake"), "--sizes", str(path / "sizes.txt")]
    return CliRunner().invoke(application(["plan"]), ["plan", *words, *more])


@pytest.mark.parametrize(
    "words",
    [
        ("balance", "--by", "replicas"),
        ("repair",),
        ("replicas", "t=2"),
        rare(("fill", f"1:{disk_id(1, 2)}")),
        rare(("fill", "1:/data/2")),
        ("drain", "1:/data/0"),
        ("balance", "1"),
    ],
)
def test_commands_print_their_plan_with_the_commands_to_type(tmp_path: Path, words: tuple[str, ...]) -> None:
    cluster = skewed()
    cluster.brokers[2] = Broker(1)
    cluster.put("e-0", {2: 0}, 1)
    cluster.lake(tmp_path / "lake")
    cluster.sizes(tmp_path / "sizes.txt")
    run = run_plan(tmp_path, *words)
    assert run.exit_code == 0, run.output
    assert words == ("repair",) or "kafka-reassign-partitions.sh --bootstrap-server HOST:PORT --execute" in run.output


@pytest.mark.parametrize(
    ("rate", "words"), sampled([("50M", "50 MB/s"), ("1.5G", "1.5 GB/s"), ("250k", "250 kB/s")], 1)
)
def test_plan_with_a_rate_says_it_in_the_unit_of_risk_and_of_the_option(tmp_path: Path, rate: str, words: str) -> None:
    """``--rate 50M`` was "47.7 MiB/s" here, and 50 MB/s in risk and offline."""
    cluster = skewed()
    cluster.lake(tmp_path / "lake")
    cluster.sizes(tmp_path / "sizes.txt")
    assert f" at {words}; the log at" in run_plan(tmp_path, "balance", "1", "--rate", rate).output


@pytest.mark.parametrize(
    "words", [("drain", "1:/data/9"), ("fill", "1"), ("replicas", "t=2", "t=3"), ("replicas", "t"), ("drain", "9")]
)
def test_what_does_not_exist_is_bad_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    cluster = skewed()
    cluster.lake(tmp_path / "lake")
    cluster.sizes(tmp_path / "sizes.txt")
    assert isinstance(run_plan(tmp_path, *words).exception, UsageError)


def test_replicas_that_are_removed_are_counted_with_those_that_are_made(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(1), 2: Broker(1), 3: Broker(1)}).put("t-0", {1: 0}).put("u-0", {1: 0, 2: 0, 3: 0})
    cluster.lake(tmp_path / "lake")
    cluster.sizes(tmp_path / "sizes.txt")
    assert run_plan(tmp_path, "replicas", "u=1").output.startswith("2 replicas (0 B) are removed for u=1: 1 step")
    assert run_plan(tmp_path, "replicas", "u=1", "t=2").output.startswith("3 replicas (10 B) are made or removed for ")
    assert run_plan(tmp_path, "replicas", "t=2").output.startswith("1 replica (10 B) is made for t=2: 1 step")


def test_leaders_are_handed_on_where_no_neighbour_can_take_them(tmp_path: Path) -> None:
    """Broker 1 shares partitions with 2 only, 2 with 3, 3 with 4."""
    cluster = Cluster({number: Broker(1) for number in (1, 2, 3, 4)})
    number = 0
    for first, second, count in ((1, 2, 9), (2, 3, 4), (3, 4, 4)):
        for _ in range(count):
            cluster.put(f"t-{number}", {first: 0, second: 0})
            number += 1
    answer = made(tmp_path, cluster, lambda it: balance(it, None, "leaders"), sized=False)
    assert answer.spread[0] == 9 and answer.spread[1] <= 2


def test_repair_of_a_partition_has_the_room_that_another_one_could_not_use(tmp_path: Path) -> None:
    """big-0 needs two replicas, and one broker is left. The room of its first one counted as used."""
    cluster = Cluster({broker: Broker(1, fenced=broker < 3) for broker in (1, 2, 3, 4)})
    cluster.put("big-0", {3: 0, 1: 0, 2: 0}, 450).put("t-0", {3: 0, 1: 0}, 440)
    answer = made(tmp_path, cluster, repair)
    assert targets(answer).keys() == {"t-0"}
    assert [lack.example for lack in answer.lacks] == ["big-0"]


def test_reason_that_holds_for_parts_of_partitions_and_for_whole_ones_is_given_once(tmp_path: Path) -> None:
    """It was said twice, of one replica each."""
    cluster = Cluster({broker: Broker(1, fenced=broker < 3) for broker in (1, 2, 3, 4)})
    cluster.put("part-0", {3: 0, 1: 0, 2: 0}).put("whole-0", {3: 0, 4: 0, 1: 0})
    (lack,) = made(tmp_path, cluster, repair).lacks
    assert (lack.replicas, lack.example) == (2, "part-0") and lack.reason.startswith("no disk of a broker without")


def test_undo_of_a_partition_that_is_being_reassigned_says_what_takes_it_back(tmp_path: Path) -> None:
    """It said that there is none, or that a broker or a disk of it is down."""
    cluster = Cluster({1: Broker(1), 2: Broker(1)}).put("t-0", {1: 0, 2: 0})
    cluster.adding["t", 0] = (2,)
    cluster.lake(tmp_path / "lake")
    entry = {"topic": "t", "partition": 0, "replicas": [1]}
    (tmp_path / "file.json").write_text(json.dumps({"version": 1, "partitions": [entry]}))
    line = ["plan", "undo", str(tmp_path / "file.json"), "--lake", str(tmp_path / "lake")]
    output = " ".join(CliRunner().invoke(application(line), line).output.split())
    taken_back = "being reassigned, which kafka-reassign-partitions --cancel takes back"
    assert f"{taken_back}, unless jbod plan watch says not to cancel: t-0." in output


def test_commands_that_cancel_are_not_printed_without_a_condition(tmp_path: Path) -> None:
    """R-REASSIGN-3: while only added replicas were in sync, the first of them gave up the only complete copies."""
    cluster = Cluster({1: Broker(1), 2: Broker(1), 3: Broker(1)}).put("t-0", {1: 0, 2: 0})
    cluster.lake(tmp_path / "lake")
    entry = {"topic": "t", "partition": 0, "replicas": [3, 2]}
    (tmp_path / "file.json").write_text(json.dumps({"version": 1, "partitions": [entry]}))
    for words in (["drain", "1"], ["undo", str(tmp_path / "file.json")]):
        line = ["plan", *words, "--lake", str(tmp_path / "lake")]
        output = " ".join(CliRunner().invoke(application(line), line).output.split())
        assert "--cancel" in output and "unless jbod plan watch says not to cancel" in output
