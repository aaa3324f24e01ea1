"""Topics, in-sync sets, reassignments and elections on request (docs/spec/controller.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jbod_model.formats.records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from jbod_model.formats.requests import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BalanceLeaders,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ElectUncleanLeaders,
    ReassignablePartition,
    ReassignableTopic,
    ReplicaAssignment,
    TopicConfig,
    TopicPartitions,
)
from jbod_model.formats.responses import InvalidRequest, PolicyViolation, StaleBrokerEpoch
from jbod_model.java import JavaRandom
from tests.unit.model.controller.controller_world import World, changes, directory, of, plain, topic_id, versions


def error_of(world: World, topic: CreatableTopic, **context: Any) -> int:
    """The error of creating one topic; with an error there are no records."""
    result = world.look(CreateTopicsRequest(topics=(topic,)), new_topic_ids=(topic_id(50),), **context)
    (answer,) = result.response.topics  # type: ignore[attr-defined]
    assert (answer.error_code == 0) is bool(result.records)
    assert (answer.error_message is None) is (answer.error_code == 0)
    return int(answer.error_code)


def manual(*partitions: tuple[int, ...], name: str = "t", first: int = 0, **fields: Any) -> CreatableTopic:
    assignments = tuple(
        ReplicaAssignment(partition_index=first + index, broker_ids=replicas)
        for index, replicas in enumerate(partitions)
    )
    return CreatableTopic(name=name, assignments=assignments, **fields)


# CREATE TOPICS


def test_create_topics_writes_topic_configuration_and_partitions_in_this_order() -> None:
    """R-CREATE-1, R-CREATE-8, R-CFG-4: with eligible leaders, a minimum in-sync size is followed by a clearing."""
    world = World(elr=True).brokers(0, 1)
    topic = manual((0, 1), (1, 0), configs=(TopicConfig(name="min.insync.replicas", value="2"),))
    result = world.ask(CreateTopicsRequest(topics=(topic,)), new_topic_ids=(topic_id(9),))
    assert [type(record) for record in plain(result)] == [
        TopicRecord,
        ConfigRecord,
        ClearElrRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    assert versions(result.records) == [0, 0, 0, 2, 2]
    (answer,) = result.response.topics  # type: ignore[attr-defined]
    assert (answer.topic_id, answer.num_partitions, answer.replication_factor) == (topic_id(9), 2, 2)


def test_create_topics_begin_in_sync_on_active_replicas() -> None:
    """R-CREATE-6 (testCreateTopicsISRInvariants): 0 is fenced, 1 shuts down, their directories do not matter."""
    world = World().brokers(0, 1, 2)
    world.topic("lead", (1, 2))
    world.fence(0)
    world.ask(world.heartbeat(1, want_shut_down=True))
    world.topic("foo", (0, 1, 2), (2, 1, 0))
    for index in (0, 1):
        partition = world.partition("foo", index)
        assert (partition.isr, partition.leader) == ((2,), 2)
        assert (partition.leader_epoch, partition.partition_epoch, partition.leader_recovery_state) == (0, 0, 0)


CREATE_ERRORS: dict[str, tuple[CreatableTopic, int]] = {
    "taken (R-CREATE-2)": (manual((0,), name="taken"), 36),
    "empty name (R-CREATE-2)": (manual((0,), name=""), 17),
    "two dots (R-CREATE-2)": (manual((0,), name=".."), 17),
    "a slash (R-CREATE-2)": (manual((0,), name="a/b"), 17),
    "250 letters (R-CREATE-2)": (manual((0,), name="x" * 250), 17),
    "collides (R-CREATE-2)": (manual((0,), name="a.b_c"), 17),
    "no partitions (R-CREATE-3)": (CreatableTopic(name="t", num_partitions=0), 37),
    "minus two partitions (R-CREATE-3)": (CreatableTopic(name="t", num_partitions=-2), 37),
    "factor zero (R-PLACE-1)": (CreatableTopic(name="t", replication_factor=0), 38),
    "factor minus two (R-PLACE-1)": (CreatableTopic(name="t", replication_factor=-2), 38),
    "factor too high (R-PLACE-1)": (CreatableTopic(name="t", num_partitions=1, replication_factor=5), 38),
    "both ways: factor (R-CREATE-4)": (manual((0,), replication_factor=1), 42),
    "both ways: partitions (R-CREATE-4)": (manual((0,), num_partitions=1), 42),
    "no broker (R-CREATE-4)": (manual(()), 39),
    "unknown broker (R-CREATE-4)": (manual((0, 9)), 39),
    "broker twice (R-CREATE-4)": (manual((0, 0)), 39),
    "other lengths (R-CREATE-4)": (manual((0, 1), (0,)), 39),
    "does not begin at 0 (R-CREATE-4)": (manual((0,), first=1), 39),
    "all fenced (R-CREATE-4)": (manual((3,)), 39),
    "config without value (R-CREATE-8)": (manual((0,), configs=(TopicConfig(name="x"),)), 40),
    "config too long (R-CFG-2)": (manual((0,), configs=(TopicConfig(name="x", value="y" * 32768),)), 40),
}


@pytest.mark.parametrize("case", CREATE_ERRORS)
def test_create_topics_refuses(case: str) -> None:
    world = World().brokers(0, 1, 2, 3)
    world.topic("taken", (0,))
    world.topic("a_b.c", (0,))
    world.fence(3)
    topic, code = CREATE_ERRORS[case]
    assert error_of(world, topic) == code


def test_create_topics_assigns_a_partition_twice_is_refused() -> None:
    """R-CREATE-4."""
    assignment = ReplicaAssignment(partition_index=0, broker_ids=(0,))
    topic = CreatableTopic(name="t", assignments=(assignment, assignment))
    assert error_of(World().brokers(0), topic) == 39


def test_create_topics_named_twice_is_refused() -> None:
    """R-CTL-3."""
    world = World().brokers(0)
    result = world.look(CreateTopicsRequest(topics=(manual((0,)), manual((0,)))), new_topic_ids=(topic_id(8),) * 2)
    assert [answer.error_code for answer in result.response.topics] == [42, 42]  # type: ignore[attr-defined]
    assert result.records == ()


def test_create_topics_without_an_id_is_refused() -> None:
    """R-CTL-5: ids are drawn outside."""
    assert error_of(World().brokers(0), manual((0,))) == 0
    result = World().brokers(0).look(CreateTopicsRequest(topics=(manual((0,)),)))
    assert [answer.error_code for answer in result.response.topics] == [42]  # type: ignore[attr-defined]


def test_create_topics_one_bad_topic_does_not_hurt_the_other() -> None:
    """R-CREATE-1, R-CTL-2, R-CTL-6."""
    world = World().brokers(0)
    request = CreateTopicsRequest(topics=(manual((9,), name="bad"), manual((0,), name="good")))
    result = world.ask(request, new_topic_ids=(topic_id(7),))
    assert [answer.error_code for answer in result.response.topics] == [39, 0]  # type: ignore[attr-defined]
    assert set(world.image.topic_ids) == {"good"}


def test_create_topics_only_validated_writes_nothing() -> None:
    world = World().brokers(0)
    result = world.look(CreateTopicsRequest(topics=(manual((0,)),), validate_only=True), new_topic_ids=(topic_id(7),))
    assert result.records == ()
    assert result.response.topics[0].error_code == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("topic", [manual(*[(0,)] * 10_001), CreatableTopic(name="t", num_partitions=10_001)])
def test_create_topics_of_too_many_partitions_is_refused_with_44(topic: CreatableTopic) -> None:
    """R-CREATE-5."""
    assert World().brokers(0).refuse(PolicyViolation, CreateTopicsRequest(topics=(topic,))).code == 44


def test_create_topics_placed_uses_the_defaults_and_moves_the_generator() -> None:
    """R-PLACE-2, R-JAVA-1, R-CTL-5."""
    world = World().brokers(0, 1, 2, 3)
    state = JavaRandom(5).state
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t"),))
    result = world.look(
        request,
        new_topic_ids=(topic_id(7),),
        random_state=state,
        default_num_partitions=4,
        default_replication_factor=2,
    )
    assert [len(record.replicas) for record in of(result, PartitionRecord)] == [2] * 4
    assert result.random_state not in (None, state)


def test_create_topics_placed_avoids_brokers_that_shut_down() -> None:
    """R-PLACE-3: fencing ends a shutdown, a fenced broker can follow."""
    world = World().brokers(0, 1, 2)
    world.topic("lead", (0, 1))
    world.ask(world.heartbeat(0, want_shut_down=True))
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t", num_partitions=9, replication_factor=2),))
    placed = of(world.look(request, new_topic_ids=(topic_id(7),)), PartitionRecord)
    assert {broker_id for record in placed for broker_id in record.replicas} == {1, 2}
    world.set("lead", leader=1, isr=(1,))
    world.ask(world.heartbeat(0), controlled_shutdown_offset=0)
    assert world.image.brokers[0].fenced
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t", num_partitions=9, replication_factor=3),))
    placed = of(world.look(request, new_topic_ids=(topic_id(7),)), PartitionRecord)
    assert {record.replicas[-1] for record in placed} == {0}


# CREATE PARTITIONS


def grow(name: str, count: int, *assignments: tuple[int, ...], placed: bool = False) -> CreatePartitionsRequest:
    given = None if placed else tuple(CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments)
    return CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=name, count=count, assignments=given),))


def test_create_partitions_are_as_kafkas_test_has_them() -> None:
    """R-CREATE-6, R-NEWDIR-1 (testCreatePartitions): one broker with two directories, one with one."""
    world = World().brokers(0, dirs=2).brokers(1, dirs=1)
    world.topic("foo", (0, 1))
    (record,) = of(world.ask(grow("foo", 2, (1, 0))), PartitionRecord)
    assert (record.partition_id, record.replicas, record.isr, record.leader) == (1, (1, 0), (1, 0), 1)
    assert record.directories == (directory(1), world.partition("foo").directories[0])


GROW_ERRORS = {
    "unknown topic": (grow("bar", 3, (0, 1)), 3),
    "as many (R-CREATE-3)": (grow("foo", 1), 37),
    "fewer (R-CREATE-3)": (grow("foo", 0), 37),
    "too few assignments (R-CREATE-4)": (grow("foo", 3, (0, 1)), 39),
    "too many assignments (R-CREATE-4)": (grow("foo", 2, (0, 1), (0, 1)), 39),
    "another length (R-CREATE-4)": (grow("foo", 2, (0,)), 39),
    "unknown broker (R-CREATE-4)": (grow("foo", 2, (0, 9)), 39),
    "all fenced (R-CREATE-4)": (grow("foo", 2, (2, 3)), 39),
}


@pytest.mark.parametrize("case", GROW_ERRORS)
def test_create_partitions_refuses(case: str) -> None:
    world = World().brokers(0, 1, 2, 3)
    world.topic("foo", (0, 1))
    world.fence(2, 3)
    request, code = GROW_ERRORS[case]
    result = world.look(request)
    assert [answer.error_code for answer in result.response.results] == [code]  # type: ignore[attr-defined]
    assert result.records == ()


def test_create_partitions_only_validated_writes_nothing() -> None:
    world = World().brokers(0)
    world.topic("foo", (0,))
    assert world.look(replace(grow("foo", 2, (0,)), validate_only=True)).records == ()


def test_create_partitions_have_the_size_of_the_first_partition_in_the_table() -> None:
    """R-CREATE-9, R-MEM-2: of four partitions Kafka's table yields number 2 first."""
    world = World().brokers(0, 1)
    world.topic("foo", (0,), (0,), (0,), (0,))
    world.ask(
        AlterPartitionReassignmentsRequest(
            topics=(
                ReassignableTopic(name="foo", partitions=(ReassignablePartition(partition_index=2, replicas=(0, 1)),)),
            )
        )
    )
    assert len(world.partition("foo", 2).replicas) == 2
    error = world.look(grow("foo", 5, (0,))).response.results[0].error_code  # type: ignore[attr-defined]
    assert error == 39
    assert world.look(grow("foo", 5, (0, 1))).response.results[0].error_code == 0  # type: ignore[attr-defined]


