"""AssignReplicasToDirs, as Kafka's tests and the experiments on its classes have it (docs/spec/controller.md)."""

from __future__ import annotations

import pytest

from jbod_model.formats.records import FeatureLevelRecord, PartitionChangeRecord
from jbod_model.formats.requests import AssignedDirectory, AssignedPartition, AssignedTopic, AssignReplicasToDirsRequest
from jbod_model.formats.responses import AssignReplicasToDirsResponse, DirectoriesNotSupported, StaleBrokerEpoch
from jbod_model.ids import Uuid
from tests.unit.model.controller.controller_world import (
    LOST,
    MIGRATING,
    UNASSIGNED,
    World,
    changes,
    directory,
    of,
    topic_id,
    versions,
)

UNKNOWN = Uuid(5, 5)


def codes(response: object) -> list[list[list[int]]]:
    """Per directory, topic and partition: the error code."""
    assert isinstance(response, AssignReplicasToDirsResponse)
    return [
        [[partition.error_code for partition in topic.partitions] for topic in where.topics]
        for where in response.directories
    ]


@pytest.mark.parametrize("level", ["3.3-IV3", "3.7-IV1"])
def test_assign_below_37_is_refused_with_35(level: str) -> None:
    """R-ASSIGN-1: before the epoch is looked at."""
    refused = World(level).refuse(DirectoriesNotSupported, AssignReplicasToDirsRequest(broker_id=1))
    assert refused.code == 35


@pytest.mark.parametrize("broker_id", [1, 5])
def test_assign_of_a_stale_epoch_or_unknown_broker_is_refused_with_77(broker_id: int) -> None:
    """R-ASSIGN-2."""
    world = World().brokers(1)
    assert world.refuse(StaleBrokerEpoch, AssignReplicasToDirsRequest(broker_id=broker_id)).code == 77


def test_assign_is_as_kafkas_test_has_it() -> None:
    """Kafka (testHandleAssignReplicasToDirs): eight entries over four directories.

    R-ASSIGN-3, R-ASSIGN-4, R-ASSIGN-5: five directory records, then two of partitions that lost their leader.
    """
    world = World().brokers(1).brokers(2, dirs=1)
    a = world.topic("a", (1, 2), (1, 2), (1, 2))
    b = world.topic("b", (1, 2), (1, 2))
    c = world.topic("c", (2,))
    first, second, theirs = directory(1, 0), directory(1, 1), directory(2, 0)

    def partitions(*indices: int) -> tuple[AssignedPartition, ...]:
        return tuple(AssignedPartition(partition_index=index) for index in indices)

    result = world.ask(
        AssignReplicasToDirsRequest(
            broker_id=1,
            broker_epoch=world.epoch(1),
            directories=(
                AssignedDirectory(
                    id=first,
                    topics=(
                        AssignedTopic(topic_id=a, partitions=partitions(0, 137)),
                        AssignedTopic(topic_id=b, partitions=partitions(0)),
                        AssignedTopic(topic_id=c, partitions=partitions(0)),
                    ),
                ),
                AssignedDirectory(
                    id=second,
                    topics=(
                        AssignedTopic(topic_id=a, partitions=partitions(1)),
                        AssignedTopic(topic_id=topic_id(99), partitions=partitions(1)),
                    ),
                ),
                AssignedDirectory(id=UNKNOWN, topics=(AssignedTopic(topic_id=a, partitions=partitions(2)),)),
                AssignedDirectory(id=LOST, topics=(AssignedTopic(topic_id=b, partitions=partitions(1)),)),
            ),
        )
    )
    assert codes(result.response) == [[[0, 3], [0], [6]], [[0], [100]], [[0]], [[0]]]
    assert [
        (record.topic_id, record.partition_id, changed)
        for record, changed in zip(of(result, PartitionChangeRecord), changes(result), strict=True)
    ] == [
        (a, 0, {"directories": (first, theirs)}),
        (b, 0, {"directories": (first, theirs)}),
        (a, 1, {"directories": (second, theirs)}),
        (a, 2, {"directories": (UNKNOWN, theirs)}),
        (b, 1, {"directories": (LOST, theirs)}),
        (a, 2, {"isr": (2,), "leader": 2}),
        (b, 1, {"isr": (2,), "leader": 2}),
    ]
    assert set(versions(result.records)) == {2}
    leaders = {(name, index): world.partition(name, index).leader for name, index in (("a", 0), ("a", 1), ("a", 2))}
    assert leaders == {("a", 0): 1, ("a", 1): 1, ("a", 2): 2}
    assert [world.partition("b", index).leader for index in (0, 1)] == [1, 2]


def test_assign_the_present_directory_again_writes_nothing() -> None:
    """R-ASSIGN-3."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    assert len(world.assign(0, directory(0), "a").records) == 1
    assert world.assign(0, directory(0), "a").records == ()


def test_assign_the_same_partition_twice_in_one_request_ends_with_the_later() -> None:
    """R-CTL-7: two records, both from the state before."""
    world = World().brokers(0, 1)
    a = world.topic("a", (0, 1))
    result = world.ask(world.assignment(0, (directory(0, 0), a, 0), (directory(0, 1), a, 0)))
    assert [changed["directories"][0] for changed in changes(result)] == [directory(0, 0), directory(0, 1)]
    assert world.partition("a").directories[0] == directory(0, 1)
    assert world.partition("a").partition_epoch == 2


@pytest.mark.parametrize("where", [UNASSIGNED, MIGRATING])
def test_assign_a_reserved_id_without_a_place_counts_as_online(where: Uuid) -> None:
    """R-ASSIGN-5."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.assign(0, directory(0), "a")
    assert changes(world.assign(0, where, "a")) == [{"directories": (where, UNASSIGNED)}]


