"""Reassignments while they run, in the log: what is done, stuck or replaced, the time left, the disks that empty."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from jbod_model.formats import records as r
from pipelines.ask.plan_check import NEVER_ENDS, NO_WAY_BACK, check_plan
from pipelines.ask.plan_watch import PlanWatch, Watched, Work, time_left, watch_plan
from pipelines.cli.main import application
from tests.unit.ask.test_plan_check import cluster, file, named, replaced, sized_since
from tests.unit.check.story import Story, disk, topic_id

A, B = str(disk("a")), str(disk("b"))


def begin(story: Story, name: str, number: int, target: Sequence[int], where: str) -> Story:
    """The controller accepts a reassignment; the added replicas are placed in the directories ``where``."""
    placed = story.replicas[name, number]
    now = [*placed]
    added = [broker_id for broker_id in target if broker_id not in now]
    removed = [broker_id for broker_id in now if broker_id not in target]
    placed |= dict.fromkeys(added, "unassigned")
    story.replicas[name, number] = placed = {broker_id: placed[broker_id] for broker_id in (*target, *removed)}
    story.change(
        name,
        number,
        replicas=tuple(placed),
        adding_replicas=tuple(sorted(added)),
        removing_replicas=tuple(sorted(removed)),
        directories=tuple(disk(directory) for directory in placed.values()),
    )
    for broker, at in zip(added, where, strict=True):
        story.assign(name, number, broker, at)
    return story


def end(story: Story, name: str, number: int, target: Sequence[int]) -> Story:
    """The added replicas are in sync, or it is cancelled: only ``target`` is left."""
    placed = {broker_id: story.replicas[name, number][broker_id] for broker_id in target}
    story.replicas[name, number] = placed
    return story.change(
        name,
        number,
        replicas=tuple(target),
        isr=tuple(target),
        leader=target[0],
        adding_replicas=(),
        removing_replicas=(),
        directories=tuple(disk(directory) for directory in placed.values()),
    )


def answer_of(path: Path, story: Story, paths: dict[str, str] | None = None, **partitions: Any) -> PlanWatch:
    lake = story.lake(path / "lake")
    if paths:
        named(lake, paths)
    return watch_plan(lake, [file(path, **partitions)])


def of(path: Path, story: Story, paths: dict[str, str] | None = None, **partitions: Any) -> Watched:
    (partition,) = answer_of(path, story, paths, **partitions).partitions
    return partition


def test_reassignment_is_not_begun_then_under_way_then_done(tmp_path: Path) -> None:
    """R-REASSIGN-1, R-REASSIGN-2."""
    story = cluster()
    assert of(tmp_path / "1", story, t_0=[3, 2]).state == "not begun"
    partition = of(tmp_path / "2", begin(story, "t", 0, [3, 2], "d"), t_0=[3, 2])
    assert (partition.state, partition.waits_for, partition.reason) == ("under way", [3], "broker 3 is not in sync yet")
    began = partition.since_offset
    partition = of(tmp_path / "3", end(story, "t", 0, [3, 2]), t_0=[3, 2])
    assert (partition.state, partition.since_offset, began) == ("done", len(story.entries) - 1, len(story.entries) - 3)


def test_partition_that_was_there_already_is_done(tmp_path: Path) -> None:
    assert of(tmp_path, cluster(), t_0=[1, 2]).state == "done"


def test_broker_that_is_fenced_or_gone_makes_it_stuck(tmp_path: Path) -> None:
    story = begin(cluster(), "t", 0, [3, 2], "d").fence(3)
    partition = of(tmp_path / "1", story, t_0=[3, 2])
    assert (partition.state, partition.waits_for, partition.reason) == ("stuck", [3], "broker 3 is fenced")
    assert of(tmp_path / "2", story.unregister(3), t_0=[3, 2]).reason == "broker 3 is not registered"


@pytest.mark.parametrize(("level", "state", "waits_for"), [(26, "stuck", [2, 4]), (31, "under way", [4])])
def test_replica_that_stays_is_not_waited_for_from_release_4_3_on(
    tmp_path: Path, level: int, state: str, waits_for: list[int]
) -> None:
    """R-RELEASE-4: it was stuck because of a broker that nothing waits for, and then it was done."""
    story = Story(level).broker(1, "a").broker(2, "b").broker(3, "c").broker(4, "d")
    story = story.topic("t", {1: "a", 2: "b", 3: "c"}).fence(2).change("t", 0, isr=(1, 3))
    partition = of(tmp_path / "swap", begin(story, "t", 0, [1, 2, 4], "d"), t_0=[1, 2, 4])
    assert (partition.state, partition.waits_for) == (state, waits_for)
    fewer = of(tmp_path / "fewer", begin(story, "t", 0, [1, 2], ""), t_0=[1, 2])
    assert (fewer.state, fewer.waits_for) == ("stuck", [2]), "it has more to remove than to add"


def test_disk_that_fails_under_the_copy_makes_it_stuck(tmp_path: Path) -> None:
    story = Story().broker(1, "a").broker(2, "c").broker(3, "de").topic("t", {1: "a", 2: "c"})
    begin(story, "t", 0, [3, 2], "d").left(3, "e")
    partition = of(tmp_path, story, t_0=[3, 2])
    assert (partition.state, partition.reason) == ("stuck", f"directory {disk('d')} of broker 3 is offline")


def test_replica_that_comes_back_to_the_broker_on_which_its_disk_failed_waits_for_a_restart(tmp_path: Path) -> None:
    """R-HOST-3: on a real cluster it was under way until the broker restarted, and plan check said nothing."""
    story = Story().broker(1, "a").broker(2, "c").broker(3, "de").topic("t", {1: "a", 3: "d"}).left(3, "e")
    story.change("t", 0, isr=(1,))
    end(begin(story, "t", 0, [1, 2], "c"), "t", 0, [1, 2])
    why = f"broker 3 had it in directory {disk('d')}, which failed: it takes it back after a restart only"
    plan = file(tmp_path, t_0=[1, 3])
    assert check_plan(story.lake(tmp_path / "before"), plan).partitions[0].why["never done"] == why
    partition = of(tmp_path / "1", begin(story, "t", 0, [1, 3], "e"), t_0=[1, 3])
    assert (partition.state, partition.waits_for, partition.reason) == ("stuck", [3], why)
    assert of(tmp_path / "2", story.broker(3, "e", process=2), t_0=[1, 3]).state == "under way"


def test_new_topic_of_the_name_is_taken_by_the_broker_on_which_the_disk_failed(tmp_path: Path) -> None:
    story = Story().broker(1, "a").broker(2, "c").broker(3, "de").topic("t", {1: "a", 3: "d"}).left(3, "e")
    story.remove("t").topic("t", {1: "a", 2: "c"})
    assert of(tmp_path, begin(story, "t", 0, [1, 3], "e"), t_0=[1, 3]).state == "under way"


def test_partition_without_leader_is_stuck(tmp_path: Path) -> None:
    story = begin(cluster(), "u", 0, [3], "d").change("u", 0, leader=-1)
    assert of(tmp_path, story, u_0=[3]).reason == "no replica leads: there is nothing to copy from"


def test_reassignment_that_nothing_ends_although_all_its_replicas_are_in_sync_is_stuck(tmp_path: Path) -> None:
    """R-REASSIGN-4: its source died, the copy was elected uncleanly, and kafka-reassign-partitions --list had it until
    the file was executed again. A cancellation gave up what the copy has acknowledged since (R-REASSIGN-3)."""
    story = begin(cluster(), "u", 0, [3], "d").fence(1).change("u", 0, leader=3, isr=(3,), leader_recovery_state=1)
    partition = of(tmp_path / "1", story, u_0=[3])
    assert (partition.state, partition.waits_for) == ("stuck", [])
    assert partition.reason == (
        "all its replicas are in sync, and the controller ends it with the next change of the partition only: execute "
        f"the file again, with --additional; {NO_WAY_BACK}"
    )
    output = run(file(tmp_path, u_0=[3]), "--lake", str(tmp_path / "1" / "lake")).output
    assert "1 stuck" in output and "Bring back what they wait for" not in output
    assert of(tmp_path / "2", end(story, "u", 0, [3]), u_0=[3]).state == "done"


def test_reassignment_back_while_the_replica_is_added_is_stuck_until_it_is_cancelled(tmp_path: Path) -> None:
    """R-RELEASE-4: "execute the file again" does not end it from release 4.3 on."""
    story = Story(31).broker(1, "a").broker(2, "c").broker(3, "d").topic("t", {1: "a", 2: "c"})
    back = {"replicas": (1, 2, 3), "directories": (disk("a"), disk("c"), disk("d"))}
    begin(story, "t", 0, [3, 2], "d").change("t", 0, adding_replicas=(3,), removing_replicas=(3,), **back)
    partition = of(tmp_path / "1", story, t_0=[1, 2])
    assert (partition.state, partition.reason) == ("stuck", NEVER_ENDS)
    output = run(file(tmp_path, t_0=[1, 2]), "--lake", str(tmp_path / "1" / "lake")).output
    assert "--cancel" in output and "Bring back what they wait for" not in output
    assert of(tmp_path / "2", end(story, "t", 0, [1, 2]), t_0=[1, 2]).state == "done"


def test_reassignment_of_which_only_added_replicas_are_in_sync_is_not_to_be_cancelled(tmp_path: Path) -> None:
    """R-REASSIGN-3: the commands that undo a plan cancel it, and an old replica would be elected without its writes."""
    story = begin(cluster(), "t", 0, [3, 4], "de").change("t", 0, isr=(1, 3))
    assert NO_WAY_BACK not in of(tmp_path / "1", story, t_0=[3, 4]).reason
    story.fence(1).fence(2).change("t", 0, isr=(3,), leader=3)
    assert of(tmp_path / "2", story, t_0=[3, 4]).reason == f"broker 4 is not in sync yet; {NO_WAY_BACK}"
    checked = check_plan(story.fence(1, up=True).lake(tmp_path / "3"), file(tmp_path, t_0=[1]))
    assert NO_WAY_BACK in checked.partitions[0].why["replaces a reassignment"]


def test_reassignment_of_which_no_replica_is_in_sync_is_not_to_be_cancelled(tmp_path: Path) -> None:
    """R-REASSIGN-3: the first of the old replicas would count as in sync, and broker 1 has the writes it lacks."""
    story = begin(cluster(), "t", 0, [3, 2], "d").fence(2).fence(1).fence(3)
    down = {"isr": (), "eligible_leader_replicas": (1,), "leader": -1}
    story.append(r.PartitionChangeRecord(topic_id=topic_id("t"), partition_id=0, **down), 2)  # type: ignore[arg-type]
    assert NO_WAY_BACK in of(tmp_path / "1", story, t_0=[3, 2]).reason


def test_cancelled_reassignment_is_told_from_a_replaced_one(tmp_path: Path) -> None:
    """R-REASSIGN-3, R-REASSIGN-7."""
    story = begin(cluster(), "t", 0, [3, 2], "d")
    cancelled = of(tmp_path / "1", end(story, "t", 0, [2, 1]), t_0=[3, 2])
    assert (cancelled.state, cancelled.reason) == ("cancelled", "it was cancelled, back to brokers 2, 1")
    replaced = begin(begin(cluster(), "t", 0, [3, 2], "d"), "t", 0, [4, 2], "e")
    partition = of(tmp_path / "2", replaced, t_0=[3, 2])
    assert (partition.state, partition.reason) == ("replaced", "another reassignment took its place, to brokers 4, 2")
    assert of(tmp_path / "3", replaced, t_0=[4, 2]).state == "under way"
    back = begin(begin(cluster(), "t", 0, [3, 2], "d"), "t", 0, [1, 2], "")
    assert of(tmp_path / "4", back, t_0=[3, 2]).state == "replaced"
    at_once = end(begin(cluster(), "t", 0, [3, 2], "d"), "t", 0, [2])
    assert of(tmp_path / "5", at_once, t_0=[3, 2]).state == "replaced"


def test_reassignment_after_it_was_done_replaces_it(tmp_path: Path) -> None:
    story = end(begin(cluster(), "t", 0, [3, 2], "d"), "t", 0, [3, 2])
    partition = of(tmp_path, begin(story, "t", 0, [1, 2], "a"), t_0=[3, 2])
    assert (partition.state, partition.reason) == ("replaced", "it was done, and is reassigned since, to brokers 1, 2")


def test_reassignment_after_a_removal_or_another_order_was_done_replaces_it(tmp_path: Path) -> None:
    """Both are done with one record. Such a file was not begun, and --follow never ended."""
    removed = begin(end(cluster(), "t", 0, [2]), "t", 0, [2, 3], "d")
    partition = of(tmp_path / "1", removed, t_0=[2])
    assert (partition.state, partition.reason) == ("replaced", "it was done, and is reassigned since, to brokers 2, 3")
    ordered = end(end(cluster(), "t", 0, [2, 1]), "t", 0, [1, 2])
    assert of(tmp_path / "2", ordered, t_0=[2, 1]).state == "replaced"


def test_file_that_undoes_one_is_not_begun_until_it_runs(tmp_path: Path) -> None:
    """What it wants is what was before."""
    story = end(begin(cluster(), "t", 0, [3, 2], "d"), "t", 0, [3, 2])
    assert of(tmp_path / "1", story, t_0=[1, 2]).state == "not begun"
    partition = of(tmp_path / "2", begin(cluster(), "t", 0, [3, 2], "d"), t_0=[1, 2])
    assert (partition.state, partition.reason) == ("not begun", "another reassignment is under way, to brokers 3, 2")
    assert of(tmp_path / "3", begin(story, "t", 0, [1, 2], "a"), t_0=[1, 2]).state == "under way"


def test_topic_that_is_gone_or_made_anew(tmp_path: Path) -> None:
    story = begin(cluster(), "t", 0, [3, 2], "d").remove("t")
    assert of(tmp_path / "1", story, t_0=[3, 2]).state == "gone"
    assert of(tmp_path / "2", story.topic("t", {1: "a", 2: "c"}), t_0=[3, 2]).state == "not begun"


def test_move_between_disks_is_done_when_the_log_has_it_where_the_file_wants_it(tmp_path: Path) -> None:
    paths, wanted = {"/data/a": "a", "/data/b": "b"}, ([1, 2], ["/data/b", "any"])
    partition = of(tmp_path / "1", cluster(), paths, t_0=wanted)
    assert (partition.state, partition.waits_for, partition.reason) == (
        "under way",
        [1],
        "not in /data/b of broker 1 yet",
    )
    story = cluster().assign("t", 0, 1, "b")
    partition = of(tmp_path / "2", story, paths, t_0=wanted)
    assert (partition.state, partition.since_offset) == ("done", len(story.entries) - 1)
    assert of(tmp_path / "3", cluster(), paths, t_0=([1, 2], ["/x", "any"])).state == "unknown path"


def test_move_to_a_disk_that_failed_or_is_cordoned_is_stuck(tmp_path: Path) -> None:
    paths, wanted = {"/data/a": "a", "/data/b": "b"}, ([1, 2], ["/data/b", "any"])
    assert of(tmp_path / "1", cluster().left(1, "a"), paths, t_0=wanted).reason == "/data/b of broker 1 is not online"
    story = Story(30).broker(1, "ab", cordoned="b").broker(2, "c").topic("t", {1: "a", 2: "c"})
    assert of(tmp_path / "2", story, paths, t_0=wanted).reason == "/data/b of broker 1 is cordoned"
    assert of(tmp_path / "3", cluster().fence(1), paths, t_0=wanted).reason == "broker 1 is fenced"


def test_partition_has_all_reasons_that_matter_the_worst_first(tmp_path: Path) -> None:
    """It had those of one state only, and of a move between disks the first one that was found."""
    paths, to_b = {"/data/a": "a", "/data/b": "b", "/data/d": "d"}, "/data/b of broker 1 is"
    story = Story(31).broker(1, "ab", cordoned="b").broker(2, "c").broker(3, "d").topic("t", {1: "a", 2: "c"})
    partition = of(tmp_path / "1", story, paths, t_0=([3, 2, 1], ["any", "/x", "/data/b"]))
    reasons = [f"{to_b} cordoned", "/x of broker 2 is a path that jbod does not know", "the reassignment is not begun"]
    assert (partition.state, partition.waits_for, partition.reason) == ("stuck", [1, 2], "; ".join(reasons))
    fenced = of(tmp_path / "2", story.fence(1), paths, t_0=([1, 2], ["/data/b", "any"]))
    assert (fenced.state, fenced.reason) == ("stuck", f"broker 1 is fenced; {to_b} cordoned")
    back = {"replicas": (1, 2, 3), "directories": (disk("a"), disk("c"), disk("d"))}
    begin(story, "t", 0, [3, 2], "d").change("t", 0, adding_replicas=(3,), removing_replicas=(3,), leader=-1, **back)
    never = of(tmp_path / "3", story, t_0=[1, 2])
    assert never.reason == f"{NEVER_ENDS}; no replica leads: there is nothing to copy from"
    output = run(file(tmp_path, t_0=[1, 2]), "--lake", str(tmp_path / "3" / "lake")).output
    assert "--cancel" in output and "Bring back what they wait for" not in output


@pytest.mark.parametrize("labelled", ["a", "az"])
def test_move_to_a_disk_that_was_replaced_is_done_on_the_new_one(tmp_path: Path, labelled: str) -> None:
    """The path was taken for that of the dead disk: the move was stuck."""
    story = sized_since(replaced("z").assign("t", 0, 1, "z"), "z")
    assert of(tmp_path, story, {"/data/a": labelled}, t_0=([1, 2], ["/data/a", "any"])).state == "done"


def test_disk_that_the_plan_empties_is_told_with_the_answer_of_safe_to_remove(tmp_path: Path) -> None:
    paths, wanted = {"/data/a": "a", "/data/b": "b"}, ([1, 2], ["/data/b", "any"])
    story = Story().broker(1, "ab").broker(2, "c").broker(3, "d").topic("t", {1: "a", 2: "c"}, {1: "a", 2: "c"})
    (left,) = answer_of(tmp_path / "1", story, paths, t_0=wanted, t_1=[3, 2]).disks
    assert (left.directory_id, left.replicas, left.removal) == (A, 2, None)
    story = end(begin(story.assign("t", 0, 1, "b"), "t", 1, [3, 2], "d"), "t", 1, [3, 2])
    (empty,) = answer_of(tmp_path / "2", story, paths, t_0=wanted, t_1=[3, 2]).disks
    assert (empty.directory_id, empty.replicas, empty.removal is not None and empty.removal.safe) == (A, 0, True)
    assert empty.since_time == datetime.fromtimestamp(story.time, UTC)
    assert not answer_of(tmp_path / "3", story.topic("v", {1: "a"}), paths, t_0=wanted, t_1=[3, 2]).disks


def test_disk_that_was_empty_before_the_plan_is_not_told(tmp_path: Path) -> None:
    """t-0 was on broker 4 once."""
    story = end(begin(cluster(), "t", 0, [4, 2], "e"), "t", 0, [4, 2])
    story = end(begin(story, "t", 0, [1, 2], "a"), "t", 0, [1, 2])
    story = end(begin(story, "t", 0, [3, 2], "d"), "t", 0, [3, 2])
    assert [directory.directory_id for directory in answer_of(tmp_path, story, t_0=[3, 2]).disks] == [A]


# TIME

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_time_left_is_that_of_the_rest_at_the_pace_since_it_began() -> None:
    began = NOW - timedelta(minutes=30)
    done = [Work("done", time=began + timedelta(minutes=10 * at), begun=began) for at in (1, 2, 3)]
    assert time_left([*done, Work("under way", begun=began), Work("not begun")], NOW) == timedelta(minutes=20)
    assert time_left(done, NOW) is None
    assert time_left([Work("under way", begun=began)], NOW) is None


def test_file_that_nobody_executes_has_no_time_left_although_a_partition_was_moved_before(tmp_path: Path) -> None:
    story = Story().broker(1, "a").broker(2, "c").broker(3, "d").topic("t", {1: "a", 2: "c"}, {1: "a", 2: "c"})
    story = end(begin(story, "t", 0, [3, 2], "d").wait(60), "t", 0, [3, 2]).wait(60)
    answer = answer_of(tmp_path, story, t_0=[3, 2], t_1=[3, 2])
    assert [(partition.partition, partition.state) for partition in answer.partitions] == [
        (1, "not begun"),
        (0, "done"),
    ]
    assert answer.left is None


def test_time_left_of_moves_between_disks_counts_the_last_execution_only() -> None:
    ends = [NOW - timedelta(days=3), *(NOW - timedelta(minutes=minutes) for minutes in (40, 30, 20))]
    done = [Work("done", time=end) for end in ends]
    assert time_left([*done, Work("under way")], NOW) == timedelta(minutes=20)
    was_there = Work("done", time=NOW - timedelta(minutes=1), copied=False)
    assert time_left([*done, was_there, Work("under way")], NOW) == timedelta(minutes=20)


def test_time_left_leaves_out_what_was_done_before_the_rest_began() -> None:
    began = NOW - timedelta(minutes=10)
    done = [Work("done", time=began + timedelta(minutes=minutes), begun=began) for minutes in (-600, -500, 5)]
    assert time_left([*done, Work("under way", begun=began)], NOW) == timedelta(minutes=10)


def test_time_left_counts_bytes_if_all_are_known_also_those_that_are_copied_in_part() -> None:
    began = NOW - timedelta(minutes=10)
    done = Work("done", time=began + timedelta(minutes=5), begun=began, bytes=100)
    rest = [Work("under way", begun=began, bytes=900, left=600), Work("not begun", bytes=400, left=400)]
    assert time_left([done, *rest], NOW) == timedelta(minutes=25)
    assert time_left(rest, NOW) == timedelta(minutes=10) / 300 * 1_000
    assert time_left([done, *rest, Work("not begun")], NOW) == timedelta(minutes=30)


def test_sizes_of_a_source_weigh_the_time_left_and_name_the_paths(tmp_path: Path) -> None:
    """Of two partitions the small one is copied, and a tenth of the large one."""
    story = Story().broker(1, "ab").broker(2, "c").broker(3, "de").topic("t", {1: "a", 2: "c"}, {1: "a", 2: "c"})
    begin(begin(story, "t", 0, [3, 2], "d"), "t", 1, [3, 2], "d").wait(60)
    end(story, "t", 0, [3, 2]).wait(60)
    held = {1: {"/a": {"t-1": 1_000}}, 2: {"/c": {"t-0": 100, "t-1": 1_000}}, 3: {"/d": {"t-0": 100, "t-1": 100}}}
    source = tmp_path / "sizes.txt"
    source.write_text(json.dumps({"brokers": [_broker_log_dirs(broker, paths) for broker, paths in held.items()]}))
    lake = story.lake(tmp_path / "lake")
    files = [file(tmp_path, t_0=([3, 2], ["/d", "any"]), t_1=([3, 2], ["/d", "any"]))]
    assert {partition.state for partition in watch_plan(lake, files).partitions} == {"unknown path"}
    answer = watch_plan(lake, files, sources=[str(source)])
    assert [(partition.state, partition.partition) for partition in answer.partitions] == [
        ("under way", 1),
        ("done", 0),
    ]
    begun = next(partition.since_time for partition in answer.partitions if partition.partition == 1)
    assert begun is not None
    assert answer.left == (lake.time - begun) / 200 * 900


def test_replica_that_joined_a_broker_of_one_disk_is_in_it(tmp_path: Path) -> None:
    """R-LOCAL-4: without a source of sizes it was under way for ever."""
    story = Story().broker(1, "a").broker(2, "c").broker(3, "d").topic("t", {1: "a", 2: "c"})
    story.replicas["t", 0] |= {3: "unassigned"}
    end(story.change("t", 0, replicas=(3, 2, 1), directories=(*map(disk, ("unassigned", "c", "a")),)), "t", 0, [3, 2])
    assert of(tmp_path, story, {"/d": "d"}, t_0=([3, 2], ["/d", "any"])).state == "done"


def test_replica_that_joined_and_is_never_reported_is_done_where_a_source_has_it_in_its_path(tmp_path: Path) -> None:
    """R-LOCAL-4: after a plan that raises the replicas it was under way for ever."""
    story = Story().broker(1, "ab").broker(2, "cd").broker(3, "ef").topic("t", {1: "a", 2: "c"}).topic("u", {3: "f"})
    placed = tuple(map(disk, ("a", "c", "unassigned")))
    story.change("t", 0, replicas=(1, 2, 3), adding_replicas=(3,), directories=placed)
    lake = story.change("t", 0, isr=(1, 2, 3), adding_replicas=()).lake(tmp_path / "lake")
    named(lake, {"/e": "e", "/f": "f"})
    files = [file(tmp_path, t_0=([1, 2, 3], ["any", "any", "/e"]))]
    (partition,) = watch_plan(lake, files).partitions
    assert (partition.state, partition.reason) == (
        "under way",
        "the log does not say whether it is in /e of broker 3: --sizes does",
    )
    for path, state in (("/e", "done"), ("/f", "under way")):
        held = {3: {"/e": {}, "/f": {"u-0": 10}}}
        held[3][path]["t-0"] = 10
        source = tmp_path / "sizes.txt"
        source.write_text(json.dumps({"brokers": [_broker_log_dirs(broker, paths) for broker, paths in held.items()]}))
        (partition,) = watch_plan(lake, files, sources=[str(source)]).partitions
        assert partition.state == state


def _broker_log_dirs(broker: int, paths: dict[str, dict[str, int]]) -> dict[str, Any]:
    log_dirs = [
        {"logDir": path, "error": None, "partitions": [{"partition": name, "size": size} for name, size in of.items()]}
        for path, of in paths.items()
    ]
    return {"broker": broker, "logDirs": log_dirs}


def test_copy_that_was_done_and_is_on_a_disk_that_failed_since_is_told(tmp_path: Path) -> None:
    story = Story().broker(1, "a").broker(2, "c").broker(3, "de").topic("t", {1: "a", 2: "c"})
    end(begin(story, "t", 0, [3, 2], "d"), "t", 0, [3, 2])
    assert answer_of(tmp_path / "1", story, t_0=[3, 2]).done
    answer = answer_of(tmp_path / "2", story.left(3, "e"), t_0=[3, 2])
    assert ([partition.state for partition in answer.partitions], answer.done, answer.pending) == (
        ["done"],
        False,
        False,
    )
    assert answer.offline == {(3, str(disk("d"))): ["t-0"]}
    invocation = run(file(tmp_path, t_0=[3, 2]), "--lake", str(tmp_path / "2" / "lake"))
    assert invocation.exit_code == 1
    assert "is offline, with replicas of 1 partition of the plan: t-0" in invocation.output.replace("\n", " ")
    assert "jbod plan repair" in invocation.output


def test_plan_on_whose_way_writes_were_lost_is_not_all_done(tmp_path: Path) -> None:
    """An empty replica was elected while it copied, or recreated where a move was to end: it was "All done"."""
    story = begin(cluster(), "t", 0, [3], "d").change("t", 0, isr=(1,)).fence(1).change("t", 0, leader=-1)
    end(story.change("t", 0, isr=(3,), leader=3, leader_recovery_state=1), "t", 0, [3])
    answer = answer_of(tmp_path / "1", story, t_0=[3])
    assert ([partition.state for partition in answer.partitions], answer.done, answer.lost) == (
        ["done"],
        False,
        ("t-0",),
    )
    invocation = run(file(tmp_path, t_0=[3]), "--lake", str(tmp_path / "1" / "lake"))
    assert invocation.exit_code == 1
    assert "acknowledged writes of 1 partition are lost, or may be: t-0" in invocation.output.replace("\n", " ")
    lake = story.lake(tmp_path / "2")
    assert watch_plan(lake, [file(tmp_path, t_0=[3])], accepted_until=lake.offset).done
    story = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).broker(1, "b", process=2)
    moved = answer_of(tmp_path / "3", story.assign("t", 0, 1, "b"), {"/data/b": "b"}, t_0=([1], ["/data/b"]))
    assert ([partition.state for partition in moved.partitions], moved.done, moved.lost) == (["done"], False, ("t-0",))


def test_replica_that_was_always_in_its_directory_says_nothing_of_the_pace(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").topic("t", {1: "b"}, {1: "b"}, {1: "a"}).wait(60)
    wanted = ([1], ["/data/b"])
    answer = answer_of(tmp_path, story, {"/data/a": "a", "/data/b": "b"}, t_0=wanted, t_1=wanted, t_2=wanted)
    assert (answer.left, [each.state for each in answer.partitions]) == (None, ["under way", "done", "done"])


# AGAINST A PLAY


def test_state_is_that_of_a_random_execution(tmp_path: Path) -> None:
    """Partitions that are begun, ended, cancelled and replaced at random have the state of the last that happened."""
    for seed in range(8):
        random = Random(seed)
        story = Story().broker(1, "a").broker(2, "b").broker(3, "c").broker(4, "d")
        story.topic("t", *({1: "a", 2: "b"} for _ in range(6)))
        target, expected = [3, 2], dict.fromkeys(range(6), "not begun")
        for _ in range(random.randint(0, 25)):
            number = random.randrange(6)
            if expected[number] == "not begun":
                begin(story, "t", number, target, "c")
                expected[number] = "under way"
            elif expected[number] == "under way":
                what = random.choice(("done", "cancelled", "replaced"))
                if what == "replaced":
                    begin(story, "t", number, [4, 2], "d")
                else:
                    end(story, "t", number, target if what == "done" else [2, 1])
                expected[number] = what
        answer = answer_of(tmp_path / str(seed), story, None, **{f"t_{number}": target for number in range(6)})
        assert {partition.partition: partition.state for partition in answer.partitions} == expected, f"seed {seed}"


# THE COMMAND


def run(*words: str) -> Any:
    return CliRunner().invoke(application(["plan"]), ["plan", "watch", *words])


def test_command_has_the_exit_code_and_says_what_to_do(tmp_path: Path) -> None:
    begin(cluster(), "t", 0, [3, 2], "d").fence(3).lake(tmp_path / "lake")
    line = [file(tmp_path, t_0=[3, 2], u_0=[1]), "--lake", str(tmp_path / "lake")]
    invocation = run(*line)
    assert invocation.exit_code == 1, invocation.output
    assert invocation.output.startswith("1 of 2 partitions done, 1 stuck, at offset")
    assert "broker 3 is fenced" in invocation.output
    assert "Bring back what they wait for" in invocation.output
    answer = json.loads(run(*line, "--json").stdout)
    assert (answer["done"], answer["states"]) == (False, {"stuck": 1, "done": 1})
    assert run(file(tmp_path, u_0=[1]), *line[1:]).exit_code == 0
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(UsageError, match="kafka-reassign-partitions"):
        raise run(str(tmp_path / "no.json"), *line[1:]).exception


def test_file_that_kafka_would_refuse_is_checked_before_it_is_executed(tmp_path: Path) -> None:
    """It said to execute a file with a broker that is not registered."""
    cluster().lake(tmp_path / "lake")
    output = run(file(tmp_path, t_0=[3, 9]), "--lake", str(tmp_path / "lake")).output
    assert "1 partition not begun: t-0\n  broker 9 is not registered\n" in output
    assert "Nothing executed them yet: jbod plan check, then execute it.\n" in output


def test_move_between_disks_that_may_not_have_begun_has_the_command_that_says_so(tmp_path: Path) -> None:
    """It was "under way" for ever after an execution that was cut off, and there was nothing to do."""
    named(cluster().lake(tmp_path / "lake"), {"/data/a": "a", "/data/b": "b"})
    line = [file(tmp_path, t_0=([1, 2], ["/data/b", "any"])), "--lake", str(tmp_path / "lake")]
    assert "--verify says that a partition is not being moved" in " ".join(run(*line).output.split())
    begin(cluster(), "t", 0, [3, 2], "d").lake(tmp_path / "copying")
    assert "What to do" not in run(file(tmp_path, t_0=[3, 2]), "--lake", str(tmp_path / "copying")).output


def test_path_that_is_not_known_and_that_several_partitions_go_to_is_named_once(tmp_path: Path) -> None:
    cluster().lake(tmp_path / "lake")
    plan = file(tmp_path, t_0=([1, 2], ["/data/x", "/data/y"]), u_0=([1], ["/data/x"]))
    lines = run(plan, "--lake", str(tmp_path / "lake")).output.splitlines()
    assert lines[2] == "  /data/x of broker 1; /data/y of broker 2"


def test_last_of_several_files_counts(tmp_path: Path) -> None:
    cluster().lake(tmp_path / "lake")
    files = [file(tmp_path / "1", t_0=[3, 2]), file(tmp_path / "2", t_0=[1, 2])]
    assert run(*files, "--lake", str(tmp_path / "lake")).exit_code == 0


def test_follow_tells_each_change_and_ends_when_all_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = begin(cluster(), "t", 0, [3, 2], "d")
    story.lake(tmp_path / "lake")

    def sleep(_: float) -> None:
        end(story, "t", 0, [3, 2]).lake(tmp_path / "lake")

    monkeypatch.setattr(time, "sleep", sleep)
    line = [file(tmp_path, t_0=[3, 2]), "--lake", str(tmp_path / "lake"), "--follow"]
    invocation = run(*line)
    assert invocation.exit_code == 0, invocation.output
    messages = invocation.stderr.splitlines()
    assert messages[:2] == ["under way: t-0 (broker 3 is not in sync yet)", "0 of 1 partition done, 1 under way"]
    assert messages[2:4] == ["done: t-0", "All done: 1 partition"]
    assert "is empty since" in messages[4]
    assert "may be pulled" in messages[4]
    with pytest.raises(UsageError, match="leave out --at-offset"):
        raise run(*line, "--at-offset", "5").exception


def test_follow_ends_when_nothing_is_left_to_wait_for(tmp_path: Path) -> None:
    end(begin(cluster(), "t", 0, [3, 2], "d"), "t", 0, [2, 1]).lake(tmp_path / "lake")
    invocation = run(file(tmp_path, t_0=[3, 2]), "--lake", str(tmp_path / "lake"), "--follow")
    assert (invocation.exit_code, invocation.stderr.splitlines()[0][:14]) == (1, "cancelled: t-0")