# DELETE


def test_delete_topics_answers_each_id() -> None:
    """R-CREATE-7."""
    world = World().brokers(0)
    topic = world.topic("foo", (0,))
    result = world.ask(DeleteTopicsRequest(topic_ids=(topic, topic_id(66))))
    assert plain(result) == [RemoveTopicRecord(topic_id=topic)]
    assert [answer.error_code for answer in result.response.responses] == [0, 100]  # type: ignore[attr-defined]
    assert world.image.topics == {}


def test_deleting_a_topic_twice_in_one_request_deletes_nothing() -> None:
    """R-CREATE-7."""
    world = World().brokers(0)
    topic = world.topic("foo", (0,))
    result = world.ask(DeleteTopicsRequest(topic_ids=(topic, topic)))
    assert plain(result) == []
    assert [answer.error_code for answer in result.response.responses] == [42]  # type: ignore[attr-defined]


# IN-SYNC SETS


def isr_error(world: World, request: AlterPartitionRequest) -> int:
    result = world.look(request)
    ((answer,),) = [topic.partitions for topic in result.response.topics]  # type: ignore[attr-defined]
    if answer.error_code:
        assert result.records == ()
        assert (answer.leader_id, answer.isr, answer.partition_epoch) == (0, (), 0)
    return int(answer.error_code)


