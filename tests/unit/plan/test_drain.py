"""jbod plan drain: a disk, or a broker, is emptied."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from pipelines.ask.whatif_places import find_place
from pipelines.cli.main import application
from pipelines.plan.answer import CHOICE, MovePlan, plan
from pipelines.plan.files import WAIT
from pipelines.plan.goals import drain, find
from pipelines.plan.steps import Limits
from tests.support.planned import Broker, Cluster, disk_id, replicas_of, three_disks
from tests.support.volume import sampled
from tests.unit.ask.test_next_start import moved
from tests.unit.ask.test_plan_check import named, replaced
from tests.unit.check.story import Story
from tests.unit.check.story import disk as story_disk


def drained(
    path: Path, cluster: Cluster, place: str, *, sized: bool = True, capacity: bool = True, limits: Limits | None = None
) -> MovePlan:
    lake = cluster.lake()
    drain_place = find_place(lake, place)
    sources = [cluster.sizes(path / "sizes.txt", capacity=capacity)] if sized else []
    return plan(lake, lambda it: drain(it, drain_place), sources, limits)


def disk(broker: int, number: int) -> str:
    return f"{broker}:{disk_id(broker, number)}"


def targets(answer: MovePlan) -> dict[str, dict[int, str]]:
    return {
        name: placed
        for file, document in answer.documents.items()
        if file.startswith("step")
        for name, placed in replicas_of(document).items()
    }


def test_disk_is_emptied_onto_the_emptiest_disks_of_its_broker(tmp_path: Path) -> None:
    answer = drained(tmp_path, three_disks(50, 40, 30), disk(1, 0))
    assert targets(answer) == {"t-0": {1: "/data/1"}, "t-1": {1: "/data/2"}, "t-2": {1: "/data/1"}}
    assert (answer.exit_code, answer.replicas, answer.bytes, len(answer.steps)) == (0, 3, 120, 1)
    assert answer.steps[0].between_disks == 3


def test_undo_names_the_paths_of_before(tmp_path: Path) -> None:
    answer = drained(tmp_path, three_disks(50), disk(1, 0))
    assert replicas_of(answer.documents["undo-1.json"]) == {"t-0": {1: "/data/0"}}


def test_no_disk_is_filled_above_its_headroom(tmp_path: Path) -> None:
    # 90 of 100 may be used: the disks with 10 and 20 take 80 and 70.
    full = drained(tmp_path, three_disks(80, 70, total=100), disk(1, 0))
    assert (full.exit_code, [step.bytes for step in full.steps]) == (0, [150])
    answer = drained(tmp_path, three_disks(80, 71, total=100), disk(1, 0))
    assert (answer.exit_code, answer.steps, answer.documents) == (1, [], {})
    assert [(lack.reason, lack.replicas, lack.bytes) for lack in answer.lacks] == [("no disk has room", 1, 1)]


def test_reason_names_the_disk_that_lacks_least(tmp_path: Path) -> None:
    answer = drained(tmp_path, three_disks(95, total=100), disk(1, 0))
    (lack,) = answer.lacks
    assert (lack.reason, lack.example, lack.disk, lack.bytes) == ("no disk has room", "t-0", "/data/1 of broker 1", 15)


def test_other_brokers_take_what_the_broker_itself_has_no_room_for(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(2, total=100), 2: Broker(1, total=1_000), 3: Broker(1, total=1_000)})
    cluster.put("t-0", {1: 0, 2: 0}, 60).put("t-1", {1: 0}, 30).put("u-0", {1: 1}, 40).put("v-0", {3: 0}, 1)
    answer = drained(tmp_path, cluster, disk(1, 0))
    assert targets(answer) == {"t-0": {3: "/data/0", 2: "any"}, "t-1": {1: "/data/1"}}
    assert "--throttle" in answer.commands[1] and "--replica-alter-log-dirs-throttle" in answer.commands[1]


def test_cordoned_offline_and_nameless_disks_are_no_targets(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(3, cordoned=(1,))})
    cluster.put("t-0", {1: 0}, 5).put("u-1", {1: 1}, 1).put("u-3", {1: 2}, 1)
    assert targets(drained(tmp_path, cluster, disk(1, 0))) == {"t-0": {1: "/data/2"}}
    nowhere = Cluster({1: Broker(3)}).put("t-0", {1: 0}, 5)  # two empty disks: their paths are unknown
    (lack,) = drained(tmp_path, nowhere, disk(1, 0)).lacks
    assert "its path is not known" in lack.reason


def test_replicas_that_no_record_has_placed_are_in_no_disk_that_could_take_others(tmp_path: Path) -> None:
    """ "AAAAAAAAAAAAAAAAAAAAAQ of broker 2: it is offline" was among the disks that cannot take the replica."""
    story = Story().broker(1, "a").broker(2, "bc").topic("u", {2: "unassigned"}).topic("t", {1: "a"})
    lake = story.left(2, "c").fence(2).lake(tmp_path)
    answer = plan(lake, lambda it: drain(it, find_place(lake, "1")))
    closed = f"{story_disk('c')} of broker 2: its broker is down or is shutting down"
    assert [lack.reason for lack in answer.lacks] == [
        f"no disk of a broker without a replica of it can take it ({closed})"
    ]


def test_disk_of_a_broker_that_is_not_registered_is_none_that_could_take_replicas(tmp_path: Path) -> None:
    """It was among them: "its broker is down or is shutting down"."""
    story = Story().broker(1, "a").broker(2, "c").broker(3, "d").topic("t", {1: "a"}).topic("u", {3: "d"})
    lake = story.fence(2).unregister(3).lake(tmp_path)
    (lack,) = plan(lake, lambda it: drain(it, find_place(lake, "1"))).lacks
    assert lack.reason.endswith(f" ({story_disk('c')} of broker 2: its broker is down or is shutting down)")


def test_replica_that_only_a_source_has_placed_leaves_the_disk_and_goes_back_to_it(tmp_path: Path) -> None:
    """It stayed, on a disk that the plan was to empty, and "they may be on this disk, too" was all that was said."""
    cluster = Cluster({1: Broker(2), 2: Broker(1)}).put("t-0", {1: 0}).put("u-0", {1: 0, 2: 0}).put("v-0", {1: 1})
    cluster.unassigned.add((("u", 0), 1))
    answer = drained(tmp_path, cluster, disk(1, 0))
    assert targets(answer) == {"t-0": {1: "/data/1"}, "u-0": {1: "/data/1", 2: "any"}}
    assert replicas_of(answer.documents["undo-1.json"])["u-0"] == {1: "/data/0", 2: "any"} and answer.notes == []
    assert targets(drained(tmp_path, cluster, disk(1, 1))) == {"v-0": {1: "/data/0"}}
    (note, *_) = drained(tmp_path, cluster, disk(1, 0), sized=False).notes
    where = "they may be on this disk, too: --sizes says where they are"
    assert note == f"replicas of broker 1 without a known directory: 1; {where}"


def test_partition_with_a_move_under_way_is_planned_again_when_that_is_done(tmp_path: Path) -> None:
    """It was "left alone", and the answer ended there."""
    cluster = Cluster({1: Broker(1), 2: Broker(1), 3: Broker(1)}).put("t-0", {1: 0, 2: 0})
    cluster.adding["t", 0] = (2,)
    (lack,) = drained(tmp_path, cluster, "1").lacks
    assert lack.reason == "a move of the partition is under way, which is left alone: plan again when it is done"


def test_broker_that_has_lost_a_disk_moves_nothing_between_the_others(tmp_path: Path) -> None:
    """R-HOST-5."""
    cluster = Cluster({1: Broker(4, failed=(3,)), 2: Broker(1)})
    cluster.put("t-0", {1: 0}, 5).put("u-0", {1: 1}, 1).put("v-0", {1: 3}).put("e-0", {2: 0}, 700)
    assert targets(drained(tmp_path, cluster, disk(1, 0))) == {"t-0": {2: "/data/0"}}
    assert targets(drained(tmp_path, cluster, "2")) == {}


def test_cordon_comes_first_and_keeps_those_that_are_there(tmp_path: Path) -> None:
    cluster = three_disks(5)
    assert drained(tmp_path, cluster, disk(1, 0)).before == [
        "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type brokers --entity-name 1 "
        "--add-config 'cordoned.log.dirs=[/data/0]'"
    ]
    assert drained(tmp_path, cluster, disk(1, 0)).undo[0].endswith("--delete-config cordoned.log.dirs")
    cluster.brokers[1].cordoned = (1,)
    assert "[/data/1,/data/0]" in drained(tmp_path, cluster, disk(1, 0)).before[0]
    assert "[/data/1]" in drained(tmp_path, cluster, disk(1, 0)).undo[0]
    cluster.level = 20
    answer = drained(tmp_path, cluster, disk(1, 0))
    assert answer.before == [] and any("cordons need" in note for note in answer.notes)


def test_commands_quote_files_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell took them for several words."""
    monkeypatch.setattr("tests.support.planned.path_of", lambda disk: f"/data/disk {disk}'s")
    cluster, folder = three_disks(5), str(tmp_path / "my plans; x")
    cluster.brokers[1].cordoned = (1,)
    lake, sizes = cluster.lake(), cluster.sizes(tmp_path / "sizes.txt")
    answer = plan(lake, lambda it: drain(it, find(it, lake, "1:/data/disk 0's")), [sizes], into=folder)
    cordon, execute, verify = map(shlex.split, answer.commands)
    assert cordon[-1] == "cordoned.log.dirs=[/data/disk 1's,/data/disk 0's]"
    assert f"{folder}/step-1.json" in execute and verify[-1] == f"{folder}/step-1.json"
    uncordon, undo, verify = map(shlex.split, answer.undo)
    assert uncordon[-1] == "cordoned.log.dirs=[/data/disk 1's]"
    assert f"{folder}/undo-1.json" in undo and verify[-1] == f"{folder}/undo-1.json"


