"""A reassignment changes the position of replicas that stay. What is true of them is true since before."""

from __future__ import annotations

from pathlib import Path

from pipelines.ask.assignment_requests import assignments
from pipelines.ask.moves import moves
from pipelines.ask.offline_replicas import offline
from pipelines.check.catalogue import run_checks
from tests.unit.check.story import Story, disk

REFUSED = 6


def reordered(story: Story, where: dict[int, str]) -> Story:
    """Broker 3 is added in front of the replicas ``where``."""
    story.replicas["t", 0] = placed = {3: "e", **where}
    directories = tuple(disk(directory) for directory in placed.values())
    return story.change("t", 0, replicas=tuple(placed), adding_replicas=(3,), directories=directories)


def cluster(where: str) -> Story:
    return Story().broker(1, "ab").broker(2, "cd").broker(3, "e").topic("t", {1: where, 2: "c"})


def test_replica_is_offline_since_its_broker_was_fenced(tmp_path: Path) -> None:
    """It was offline since the reassignment."""
    story = cluster("a").fence(1)
    (before,) = offline(story.lake(tmp_path / "1")).replicas
    story.wait(3_600)
    (after,) = offline(reordered(story, {1: "a", 2: "c"}).lake(tmp_path / "2")).replicas
    assert (after.from_offset, after.from_time) == (before.from_offset, before.from_time)
    assert (before.replica_index, after.replica_index) == (0, 1)


def test_replica_without_a_directory_keeps_its_requests(tmp_path: Path) -> None:
    """It had never asked: its requests were before the reassignment."""
    story = cluster("unassigned")
    for _ in range(3):
        story.request("t", 0, 1, "a", error=REFUSED)
    (before,) = assignments(story.wait(60).lake(tmp_path / "1")).unassigned
    (after,) = assignments(reordered(story, {1: "unassigned", 2: "c"}).lake(tmp_path / "2")).unassigned
    assert after == before and after.last_request is not None


def test_findings_are_of_the_beginning_and_know_its_requests(tmp_path: Path) -> None:
    """B-01 said that the broker never asked, and B-03 that the directory was gone since the reassignment."""
    story = cluster("unassigned")
    for _ in range(3):
        story.request("t", 0, 1, "a", error=REFUSED)
    (before,) = run_checks(story.wait(600).lake(tmp_path / "1"), ["B-01"])
    (after,) = run_checks(reordered(story, {1: "unassigned", 2: "c"}).lake(tmp_path / "2"), ["B-01"])
    assert (after.from_offset, after.finding) == (before.from_offset, before.finding)
    story = Story().broker(1, "ab").broker(2, "cd").broker(3, "e").topic("t", {1: "f", 2: "c"}).wait(600)
    (before,) = run_checks(story.lake(tmp_path / "3"), ["B-03"])
    (after,) = run_checks(reordered(story, {1: "f", 2: "c"}).lake(tmp_path / "4"), ["B-03"])
    assert (after.from_offset, after.from_time) == (before.from_offset, before.from_time)


def test_move_is_asked_for_since_the_first_request(tmp_path: Path) -> None:
    story = cluster("a")
    for _ in range(3):
        story.request("t", 0, 1, "b", error=REFUSED)
    requested = story.time - 2
    reordered(story.wait(60), {1: "a", 2: "c"}).wait(60)
    (move,) = moves(story.assign("t", 0, 1, "b").lake(tmp_path))
    assert (move.requests, move.refused) == (3, 3)
    assert move.first_requested_time is not None and int(move.first_requested_time.timestamp()) == requested
