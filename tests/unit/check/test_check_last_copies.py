"""Checks of brokers with last copies: no advice of another finding costs one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.check.catalogue import run_checks
from tests.unit.check.story import Story, disk

FAILED = 6
"""The error code of NOT_LEADER_OR_FOLLOWER."""


def fenced() -> Story:
    """Broker 1 lost disk b, then stopped. Disk a has the only copy of t-0."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a"}).topic("u", {1: "b", 2: "c"})
    return story.left(1, "a").change("u", 0, isr=(2,), leader=2).change("t", 0, leader=-1).fence(1)


def unplaced(kind: str) -> Story:
    """Broker 1 runs, and lost disk a. No record says which of its disks has the only copy of t-0."""
    story = Story().broker(1, "abe").broker(2, "cd").topic("t", {1: kind}).topic("u", {1: "a", 2: "c"})
    for _ in range(6):
        story.request("gone", 0, 1, "b", error=FAILED)
    return story.left(1, "be").change("u", 0, isr=(2,), leader=2).wait(600)


def advice(story: Story, path: Path, check: str) -> str:
    (finding, *_) = run_checks(story.lake(path), [check])
    return finding.advice


def test_broker_that_is_down_with_one_disk_left_keeps_the_last_copy_on_it(tmp_path: Path) -> None:
    """It said to replace the disks: only those of a disk that the broker lacks were kept."""
    text = advice(fenced(), tmp_path, "B-16")
    assert (
        "start it with every disk that it registered last and the same log.dirs, and replace or format none of these"
        in text
    )
    assert "then replace" not in text


def test_broker_that_runs_with_one_disk_left_keeps_that_disk(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a"}).topic("u", {1: "b", 2: "c"})
    text = advice(story.left(1, "a").change("u", 0, isr=(2,), leader=2), tmp_path, "B-16")
    assert text == "move what broker 1 leads to others, then replace the disks that failed and restart it"


@pytest.mark.parametrize("check", ["B-20", "B-21"])
def test_disk_with_a_last_copy_and_logs_of_deleted_topics_does_not_start_blank(tmp_path: Path, check: str) -> None:
    story = fenced().remove("u").topic("u", {2: "c"})
    assert "blank" not in advice(story, tmp_path, check)


def test_cordoned_disk_is_removed_after_safe_to_remove_says_so(tmp_path: Path) -> None:
    """It said to remove the disk, though it had the only copy of t-0."""
    story = Story(30).broker(1, "ab").topic("t", {1: "a"}).broker(1, "ab", cordoned="a").wait(3600 * 24 * 40)
    assert advice(story, tmp_path, "B-25").startswith(f"jbod safe-to-remove 1:{disk('a')} says whether")


@pytest.mark.parametrize(("check", "kind"), [("B-01", "unassigned"), ("B-02", "unassigned"), ("B-07", "migrating")])
def test_restart_waits_until_the_disk_that_may_have_the_last_copy_is_read(
    tmp_path: Path, check: str, kind: str
) -> None:
    """It said to restart the broker: without the disk the replica is recreated empty."""
    text = advice(unplaced(kind), tmp_path, check)
    assert f"directory {disk('a')} of broker 1 may hold the only complete copy of t-0" in text
    assert text.index("read it before anything else") < text.rindex("restart")