def test_broker_is_drained_without_fewer_racks(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(1, "x"), 2: Broker(1, "y"), 3: Broker(1, "y"), 4: Broker(1, "x")})
    cluster.put("t-0", {1: 0, 2: 0}).put("full-0", {4: 0}, 300).put("e-0", {3: 0}, 1)
    assert targets(drained(tmp_path, cluster, "1")) == {"t-0": {4: "/data/0", 2: "any"}}
    del cluster.placed["full", 0]
    del cluster.brokers[4]
    (lack,) = drained(tmp_path, cluster, "1").lacks
    assert "fewer racks" in lack.reason and lack.example == "t-0"


def test_moves_under_way_are_left_alone(tmp_path: Path) -> None:
    cluster = three_disks(50, 40)
    cluster.future[("t", 0), 1] = (1, 20)
    (lack,) = drained(tmp_path, cluster, disk(1, 0)).lacks
    assert "under way" in lack.reason and lack.example == "t-0"


def test_room_is_kept_for_moves_under_way(tmp_path: Path) -> None:
    """Of 60 bytes 20 are copied: 40 more will come, so 20 + 10 + 40 of the 90 are gone."""
    cluster = Cluster({1: Broker(3, total=100)})
    cluster.put("t-0", {1: 0}, 45).put("m-0", {1: 2}, 60).put("u-1", {1: 1}, 10)
    cluster.future[("m", 0), 1] = (1, 20)
    (lack,) = drained(tmp_path, cluster, disk(1, 0)).lacks
    assert (lack.disk, lack.bytes) == ("/data/2 of broker 1", 15)