@pytest.mark.parametrize("where", [LOST, Uuid(0, 50), UNKNOWN, directory(1)])
def test_assign_a_directory_the_broker_has_not_costs_the_leadership(where: Uuid) -> None:
    """R-ASSIGN-5: lost, reserved, unknown, another broker's."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    result = world.assign(0, where, "a")
    assert changes(result) == [{"directories": (where, UNASSIGNED)}, {"isr": (1,), "leader": 1}]


def test_assign_an_offline_directory_to_the_last_in_sync_replica_leaves_no_leader() -> None:
    """R-ASSIGN-5, R-ELIG-4."""
    world = World().brokers(0)
    world.topic("a", (0,))
    assert changes(world.assign(0, LOST, "a")) == [{"directories": (LOST,)}, {"leader": -1}]
    assert world.partition("a").isr == (0,)


def test_assign_an_offline_directory_out_of_sync_only_moves() -> None:
    """R-ASSIGN-5, R-CHANGE-1."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.ask(world.isr_request("a", 0))
    assert changes(world.assign(1, LOST, "a")) == [{"directories": (UNASSIGNED, LOST)}]


def test_assign_an_online_directory_leaves_a_leaderless_partition_to_the_next_chance() -> None:
    """R-ASSIGN-6: the second assignment sees what the first one wrote."""
    world = World().brokers(0)
    world.topic("a", (0,))
    world.assign(0, LOST, "a")
    assert changes(world.assign(0, directory(0), "a")) == [{"directories": (directory(0),)}]
    assert world.partition("a").leader == -1
    assert changes(world.assign(0, directory(0), "a")) == [{"leader": 0}]


def test_assign_an_offline_directory_right_after_an_online_one_is_led_from_there() -> None:
    """R-ASSIGN-6: its own record elects the broker by the directory before, the later one is made without that."""
    world = World().brokers(0)
    world.topic("a", (0,))
    world.assign(0, LOST, "a")
    world.assign(0, directory(0), "a")
    assert changes(world.assign(0, LOST, "a")) == [{"directories": (LOST,), "leader": 0}]
    assert (world.partition("a").leader, world.partition("a").directories) == (0, (LOST,))


def test_assign_moves_a_leader_that_is_shutting_down() -> None:
    """R-ASSIGN-6, R-ELECT-6: its record's election looks at everything else."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.fence(1)
    world.ask(world.heartbeat(1))
    world.ask(world.isr_request("a", 0, 1))
    world.ask(world.heartbeat(0, want_shut_down=True))
    world.set("a", isr=(0, 1), leader=0)
    assert changes(world.assign(0, directory(0), "a")) == [{"directories": (directory(0), UNASSIGNED), "leader": 1}]


def test_assign_is_taken_from_a_fenced_broker() -> None:
    """R-ASSIGN-2: only the epoch is looked at; once unfenced, the broker leads there."""
    world = World().brokers(0)
    world.topic("a", (0,))
    world.fence(0)
    assert changes(world.assign(0, directory(0, 1), "a")) == [{"directories": (directory(0, 1),)}]
    world.ask(world.heartbeat(0))
    assert world.partition("a").leader == 0


def test_assign_to_a_broker_without_directories_takes_every_id_but_lost() -> None:
    """R-ASSIGN-5: such a registration is from before directories; it becomes online once there is one."""
    world = World("3.7-IV1").brokers(0)
    world.apply(FeatureLevelRecord(name="metadata.version", feature_level=17))
    world.topic("a", (0,))
    assert world.partition("a").directories == (MIGRATING,)
    assert changes(world.assign(0, UNKNOWN, "a")) == [{"directories": (UNKNOWN,)}]
    assert world.partition("a").leader == 0


# THE DIRECTORY OF A NEW REPLICA


@pytest.mark.parametrize(
    ("directories", "failed", "expected"),
    [(1, 0, directory(0)), (2, 0, UNASSIGNED), (3, 0, UNASSIGNED), (3, 1, UNASSIGNED), (3, 2, directory(0))],
)
def test_new_replica_is_in_the_only_online_directory(directories: int, failed: int, expected: Uuid) -> None:
    """R-NEWDIR-1: what counts is what is online."""
    world = World().brokers(0, dirs=directories)
    world.ask(world.heartbeat(0, *(directory(0, number) for number in range(1, failed + 1))))
    world.topic("a", (0,))
    assert world.partition("a").directories == (expected,)


def test_new_replica_below_37_is_migrating() -> None:
    """R-NEWDIR-1."""
    world = World("3.7-IV1").brokers(0)
    world.topic("a", (0,))
    assert world.partition("a").directories == (MIGRATING,)


def test_new_replica_is_as_kafkas_cluster_describer_test_has_it() -> None:
    """R-NEWDIR-1 (testKRaftClusterDescriber, testDefaultDir): none, one, two directories."""
    world = World("3.7-IV1").brokers(1)
    world.apply(FeatureLevelRecord(name="metadata.version", feature_level=27))
    world.brokers(2, dirs=1).brokers(3, dirs=2)
    world.topic("foo", (1, 2, 3), (2, 3, 1))
    assert world.partition("foo").directories == (MIGRATING, directory(2), UNASSIGNED)
    assert world.partition("foo", 1).directories == (directory(2), UNASSIGNED, MIGRATING)
