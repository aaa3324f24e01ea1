"""The record that changes a partition, as Kafka's PartitionChangeBuilderTest has it (docs/spec/controller.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jbod_model.controller.partition_change import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    Candidates,
    Elected,
    Election,
    Reassignment,
    Revert,
    Surroundings,
    Wish,
    elect,
    partition_change,
)
from jbod_model.formats.metadata_version import LEVELS, partition_record_version
from jbod_model.formats.records import PartitionChangeRecord
from jbod_model.formats.responses import InvalidReplicaAssignment
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import KAFKA
from jbod_model.replay.image import Partition
from tests.unit.model.controller.controller_world import LOST, MIGRATING, UNASSIGNED, topic_id

A, B, C, D, E = (Uuid(9, 1000 + number) for number in range(5))
TOPIC = topic_id(1)
LEVEL_OF_VERSION = {0: "3.7-IV0", 1: "3.7-IV2", 2: "4.0-IV1"}


def partition(replicas: tuple[int, ...], directories: tuple[Uuid, ...] = (), **fields: Any) -> Partition:
    values: dict[str, Any] = {"isr": replicas, "leader": replicas[0], "leader_epoch": 100, "partition_epoch": 200}
    return Partition(replicas=replicas, directories=directories or (MIGRATING,) * len(replicas), **(values | fields))


FOO = partition((2, 1, 3), (A, B, UNASSIGNED), leader=1)
BAR = partition((1, 2, 3, 4), (UNASSIGNED, B, C, D), isr=(1, 2, 3), removing_replicas=(1,), adding_replicas=(4,))
BAZ = partition((2, 1, 3), (A, B, C), isr=(1, 3), leader=3)
LEADERLESS = partition((2, 1, 3), (A, B, C), isr=(3,), leader=-1)
LEADERLESS_ELR = replace(LEADERLESS, isr=(), eligible_leader_replicas=(3,), last_known_elr=(2,))


def not_3(broker_id: int) -> bool:
    return broker_id != 3


def anyone(_: int) -> bool:
    return True


def nobody(_: int) -> bool:
    return False


def surroundings(
    level: str, acceptable: Callable[[int], bool] = not_3, *, elr: bool = False, min_isr: int = 2
) -> Surroundings:
    return Surroundings(
        acceptable=acceptable,
        metadata_version=LEVELS[level],
        elr_enabled=elr,
        min_isr=min_isr,
        default_dir=lambda _: UNASSIGNED,
    )


def change(before: Partition, wish: Wish, around: Surroundings) -> dict[str, Any] | None:
    """The fields that change, None without a record; the version must be that of the metadata.version."""
    versioned = partition_change(TOPIC, 0, before, wish, around)
    if versioned is None:
        return None
    assert versioned.version == partition_record_version(around.metadata_version)
    default = PartitionChangeRecord(topic_id=TOPIC, partition_id=0)
    return {
        name: getattr(versioned.record, name)
        for name in PartitionChangeRecord.__dataclass_fields__
        if getattr(versioned.record, name) != getattr(default, name)
    }


def after(before: Partition, wish: Wish, around: Surroundings) -> Partition:
    versioned = partition_change(TOPIC, 0, before, wish, around)
    assert versioned is not None
    assert isinstance(versioned.record, PartitionChangeRecord)
    return before.merge(versioned.record, KAFKA_IDS, KAFKA)


# THE CASES OF EVERY RECORD VERSION

NOT_3_AND_ELR = {version: surroundings(level, elr=version == 2) for version, level in LEVEL_OF_VERSION.items()}
ANYONE_AND_ELR = {version: surroundings(level, anyone, elr=version == 2) for version, level in LEVEL_OF_VERSION.items()}

MOVED = Reassignment.between(FOO.replicas, (1, 2))
ADDED = Reassignment.between(FOO.replicas, (1, 2, 3, 4))
BACK = Revert.of(Reassignment(BAR.replicas, BAR.removing_replicas, BAR.adding_replicas), BAR.isr)

CASES: dict[str, tuple[Partition, Wish, dict[str, Any] | None]] = {
    "foo no change": (FOO, Wish(), None),
    "foo no change, unclean": (FOO, Wish(election=Election.UNCLEAN), None),
    "bar no change": (BAR, Wish(), None),
    "bar no change, unclean": (BAR, Wish(election=Election.UNCLEAN), None),
    "isr shrinks, the leader stays": (FOO, Wish(isr=(2, 1)), {"isr": (2, 1)}),
    "isr and leader change": (FOO, Wish(isr=(2, 3)), {"isr": (2, 3), "leader": 2}),
    "replicas are put in another order": (
        FOO,
        Wish(replicas=(3, 2, 1)),
        {"replicas": (3, 2, 1), "directories": (UNASSIGNED, A, B)},
    ),
    "a larger isr completes the reassignment": (
        BAR,
        Wish(isr=(1, 2, 3, 4)),
        {
            "isr": (2, 3, 4),
            "leader": 2,
            "replicas": (2, 3, 4),
            "removing_replicas": (),
            "adding_replicas": (),
            "directories": (B, C, D),
        },
    ),
    "a reassignment is reverted": (
        BAR,
        Wish(isr=BACK.isr, replicas=BACK.replicas, removing=(), adding=()),
        {
            "leader": 1,
            "replicas": (1, 2, 3),
            "removing_replicas": (),
            "adding_replicas": (),
            "directories": (UNASSIGNED, B, C),
        },
    ),
    "a replica is removed at once": (
        FOO,
        Wish(replicas=MOVED.replicas, removing=MOVED.removing),
        {"isr": (2, 1), "leader": 1, "replicas": (1, 2), "directories": (B, A)},
    ),
    "a replica is being added": (
        FOO,
        Wish(replicas=ADDED.replicas, adding=ADDED.adding),
        {"replicas": (1, 2, 3, 4), "adding_replicas": (4,), "directories": (B, A, UNASSIGNED, UNASSIGNED)},
    ),
    "an unclean election": (
        FOO,
        Wish(isr=(3,), election=Election.UNCLEAN),
        {"isr": (2,), "leader": 2, "leader_recovery_state": RECOVERING},
    ),
}


@pytest.mark.parametrize("version", LEVEL_OF_VERSION)
@pytest.mark.parametrize("case", CASES)
def test_partition_change_of_each_version_is_as_kafkas_builder_test_has_it(case: str, version: int) -> None:
    """R-CHANGE-1, R-CHANGE-4, R-REASSIGN-4, R-ELECT-6. Directories only from version 1 on.

    With eligible leaders on (version 2) an unclean loser of the in-sync set was in sync before, hence eligible.
    """
    before, wish, expected = CASES[case]
    if expected is not None and version == 0:
        expected = {name: value for name, value in expected.items() if name != "directories"}
    assert change(before, wish, NOT_3_AND_ELR[version]) == expected


def test_partition_change_with_a_preferred_election_that_finds_the_leader_changes_nothing() -> None:
    """R-CHANGE-1."""
    for version in LEVEL_OF_VERSION:
        assert change(BAZ, Wish(election=Election.PREFERRED), ANYONE_AND_ELR[version]) is None


@pytest.mark.parametrize("isr", [None, (2,)])
def test_partition_change_unclean_election_of_a_leaderless_partition_takes_any_replica_that_can_lead(
    isr: tuple[int, ...] | None,
) -> None:
    """R-ELECT-5, R-ELECT-7, R-ELIG-3: with the feature, both sets are emptied."""

    def only_1(broker_id: int) -> bool:
        return broker_id == 1

    wish = Wish(isr=isr, election=Election.UNCLEAN)
    expected = {"isr": (1,), "leader": 1, "leader_recovery_state": RECOVERING}
    assert change(LEADERLESS, wish, surroundings("3.7-IV2", only_1)) == expected
    emptied = expected | {"eligible_leader_replicas": (), "last_known_elr": ()}
    assert change(LEADERLESS_ELR, wish, surroundings("4.0-IV1", only_1, elr=True)) == emptied


# LEADER EPOCHS


@pytest.mark.parametrize(
    ("level", "bumped"), [("3.4-IV0", True), ("3.5-IV2", True), ("3.6-IV0", False), ("3.7-IV2", False)]
)
def test_partition_change_isr_shrink_raises_the_leader_epoch_only_before_36(level: str, bumped: bool) -> None:
    """R-CHANGE-3, R-FEAT-1."""
    expected = {"isr": (2, 1)} | ({"leader": 1} if bumped else {})
    assert change(FOO, Wish(isr=(2, 1)), surroundings(level)) == expected


def test_partition_change_isr_in_another_order_never_raises_the_leader_epoch() -> None:
    """R-CHANGE-3: nobody left."""
    assert change(replace(FOO, isr=(2, 1)), Wish(isr=(1, 2)), surroundings("3.4-IV0")) == {"isr": (1, 2)}


@pytest.mark.parametrize("level", ["3.4-IV0", "3.5-IV2", "3.6-IV0", "3.7-IV2", "4.0-IV0"])
def test_partition_change_isr_growth_never_raises_the_leader_epoch(level: str) -> None:
    """R-CHANGE-3."""
    assert change(replace(FOO, isr=(2, 1)), Wish(isr=(2, 1, 3)), surroundings(level)) == {"isr": (2, 1, 3)}


@pytest.mark.parametrize("level", ["3.4-IV0", "3.5-IV2", "3.6-IV0", "3.7-IV2", "4.0-IV0"])
def test_partition_change_replica_that_leaves_raises_the_leader_epoch(level: str) -> None:
    """R-CHANGE-2."""
    changed = change(FOO, Wish(replicas=(2, 1, 4)), surroundings(level))
    assert changed is not None
    assert changed["leader"] == 1


def test_partition_change_empty_isr_without_eligible_leaders_is_not_written() -> None:
    """R-ELIG-4: the leader goes, the in-sync set stays."""
    alone = partition((2,), (A,))
    assert change(alone, Wish(isr=()), surroundings("3.7-IV2", nobody)) == {"leader": -1}


def test_partition_change_leader_that_comes_and_goes_keeps_the_recovery_state() -> None:
    """R-ELECT-7."""
    recovering = partition((1, 2, 3), isr=(1,), leader_recovery_state=RECOVERING)
    gone = after(recovering, Wish(isr=()), surroundings("3.3-IV3", nobody))
    assert (gone.leader, gone.isr, gone.leader_recovery_state) == (NO_LEADER, (1,), RECOVERING)
    back = after(gone, Wish(), surroundings("3.3-IV3", anyone))
    assert (back.leader, back.isr, back.leader_recovery_state) == (1, (1,), RECOVERING)


def test_partition_change_unclean_election_begins_a_recovery() -> None:
    """R-ELECT-7."""
    leaderless = partition((1, 2, 3), isr=(2, 3), leader=-1)
    changed = after(leaderless, Wish(election=Election.UNCLEAN), surroundings("3.3-IV3", lambda broker: broker == 1))
    assert (changed.leader, changed.isr, changed.leader_recovery_state) == (1, (1,), RECOVERING)


def test_partition_change_leader_reports_that_it_recovered() -> None:
    recovering = replace(FOO, leader_recovery_state=RECOVERING)
    wish = Wish(leader_recovery_state=RECOVERED)
    assert change(recovering, wish, surroundings("4.1-IV1")) == {"leader_recovery_state": RECOVERED}


def test_partition_change_completed_reassignment_demotes_a_leader_that_left_even_without_a_successor() -> None:
    """R-REASSIGN-4."""
    moving = partition((2, 3, 0, 1), isr=(0, 1), leader=0, removing_replicas=(0, 1), adding_replicas=(2, 3))
    assert change(moving, Wish(isr=(0, 1, 2, 3)), surroundings("3.3-IV3", nobody)) == {
        "isr": (2, 3),
        "leader": NO_LEADER,
        "replicas": (2, 3),
        "removing_replicas": (),
        "adding_replicas": (),
    }


# DIRECTORIES


def test_partition_change_keeps_the_directories_of_replicas_that_stay() -> None:
    """R-CHANGE-4, R-CHANGE-2: 3 and 1 keep theirs, 5 is told its own, 4 gets the default."""
    before = partition((2, 1, 3), (A, B, C), leader=1)
    wish = Wish(replicas=(3, 1, 5, 4), directories={5: E})
    assert change(before, wish, surroundings("3.7-IV2", anyone)) == {
        "leader": 1,
        "replicas": (3, 1, 5, 4),
        "directories": (C, B, E, UNASSIGNED),
    }


def test_partition_change_sets_directories_alone() -> None:
    """R-CHANGE-4."""
    before = partition((2, 1, 3), (A, B, C))
    wish = Wish(directories={3: D, 1: LOST})
    assert change(before, wish, surroundings("4.1-IV1", anyone)) == {"directories": (A, LOST, D)}


def test_partition_change_below_37_never_writes_directories() -> None:
    """R-CHANGE-4."""
    before = partition((2, 1, 3))
    assert change(before, Wish(directories={1: D}), surroundings("3.7-IV1", anyone)) is None


# ELIGIBLE LEADERS

ELR: dict[str, Any] = {"elr": True, "min_isr": 3}


def test_partition_change_isr_below_the_minimum_keeps_who_left_eligible() -> None:
    """R-ELIG-2."""
    changed = change(partition((1, 2, 3, 4)), Wish(isr=(1, 2)), surroundings("4.0-IV1", **ELR))
    assert changed == {"isr": (1, 2), "eligible_leader_replicas": (3, 4)}
    assert change(partition((1, 2, 3, 4)), Wish(isr=(1, 2)), surroundings("3.7-IV2")) == {"isr": (1, 2)}


def test_partition_change_isr_at_the_minimum_forgets_who_was_eligible() -> None:
    """R-ELIG-2."""
    before = partition((1, 2, 3, 4), isr=(1, 2), eligible_leader_replicas=(3,))
    changed = change(before, Wish(isr=(1, 2, 3)), surroundings("4.0-IV1", **ELR))
    assert changed == {"isr": (1, 2, 3), "eligible_leader_replicas": ()}


def test_partition_change_new_isr_member_leaves_the_eligible_ones_alone() -> None:
    """R-ELIG-2; without the feature they are emptied (R-ELIG-3)."""
    before = partition((1, 2, 3, 4), isr=(1,), eligible_leader_replicas=(3,))
    assert change(before, Wish(isr=(1, 4)), surroundings("4.0-IV1", **ELR)) == {"isr": (1, 4)}
    changed = change(before, Wish(isr=(1, 4)), surroundings("3.7-IV2"))
    assert changed == {"isr": (1, 4), "eligible_leader_replicas": ()}


def test_partition_change_unclean_shutdown_costs_the_eligibility() -> None:
    """R-ELIG-2."""
    before = partition((1, 2, 3, 4), isr=(1,), eligible_leader_replicas=(2, 3))
    wish = Wish(unclean_shutdown=frozenset({3}))
    assert change(before, wish, surroundings("4.0-IV1", **ELR)) == {"eligible_leader_replicas": (2,)}


def test_partition_change_leader_is_remembered_when_lost() -> None:
    """R-ELIG-5."""
    before = partition((1, 2, 3), isr=(1,), eligible_leader_replicas=(2,))
    changed = change(before, Wish(), surroundings("4.0-IV1", nobody, **ELR))
    assert changed == {"leader": NO_LEADER, "last_known_elr": (1,)}


@pytest.mark.parametrize(
    ("stale", "known", "left"),
    [(True, (4,), None), (False, (4,), ()), (False, (2, 4), (2,)), (False, (2,), None)],
)
def test_partition_change_that_completes_a_reassignment_forgets_removed_replicas_but_in_kafka(
    stale: bool, known: tuple[int, ...], left: tuple[int, ...] | None
) -> None:
    """R-ELIG-5, R-QUIRK-3: replica 4 is removed while there is no leader."""
    before = partition((1, 2, 4), isr=(1, 2), leader=NO_LEADER, removing_replicas=(4,), last_known_elr=known)
    around = replace(surroundings("4.0-IV1", nobody, **ELR), keep_stale_elr=stale)
    changed = change(before, Wish(), around)
    assert changed is not None
    assert changed["replicas"] == (1, 2)
    assert changed.get("last_known_elr") == left


def test_partition_change_eligible_replica_is_elected_and_becomes_the_isr() -> None:
    """R-ELECT-3, R-ELECT-7."""
    before = partition((1, 2, 3, 4), isr=(1,), eligible_leader_replicas=(3,))
    wish = Wish(isr=(), election=Election.PREFERRED)
    changed = change(before, wish, surroundings("4.0-IV1", lambda broker: broker != 1, **ELR))
    assert changed == {"isr": (3,), "leader": 3, "eligible_leader_replicas": (1,)}


def test_partition_change_isr_can_become_empty() -> None:
    """R-ELIG-4, R-ELIG-5; while leaderless the remembered leader stays the same."""
    before = partition((1, 2, 3, 4))
    around = surroundings("4.0-IV1", nobody, **ELR)
    wish = Wish(isr=(), election=Election.PREFERRED)
    assert change(before, wish, around) == {
        "isr": (),
        "leader": NO_LEADER,
        "eligible_leader_replicas": (1, 2, 3, 4),
        "last_known_elr": (1,),
    }
    again = change(after(before, wish, around), Wish(unclean_shutdown=frozenset({2})), around)
    assert again == {"eligible_leader_replicas": (1, 3, 4)}


def test_partition_change_last_known_leader_comes_back_uncleanly() -> None:
    """R-ELECT-4, R-ELECT-7, R-ELIG-5."""
    before = partition((1, 2, 3, 4), isr=(), leader=-1, last_known_elr=(1,))
    wish = Wish(isr=(), election=Election.PREFERRED)
    assert change(before, wish, surroundings("4.0-IV1", anyone, **ELR)) == {
        "isr": (1,),
        "leader": 1,
        "leader_recovery_state": RECOVERING,
        "last_known_elr": (),
    }


def test_partition_change_last_known_leader_waits_while_somebody_is_eligible() -> None:
    """R-ELECT-4."""
    before = partition((1, 2, 3, 4), isr=(), leader=-1, eligible_leader_replicas=(3,), last_known_elr=(1,))
    wish = Wish(isr=(), election=Election.PREFERRED)
    assert change(before, wish, surroundings("4.0-IV1", not_3, **ELR)) is None


@pytest.mark.parametrize("election", list(Election))
def test_partition_change_last_known_leader_that_cannot_lead_is_not_elected(election: Election) -> None:
    """R-ELECT-4."""
    before = partition((1, 2, 3, 4), isr=(), leader=-1, last_known_elr=(1,))
    assert change(before, Wish(isr=(), election=election), surroundings("4.0-IV1", nobody, **ELR)) is None


def test_partition_change_last_known_leader_that_is_taken_out_leads_only_in_kafka() -> None:
    """R-QUIRK-3, R-ELECT-4: a cancelled reassignment takes 3 out while nobody is in sync."""
    before = partition((1, 2, 3), isr=(), leader=-1, adding_replicas=(3,), last_known_elr=(3,))
    flawed = surroundings("4.1-IV1", lambda broker_id: broker_id == 3, **ELR)
    wish = Wish(isr=(), replicas=(1, 2), adding=())
    assert after(before, wish, flawed).leader == 3
    assert after(before, wish, replace(flawed, keep_stale_elr=False)).leader == -1


def test_partition_change_stale_eligible_replica_leaves_when_the_flaw_is_repaired() -> None:
    """R-QUIRK-3: 4 is taken out of the replicas by the change, and of the eligible ones only when repaired."""
    moving = partition((1, 2, 4), isr=(1, 4), leader=1, removing_replicas=(4,), eligible_leader_replicas=(2,))
    wish = Wish(isr=(1, 2, 4))
    flawed = surroundings("4.1-IV1", anyone, elr=True, min_isr=3)
    assert after(moving, wish, flawed).eligible_leader_replicas == (4,)
    assert after(moving, wish, replace(flawed, keep_stale_elr=False)).eligible_leader_replicas == ()


# ELECTIONS

ELECTIONS = [
    (FOO, Election.PREFERRED, None, None, 2, False),
    (FOO, Election.ONLINE, None, None, 1, False),
    (FOO, Election.UNCLEAN, None, None, 1, False),
    (FOO, Election.ONLINE, (1, 3), None, 1, False),
    (FOO, Election.UNCLEAN, (1, 3), None, 1, False),
    (FOO, Election.ONLINE, (3,), None, NO_LEADER, False),
    (FOO, Election.UNCLEAN, (3,), None, 2, True),
    (FOO, Election.UNCLEAN, (4,), (2, 1, 3, 4), 4, False),
]


@pytest.mark.parametrize(("before", "election", "isr", "replicas", "leader", "unclean"), ELECTIONS)
def test_elect_foo_is_as_kafkas_builder_test_has_it(
    before: Partition,
    election: Election,
    isr: tuple[int, ...] | None,
    replicas: tuple[int, ...] | None,
    leader: int,
    unclean: bool,
) -> None:
    """R-ELECT-2, R-ELECT-5; broker 3 cannot lead."""
    candidates = Candidates(before.leader, replicas or before.replicas, before.isr if isr is None else isr)
    assert elect(election, candidates, not_3) == Elected(leader, unclean)


@pytest.mark.parametrize("election", list(Election))
def test_elect_baz_keeps_its_leader_while_the_preferred_replica_is_out_of_sync(election: Election) -> None:
    """R-ELECT-2."""
    assert elect(election, Candidates(BAZ.leader, BAZ.replicas, BAZ.isr), anyone) == Elected(3)


# REASSIGNMENTS


@pytest.mark.parametrize(
    ("current", "target", "expected"),
    [
        ((3, 2, 1), (3, 2, 1), Reassignment((3, 2, 1))),
        ((3, 2, 1), (3, 2, 1, 5), Reassignment((3, 2, 1, 5), adding=(5,))),
        ((3, 2, 1, 0), (3, 1), Reassignment((3, 1, 0, 2), removing=(0, 2))),
        ((3, 2, 1, 0), (7, 3, 1, 9), Reassignment((7, 3, 1, 9, 0, 2), removing=(0, 2), adding=(7, 9))),
        ((0, 1, 2, 3), (3, 1, 2, 0), Reassignment((3, 1, 2, 0))),
    ],
)
def test_reassignment_between_two_lists(
    current: tuple[int, ...], target: tuple[int, ...], expected: Reassignment
) -> None:
    """R-REASSIGN-1: none, additions, removals, both, another order."""
    assert Reassignment.between(current, target) == expected
    assert Reassignment.between(current, target).in_progress is bool(expected.removing or expected.adding)


@pytest.mark.parametrize(
    ("reassignment", "isr", "completed"),
    [
        (Reassignment.between((0, 1, 2), (0, 1, 2)), (0, 1, 2), None),
        (Reassignment.between((0, 1, 2), (3, 4, 5)), (0, 1, 2, 3, 4), None),
        (Reassignment.between((0, 1, 2), (3, 4, 5)), (0, 1, 2), None),
        (Reassignment.between((0, 1, 2), (3, 4, 5)), (0, 1, 2, 3, 4, 5), ((3, 4, 5), (3, 4, 5))),
        (Reassignment.between((0, 1, 2), (0, 1, 3)), (0, 1, 2, 3), ((0, 1, 3), (0, 1, 3))),
        (Reassignment.between((0, 1, 2), (0, 1, 3)), (3, 2), None),
        (Reassignment((1, 2, 3), removing=(1, 2, 3)), (1, 2), None),
        (Reassignment((1, 2), adding=(2,)), (1,), None),
    ],
)
def test_reassignment_completes_when_every_replica_that_stays_is_in_sync(
    reassignment: Reassignment, isr: tuple[int, ...], completed: tuple[tuple[int, ...], tuple[int, ...]] | None
) -> None:
    """R-REASSIGN-2."""
    assert reassignment.completed_with(isr) == completed


def test_reassignment_original_replicas_are_those_not_being_added() -> None:
    """R-REASSIGN-3."""
    assert Reassignment.between((0, 1, 2), (0, 1, 3)).original_replicas == (0, 1, 2)


@pytest.mark.parametrize(
    ("reassignment", "isr", "expected"),
    [
        (Reassignment((3, 2, 1)), (3, 2), Revert((3, 2, 1), (3, 2), unclean=False)),
        (Reassignment((3, 2, 1), removing=(2, 1)), (3, 2), Revert((3, 2, 1), (3, 2), unclean=False)),
        (Reassignment((4, 5, 3, 2, 1), adding=(4, 5)), (4, 5, 2), Revert((3, 2, 1), (2,), unclean=False)),
        (Reassignment((4, 5, 3, 2, 1), (2,), (4, 5)), (4, 5, 2), Revert((3, 2, 1), (2,), unclean=False)),
        (Reassignment((4, 5, 3, 2, 1), (2,), (4, 5)), (4, 5), Revert((3, 2, 1), (3,), unclean=True)),
    ],
)
def test_revert_takes_back_what_was_being_added(
    reassignment: Reassignment, isr: tuple[int, ...], expected: Revert
) -> None:
    """R-REASSIGN-3."""
    assert Revert.of(reassignment, isr) == expected


def test_revert_of_a_partition_that_is_all_new_is_refused() -> None:
    """R-REASSIGN-3."""
    with pytest.raises(InvalidReplicaAssignment):
        Revert.of(Reassignment((1, 2), adding=(1, 2)), (1,))
