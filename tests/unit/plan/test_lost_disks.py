"""Plans while a broker runs that has lost a disk: what it does not do until it restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import LEVELS
from jbod_model.formats.records import BrokerRegistrationChangeRecord
from pipelines.lake.reader import Lake
from pipelines.plan.answer import plan
from pipelines.plan.files import check_with_sizes
from pipelines.plan.goals import balance, drain, fill, find, repair
from pipelines.plan.problem import CLOSED, CORDONED, HALTED
from tests.support.planned import Broker, Cluster
from tests.unit.ask.test_plan_check import file, named
from tests.unit.check.story import Story, disk
from tests.unit.plan.test_drain import targets


def emptied(path: Path) -> Lake:
    """Disk a of broker 1 failed, and its replica is on broker 3 since. The others of broker 1 are not even."""
    story = Story().broker(1, "abc").broker(2, "x").broker(3, "y").topic("u", *[{1: "b", 2: "x"}] * 4)
    story.topic("t", {1: "a", 2: "x"}).left(1, "bc")
    story.replicas["t", 0] = {2: "x"}
    lake = story.join("t", 0, 3, "y").change("t", 0, isr=(2, 3), leader=2).lake(path)
    named(lake, {f"/data/{letter}": letter for letter in "abcxy"})
    return lake


def test_broker_that_has_lost_a_disk_without_replicas_moves_nothing_between_the_others(tmp_path: Path) -> None:
    """R-HOST-5: fill said that nothing has to be done, and drain that there is no plan, with broker 3 idle."""
    lake = emptied(tmp_path)
    drained = plan(lake, lambda it: drain(it, find(it, lake, "1:/data/b")))
    assert drained.exit_code == 0
    assert targets(drained) == {f"u-{number}": {3: "/data/y", 2: "any"} for number in range(4)}
    assert all(CLOSED[HALTED] in end for end in plan(lake, lambda it: balance(it, 1, "replicas")).ends)
    with pytest.raises(UsageError, match=CLOSED[HALTED]):
        plan(lake, lambda it: fill(it, find(it, lake, "1:/data/c")))


def test_check_of_a_broker_whose_disk_failed_by_the_sources_only_blocks_moves_between_its_others(
    tmp_path: Path,
) -> None:
    """R-HOST-5: the plan took it from the sources, and the check from the log only."""
    cluster = Cluster({1: Broker(3), 2: Broker(1)}).put("t-0", {1: 0}, 10)
    lake = cluster.lake()
    reassignment = file(tmp_path, t_0=([1], ["/data/1"]))
    whole = check_with_sizes(lake, reassignment, [cluster.sizes(tmp_path / "before.txt")])
    cluster.brokers[1] = Broker(3, failed=(2,))
    (broken,) = check_with_sizes(lake, reassignment, [cluster.sizes(tmp_path / "after.txt")]).partitions
    assert (whole.partitions[0].blocks, broken.blocks) == (False, True)
    assert "broker 1 has lost a disk" in broken.reason


def test_reason_of_a_repair_names_disks_of_brokers_without_the_replica_only(tmp_path: Path) -> None:
    """It named the failed disk, and the path of another disk of that broker as not known, which changes nothing."""
    story = Story().broker(1, "abc").broker(2, "x").topic("t", {1: "a", 2: "x"}).left(1, "bc").change("t", 0, isr=(2,))
    reason = "no disk of a broker without a replica of it can take it"
    for number, closed in enumerate(("", f" ({disk('y')} of broker 3: {CLOSED[CORDONED]})")):
        lake = story.lake(tmp_path / str(number))
        named(lake, {"/data/b": "b"})
        assert [lack.reason for lack in plan(lake, repair).lacks] == [reason + closed]
        story.broker(3, "y", cordoned="y")


def test_repair_beside_a_broker_that_is_shutting_down_does_not_send_to_repair(tmp_path: Path) -> None:
    """\"jbod plan repair comes first\" was its own reason."""
    story = Story().broker(1, "a").broker(2, "x").broker(3, "y").broker(4, "z").topic("t", {3: "y", 1: "a", 2: "x"})
    story.fence(2).change("t", 0, isr=(3, 1))
    stopping = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=story.epochs[1], in_controlled_shutdown=1)
    lake = story.append(stopping, 1).lake(tmp_path)
    reason = "another broker of the partition is shutting down: plan again when it is back, or down"
    assert [(lack.reason, lack.example) for lack in plan(lake, repair).lacks] == [(reason, "t-0")]


def returning(*others: int) -> Story:
    """t-0 was on broker 1, too, when its disk a failed. t-0 and t-1 are on brokers 3 and 2."""
    story = Story().broker(1, "ab").broker(2, "x").broker(3, "y").topic("t", {3: "y", 1: "a"}, {3: "y", 2: "x"})
    story.left(1, "b").change("t", 0, isr=(3,))
    story.replicas["t", 0] = {3: "y"}
    story.join("t", 0, 2, "x").change("t", 0, isr=(3, 2))
    for other in others:
        story.broker(other, "z")
    return story


def test_broker_whose_disk_failed_with_a_replica_gets_others_until_it_restarts(tmp_path: Path) -> None:
    """R-HOST-3: there was no plan, or one that plan check blocks, by which of two partitions was judged for both."""
    lake = returning(4).lake(tmp_path / "other")
    answer = plan(lake, lambda it: drain(it, find(it, lake, "3")))
    assert (answer.exit_code, targets(answer)["t-0"]) == (0, {4: "any", 2: "any"})
    lake = returning().lake(tmp_path / "none")
    answer = plan(lake, lambda it: drain(it, find(it, lake, "3")))
    reason = "(broker 1, where its disk failed: after a restart only)"
    assert [(lack.reason[-len(reason) :], lack.example) for lack in answer.lacks] == [(reason, "t-0")]
    lake = returning().broker(1, "b", process=2).lake(tmp_path / "restarted")
    answer = plan(lake, lambda it: drain(it, find(it, lake, "3")))
    assert targets(answer) == {"t-0": {1: "any", 2: "any"}, "t-1": {1: "any", 2: "any"}}


def test_partition_whose_replica_is_not_taken_back_is_not_judged_by_another_that_lags(tmp_path: Path) -> None:
    """R-HOST-3: one of the two was judged for both."""
    story = returning(4)
    story.replicas["t", 0] = {3: "y"}
    story.join("t", 0, 1, "b").change("t", 0, isr=(3,)).topic("s", {3: "y", 1: "b"}, isr=(3,))
    lake = story.lake(tmp_path)
    answer = plan(lake, lambda it: drain(it, find(it, lake, "3")))
    assert [(lack.reason.partition(":")[0], lack.replicas, lack.example) for lack in answer.lacks] == [
        ("never done", 1, "t-0")
    ]


def test_plan_of_a_metadata_version_without_directories_counts_replicas(tmp_path: Path) -> None:
    """With sizes, no broker had a disk: there was no plan, as "no disk of a broker without a replica can take it"."""
    cluster = Cluster({1: Broker(1), 2: Broker(1)}).put("t-0", {1: 0}, 10)
    lake = Story(LEVELS["3.6-IV2"]).broker(1).broker(2).topic("t", {1: "migrating"}).lake(tmp_path / "lake")
    with pytest.raises(
        UsageError, match=r"metadata.version 14 \(3.6-IV2\) records no directories, .* leave out --sizes"
    ):
        plan(lake, lambda it: drain(it, find(it, lake, "1")), [cluster.sizes(tmp_path / "sizes.txt")])
    assert targets(plan(lake, lambda it: drain(it, find(it, lake, "1")))) == {"t-0": {2: "any"}}
