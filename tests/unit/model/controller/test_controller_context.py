"""What a controller assumes if the context does not say it, and what it remembers (R-CTL-5, R-MEM-1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from jbod_model.controller.cluster import Cluster
from jbod_model.controller.context import Context, ControllerMemory
from jbod_model.controller.placement import UsableBroker, place
from jbod_model.controller.topics import usable_brokers
from jbod_model.formats.metadata_version import LEVELS
from jbod_model.formats.records import (
    ClearElrRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from jbod_model.formats.requests import (
    AlterableConfig,
    AlterConfigsResource,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    TopicPartitions,
)
from jbod_model.formats.responses import (
    BrokerHeartbeatResponse,
    CreateTopicsResponse,
    ElectLeadersResponse,
    InvalidRequest,
    KafkaError,
    PolicyViolation,
)
from jbod_model.ids import Uuid
from jbod_model.java import JavaRandom
from jbod_model.profiles import KAFKA, KIP858
from jbod_model.replay.image import Image
from tests.unit.model.controller.controller_world import (
    MIGRATING,
    UNASSIGNED,
    World,
    changes,
    directory,
    of,
    topic_id,
    versions,
)

# DEFAULTS


def test_broker_is_caught_up_if_the_offset_of_its_registration_is_unknown() -> None:
    """R-HB-3."""
    world = World().brokers(1)
    response = world.look(world.heartbeat(1, current_metadata_offset=0)).response
    assert isinstance(response, BrokerHeartbeatResponse)
    assert response.is_caught_up


def test_broker_shuts_down_at_once_if_no_active_broker_lags_behind() -> None:
    """R-HB-5: without other brokers there is nobody to wait for."""
    world = World().brokers(1)
    world.topic("a", (1,))
    request = world.heartbeat(1, want_shut_down=True)
    response = world.look(request, controlled_shutdown_offset=10**15).response
    assert isinstance(response, BrokerHeartbeatResponse)
    assert response.in_controlled_shutdown or response.should_shut_down
    waiting = world.look(request, controlled_shutdown_offset=10, lowest_active_offset=9).response
    assert isinstance(waiting, BrokerHeartbeatResponse)
    assert not waiting.should_shut_down


@pytest.mark.parametrize(("context", "eligible"), [({}, (2,)), ({"clean_shutdown_detection": False}, ())])
def test_clean_shutdown_keeps_a_broker_eligible_if_the_request_can_show_it(
    context: dict[str, Any], eligible: tuple[int, ...]
) -> None:
    """R-LEADER-6: requests below version 3 cannot."""
    world = World(elr=True, min_isr=2).brokers(1, 2)
    world.topic("a", (1, 2))
    world.ask(world.isr_request("a", 1))
    assert world.partition("a").eligible_leader_replicas == (2,)
    world.ask(world.registration(2, directory(2), process=1, previous_broker_epoch=world.epoch(2)), **context)
    assert world.partition("a").eligible_leader_replicas == eligible


def test_first_registration_is_never_a_clean_restart() -> None:
    """R-LEADER-6: whatever previous epoch the broker claims."""
    world = World(elr=True, min_isr=2).brokers(1)
    world.topic("a", (1,))
    world.set("a", replicas=(1, 9), directories=(directory(1), directory(9)), isr=(1, 9))
    for claimed in (-1, 0, 2):
        result = world.look(world.registration(9, directory(9), previous_broker_epoch=claimed))
        assert [change.get("eligible_leader_replicas") for change in changes(result)] == [None]


def test_broker_that_restarts_after_the_feature_was_turned_off_leaves_eligible_sets_alone() -> None:
    """R-LEADER-6, R-ELIG-1: only partitions that it was in sync on change."""
    world = World(elr=True, min_isr=2).brokers(1, 2)
    world.topic("a", (1, 2))
    world.ask(world.isr_request("a", 1))
    world.apply(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0))
    assert changes(world.look(world.registration(2, directory(2), process=1))) == []


def test_broker_without_recorded_directories_is_not_asked_to_stop() -> None:
    """R-QUIRK-5: nothing says that all of its directories failed."""
    world = World("3.7-IV1", profile=KIP858).brokers(1)
    response = world.look(world.heartbeat(1)).response
    assert isinstance(response, BrokerHeartbeatResponse)
    assert not response.should_shut_down


def test_context_that_says_nothing_is_that_of_kafkas_builders() -> None:
    """Source: ``ReplicationControlManager.Builder``; no offset, no controller, no random number yet."""
    context = Context()
    assert (context.default_num_partitions, context.default_replication_factor) == (1, 3)
    assert (context.register_broker_record_offset, context.controlled_shutdown_offset) == (-1, -1)
    assert (context.next_offset, context.random_state, context.controller_id, context.kraft_version) == (0, 0, -1, 0)


@pytest.mark.parametrize(("level", "default"), [("3.7-IV1", MIGRATING), ("3.7-IV2", UNASSIGNED)])
def test_new_replica_has_no_directory_where_none_can_be_recorded(level: str, default: Uuid) -> None:
    """R-NEWDIR-1."""
    world = World().brokers(1)
    world.apply(FeatureLevelRecord(name="metadata.version", feature_level=LEVELS[level]))
    assert Cluster(world.image, KAFKA, Context()).default_dir(1) == default


# REQUESTS


def test_request_that_no_handler_takes_is_refused() -> None:
    """R-CTL-7."""
    assert "does not handle" in str(World().refuse(InvalidRequest, cast("Any", Uuid(1, 1))))


def test_topics_of_the_default_size_count_for_the_limit() -> None:
    """R-CREATE-5: 2 topics of 5,001 partitions are too many, with or without assignments."""
    request = CreateTopicsRequest(topics=tuple(CreatableTopic(name=name) for name in "ab"))
    World().brokers(1).refuse(PolicyViolation, request, default_num_partitions=5001, default_replication_factor=1)


def test_deletion_writes_version_0() -> None:
    """R-CREATE-7."""
    world = World().brokers(1)
    result = world.ask(DeleteTopicsRequest(topic_ids=(world.topic("a", (1,)),)))
    assert (len(of(result, RemoveTopicRecord)), versions(result.records)) == (1, [0])


def test_partition_that_broker_0_leads_has_a_leader() -> None:
    """R-ELECT-10, R-LEADER-3."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    assert Cluster(world.image, KAFKA, Context()).partitions_without_leader() == []
    request = ElectLeadersRequest(election_type=1, topic_partitions=(TopicPartitions(topic="a", partitions=(0,)),))
    response = world.look(request).response
    assert isinstance(response, ElectLeadersResponse)
    ((partition,),) = (topic.partition_result for topic in response.replica_election_results)
    assert partition.error_code == KafkaError.ELECTION_NOT_NEEDED


