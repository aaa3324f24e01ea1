"""jbod plan check --sizes: paths, and whether each disk has room for what a file brings."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from pipelines.ask.plan_check import PlanCheck
from pipelines.cli.main import application
from pipelines.plan.answer import plan
from pipelines.plan.files import check_with_sizes
from pipelines.plan.goals import balance
from tests.support.planned import Broker, Cluster


def file(path: Path, **placed: dict[int, str]) -> str:
    """``t_0={1: "any", 2: "/data/0"}``"""
    listed = [
        {
            "topic": name.partition("_")[0],
            "partition": int(name.partition("_")[2]),
            "replicas": [*where],
            "log_dirs": [*where.values()],
        }
        for name, where in placed.items()
    ]
    (path / "plan.json").write_text(json.dumps({"version": 1, "partitions": listed}))
    return str(path / "plan.json")


def cluster() -> Cluster:
    """Disks of 1,000 bytes, 900 of which may be used: 600 and 1 of broker 2 are; t-0 to t-2 of 200 are on broker 1."""
    made = Cluster({1: Broker(1), 2: Broker(2)}).put("u-0", {2: 0}, 600).put("v-0", {2: 1}, 1).put("v-1", {2: 1}, 0)
    for number in range(3):
        made.put(f"t-{number}", {1: 0}, 200)
    return made


def checked(path: Path, it: Cluster, *, capacity: bool = True, **placed: dict[int, str]) -> PlanCheck:
    return check_with_sizes(it.lake(), file(path, **placed), [it.sizes(path / "sizes.txt", capacity=capacity)])


def test_disk_without_room_for_all_that_comes_blocks_each_partition_that_comes(tmp_path: Path) -> None:
    check = checked(tmp_path, cluster(), t_0={1: "any", 2: "/data/0"})
    assert check.ok
    two = checked(tmp_path, cluster(), t_0={2: "/data/0"}, t_1={2: "/data/0"}, t_2={2: "/data/1"})
    assert not two.ok
    assert {partition.name: partition.why.get("no room") for partition in two.partitions} == {
        "t-0": "/data/0 of broker 2 lacks 100 bytes for all that comes",
        "t-1": "/data/0 of broker 2 lacks 100 bytes for all that comes",
        "t-2": None,
    }


def test_copy_without_a_path_comes_to_the_disk_with_the_fewest_replicas(tmp_path: Path) -> None:
    """LogManager.nextLogDirs. That is the fullest here, until it has three."""
    three = checked(tmp_path, cluster(), t_0={2: "any"}, t_1={2: "any"}, t_2={2: "any"})
    assert {partition.name for partition in three.partitions if partition.blocks} == {"t-0", "t-1"}


def test_what_is_there_takes_no_room_and_a_move_between_disks_does(tmp_path: Path) -> None:
    it = cluster().put("u-1", {2: 1}, 500)
    check = checked(tmp_path, it, u_0={2: "/data/0"}, u_1={2: "/data/0"})
    assert {partition.name for partition in check.partitions if partition.blocks} == {"u-1"}


def test_replica_that_the_source_has_in_the_path_takes_no_room_although_the_log_says_no_directory(
    tmp_path: Path,
) -> None:
    """R-LOCAL-4: after a raise the log may never say it, and the file was blocked."""
    it = cluster()
    it.unassigned.add((("u", 0), 2))
    assert checked(tmp_path, it, u_0={2: "/data/0"}).ok


def test_path_that_the_broker_does_not_list_or_cannot_read_blocks(tmp_path: Path) -> None:
    """``ReplicaManager.alterReplicaLogDirs``: the tool stops after it has begun the reassignments."""
    it = Cluster({1: Broker(2, failed=(1,)), 2: Broker(1)}).put("t-0", {2: 0}, 10)
    for path in ("/data/1", "/data/9"):
        (partition,) = checked(tmp_path, it, t_0={1: path}).partitions
        assert partition.blocks and f"{path}" in partition.why["directory"]


def test_disk_of_unknown_size_is_not_checked_and_a_line_says_so(tmp_path: Path) -> None:
    check = checked(tmp_path, cluster(), capacity=False, t_0={2: "/data/1"})
    assert check.ok and check.notes == [
        "room is not checked on /data/1 of broker 2: no source says how large they are",
    ]


def test_no_step_of_a_plan_is_blocked(tmp_path: Path) -> None:
    it = cluster()
    source = it.sizes(tmp_path / "sizes.txt")
    answer = plan(it.lake(), lambda of: balance(of, None, "bytes"), [source], into=str(tmp_path / "files"))
    assert answer.steps and check_with_sizes(it.lake(), answer.paths["step-1.json"], [source]).ok


def test_command_says_which_disk_lacks_what_and_knows_the_paths(tmp_path: Path) -> None:
    it = cluster()
    it.lake(tmp_path / "lake")
    words = ["plan", "check", file(tmp_path, t_0={2: "/data/0"}, t_1={2: "/data/0"}), "--lake", str(tmp_path / "lake")]
    words += ["--sizes", it.sizes(tmp_path / "sizes.txt")]
    run = CliRunner().invoke(application(words), words)
    assert run.exit_code == 1 and "/data/0 of broker 2 lacks 100 bytes for all that comes" in run.output
    assert "unknown path" not in run.output
    assert CliRunner().invoke(application(words), [*words, "--headroom", "0"]).exit_code == 0
