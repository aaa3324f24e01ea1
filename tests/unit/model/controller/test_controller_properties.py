"""Whatever is asked in whatever order: only refusals, and a state that holds together (R-CTL-2, R-CTL-6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbod_model.formats.requests import (
    AlterableConfig,
    AlterConfigsResource,
    AlterPartitionPartition,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionTopic,
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BalanceLeaders,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerState,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ElectUncleanLeaders,
    FeatureUpdate,
    IncrementalAlterConfigsRequest,
    ReassignablePartition,
    ReassignableTopic,
    ReplicaAssignment,
    Request,
    SessionExpired,
    TopicConfig,
    TopicPartitions,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from jbod_model.formats.responses import ControllerFault, RequestRefused
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA, KIP858, Profile
from jbod_model.replay.offline import has_online_dir
from tests.support.volume import amount
from tests.unit.model.controller.controller_world import (
    CLUSTER,
    FEATURES,
    LOST,
    MIGRATING,
    UNASSIGNED,
    World,
    directory,
    incarnation,
    topic_id,
)

BROKERS = st.integers(0, 3)
DIRECTORIES = st.builds(directory, BROKERS, st.integers(0, 1)) | st.sampled_from(
    [UNASSIGNED, LOST, MIGRATING, Uuid(5, 5)]
)
TOPICS = st.sampled_from(["a", "b", "c.d", "c_d", "", "no/name"])
TOPIC_IDS = st.builds(topic_id, st.integers(0, 40))
PARTITIONS = st.integers(-1, 3)
REPLICAS = st.lists(BROKERS, max_size=4).map(tuple)
EPOCH_SLIPS = st.sampled_from([0, 0, 0, 0, -1, 1])


def tuples(strategy: st.SearchStrategy[Any], size: int = 2) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=size).map(tuple)


def configs(name: type) -> st.SearchStrategy[Any]:
    value = st.sampled_from(["1", "2", "true", "false", "many", None])
    return tuples(
        st.builds(name, name=st.sampled_from(["min.insync.replicas", "unclean.leader.election.enable"]), value=value)
    )


REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(
        BrokerRegistrationRequest,
        broker_id=BROKERS,
        cluster_id=st.just(CLUSTER),
        incarnation_id=st.builds(incarnation, st.integers(0, 400)),
        features=st.just(FEATURES),
        log_dirs=tuples(DIRECTORIES, 3),
        previous_broker_epoch=st.integers(-1, 9),
    ),
    st.builds(
        BrokerHeartbeatRequest,
        broker_id=BROKERS,
        current_metadata_offset=st.sampled_from([-1, 10_000]),
        want_fence=st.booleans(),
        want_shut_down=st.booleans(),
        offline_log_dirs=tuples(DIRECTORIES, 3),
    ),
    st.builds(SessionExpired, broker_id=BROKERS),
    st.builds(UnregisterBrokerRequest, broker_id=BROKERS),
    st.builds(
        CreateTopicsRequest,
        topics=tuples(
            st.builds(
                CreatableTopic,
                name=TOPICS,
                num_partitions=st.integers(-2, 3),
                replication_factor=st.integers(-2, 3),
                configs=configs(TopicConfig),
            )
            | st.builds(
                CreatableTopic,
                name=TOPICS,
                assignments=tuples(st.builds(ReplicaAssignment, partition_index=PARTITIONS, broker_ids=REPLICAS), 3),
            )
        ),
    ),
    st.builds(
        CreatePartitionsRequest,
        topics=tuples(
            st.builds(
                CreatePartitionsTopic,
                name=TOPICS,
                count=st.integers(-1, 6),
                assignments=st.none() | tuples(st.builds(CreatePartitionsAssignment, broker_ids=REPLICAS)),
            )
        ),
    ),
    st.builds(DeleteTopicsRequest, topic_ids=tuples(TOPIC_IDS)),
    st.builds(
        AlterPartitionRequest,
        broker_id=BROKERS,
        topics=tuples(
            st.builds(
                AlterPartitionTopic,
                topic_id=TOPIC_IDS,
                partitions=tuples(
                    st.builds(
                        AlterPartitionPartition,
                        partition_index=PARTITIONS,
                        new_isr_with_epochs=tuples(st.builds(BrokerState, broker_id=BROKERS), 4),
                        leader_recovery_state=st.sampled_from([0, 0, 1, 9]),
                    )
                ),
            ),
            1,
        ),
    ),
    st.builds(
        AlterPartitionReassignmentsRequest,
        topics=tuples(
            st.builds(
                ReassignableTopic,
                name=TOPICS,
                partitions=tuples(
                    st.builds(ReassignablePartition, partition_index=PARTITIONS, replicas=st.none() | REPLICAS)
                ),
            )
        ),
        allow_replication_factor_change=st.booleans(),
    ),
    st.builds(
        ElectLeadersRequest,
        election_type=st.sampled_from([0, 1, 2]),
        topic_partitions=st.none() | tuples(st.builds(TopicPartitions, topic=TOPICS, partitions=tuples(PARTITIONS))),
    ),
    st.builds(
        AssignReplicasToDirsRequest,
        broker_id=BROKERS,
        directories=tuples(
            st.builds(
                AssignedDirectory,
                id=DIRECTORIES,
                topics=tuples(
                    st.builds(
                        AssignedTopic,
                        topic_id=TOPIC_IDS,
                        partitions=tuples(st.builds(AssignedPartition, partition_index=PARTITIONS)),
                    )
                ),
            ),
            3,
        ),
    ),
    st.builds(
        IncrementalAlterConfigsRequest,
        resources=tuples(
            st.builds(
                AlterConfigsResource,
                resource_type=st.sampled_from([2, 4, 8]),
                resource_name=TOPICS | st.sampled_from(["0", "1"]),
                configs=configs(AlterableConfig),
            )
        ),
    ),
    st.builds(
        UpdateFeaturesRequest,
        feature_updates=tuples(
            st.builds(
                FeatureUpdate,
                feature=st.sampled_from(["metadata.version", "eligible.leader.replicas.version", "nosuch"]),
                max_version_level=st.sampled_from([-1, 0, 1, 16, 27, 28]),
                upgrade_type=st.integers(0, 4),
            )
        ),
    ),
    st.builds(BalanceLeaders, max_elections=st.integers(0, 5)),
    st.builds(ElectUncleanLeaders, max_elections=st.integers(0, 5)),
)


def current(world: World, request: Any, slip: int) -> Any:
    """The request under the epochs that hold now, mostly."""
    registration = world.image.brokers.get(getattr(request, "broker_id", -1))
    if registration is not None and hasattr(request, "broker_epoch"):
        request = replace(request, broker_epoch=registration.epoch + slip)
    if isinstance(request, AlterPartitionRequest):
        request = replace(
            request,
            topics=tuple(
                replace(
                    topic,
                    partitions=tuple(_current(world, topic.topic_id, partition) for partition in topic.partitions),
                )
                for topic in request.topics
            ),
        )
    return request


def _current(world: World, topic: Uuid, partition: AlterPartitionPartition) -> AlterPartitionPartition:
    if topic not in world.image.topics or partition.partition_index not in world.image.topics[topic].partitions:
        return partition
    state = world.image.topics[topic].partitions[partition.partition_index]
    return replace(partition, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch)


SAFE = replace(KAFKA, controller=replace(KAFKA.controller.without(), election_after_assignment="new directory"))
"""Kafka with all its flaws repaired, elections after assignments included."""


def check(world: World, profile: Profile) -> None:
    """Invariants of every state that a controller can write."""
    for topic in world.image.topics.values():
        for partition in topic.partitions.values():
            replicas = set(partition.replicas)
            assert len(partition.directories) == len(partition.replicas) == len(replicas) > 0
            assert set(partition.isr) <= replicas
            assert len(set(partition.isr)) == len(partition.isr)
            assert not set(partition.isr) & set(partition.eligible_leader_replicas)
            assert partition.leader == -1 or partition.leader in partition.isr
            if profile is KAFKA:
                continue
            assert set(partition.eligible_leader_replicas) <= replicas
            if partition.leader >= 0:
                broker = world.image.brokers[partition.leader]
                assert not broker.fenced
                where = partition.directory(partition.leader)
                if profile is KIP858 and where == UNASSIGNED:
                    continue  # Read to the letter, the page's new partitions begin on an offline directory.
                assert has_online_dir(broker, where, world.image.ids, profile)


@pytest.mark.parametrize("profile", [KAFKA, SAFE, KIP858], ids=["kafka", "safe", "kip858"])
@settings(max_examples=amount(20, 120), deadline=None)
@given(
    elr=st.booleans(),
    min_isr=st.integers(1, 2),
    requests=st.lists(st.tuples(REQUESTS, EPOCH_SLIPS), max_size=40),
)
def test_any_requests_in_any_order_leave_a_sound_state(
    profile: Profile, elr: bool, min_isr: int, requests: list[tuple[Request, int]]
) -> None:
    """Nothing but refusals is raised; a fault only by Kafka's own flaws or a configuration that is no number."""
    world = World(elr=elr, min_isr=min_isr, profile=profile).brokers(0, 1, 2)
    world.topic("a", (0, 1), (1, 2))
    for number, (request, slip) in enumerate(requests):
        try:
            world.ask(current(world, request, slip), new_topic_ids=(topic_id(2 + 2 * number), topic_id(3 + 2 * number)))
        except ControllerFault:
            assert profile is KAFKA or isinstance(request, SessionExpired) or world_has_no_number(world)
        except RequestRefused:
            pass
        check(world, profile)


def world_has_no_number(world: World) -> bool:
    """A broker's minimum in-sync size can be set to anything."""
    return any(
        kind == 4 and values.get("min.insync.replicas", "1") not in ("1", "2")
        for (kind, _), values in world.image.configs.items()
    )