@pytest.mark.parametrize(("name", "value", "cleared"), [("retention.ms", "1000", 0), ("min.insync.replicas", "2", 1)])
def test_only_a_new_minimum_of_replicas_in_sync_clears_eligible_leaders(name: str, value: str, cleared: int) -> None:
    """R-CFG-4."""
    world = World(elr=True).brokers(1, 2)
    world.topic("a", (1, 2))
    change = AlterConfigsResource(
        resource_type=2, resource_name="a", configs=(AlterableConfig(name=name, value=value),)
    )
    result = world.look(IncrementalAlterConfigsRequest(resources=(change,)))
    assert len(of(result, ClearElrRecord)) == cleared


def test_brokers_are_placed_in_the_order_of_their_ids() -> None:
    """R-PLACE-2: whoever registered first; racks with the same hash come in this order."""
    world = World()
    world.ask(world.registration(2, directory(2), rack="Aa"))
    world.ask(world.registration(1, directory(1), rack="BB"))
    assert [each.id for each in usable_brokers(Cluster(world.image, KAFKA, Context()))] == [1, 2]


def test_replication_factor_is_checked_before_the_number_of_partitions() -> None:
    """R-CREATE-4."""
    request = CreateTopicsRequest(topics=(CreatableTopic(name="a", num_partitions=0, replication_factor=-2),))
    response = World().brokers(1).look(request).response
    assert isinstance(response, CreateTopicsResponse)
    assert [each.error_code for each in response.topics] == [KafkaError.INVALID_REPLICATION_FACTOR]


@pytest.mark.parametrize(("brokers", "shuffled"), [(1, False), (2, True), (3, True)])
def test_brokers_are_shuffled_when_each_of_several_has_led(brokers: int, shuffled: bool) -> None:
    """R-PLACE-2: one broker alone has no order."""
    usable = [UsableBroker(broker_id, None, False) for broker_id in range(brokers)]
    states = []
    for partitions in (brokers, brokers + 1):
        random = JavaRandom(7)
        place(usable, partitions, 1, random)
        states.append(random.state)
    assert (states[0] != states[1]) is shuffled


# MEMORY


def test_memory_keeps_who_is_eligible_over_a_change_of_something_else() -> None:
    """R-MEM-1: a change without the field keeps it, a new PartitionRecord without it empties it."""
    memory, image, topic = ControllerMemory(), Image(), topic_id(1)
    partition = PartitionRecord(
        topic_id=topic, partition_id=0, replicas=(1, 2), isr=(1,), leader=1, eligible_leader_replicas=(2,)
    )
    steps: tuple[tuple[Record, list[tuple[Uuid, int]]], ...] = (
        (TopicRecord(name="a", topic_id=topic), []),
        (partition, [(topic, 0)]),
        (PartitionChangeRecord(topic_id=topic, partition_id=0, leader=1), [(topic, 0)]),
        (replace(partition, eligible_leader_replicas=None), []),
    )
    for offset, (record, eligible) in enumerate(steps):
        memory.before(record, image)
        image = image.apply(record, offset)
        assert list(memory.eligible(2)) == eligible


def test_memory_lists_leaked_partitions_in_one_order() -> None:
    """R-QUIRK-2: the same one is named in the error whatever the run."""
    memory, image, where = ControllerMemory(), Image(), directory(1)
    image = image.apply(RegisterBrokerRecord(broker_id=1, log_dirs=(where,)), 0)
    topics = [topic_id(number) for number in range(40)]
    for topic in topics:
        image = image.apply(TopicRecord(name=str(topic), topic_id=topic), 1)
        image = image.apply(
            PartitionRecord(topic_id=topic, partition_id=0, replicas=(1,), directories=(where,), leader=-1), 2
        )
    for topic in topics:
        record = RemoveTopicRecord(topic_id=topic)
        memory.before(record, image)
        image = image.apply(record, 3)
    leaked = list(memory.leaked(where, image))
    assert len(leaked) == 40
    assert leaked == sorted(leaked)
