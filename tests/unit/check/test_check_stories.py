"""Each check on two short stories: one in which it must find exactly this, one in which it must find nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from jbod_model.ids import Uuid
from pipelines.ask.moves import moves
from pipelines.check.catalogue import CHECKS, run_checks
from tests.support.volume import sampled
from tests.unit.check.story import Story, disk, topic_id


@dataclass(frozen=True)
class Case:
    """``finds``: subject -> severity and a part of the message or of what to do."""

    bad: Story
    finds: Mapping[str, tuple[str, str]]
    good: Sequence[Story]


def two_brokers() -> Story:
    """Brokers 1 and 2, each with disks of its own, and a topic with a replica on both."""
    return Story().broker(1, "abc").broker(2, "def").topic("t", {1: "a", 2: "d"})


def one_copy() -> Story:
    """The only copy of a partition is on a disk that failed."""
    return Story().broker(1, "ab").topic("t", {1: "a"}).left(1, "b").change("t", 0, leader=-1)


def draining() -> Story:
    """A cordoned disk that still holds what it held before."""
    return Story().broker(1, "ab").topic("t", {1: "a"}).broker(1, "ab", epoch=1, cordoned="a")


def rolling() -> Story:
    """Broker 2 and controllers 8 and 9 run a later Kafka than broker 1 and controller 7, which leads."""
    story = Story(27).lead(7, 8, 9).controller(7, 27).controller(8, 33).controller(9, 33)
    story.supporting(1, 27).supporting(2, 33).level = -1  # nobody else is there
    return story


def refused(story: Story, *errors: int, topic: str = "t", where: str = "b") -> Story:
    """Broker 1 asks again and again for one directory."""
    for error in errors:
        story.request(topic, 0, 1, where, error=error)
    return story


def directory(name: str, broker: int) -> str:
    return f"directory {disk(name)} of broker {broker}"


CASES: dict[str, Case] = {
    "B-01": Case(
        Story()
        .broker(1, "ab")
        .broker(2, "cd")
        .broker(3, "ef")
        .topic("t", {1: "unassigned", 2: "unassigned", 3: "e"})
        .topic("u", {1: "a"})
        .join("u", 0, 2, "unassigned")
        .wait(60),
        {
            "t-0 on broker 1": ("critical", "has not reported the directory"),
            "t-0 on broker 2": ("warning", "has not reported the directory"),
            "u-0 on broker 2": ("warning", "joined a partition that existed"),
        },
        [
            Story().broker(1, "ab").topic("t", {1: "unassigned"}),
            Story().broker(1, "ab").topic("t", {1: "unassigned"}).pause(60),
            Story().broker(1, "ab").topic("t", {1: "unassigned"}).chatter(),
            Story().broker(1, "a").topic("t", {1: "unassigned"}).wait(60),
            Story().broker(1, "ab").topic("t", {1: "unassigned"}).wait(60).assign("t", 0, 1, "a"),
            Story().broker(1, "ab", fenced=True).topic("t", {1: "unassigned"}).wait(60),
            Story().broker(1, "ab", fenced=True).topic("t", {1: "unassigned"}).wait(60).fence(1, up=True),
        ],
    ),
    "B-02": Case(
        refused(
            refused(refused(two_brokers(), 100, 6, 6).request("t", 0, 2, "d").remove("t"), 100, 100, 100, topic="t"),
            999,
            999,
            999,
            topic="other",
        ).wait(60),
        {
            "t-0 on broker 1": (
                "warning",
                f"6 times in a row for directory {disk('b')}, the last answer was UNKNOWN_T",
            ),
            f"{topic_id('other')}-0 on broker 1": ("warning", "3 times in a row"),
        },
        [
            two_brokers(),
            refused(two_brokers(), 6, 6),
            refused(two_brokers(), 6, 0, 6, 6),
            refused(two_brokers(), 6, 6, 6, 0),
            refused(two_brokers(), 6, 6, 6).request("t", 0, 1, "c"),
            refused(two_brokers(), 6, 6, 6).broker(1, "abc", process=2),
            refused(two_brokers(), 6, 6, 6).pause(700_000),
        ],
    ),
    "B-03": Case(
        two_brokers()
        .topic("u", {2: "e"}, {2: "y"}, {2: "f"}, {2: "d"})
        .left(2, "df")
        .broker(3, "g")
        .topic("v", {3: "g"}, {1: "g"})
        .broker(1, "ac", process=2)
        .topic("w", {1: "b"}),
        {
            "u-0 on broker 2": ("critical", "failed while the broker ran"),
            "u-1 on broker 2": ("critical", "is in no registration of the broker that is known"),
            "v-1 on broker 1": ("critical", "is on broker 3, and no record has it on this one"),
            "w-0 on broker 1": ("critical", "is gone since the broker registered again"),
        },
        [
            two_brokers(),
            two_brokers().assign("t", 0, 1, "unassigned"),
            # A process that starts reports a new disk before it registers it (R-PROC-4).
            two_brokers().fence(1).assign("t", 0, 1, "n"),
            two_brokers().fence(1).assign("t", 0, 1, "n").broker(1, "an", process=2),
            Story().broker(1).topic("t", {1: "a"}),
        ],
    ),
    "B-04": Case(
        two_brokers().topic("u", {2: "e", 1: "b"}).left(1, "ac").topic("v", {1: "b", 2: "d"}),
        {
            "u-0 on broker 1": ("critical", "counts as in sync"),
            "v-0 on broker 1": ("critical", "the replica on broker 1 leads"),
        },
        [
            two_brokers().change("t", 0, isr=(2,), leader=2).left(1, "bc"),
            # Without ELR the last in-sync replica stays in the ISR when its disk dies.
            Story().broker(1, "ab").topic("t", {1: "a"}).change("t", 0, leader=-1).left(1, "b"),
            # A fenced broker is not about its disks.
            two_brokers().fence(1),
        ],
    ),
    "B-05": Case(
        two_brokers().left(1, "bc").assign("t", 0, 1, "b").broker(1, "abc", process=2),
        {"t-0 on broker 1": ("critical", f"recreated in {disk('b')}")},
        [
            two_brokers().assign("t", 0, 1, "b").left(1, "bc"),
            two_brokers().left(1, "bc").broker(1, "bc", process=2).assign("t", 0, 1, "b"),
            two_brokers().left(1, "bc").fence(1).assign("t", 0, 1, "b").broker(1, "bc", process=2),
            two_brokers().left(1, "bc").broker(1, "abc", process=2).assign("t", 0, 1, "b"),
            two_brokers().left(1, "bc").broker(1, "abc").assign("t", 0, 1, "b"),
            two_brokers().left(1, "bc").assign("t", 0, 1, "b").pause(700_000),
            # A new process reports a new disk within the session of the one before it, so the broker is not fenced.
            two_brokers().left(1, "bc").assign("t", 0, 1, "n").broker(1, "bcn", process=2),
        ],
    ),
    "B-06": Case(
        two_brokers().assign("t", 0, 2, "lost"),
        {"t-0 on broker 2": ("critical", "was in a directory that failed")},
        [two_brokers(), two_brokers().assign("t", 0, 2, "lost").assign("t", 0, 2, "e")],
    ),
    "B-07": Case(
        Story(14).broker(1).topic("t", {1: "migrating"}).version(17).broker(1, "ab", epoch=1).wait(60),
        {"t-0 on broker 1": ("warning", "has not reported which one")},
        [
            Story(14).broker(1).topic("t", {1: "migrating"}).wait(60),
            Story(14).broker(1, "ab").topic("t", {1: "migrating"}).wait(60),
            Story().broker(1, "ab", fenced=True).topic("t", {1: "migrating"}).wait(60),
            Story().broker(1, "ab").topic("t", {1: "migrating"}).pause(60),
            Story().broker(1, "ab").topic("t", {1: "migrating"}).chatter(),
            Story(14).broker(1).topic("t", {1: "migrating"}).version(17).wait(60).broker(1, "ab", epoch=1),
            Story().broker(1, "ab").topic("t", {1: "migrating"}, {1: "a"}).assign("t", 0, 1, "a").wait(60),
        ],
    ),
    "B-08": Case(
        Story(14).broker(1).broker(2).version(17).broker(2, "d", epoch=2),
        {"broker 1": ("critical", "registered without directories")},
        [Story(14).broker(1), two_brokers()],
    ),
    "B-09": Case(
        two_brokers().broker(1, "abc", fenced=True).fence(1, up=True).broker(2, "def", epoch=99),
        {"broker 1": ("warning", "times: 1"), "broker 2": ("warning", "times: 1")},
        [
            two_brokers().broker(1, "abc", process=2, fenced=True),
            two_brokers().fence(1),
            two_brokers().broker(1, "abc", fenced=True).pause(700_000),
            Story(14).broker(1).version(17).broker(1, "ab", epoch=1),
        ],
    ),
    "B-10": Case(
        Story().broker(1, "abb").broker_with(4, Uuid(0, 7), Uuid(0, 99), Uuid(0, 100), Uuid(0, -1)),
        {
            "broker 1": ("critical", "is listed twice"),
            f"directory {Uuid(0, 7)} of broker 4": ("critical", "is a reserved id"),
            f"directory {Uuid(0, 99)} of broker 4": ("critical", "is a reserved id"),
            f"directory {Uuid(0, -1)} of broker 4": ("critical", "is a reserved id"),
        },
        [two_brokers(), two_brokers().broker(1, "bc", process=2).broker(2, "ade", process=2)],
    ),
    "B-12": Case(
        Story(14).broker(1, "ab").broker(2, "c"),
        {"broker 1": ("critical", "metadata.version 14 (3.6-IV2); 17 (3.7-IV2)")},
        [two_brokers(), Story(14).broker(1, "a")],
    ),
    "B-13": Case(
        two_brokers()
        .assign("t", 0, 1, "b")
        .assign("t", 0, 1, "c")
        .assign("t", 0, 1, "b")
        .assign("t", 0, 1, "c")
        .assign("t", 0, 2, "e"),
        {"t-0 on broker 1": ("warning", "4 times")},
        [
            two_brokers().assign("t", 0, 1, "b").assign("t", 0, 1, "c").assign("t", 0, 1, "a"),
            two_brokers()
            .assign("t", 0, 1, "b")
            .assign("t", 0, 1, "c")
            .wait(7200)
            .assign("t", 0, 1, "b")
            .assign("t", 0, 1, "c"),
        ],
    ),
    "B-14": Case(
        two_brokers().assign("t", 0, 1, "b").assign("t", 0, 1, "a"),
        {"t-0 on broker 1": ("warning", f"moved to {disk('b')} of broker 1 and back to {disk('a')}")},
        [
            two_brokers().assign("t", 0, 1, "b").assign("t", 0, 1, "c"),
            two_brokers().assign("t", 0, 1, "b").wait(1200).assign("t", 0, 1, "a"),
            two_brokers().assign("t", 0, 1, "b").left(1, "ac").assign("t", 0, 1, "a"),
            two_brokers().assign("t", 0, 1, "b").assign("t", 0, 1, "a").pause(700_000),
            # B came back later: when the replica left it, it was away.
            two_brokers().assign("t", 0, 1, "b").left(1, "ac").assign("t", 0, 1, "a").broker(1, "abc", process=2),
            # The first report is of a new process that lacks A: the replica was recreated, and nothing went back.
            two_brokers()
            .assign("t", 0, 1, "n")
            .broker(1, "bcn", process=2)
            .broker(1, "abcn", process=3)
            .assign("t", 0, 1, "a"),
        ],
    ),
    "B-15": Case(
        two_brokers().topic("u", {2: "e"}).assign("t", 0, 1, "b").left(1, "ac").remove("u").left(2, "df"),
        {
            directory("b", 1): ("info", "moved in (1), recreated (0) or deleted (0)"),
            directory("e", 2): ("info", "or deleted (1)"),
        },
        [
            two_brokers().assign("t", 0, 1, "b").left(1, "bc"),
            two_brokers().assign("t", 0, 1, "b").wait(1200).left(1, "ac"),
            two_brokers().assign("t", 0, 1, "b").left(1, "ac").pause(700_000),
            two_brokers().left(1, "ac").assign("t", 0, 1, "b"),
            two_brokers().assign("t", 0, 1, "b").broker(1, "ac", process=2),
        ],
    ),
    "B-16": Case(
        two_brokers().left(1, "bc").left(1, "c").left(2, ""),
        {"broker 1": ("critical", "failed since it started: 2"), "broker 2": ("critical", "its last directory failed")},
        [
            two_brokers().left(1, "bc"),
            two_brokers().left(1, "c").broker(1, "c", process=2),
            two_brokers().left(2, "").broker(2, "def", process=2),
            two_brokers().broker(1, "c", process=2),
            two_brokers().nothing(1),
            Story().broker(1, "a").fence(1),
        ],
    ),
    "B-17": Case(
        two_brokers()
        .topic("none", {1: "a"})
        .change("none", 0, leader=-1)
        .topic("all", {1: "b", 2: "e"})
        .topic("few", {1: "c", 2: "f"})
        .configure("few", "2")
        .topic("enough", {1: "c", 2: "d"})
        .left(1, "ac")
        .left(2, "d")
        .change("few", 0, isr=(1,)),
        {
            "none-0": ("critical", "no replica leads it"),
            "all-0": ("critical", "every replica is offline"),
            "few-0": ("critical", "1 in sync and online, min.insync.replicas is 2"),
        },
        [
            two_brokers(),
            # Never more than there are replicas.
            Story().broker(1, "a").topic("t", {1: "a"}).configure("t", "2"),
            two_brokers().configure("t", "2").configure("t", None).change("t", 0, isr=(1,)),
        ],
    ),
    "B-18": Case(
        two_brokers()
        .topic("one", {1: "a"})
        .topic("alone", {1: "a", 2: "d"}, isr=[1])
        .broker(3, "g")
        .topic("unknown", {3: "unassigned"}),
        {
            directory("a", 1): ("info", "a leader if it failed now: 2; without any copy online: 1"),
            directory("g", 3): ("info", "a leader if it failed now: 1; without any copy online: 1"),
        },
        [two_brokers(), two_brokers().topic("unknown", {1: "unassigned"})],
    ),
    "B-20": Case(
        two_brokers().topic("u", {1: "b", 2: "d"}, {2: "d"}).left(1, "ac").remove("u"),
        {"u-0 on broker 1": ("info", "was offline (directory offline)")},
        [
            two_brokers().remove("t").left(1, "bc"),
            two_brokers().left(1, "bc").remove("t").broker(1, "abc", process=2),
        ],
    ),
    "B-21": Case(
        two_brokers().left(1, "bc").remove("t").topic("t", {2: "d"}),
        {"t-0 on broker 1": ("warning", "recreated as ")},
        [
            two_brokers().left(1, "bc").remove("t").topic("other", {2: "d"}),
            two_brokers().remove("t").topic("t", {2: "d"}),
        ],
    ),
    "B-22": Case(
        two_brokers().topic("u", {1: "unassigned"}, {1: "unassigned", 2: "d"}),
        {"broker 1": ("info", "is not known: 2")},
        [
            two_brokers(),
            two_brokers().topic("u", {1: "unassigned"}).fence(1),
            Story().broker(1, "a").topic("u", {1: "unassigned"}),
        ],
    ),
    "B-23": Case(
        two_brokers().topic("u", {2: "d"}).left(1, "bc").broker(2, "ef", process=2).wait(7200),
        {
            directory("a", 1): ("warning", "failed, replicas still assigned to it: 1"),
            directory("d", 2): ("warning", "deregistered, replicas still assigned to it: 2"),
        },
        [
            two_brokers().left(1, "bc"),
            two_brokers().wait(7200),
            two_brokers().left(1, "bc").broker(1, "abc", process=2).wait(7200),
            # Replaced: nothing is assigned to it any more.
            two_brokers().left(1, "bc").broker(1, "bcz", process=2).assign("t", 0, 1, "z").wait(7200),
        ],
    ),
    "B-24": Case(
        Story().broker(1, "abc").topic("t", *[{1: "a"} for _ in range(20)], {1: "b"}),
        {
            directory("a", 1): ("info", "replicas: 20 (mean of the broker's directories 7), leaders: 20 (7)"),
            directory("c", 1): ("info", "replicas: 0"),
        },
        [
            Story().broker(1, "ab").broker(2, "c"),
            Story().broker(1, "ab").topic("t", *[{1: "a"} for _ in range(6)], {1: "b"}),
        ],
    ),
    "B-25": Case(
        Story().broker(1, "abc", cordoned="ab").broker(2, "d").topic("t", {1: "a"}, {2: "d"}, {1: "c"}),
        {
            directory("a", 1): ("warning", "replicas in it: 1, placed there since: 1"),
            directory("b", 1): ("info", "cordoned; replicas in it: 0, placed there since: 0"),
        },
        [
            two_brokers(),
            Story().broker(1, "ab").topic("t", {1: "a"}).broker(1, "ab", epoch=1, cordoned="a"),
            Story().broker(1, "ab", cordoned="a").broker(1, "ab", cordoned=""),
            draining().pause(600_000),
            draining().pause(600_000).broker(1, "ab", cordoned="").broker(1, "ab", cordoned="a").pause(100),
        ],
    ),
    "B-29": Case(
        Story(None).broker(1, "a"),
        {"the cluster": ("warning", "no FeatureLevelRecord")},
        [two_brokers(), Story(1)],
    ),
    "B-31": Case(
        two_brokers().change("t", 0, adding_replicas=(3,), removing_replicas=(2,)),
        {"t-0": ("info", "adding [3], removing [2]")},
        [two_brokers().change("t", 0, adding_replicas=(3,)).change("t", 0, adding_replicas=())],
    ),
    "B-32": Case(
        one_copy().broker(1, "b", process=2).assign("t", 0, 1, "b").change("t", 0, leader=1),
        {"t-0": ("critical", f"in directory {disk('a')} of broker 1, and its replica was recreated empty")},
        [
            one_copy(),
            one_copy().broker(1, "ab", process=2).change("t", 0, leader=1),
            one_copy().broker(1, "b", process=2).assign("t", 0, 1, "b").remove("t"),
            Story().broker(1, "ab").topic("t", {1: "a"}).assign("t", 0, 1, "b").left(1, "b"),
            two_brokers().left(1, "bc").change("t", 0, isr=(2,), leader=2).assign("t", 0, 1, "b"),
        ],
    ),
    "B-33": Case(
        two_brokers().change("t", 0, isr=(1,)).fence(1).change("t", 0, leader=2, isr=(2,), leader_recovery_state=1),
        {"t-0": ("warning", f"broker 2 was elected without them; they were in directory {disk('a')} of broker 1")},
        [
            two_brokers().fence(1).change("t", 0, leader=2, isr=(2,)),
            two_brokers().change("t", 0, isr=(1,)).change("t", 0, leader=-1).change("t", 0, leader=1),
        ],
    ),
    "B-37": Case(
        one_copy().change("t", 0, leader=-1).unregister(1),
        {"t-0": ("critical", f"unreachable, not lost: directory {disk('a')} of broker 1 holds the last complete copy")},
        [
            one_copy(),
            one_copy().change("t", 0, leader=-1).unregister(1).broker(1, "ab", process=2),
            one_copy().change("t", 0, leader=-1).unregister(1).broker(1, "b", process=2),
        ],
    ),
    "B-34": Case(
        rolling().lead(8, 9).fence(1).pause(3599),
        {
            "broker 1": ("warning", "broker 1 (ghost): supports metadata.version up to 4.1-IV1 (27), not 4.2-IV0 (28)"),
            "the cluster": ("warning", "controller 7 (ghost): supports metadata.version up to 4.1-IV1 (27)"),
        },
        [
            rolling(),
            rolling().fence(1).pause(3598),
            rolling().fence(1).fence(1, up=True).pause(3600),
            rolling().lead(8, 7),
            Story().supporting(1, 27).supporting(2, 27).fence(1).pause(3600),
        ],
    ),
    "B-35": Case(
        rolling(),
        {
            "broker 1": ("info", "broker 1 (alive): supports metadata.version up to 4.1-IV1 (27), not 4.2-IV0 (28)"),
            "the cluster": ("info", "controller 7 (leader): supports metadata.version up to 4.1-IV1 (27)"),
        },
        [
            rolling().supporting(1, 33).controller(7, 33),
            rolling().lead(8, 9).fence(1).pause(3600),
            Story(14).supporting(1, 33).controller(7, 27).controller(8, 33).pause(1),
        ],
    ),
}

CASES |= {
    "B-38": Case(
        Story().broker(1, "abc").sized(1, a=(50, 100, 10), b=(50, 100, 5), c=(50, 100, 11), _d=(9, 1000, 0)),
        {
            directory("a", 1): ("warning", "/data/a is 90 % full, 10.0 GiB are free"),
            directory("b", 1): ("critical", "/data/b is 95 % full"),
            "directory /data/_d of broker 1": ("critical", "/data/_d is 100 % full, 0.0 GiB are free"),
        },
        [
            Story().broker(1, "ab").sized(1, a=50, b=(50, 100, 11)),
            Story().broker(1, "a").sized(1, a=(50, 100, 5)).pause(60).sized(1, a=(50, 100, 50)),
            Story().broker(1, "a").sized(1, a=(50, 100, 5)).pause(700_000),
        ],
    ),
    "B-39": Case(
        Story()
        .broker(1, "ab")
        .sized(1, a=(10, 100, 80), b=(10, 100, 80))
        .pause(43_200)
        .sized(1, a=(16, 100, 74), b=(15, 100, 75)),
        {directory("a", 1): ("warning", "/data/a grows by 12.0 GiB a day, and 74.0 GiB are free: full in 6 days")},
        [
            Story().broker(1, "a").sized(1, a=(10, 100, 80)),
            Story().broker(1, "a").sized(1, a=(16, 100, 1)).pause(43_200).sized(1, a=(10, 100, 1)),
            Story().broker(1, "a").sized(1, a=10).pause(43_200).sized(1, a=16),
        ],
    ),
    "B-40": Case(
        Story().broker(1, "abc").broker(2, "de").sized(1, a=41, b=10, c=9).sized(2, d=(300, 1000, 9), e=(75, 500, 9)),
        {directory("a", 1): ("info", "/data/a holds 41.0 GiB, its share of what the broker holds is 20.0 GiB")},
        [
            Story().broker(1, "abc").sized(1, a=39, b=11, c=10),
            Story().broker(1, "abc").sized(1, a=9, b=1, c=1),
            Story().broker(1, "a").sized(1, a=9000),
            Story().broker(2, "def").sized(2, d=(300, 4000, 9), e=(3, 40, 9), f=(3, 40, 9)),
        ],
    ),
}
BY_HAND = {"B-11", "B-28", "B-30", "B-36", "B-41"}
"""No log says these: test_check_lakes.py damages a lake, and B-41 is for a quorum (test_quorum_source.py)."""


def test_every_check_has_a_story() -> None:
    assert {check.id for check in CHECKS} == CASES.keys() | BY_HAND


@pytest.mark.parametrize("check", CASES)
def test_check_finds_what_the_bad_story_tells(check: str, tmp_path: Path) -> None:
    case = CASES[check]
    findings = run_checks(case.bad.crowded().lake(tmp_path), [check])
    assert {finding.subject: finding.severity for finding in findings} == {
        who: severity for who, (severity, _) in case.finds.items()
    }
    assert len({finding.key for finding in findings}) == len(findings)
    for finding in findings:
        assert case.finds[finding.subject][1] in finding.finding


def test_cordon_is_forgotten_after_a_week_though_the_broker_was_restarted(tmp_path: Path) -> None:
    story = draining().pause(600_000).broker(1, "ab", process=2).broker(1, "ab", epoch=9, cordoned="a").pause(4_800)
    (finding,) = run_checks(story.lake(tmp_path), ["B-25"])
    assert (finding.severity, finding.from_offset) == ("warning", 4)
    assert finding.finding == "cordoned for too long; replicas in it: 1, placed there since: 0"


def test_move_that_came_again_was_not_undone_and_one_that_went_back_at_last_was(tmp_path: Path) -> None:
    """R-MOVE-7: of each move with a flip on a real cluster B-14 said twice that it had not taken place."""
    story = two_brokers().assign("t", 0, 1, "b").assign("t", 0, 1, "a").assign("t", 0, 1, "b")
    lake = story.lake(tmp_path / "again")
    assert run_checks(lake, ["B-14"]) == [] and [move.outcome for move in moves(lake)] == ["accepted"]
    (finding,) = run_checks(story.assign("t", 0, 1, "a").lake(tmp_path / "back"), ["B-14"])
    back = finding.from_offset
    assert finding.finding == f"moved to {disk('b')} of broker 1 and back to {disk('a')}"
    (finding,) = run_checks(story.wait(1200).assign("t", 0, 1, "c").lake(tmp_path / "elsewhere"), ["B-14"])
    assert finding.from_offset == back


@pytest.mark.parametrize(
    ("check", "number"), sampled([(check, n) for check, case in CASES.items() for n in range(len(case.good))], 6)
)
def test_check_finds_nothing_in_a_good_story(check: str, number: int, tmp_path: Path) -> None:
    assert run_checks(CASES[check].good[number].crowded().lake(tmp_path), [check]) == []


def test_move_that_never_ends_is_to_be_cancelled(tmp_path: Path) -> None:
    """R-RELEASE-4: it said "wait"."""
    story = two_brokers().change("t", 0, adding_replicas=(2,), removing_replicas=(2,))
    (finding,) = run_checks(story.lake(tmp_path), ["B-31"])
    assert finding.advice.startswith("kafka-reassign-partitions --cancel: from 4.3 on nothing ends what removes")


def test_move_with_only_added_replicas_in_sync_is_not_to_be_cancelled(tmp_path: Path) -> None:
    """R-REASSIGN-3: it said "cancel" of a partition whose only complete copies a cancellation removes."""
    story = two_brokers().change("t", 0, adding_replicas=(2,), removing_replicas=(2,), isr=(2,), leader=2)
    (finding,) = run_checks(story.lake(tmp_path), ["B-31"])
    assert finding.advice.startswith("do not cancel it while no old replica is in sync")