def test_alter_partition_answers_with_the_state_after_it() -> None:
    """R-ISR-1 (testShrinkAndExpandIsr)."""
    world = World().brokers(0, 1, 2)
    world.topic("foo", (0, 1, 2))
    shrunk = world.ask(world.isr_request("foo", 0, 1))
    assert changes(shrunk) == [{"isr": (0, 1)}]
    ((answer,),) = [topic.partitions for topic in shrunk.response.topics]  # type: ignore[attr-defined]
    assert (answer.leader_id, answer.isr, answer.leader_epoch, answer.partition_epoch) == (0, (0, 1), 0, 1)
    assert changes(world.ask(world.isr_request("foo", 0, 1, 2))) == [{"isr": (0, 1, 2)}]


def test_alter_partition_of_a_stale_broker_epoch_is_refused_with_77() -> None:
    """R-HB-1."""
    world = World().brokers(0)
    world.topic("foo", (0,))
    request = replace(world.isr_request("foo", 0), broker_epoch=world.epoch(0) - 1)
    assert world.refuse(StaleBrokerEpoch, request).code == 77


ISR_ERRORS: dict[str, tuple[tuple[int, ...], dict[str, Any], int]] = {
    "leader epoch ahead": ((0,), {"leader_epoch": 5}, 41),
    "partition epoch ahead": ((0,), {"partition_epoch": 5}, 41),
    "leader epoch behind": ((0,), {"leader_epoch": -1}, 74),
    "partition epoch behind": ((0,), {"partition_epoch": -1}, 95),
    "no replica": ((0, 3), {}, 42),
    "member twice": ((0, 1, 1), {}, 42),
    "without the leader": ((1, 2), {}, 42),
    "unknown recovery state": ((0,), {"leader_recovery_state": 7}, 42),
    "recovering with others": ((0, 1), {"leader_recovery_state": 1}, 42),
    "recovered to recovering": ((0,), {"leader_recovery_state": 1}, 42),
    "fenced member": ((0, 1), {}, 107),
    "member that shuts down": ((0, 2), {}, 107),
}