def test_partition_of_a_broker_that_is_down_waits_for_repair(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(2), 2: Broker(1, fenced=True), 3: Broker(1)})
    cluster.put("t-0", {1: 0, 2: 0}).put("u-0", {1: 1})
    (lack,) = drained(tmp_path, cluster, disk(1, 0)).lacks
    assert "repair" in lack.reason


def test_steps_have_at_most_so_many_replicas_and_bytes(tmp_path: Path) -> None:
    cluster = three_disks(10, 10, 10, 10, 10)
    assert [step.replicas for step in drained(tmp_path, cluster, disk(1, 0), limits=Limits(moves=2)).steps] == [2, 2, 1]
    by_bytes = drained(tmp_path, cluster, disk(1, 0), limits=Limits(bytes=35, rate=10)).steps
    assert [(step.bytes, step.seconds) for step in by_bytes] == [(30, 3.0), (20, 2.0)]


def test_without_sizes_replicas_are_counted_and_kafka_chooses_among_nameless_disks(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(2), 2: Broker(2), 3: Broker(1)})
    cluster.put("t-0", {1: 0}).put("t-1", {1: 0}).put("u-0", {3: 0}).put("u-1", {3: 0}).put("u-2", {3: 0})
    answer = drained(tmp_path, cluster, disk(1, 0), sized=False)
    assert targets(answer) == {"t-0": {2: "any"}, "t-1": {2: "any"}}
    assert (answer.bytes, answer.steps[0].seconds) == (None, None)


