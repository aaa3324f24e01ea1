"""What a broker's next start does if a directory does not come back as it was."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from jbod_model.formats.records import ConfigRecord
from pipelines.ask.json_values import jsonable
from pipelines.ask.next_start import NextStarts, next_starts
from pipelines.ask.restart import safe_to_restart
from pipelines.ask.restart_waits import LAST_COPY
from pipelines.cli.main import application
from pipelines.run.log_lake import LogLake
from pipelines.show.restart import show_next_starts
from pipelines.show.text import Screen
from pipelines.source.log_options import LogOptions
from tests.support.paths import metadata_dir
from tests.unit.check.story import Story, disk

A, B = str(disk("a")), str(disk("b"))


def failed() -> Story:
    """The disk a of broker 1 failed. It has the only replica of solo-0, and one of two of pair-0."""
    story = Story().broker(1, "ab").broker(2, "c").topic("solo", {1: "a"}).topic("pair", {2: "c", 1: "a"})
    story = story.topic("elsewhere", {1: "b"})
    return story.left(1, "b").change("solo", 0, leader=-1).change("pair", 0, isr=(2,))


def shown(answer: NextStarts) -> str:
    out = io.StringIO()
    show_next_starts(Screen(file=out, width=200), answer)
    return out.getvalue()


def test_blank_disk_and_one_out_of_log_dirs_give_up_the_last_copy_and_the_others_do_not(tmp_path: Path) -> None:
    """R-ACT-2, R-ACT-3."""
    answer = next_starts(failed().lake(tmp_path), 1)
    assert answer.away == [A]
    back, blank, gone, broken = answer.starts
    for start in (blank, gone):
        assert (start.recreated, start.leads, start.leads_empty) == (["pair-0", "solo-0"], ["solo-0"], ["solo-0"])
        assert start.perhaps_leads == start.without_leader == ["solo-0"]  # if it reports after it is unfenced
        assert [(partition.name, partition.kind, partition.leader) for partition in start.gives_up] == [
            ("solo-0", "lost", 1)
        ]
    assert (back.recreated, back.leads, back.gives_up) == ([], ["solo-0"], [])
    assert (broken.recreated, broken.leads, broken.gives_up, broken.without_leader) == ([], [], [], ["solo-0"])
    assert (back.back, blank.blank, gone.gone, broken.broken) == ([A], [A], [A], [A])


def test_steps_before_the_start_save_the_last_copy_and_name_the_cost(tmp_path: Path) -> None:
    steps = next_starts(failed().lake(tmp_path), 1).steps
    assert [step.action for step in steps] == ["read the disk", "bring back", "replace"]
    assert steps[-1].forbidden and steps[-1].cost == ("solo-0",)


def test_directory_without_a_last_copy_needs_no_steps(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").broker(2, "c").topic("pair", {2: "c", 1: "a"})
    answer = next_starts(story.left(1, "b").change("pair", 0, isr=(2,)).lake(tmp_path), 1)
    assert [start.recreated for start in answer.starts] == [[], ["pair-0"], ["pair-0"], []]
    assert (answer.steps, answer.gives_up) == ([], [])


def test_directory_in_use_is_asked_about_by_name(tmp_path: Path) -> None:
    """Another replica is offline and complete, another is online and not in sync, or there is none."""
    story = Story().broker(1, "ab").broker(2, "c").broker(3, "d")
    story = story.topic("solo", {1: "a"}).topic("slow", {1: "a", 2: "c"}, isr=(1,)).topic("safe", {1: "a", 2: "c"})
    lake = story.change("slow", 0, isr=(1,)).lake(tmp_path)
    assert next_starts(lake, 1).starts == ()
    answer = next_starts(lake, 1, blank=[A])
    (start,) = answer.starts
    assert start.recreated == ["safe-0", "slow-0", "solo-0"]
    assert answer.gives_up == ["slow-0", "solo-0"]
    wait, add, keep = answer.steps
    assert (wait.broker_id, wait.partitions, add.partitions) == (2, ("slow-0",), ("solo-0",))
    assert keep.forbidden and keep.cost == ("slow-0", "solo-0") and "until then do not replace or format" in keep.text
    assert next_starts(lake, 1, gone=[B]).starts[0].recreated == []


def test_start_elects_uncleanly_for_a_partition_of_other_brokers(tmp_path: Path) -> None:
    """R-RESTART-3. Broker 2 has the last copy, and is down; broker 3 lacks writes, and waits for an election."""
    story = Story().broker(1, "a").broker(2, "b").broker(3, "c").topic("other", {2: "b", 3: "c"}, isr=(2,))
    story.change("other", 0, isr=(2,)).fence(2).change("other", 0, leader=-1)
    assert next_starts(story.lake(tmp_path), 1, blank=[A]).gives_up == []
    story.append(
        ConfigRecord(resource_type=2, resource_name="other", name="unclean.leader.election.enable", value="true"), 0
    )
    answer = next_starts(story.lake(tmp_path / "unclean"), 1, blank=[A])
    assert [(partition.name, partition.leader) for partition in answer.starts[0].gives_up] == [("other-0", 3)]
    forbid, holder = answer.steps
    assert (forbid.action, forbid.partitions) == ("forbid unclean elections", ("other-0",))
    assert (holder.action, holder.broker_id) == ("start", 2)


def test_broker_without_a_directory_that_works_does_not_start(tmp_path: Path) -> None:
    story = Story().broker(1, "a").broker(2, "c").topic("solo", {1: "a"})
    (gone,) = next_starts(story.lake(tmp_path), 1, gone=[A]).starts
    assert gone.refused and not gone.gives_up
    (blank,) = next_starts(story.lake(tmp_path / "again"), 1, blank=[A]).starts
    assert not blank.refused and [partition.name for partition in blank.gives_up] == ["solo-0"]


def test_directory_that_is_on_another_broker_is_refused_when_it_comes_back(tmp_path: Path) -> None:
    """R-REG-7."""
    story = failed().broker(2, "ac")
    back, *_ = next_starts(story.lake(tmp_path), 1).starts
    assert "is registered by broker 2" in back.refused


def moved() -> Story:
    """The disk a of broker 1, which has its replica of solo-0, is in broker 2 now."""
    story = Story().broker(1, "ab").broker(2, "c").topic("solo", {1: "a"}).left(1, "b").change("solo", 0, leader=-1)
    return story.broker(1, "b", process=2).broker(2, "ac", process=2)


def test_blank_disk_in_the_place_of_one_that_was_moved_from_another_broker_gives_up_its_last_copy(
    tmp_path: Path,
) -> None:
    """It said that no replica is recreated, and named nothing."""
    answer = next_starts(moved().lake(tmp_path / "1"), 2, blank=[A])
    assert answer.gives_up == ["solo-0"]
    assert [step.text for step in answer.steps] == [
        "bring the disk back to broker 1, or save solo-0 from it (a folder may end in -stray)"
    ]
    assert not next_starts(moved().lake(tmp_path / "2"), 2, gone=[A]).gives_up, "it is left as it is"
    recreated = moved().assign("solo", 0, 1, "b")
    assert next_starts(recreated.lake(tmp_path / "3"), 2, blank=[A]).gives_up == ["solo-0"], "nobody leads yet"
    led = recreated.change("solo", 0, leader=1)
    assert not next_starts(led.lake(tmp_path / "4"), 2, blank=[A]).gives_up


def test_broker_that_is_not_registered_has_all_its_directories_away(tmp_path: Path) -> None:
    """R-COPY-9."""
    story = Story().broker(1, "ab").broker(2, "c").topic("solo", {1: "a"})
    answer = next_starts(story.fence(1).change("solo", 0, leader=-1).unregister(1).lake(tmp_path), 1)
    assert (answer.broker, answer.away) == ("missing", [A, B])
    back, blank, gone, _ = answer.starts
    assert (back.leads, [partition.name for partition in back.gives_up]) == (["solo-0"], [])
    assert [partition.name for partition in blank.gives_up] == ["solo-0"]
    assert gone.refused


def test_copy_that_no_record_has_placed_is_recreated_perhaps(tmp_path: Path) -> None:
    """R-ACT-2: it may be in the directory that failed."""
    story = Story().broker(1, "ab").broker(2, "c").topic("solo", {1: "unassigned"}, {1: "a"}).left(1, "b")
    answer = next_starts(story.change("solo", 1, leader=-1).lake(tmp_path), 1)
    _, blank, _, broken = answer.starts
    assert (blank.perhaps_recreated, broken.perhaps_recreated) == (["solo-0"], ["solo-0"])
    assert [partition.name for partition in broken.gives_up] == ["solo-0"]
    text = shown(answer)
    assert "2 replicas are recreated empty, 1 of them perhaps" in text
    assert "1 replica may be recreated empty" in text  # where all are undecided: "1 of them perhaps" followed "is"


def test_older_folder_that_comes_back_is_used_and_the_newer_one_leaves(tmp_path: Path) -> None:
    """R-ACT-7: solo-0 was recreated on another disk, and nobody leads it."""
    story = failed().broker(1, "bd", process=2).assign("solo", 0, 1, "d")
    answer = next_starts(story.lake(tmp_path), 1)
    assert answer.away == [A]
    back, blank, *_ = answer.starts
    assert (back.two_folders, back.recreated, back.leads) == (["solo-0"], [], ["solo-0"])
    assert back.perhaps_gives_up == ["solo-0"]  # if it reports the older one after it leads: no record tells before
    assert ([partition.name for partition in blank.gives_up], blank.perhaps_gives_up) == (["solo-0"], [])


def test_unknown_broker_and_directory_are_bad_usage(tmp_path: Path) -> None:
    lake = failed().lake(tmp_path)
    with pytest.raises(UsageError, match="broker 9 is not registered"):
        next_starts(lake, 9)
    with pytest.raises(UsageError, match="no such directory"):
        next_starts(lake, 1, blank=["nowhere"])
    with pytest.raises(UsageError, match=f"^{A}: --blank and --gone: give one of them"):
        next_starts(lake, 1, blank=[A], gone=[A])  # was gone: the last one counted


def test_text_says_the_case_the_cost_and_the_steps(tmp_path: Path) -> None:
    text = shown(next_starts(failed().lake(tmp_path), 1))
    assert f"if a blank disk takes the place of {A}: the last complete copy of 1 partition is given up" in text
    assert f"if {A} stays in log.dirs and cannot be read: no replica is recreated" in text
    assert text.index("Before the start") > text.index("solo-0")


def test_text_about_several_directories_agrees_with_them(tmp_path: Path) -> None:
    """It said "if A and B comes back with its id"."""
    story = Story().broker(1, "abc").topic("solo", {1: "a"}).left(1, "bc").left(1, "c")
    text = shown(next_starts(story.lake(tmp_path), 1))
    both = f"{A} and {disk('b')}" if str(disk("b")) > A else f"{disk('b')} and {A}"
    assert f"if {both} come back with their ids:" in text
    assert f"if {both} are taken out of log.dirs:" in text


def test_blank_disk_in_place_of_one_that_may_hold_lost_data_names_the_partitions(tmp_path: Path) -> None:
    """Nobody uses the disk, so the start gives up nothing. The text read as if it could be wiped."""
    story = Story().broker(2, "ab").broker(3, "c").topic("t", {2: "b"}).change("t", 0, leader=-1).left(2, "a")
    story = story.fence(2).broker(2, "a", process=2, fenced=True).assign("t", 0, 2, "a").fence(2, up=True)
    answer = next_starts(story.change("t", 0, leader=2).lake(tmp_path), 2, blank=[str(disk("b"))])
    (blank,) = answer.starts
    assert (blank.needed, blank.gives_up, blank.recreated) == (["t-0"], [], [])
    text = shown(answer)
    assert f"1 partition may need what is on {disk('b')}: save them first" in text
    assert "    t-0" in text


def test_of_several_blank_disks_the_one_that_is_needed_is_named(tmp_path: Path) -> None:
    """The texts said "the disk", and the operator had named two."""
    story = Story().broker(2, "abd").broker(3, "c").topic("t", {2: "b"}).change("t", 0, leader=-1).left(2, "ad")
    story = story.fence(2).broker(2, "ad", process=2, fenced=True).assign("t", 0, 2, "a").fence(2, up=True)
    lake, blank = story.change("t", 0, leader=2).lake(tmp_path), [str(disk("b")), str(disk("d"))]
    assert next_starts(lake, 2, blank=blank).starts[0].needed_on == [str(disk("b"))]
    (needed,) = [each for each in safe_to_restart(lake, [2], blank=blank).blocking if each.reason == "needed disk"]
    assert needed.finding == f"1 partition may need what is on {disk('b')} of broker 2, which a blank disk replaces"
    assert needed.end.startswith(f"do not wipe {disk('b')}: save these partitions from it first")


def test_blank_disk_in_place_of_an_older_copy_is_needed_while_no_complete_one_is_in_use(tmp_path: Path) -> None:
    """R-ACT-9. It was not: the start gives up no complete copy, and the older one was the last that could be read."""
    story = Story().broker(1, "ab").broker(3, "cd").topic("t", {3: "c", 1: "a"}).change("t", 0, isr=(3,))
    story = story.left(3, "d").change("t", 0, leader=-1)
    (blank,) = next_starts(story.lake(tmp_path / "failed"), 1, blank=[A]).starts
    assert (blank.needed, blank.gives_up) == (["t-0"], [])
    back = story.fence(3).broker(3, "cd", process=2).change("t", 0, leader=3)
    (blank,) = next_starts(back.lake(tmp_path / "back"), 1, blank=[A]).starts
    assert blank.needed == []


def test_steps_of_a_start_do_not_hide_the_step_for_last_copies_that_it_does_not_give_up(tmp_path: Path) -> None:
    """It was left out with the step for those that the start gives up, of which the start's own steps say more."""
    answer = safe_to_restart(failed().lake(tmp_path), [1], blank=[A])
    (given_up,) = [reason for reason in answer.blocking if reason.reason == LAST_COPY]
    other = replace(given_up, names=["other-0"])
    assert given_up.names == ["solo-0"]
    assert given_up.advice not in answer.steps
    assert other.advice in replace(answer, blocking=[given_up, other]).steps