@pytest.mark.parametrize("case", ISR_ERRORS)
def test_alter_partition_refuses(case: str) -> None:
    """R-ISR-2, R-ISR-3 (testInvalidAlterPartitionRequests, testAlterPartitionShouldReject...)."""
    world = World().brokers(0, 1, 2, 3)
    world.topic("foo", (0, 1, 2))
    world.topic("lead", (2, 3))
    world.fence(1)
    world.ask(world.heartbeat(2, want_shut_down=True))
    world.set("foo", leader_epoch=3, partition_epoch=3, isr=(0,))
    members, fields, code = ISR_ERRORS[case]
    assert isr_error(world, world.isr_request("foo", *members, **fields)) == code


def test_alter_partition_of_a_leader_that_still_recovers_has_it_alone() -> None:
    """R-ISR-2: a leader may stay in recovery by itself; others join it once it has recovered."""
    world = World().brokers(0, 1)
    world.topic("foo", (0, 1))
    world.set("foo", isr=(0,), leader_recovery_state=1)
    assert isr_error(world, world.isr_request("foo", 0, 1, leader_recovery_state=1)) == 42
    assert isr_error(world, world.isr_request("foo", 0, leader_recovery_state=1)) == 0
    joined = world.ask(world.isr_request("foo", 0, 1, leader_recovery_state=0))
    assert changes(joined) == [{"isr": (0, 1), "leader_recovery_state": 0}]