def test_risk_after_each_step_is_said(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(2), 2: Broker(1)}, min_isr=1)
    cluster.put("t-0", {1: 0}, 5).put("u-0", {1: 1}, 1).put("v-0", {1: 1, 2: 0}, 1)
    answer = drained(tmp_path, cluster, disk(1, 0))
    assert (answer.now[0].last_replicas, answer.steps[0].disk.last_replicas) == (1, 2)
    assert answer.steps[0].disk.place == "/data/1 of broker 1"


def test_steps_wait_until_kafka_has_deleted_what_left_if_they_need_its_room(tmp_path: Path) -> None:
    """log.segment.delete.delay.ms. Of disks of 1,000 each the first is drained, and 900 of each can be used."""
    cluster = Cluster({1: Broker(2), 2: Broker(2)})
    cluster.put("t-0", {1: 0}, 300).put("t-1", {1: 1}, 600).put("t-2", {2: 0}, 300).put("t-3", {2: 1}, 400)
    free = drained(tmp_path, cluster, disk(1, 0))
    assert WAIT not in free.commands
    assert WAIT not in free.undo
    cluster.put("t-4", {1: 0}, 450)  # what comes back finds 750 that have left
    tight = drained(tmp_path, cluster, disk(1, 0))
    at = tight.undo.index(WAIT)
    assert "undo-1.json" in tight.undo[at + 1]