def test_json_names_what_is_given_up(tmp_path: Path) -> None:
    answer = jsonable(next_starts(failed().lake(tmp_path), 1))
    assert answer["starts"][1]["gives_up"] == [
        {"topic": "solo", "partition": 0, "kind": "lost", "leader": 1, "tiered": False, "name": "solo-0"}
    ]


def test_command_asks_about_directories_that_are_named(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").broker(2, "c").topic("pair", {1: "a", 2: "c"}).topic("slow", {2: "c", 1: "a"})
    last = story.change("slow", 0, isr=(2,)).change("slow", 0, leader=2).lake(tmp_path).offset

    def answer_of(*more: str) -> tuple[int, dict[str, Any]]:
        line = ["safe-to-restart", *more, "--lake", str(tmp_path), "--at-offset", str(last), "--json"]
        run = CliRunner().invoke(application(line), line)
        return run.exit_code, json.loads(run.stdout)

    code, answer = answer_of("1", "--blank", A)
    assert (code, answer["verdict"], answer["starts"][0]["starts"][0]["recreated"]) == (0, "safe", ["pair-0", "slow-0"])
    code, answer = answer_of("2", "--gone", str(disk("c")))
    assert (code, answer["starts"][0]["starts"][0]["refused"]) == (1, "no directory of log.dirs can be read")
    assert answer["blocking"][0]["finding"] == (
        "broker 2 does not start without these directories (no directory of log.dirs can be read)"
    )
    code, answer = answer_of("2", "--blank", str(disk("c")))
    assert (code, answer["verdict"], answer["starts"][0]["gives_up"]) == (1, "not_safe", ["slow-0"])
    assert [reason["names"] for reason in answer["blocking"] if reason["reason"] == "last copy"] == [["slow-0"]]
    run = CliRunner().invoke(
        application(["safe-to-restart"]), ["safe-to-restart", "1,2", "--lake", str(tmp_path), "--blank", A]
    )
    assert isinstance(run.exception, UsageError)


def test_start_before_partition_0_of_a_topic_was_written_is_answered() -> None:
    """R-CFG-3: in the migration from ZooKeeper partition 4 comes first, and the answer was UNKNOWN_SERVER_ERROR."""
    log = LogLake.of(LogOptions(str(metadata_dir("kafka-3.9.2-zk-migration"))), 31)
    (start,) = next_starts(log, 3, blank=["sB1-es-FkYRTM_NdDtAlgQ"]).starts
    assert [(given.topic, given.partition) for given in start.gives_up] == [("zksolo", 0), ("zksolo", 3)]