def test_alter_partition_from_who_does_not_lead_is_refused() -> None:
    """R-ISR-2."""
    world = World().brokers(0, 1)
    world.topic("foo", (0, 1))
    request = replace(world.isr_request("foo", 0), broker_id=1, broker_epoch=world.epoch(1))
    assert isr_error(world, request) == 42


def test_alter_partition_member_of_another_epoch_is_refused() -> None:
    """R-ISR-3 (testAlterPartitionShouldRejectBrokersWithStaleEpoch): -1 is not checked."""
    world = World().brokers(0, 1)
    world.topic("foo", (0, 1))
    request = world.isr_request("foo", 0, 1)
    partition = request.topics[0].partitions[0]
    for epoch, code in ((world.epoch(1) + 1, 107), (-1, 0), (world.epoch(1), 0)):
        members = (partition.new_isr_with_epochs[0], replace(partition.new_isr_with_epochs[1], broker_epoch=epoch))
        changed = replace(partition, new_isr_with_epochs=members)
        topics = (AlterPartitionTopic(topic_id=world.id("foo"), partitions=(changed,)),)
        assert isr_error(world, replace(request, topics=topics)) == code


def test_alter_partition_of_what_does_not_exist_is_refused() -> None:
    """R-ISR-2."""
    world = World().brokers(0)
    world.topic("foo", (0,))
    request = world.isr_request("foo", 0)
    topic = request.topics[0]
    unknown_topic = replace(topic, topic_id=topic_id(66))
    unknown_partition = replace(topic, partitions=(replace(topic.partitions[0], partition_index=9),))
    assert isr_error(world, replace(request, topics=(unknown_topic,))) == 100
    assert isr_error(world, replace(request, topics=(unknown_partition,))) == 3


def test_alter_partition_takes_a_replica_whose_directory_is_offline() -> None:
    """R-ISR-3: nobody asks."""
    world = World().brokers(0, 1)
    world.topic("foo", (0, 1))
    world.assign(1, directory(1), "foo")
    world.ask(world.heartbeat(1, directory(1)))
    assert world.partition("foo").isr == (0,)
    assert isr_error(world, world.isr_request("foo", 0, 1)) == 0


def test_alter_partition_that_moves_the_leader_is_written_and_answered_with_108() -> None:
    """R-ISR-4, R-REASSIGN-4."""
    world = World().brokers(0, 1, 2)
    world.topic("foo", (0, 1))
    world.ask(reassign("foo", (2, 1)))
    request = world.isr_request("foo", 0, 1, 2)
    result = world.ask(request)
    ((answer,),) = [topic.partitions for topic in result.response.topics]  # type: ignore[attr-defined]
    assert answer.error_code == 108
    assert (world.partition("foo").replicas, world.partition("foo").leader) == ((2, 1), 2)