def test_command_writes_the_files_once(tmp_path: Path) -> None:
    cluster = three_disks(50, 40)
    cluster.lake(tmp_path / "lake")
    words = ["plan", "drain", disk(1, 0), "--lake", str(tmp_path / "lake"), "--into", str(tmp_path / "files")]
    words += ["--sizes", cluster.sizes(tmp_path / "sizes.txt"), "--rate", "10", "--moves", "1"]
    run = CliRunner().invoke(application(words), words)
    assert run.exit_code == 0, run.output
    assert run.output.startswith("2 replicas (90 B) leave /data/0 of broker 1: 2 steps, about 9 s at 10 B/s")
    written = sorted(file.name for file in (tmp_path / "files").iterdir())
    assert written == ["step-1.json", "step-2.json", "undo-1.json", "undo-2.json"]
    step = json.loads((tmp_path / "files" / "step-1.json").read_text())
    assert step["partitions"] == [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/data/1"]}]
    check = CliRunner().invoke(
        application(["plan"]),
        ["plan", "check", str(tmp_path / "files" / "step-1.json"), "--lake", str(tmp_path / "lake")],
    )
    assert check.exit_code == 0, check.output
    assert isinstance(CliRunner().invoke(application(words), words).exception, UsageError)


@pytest.mark.parametrize("text", ["", "0", "5Q", "-1", "1e9"])
def test_number_of_bytes_that_is_none_is_bad_usage(text: str) -> None:
    from pipelines.cli.plan import parse_bytes

    assert (parse_bytes("--rate", "1.5TB"), parse_bytes("--rate", "2Ki")) == (1_500_000_000_000, 2048)
    with pytest.raises(UsageError, match="--rate"):
        parse_bytes("--rate", text)


def test_disk_that_kafka_may_choose_first_needs_room_too_or_a_cordon(tmp_path: Path) -> None:
    """LogManager.nextLogDirs: the disk with the fewest replicas. It is the fullest here."""
    cluster = Cluster({1: Broker(1), 2: Broker(2)})
    cluster.put("t-0", {1: 0}, 300).put("u-0", {2: 0}, 800).put("v-0", {2: 1}, 1).put("v-1", {2: 1}, 1)
    answer = drained(tmp_path, cluster, "1")
    assert not answer.steps
    assert [lack.reason for lack in answer.lacks] == [f"{CHOICE.format('/data/0 of broker 2')}, or lower --headroom"]
    cluster.brokers[2].cordoned = (0,)
    assert targets(drained(tmp_path, cluster, "1")) == {"t-0": {2: "/data/1"}}


def test_brokers_with_room_wherever_kafka_makes_the_copy_first_come_before_emptier_ones(tmp_path: Path) -> None:
    """Broker 2 has the emptiest disk, and Kafka makes the copy on its full one first. That of broker 3 is fuller."""
    cluster = Cluster({1: Broker(1), 2: Broker(2), 3: Broker(1)})
    cluster.put("t-0", {1: 0}, 300).put("u-0", {2: 0}, 800).put("v-0", {2: 1}, 1).put("v-1", {2: 1}, 1)
    cluster.put("w-0", {3: 0}, 400)
    answer = drained(tmp_path, cluster, "1")
    assert (answer.lacks, targets(answer)) == ([], {"t-0": {3: "/data/0"}})


def test_broker_is_left_out_as_soon_as_its_full_disk_has_the_fewest_replicas(tmp_path: Path) -> None:
    """Broker 2 takes two copies on its empty disk; then both of its disks have three, and Kafka may choose the full."""
    cluster = Cluster({1: Broker(1), 2: Broker(2), 3: Broker(1)})
    cluster.put("u-0", {2: 0}, 300).put("u-1", {2: 0}, 300).put("u-2", {2: 0}, 290).put("v-0", {2: 1}, 1)
    cluster.put("w-0", {3: 0}, 400)
    for number in range(5):
        cluster.put(f"t-{number}", {1: 0}, 50)
    answer = drained(tmp_path, cluster, "1")
    assert answer.lacks == []
    assert sorted(str(paths) for paths in targets(answer).values()) == ["{2: '/data/1'}"] * 2 + ["{3: '/data/0'}"] * 3


@pytest.mark.parametrize("unassigned", [False, True])
@pytest.mark.parametrize("copied", [None, 100])
def test_room_is_kept_for_a_replica_that_joins_whatever_the_source_says_of_it(
    tmp_path: Path, unassigned: bool, copied: int | None
) -> None:
    """R-LOCAL-4. None was kept if the source was older, or the log had no directory of the replica."""
    cluster = Cluster({1: Broker(2), 2: Broker(2), 3: Broker(1)})
    cluster.put("u-0", {1: 1, 2: 0}, 800).put("v-0", {2: 1}, 650).put("w-0", {3: 0}, 500)
    cluster.put("t-0", {1: 0}, 300)
    cluster.adding["u", 0] = (2,)
    if unassigned:
        cluster.unassigned.add((("u", 0), 2))
    source = Path(cluster.sizes(tmp_path / "sizes.txt"))
    described = json.loads(source.read_text())
    (joins,) = [log_dir for log_dir in described["brokers"][1]["logDirs"] if log_dir["logDir"] == "/data/0"]
    joins["partitions"] = [] if copied is None else [{**joins["partitions"][0], "size": copied}]
    joins["usableBytes"] = 1_000 - (copied or 0)
    source.write_text(json.dumps(described))
    lake = cluster.lake()
    answer = plan(lake, lambda it: drain(it, find_place(lake, disk(1, 0))), [str(source)])
    assert targets(answer) == {"t-0": {3: "/data/0"}}


@pytest.mark.parametrize(("labelled", "sized"), sampled([("az", False), ("a", True), ("az", True)], 1))
def test_new_disk_with_the_path_of_a_dead_one_takes_replicas_and_is_drained(
    tmp_path: Path, labelled: str, sized: bool
) -> None:
    """The path was taken for that of the dead disk, so that there was no plan."""
    lake = replaced("z").lake(tmp_path / "lake")
    named(lake, {"/data/a": labelled, "/data/b": "b"})
    sources = [log_dirs(tmp_path / "sizes.txt", {"/data/a": [], "/data/b": ["t-0"]})] if sized else []
    answer = plan(lake, lambda it: drain(it, find(it, lake, "1:/data/b")), sources)
    assert (answer.exit_code, targets(answer)) == (0, {"t-0": {1: "/data/a", 2: "any"}})
    moved = replaced("z").assign("t", 0, 1, "z").lake(tmp_path / "moved")
    named(moved, {"/data/a": "az", "/data/b": "b"})
    answer = plan(moved, lambda it: drain(it, find(it, moved, "1:/data/a")))
    assert targets(answer) == {"t-0": {1: "/data/b", 2: "any"}}


def test_replica_that_may_be_in_a_disk_that_failed_is_not_judged_by_another_that_is_not(tmp_path: Path) -> None:
    """R-ACT-6: one of the two was judged for both, and plan check blocked the file that was written."""
    story = Story().broker(1, "a").broker(2, "bc").broker(3, "d").topic("z", {2: "unassigned"})
    lake = story.left(2, "c").topic("a", {2: "unassigned"}).lake(tmp_path)
    answer = plan(lake, lambda it: drain(it, find(it, lake, "2")))
    assert (answer.exit_code, answer.documents) == (1, {})
    assert [(lack.reason.partition(":")[0], lack.example) for lack in answer.lacks] == [("no complete copy", "z-0")]


def test_path_of_two_dead_disks_is_refused_with_their_ids(tmp_path: Path) -> None:
    """One of them was drained, and the answer did not say which."""
    story = Story().broker(1, "bxy").broker(2, "c").broker(3, "d").topic("t", {1: "b", 2: "c"}, {1: "x", 2: "c"})
    lake = story.left(1, "xy").left(1, "y").lake(tmp_path)
    named(lake, {"/data/b": "bx"})
    with pytest.raises(UsageError, match=f"several directories match: {story_disk('b')}, {story_disk('x')}"):
        plan(lake, lambda it: drain(it, find(it, lake, "1:/data/b")))
    answer = plan(lake, lambda it: drain(it, find(it, lake, f"1:{story_disk('b')}")))
    assert [*targets(answer)] == ["t-0"]


def test_replicas_of_another_broker_in_the_disk_are_named(tmp_path: Path) -> None:
    """Its disk was moved: "Nothing has to be done", and it has the last copy of solo-0."""
    lake = moved().lake(tmp_path)
    answer = plan(lake, lambda it: drain(it, find(it, lake, f"2:{story_disk('a')}")))
    assert "replicas of broker 1 in it, whose disk it was: 1; see jbod safe-to-remove" in answer.notes


def log_dirs(path: Path, held: dict[str, list[str]]) -> str:
    """What kafka-log-dirs would print of broker 1."""
    disks = [
        {"logDir": log_dir, "error": None, "partitions": [{"partition": name, "size": 1} for name in names]}
        for log_dir, names in held.items()
    ]
    path.write_text(json.dumps({"brokers": [{"broker": 1, "logDirs": disks}]}))
    return str(path)