# REASSIGNMENTS


def reassign(name: str, *targets: tuple[int, ...] | None, **fields: Any) -> AlterPartitionReassignmentsRequest:
    partitions = tuple(ReassignablePartition(partition_index=i, replicas=target) for i, target in enumerate(targets))
    return AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name=name, partitions=partitions),), **fields)


def reassign_errors(response: Any) -> list[int]:
    return [partition.error_code for topic in response.responses for partition in topic.partitions]


def test_reassign_is_as_kafkas_test_has_it() -> None:
    """R-REASSIGN-1, R-REASSIGN-6 (testReassignPartitions): another order is done at once, a move begins, 2 is unknown.

    Then a cancel: nothing to cancel (R-REASSIGN-5), taken back (R-REASSIGN-3), unknown.
    """
    world = World().brokers(0, 1, 2, 3, dirs=1)
    world.topic("foo", (1, 2, 3), (3, 2, 1))
    result = world.ask(reassign("foo", (3, 2, 1), (0, 2, 1), (0, 2, 1)))
    assert reassign_errors(result.response) == [0, 0, 3]
    moving = world.partition("foo", 1)
    assert (moving.replicas, moving.removing_replicas, moving.adding_replicas) == ((0, 2, 1, 3), (3,), (0,))
    assert moving.directories == tuple(directory(broker_id) for broker_id in (0, 2, 1, 3))
    assert world.partition("foo").replicas == (3, 2, 1)
    cancelled = world.ask(reassign("foo", None, None, None))
    assert reassign_errors(cancelled.response) == [85, 0, 3]
    assert changes(cancelled) == [
        {
            "leader": 3,
            "replicas": (2, 1, 3),
            "directories": (directory(2), directory(1), directory(3)),
            "removing_replicas": (),
            "adding_replicas": (),
        }
    ]


def test_cancel_is_as_kafkas_test_has_it() -> None:
    """R-REASSIGN-5, R-REASSIGN-7 (testCancelReassignPartitions): broker 3 is fenced."""
    world = World().brokers(0, 1, 2, 3, 4, dirs=1)
    world.topic("foo", (1, 2, 3, 4), (0, 1, 2, 3), (4, 3, 1, 0), (2, 3, 4, 1))
    world.topic("bar", (4, 3, 2))
    world.fence(3)
    assert reassign_errors(world.ask(reassign("foo", (1, 2, 4), (1, 2, 3, 0), (5, 6, 7), ())).response) == [
        0,
        0,
        39,
        39,
    ]
    first, second = world.partition("foo"), world.partition("foo", 1)
    assert (first.replicas, first.isr, first.leader_epoch, first.partition_epoch) == ((1, 2, 4), (1, 2, 4), 1, 2)
    assert (second.replicas, second.isr, second.leader, second.leader_epoch) == ((1, 2, 3, 0), (0, 1, 2), 0, 0)
    assert second.directories == tuple(directory(broker_id) for broker_id in (1, 2, 3, 0))
    world.ask(reassign("bar", (1, 2, 3, 4, 0)))
    moving = world.partition("bar")
    assert (moving.replicas, moving.isr, moving.adding_replicas) == ((1, 2, 3, 4, 0), (4, 2), (0, 1))
    assert reassign_errors(world.look(reassign("foo", None)).response) == [85]
    assert changes(world.ask(reassign("bar", None))) == [
        {
            "leader": 4,
            "replicas": (2, 3, 4),
            "directories": (directory(2), directory(3), directory(4)),
            "adding_replicas": (),
        }
    ]


def test_reassign_to_what_cannot_be_is_refused_with_39() -> None:
    """R-REASSIGN-7, R-CTL-2."""
    world = World().brokers(0, 1)
    world.topic("foo", (0,), (0,), (0,))
    result = world.look(reassign("foo", (9,), (1, 1), ()))
    assert reassign_errors(result.response) == [39, 39, 39]
    assert result.records == ()
    assert reassign_errors(world.look(reassign("bar", (0,))).response) == [3]


@pytest.mark.parametrize(("target", "code"), [((1, 2), 0), ((1,), 38), ((0, 1, 2), 38)])
def test_reassign_keeps_the_size_if_asked_to(target: tuple[int, ...], code: int) -> None:
    """R-REASSIGN-7 (testAlterPartitionDisallowReplicationFactorChange): the size without what is leaving."""
    world = World().brokers(0, 1, 2, 3)
    world.topic("foo", (0, 1))
    world.ask(reassign("foo", (2, 3)))
    assert len(world.partition("foo").replicas) == 4
    request = reassign("foo", target, allow_replication_factor_change=False)
    assert reassign_errors(world.look(request).response) == [code]


def test_cancel_ignores_the_wish_to_keep_the_size() -> None:
    """R-REASSIGN-7 (testDisallowReplicationFactorChangeNoEffectWhenCancelAlterPartition)."""
    world = World().brokers(0, 1, 2, 3)
    world.topic("foo", (0, 1))
    world.ask(reassign("foo", (2, 3)))
    result = world.ask(reassign("foo", None, allow_replication_factor_change=False))
    assert reassign_errors(result.response) == [0]
    assert world.partition("foo").replicas == (0, 1)


def test_reassign_again_replaces_what_was_under_way() -> None:
    """R-REASSIGN-7 (testReassignPartitionsHandlesNewReassignmentThatRemovesPreviouslyAddingReplicas)."""
    world = World().brokers(0, 1, 2, 3)
    world.topic("foo", (0, 1))
    world.ask(reassign("foo", (2, 1)))
    world.ask(reassign("foo", (3, 1)))
    moving = world.partition("foo")
    assert (moving.replicas, moving.removing_replicas, moving.adding_replicas) == ((3, 1, 0, 2), (0, 2), (3,))


def test_cancel_that_would_lose_data_needs_the_topics_consent() -> None:
    """R-REASSIGN-5."""
    world = World().brokers(0, 1)
    world.topic("foo", (0,))
    world.ask(reassign("foo", (1, 0)))
    world.set("foo", isr=(1,), leader=1, adding_replicas=(1,))
    assert reassign_errors(world.look(reassign("foo", None)).response) == [39]
    world.allow_unclean("foo")
    assert reassign_errors(world.ask(reassign("foo", None)).response) == [0]
    assert world.partition("foo").replicas == (0,)


# ELECTIONS


def elect(election_type: int, *partitions: int, topic: str = "foo") -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=(TopicPartitions(topic=topic, partitions=partitions),) if partitions else None,
    )


def elect_errors(response: Any) -> list[tuple[int, int]]:
    return [
        (partition.partition_id, partition.error_code)
        for topic in response.replica_election_results
        for partition in topic.partition_result
    ]


def test_elect_preferred_leaders_is_as_kafkas_test_has_it() -> None:
    """R-ELECT-9, R-ELECT-10, R-ELECT-5 (testElectPreferredLeaders)."""
    world = World().brokers(0, 1, 2)
    world.topic("foo", (0, 1), (1, 0), (2, 1))
    world.fence(0)
    world.ask(world.heartbeat(0))
    world.ask(world.isr_request("foo", 1, 0, partition=0))
    world.fence(2)
    result = world.ask(elect(0, 0, 1, 2, 9))
    assert elect_errors(result.response) == [(0, 0), (1, 84), (2, 80), (9, 3)]
    assert changes(result) == [{"leader": 0}]
    assert elect_errors(world.look(elect(0)).response) == [(2, 80)]


def test_elect_preferred_refuses_an_offline_directory_with_80() -> None:
    """R-ELECT-1, R-ELECT-10."""
    world = World().brokers(0, 1)
    world.topic("foo", (0, 1))
    world.assign(0, directory(0), "foo")
    world.ask(world.heartbeat(0, directory(0)))
    assert elect_errors(world.look(elect(0, 0)).response) == [(0, 80)]


def test_elect_unclean_leaders_is_as_kafkas_test_has_it() -> None:
    """R-ELECT-10, R-ELECT-7 (testElectUncleanLeaders_WithoutElr): on request, whatever the topic allows."""
    world = World().brokers(0, 1, 2)
    world.topic("foo", (0, 1), (1, 0), (2, 0))
    world.ask(world.isr_request("foo", 0))
    world.fence(0)
    assert world.partition("foo").leader == -1
    world.set("foo", 2, isr=(2,), leader=-1, replicas=(2, 0))
    world.fence(2)
    result = world.ask(elect(1, 0, 1, 2))
    assert elect_errors(result.response) == [(0, 0), (1, 84), (2, 83)]
    assert changes(result) == [{"isr": (1,), "leader": 1, "leader_recovery_state": 1}]


@pytest.mark.parametrize("kind", [2, -1, 7])
def test_elect_of_an_unknown_kind_is_refused_with_42(kind: int) -> None:
    """R-ELECT-9, R-CTL-3."""
    assert World().refuse(InvalidRequest, elect(kind)).code == 42


def test_elect_of_an_unknown_topic_is_answered_with_3() -> None:
    """R-ELECT-9."""
    assert elect_errors(World().look(elect(0, 0, topic="bar")).response) == [(0, 3)]


def test_balance_leaders_elects_the_preferred_up_to_a_limit() -> None:
    """R-ELECT-11 (testBalancePartitionLeaders)."""
    world = World().brokers(0, 1)
    world.topic("foo", (0, 1), (0, 1), (0, 1), (1, 0))
    world.fence(0)
    world.ask(world.heartbeat(0))
    for index in range(4):
        world.ask(world.isr_request("foo", 1, 0, partition=index))
    limited = world.look(BalanceLeaders(max_elections=2))
    assert changes(limited) == [{"leader": 0}] * 2
    assert limited.response.more  # type: ignore[attr-defined]
    result = world.ask(BalanceLeaders())
    assert [record.partition_id for record in of(result, PartitionChangeRecord)] == [0, 1, 2]
    assert not result.response.more  # type: ignore[attr-defined]


def test_elect_unclean_leaders_periodically_only_where_topics_allow_it() -> None:
    """R-ELECT-11, R-ELECT-8 (testMaybeTriggerUncleanLeaderElectionForLeaderlessPartitions)."""
    world = World().brokers(0, 1)
    for name in ("foo", "bar"):
        world.topic(name, (0, 1), (0, 1))
        for index in (0, 1):
            world.ask(world.isr_request(name, 0, partition=index))
    world.fence(0)
    assert world.look(ElectUncleanLeaders()).records == ()
    world.allow_unclean("bar")
    limited = world.look(ElectUncleanLeaders(max_elections=1))
    assert len(limited.records) == 1
    assert limited.response.more  # type: ignore[attr-defined]
    assert {record.topic_id for record in of(world.ask(ElectUncleanLeaders()), PartitionChangeRecord)} == {
        world.id("bar")
    }
    assert world.partition("bar").leader == 1


def test_preferred_election_is_never_unclean() -> None:
    """R-ELECT-5 (testPreferredElectionDoesNotTriggerUncleanElection)."""
    world = World().brokers(1, 2, 3, 4)
    world.topic("foo", (1, 2, 3))
    world.ask(world.isr_request("foo", 1))
    world.allow_unclean("foo")
    world.set("foo", isr=(1,), leader=-1)
    world.fence(1)
    world.set("foo", isr=(1,), leader=-1)
    assert elect_errors(world.look(elect(0, 0)).response) == [(0, 80)]
