"""Cordoned directories, controllers that go, and what differs between releases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jbod_model.controller.cluster import Cluster
from jbod_model.controller.context import Context
from jbod_model.controller.partition_change import Reassignment
from jbod_model.controller.topics import MAX_PARTITIONS_PER_REQUEST
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    ControllerFeature,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    ElectLeadersRequest,
    FeatureUpdate,
    ReassignablePartition,
    ReassignableTopic,
    ReplicaAssignment,
    TopicPartitions,
    UnregisterControllerRequest,
    UpdateFeaturesRequest,
)
from jbod_model.formats.responses import (
    ControllerFault,
    ControllerNotRegistered,
    ControllerUnregistrationNotSupported,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    PolicyViolation,
)
from jbod_model.profiles import KAFKA, REPAIRED_IN, Quirk, Release, as_released, release_of
from jbod_model.replay.image import Image
from tests.unit.model.controller.controller_world import LOST, World, directory, of, plain, topic_id, versions

NOW = "4.4-IV2"
V40, V41, V42, V43, V44 = Release(4, 0), Release(4, 1), Release(4, 2), Release(4, 3), Release(4, 4)


def cordon(world: World, broker_id: int, *numbers: int, **fields: Any) -> list[Any]:
    """The records of a heartbeat that cordons these directories; they are applied."""
    cordoned = tuple(directory(broker_id, number) for number in numbers)
    return plain(world.ask(world.heartbeat(broker_id, cordoned_log_dirs=cordoned, **fields)))


def cordoned(world: World, broker_id: int) -> tuple[object, ...] | None:
    return world.image.brokers[broker_id].cordoned_directories


# HEARTBEATS


def test_heartbeat_that_cordons_a_directory_writes_the_list_once() -> None:
    """R-CORDON-1, R-CORDON-2: in version 3, after everything else; the same set in another order is no change."""
    world = World(NOW).brokers(1, dirs=3)
    assert cordoned(world, 1) is None
    request = world.heartbeat(1, directory(1, 2), cordoned_log_dirs=(directory(1, 1), directory(1, 0)))
    answer = world.ask(request)
    assert versions(answer.records) == [2, 3]
    assert plain(answer)[1] == BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=world.epoch(1), cordoned_log_dirs=(directory(1, 1), directory(1, 0))
    )
    assert cordon(world, 1, 0, 1) == []
    assert cordoned(world, 1) == (directory(1, 1), directory(1, 0))
    assert len(cordon(world, 1)) == 1
    assert cordoned(world, 1) == ()
    assert cordon(world, 1) == []


def test_first_heartbeat_with_an_empty_list_of_cordons_writes_it_and_one_without_the_field_writes_nothing() -> None:
    """R-CORDON-2: a registration leaves it open."""
    world = World(NOW).brokers(1)
    assert plain(world.ask(world.heartbeat(1))) == []
    assert cordoned(world, 1) is None
    (record,) = cordon(world, 1)
    assert record.cordoned_log_dirs == ()
    answer = world.ask(world.registration(1, directory(1), directory(1, 1), process=1))
    assert versions(
        [versioned for versioned in answer.records if isinstance(versioned.record, RegisterBrokerRecord)]
    ) == [4]
    assert cordoned(world, 1) is None


def test_cordon_of_a_directory_that_is_not_registered_is_taken() -> None:
    """R-CORDON-3: nothing in the list is checked, twice the same one included."""
    world = World(NOW).brokers(1)
    listed = (directory(9), LOST, directory(1), directory(1))
    (record,) = plain(world.ask(world.heartbeat(1, cordoned_log_dirs=listed)))
    assert isinstance(record, BrokerRegistrationChangeRecord)
    assert record.cordoned_log_dirs == listed


@pytest.mark.parametrize(("level", "written"), [("4.2-IV1", 0), ("4.3-IV0", 1), ("4.4-IV2", 1)])
def test_cordons_are_written_from_4_3_iv0_on(level: str, written: int) -> None:
    """R-CORDON-1, R-FEAT-1."""
    world = World(level).brokers(1)
    assert len(cordon(world, 1, 0)) == written
    (registration,) = world.look(world.registration(2, directory(2))).records
    assert registration.version == 3 + written


# PLACEMENT


def test_broker_whose_online_directories_are_all_cordoned_is_given_no_replica() -> None:
    """R-CORDON-4, R-PLACE-3: an offline one does not help; one that is not cordoned does."""
    world = World(NOW).brokers(1, 2, dirs=2)
    world.ask(world.heartbeat(1, directory(1, 1)))
    cordon(world, 1, 0)
    request = CreateTopicsRequest(topics=(CreatableTopic(name="a", num_partitions=4, replication_factor=1),))
    placed = of(world.look(request, new_topic_ids=(topic_id(1),)), PartitionRecord)
    assert {record.replicas for record in placed} == {(2,)}
    two = replace(request, topics=(replace(request.topics[0], replication_factor=2),))
    response = world.look(two).response
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_code == KafkaError.INVALID_REPLICATION_FACTOR
    cordon(world, 1)
    assert len(world.look(two, new_topic_ids=(topic_id(1),)).records) == 5


@pytest.mark.parametrize(("release", "error"), [(V43, 0), (V44, KafkaError.INVALID_REPLICA_ASSIGNMENT)])
def test_quirk_cordoned_assignment(release: Release, error: int) -> None:
    """R-QUIRK-8: by hand, a replica came to a broker with no free directory before 4.4: new, added or reassigned."""
    world = World("4.3-IV0").brokers(1, 2)
    world.topic("a", (2,))
    cordon(world, 1, 0, 1)
    by_hand = ReplicaAssignment(partition_index=0, broker_ids=(1,))
    created = world.look(
        CreateTopicsRequest(topics=(CreatableTopic(name="b", assignments=(by_hand,)),)),
        release=release,
        new_topic_ids=(topic_id(9),),
    ).response
    to_one = CreatePartitionsAssignment(broker_ids=(1,))
    grown = world.look(
        CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="a", count=2, assignments=(to_one,)),)),
        release=release,
    ).response
    move = ReassignableTopic(name="a", partitions=(ReassignablePartition(partition_index=0, replicas=(1,)),))
    moved: Any = world.look(AlterPartitionReassignmentsRequest(topics=(move,)), release=release).response
    assert isinstance(created, CreateTopicsResponse)
    assert isinstance(grown, CreatePartitionsResponse)
    assert created.topics[0].error_code == error
    assert grown.results[0].error_code == error
    assert moved.responses[0].partitions[0].error_code == error


# THE SIZE OF A REQUEST


def growth(*counts: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=tuple(CreatePartitionsTopic(name=name, count=count) for name, count in zip("ab", counts, strict=False))
    )


def test_quirk_unbounded_growth() -> None:
    """R-QUIRK-9, R-CREATE-5: 10,001 partitions more are refused whole, or written but for one, with a failure."""
    world = World().brokers(1)
    world.topic("a", (1,))
    world.topic("b", (1,))
    assert world.refuse(PolicyViolation, growth(5_001, 5_002), release=V44).code == 44
    assert len(world.look(growth(5_001, 5_001), release=V44).records) == MAX_PARTITIONS_PER_REQUEST
    flawed = world.look(growth(5_001, 5_002), release=V43)
    assert isinstance(flawed.response, CreatePartitionsResponse)
    assert [result.error_code for result in flawed.response.results] == [0, -1]
    assert len(flawed.records) == MAX_PARTITIONS_PER_REQUEST


def test_quirk_partition_count_overflow() -> None:
    """R-QUIRK-10, R-CREATE-5: the sum of two topics' partitions is negative in 32 bits."""
    world = World().brokers(1)
    most = (1 << 31) - 1
    topics = tuple(CreatableTopic(name=name, num_partitions=most, replication_factor=0) for name in "ab")
    assert world.refuse(PolicyViolation, CreateTopicsRequest(topics=topics), release=V44).code == 44
    flawed = world.look(CreateTopicsRequest(topics=topics), release=V43).response
    assert isinstance(flawed, CreateTopicsResponse)
    assert {result.error_code for result in flawed.topics} == {KafkaError.INVALID_REPLICATION_FACTOR}
    placed = tuple(replace(topic, replication_factor=1) for topic in topics)
    response = world.look(CreateTopicsRequest(topics=placed), release=V43).response
    assert isinstance(response, CreateTopicsResponse)
    assert {result.error_code for result in response.topics} == {ControllerFault.code}


# CONTROLLERS


def controller(controller_id: int, highest: int) -> RegisterControllerRecord:
    feature = ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=highest)
    return RegisterControllerRecord(controller_id=controller_id, features=(feature,))


def test_unregistered_controller_is_gone_and_each_refusal_has_its_error() -> None:
    """R-UNREG-3, R-UNREG-4, R-CONTROLLER-1, R-CONTROLLER-2."""
    world = World(NOW)
    for controller_id in (100, 101):
        world.apply(controller(controller_id, 33))
    request = UnregisterControllerRequest(controller_id=101)
    assert world.refuse(InvalidRequest, request, controller_id=101).code == 42
    unknown = UnregisterControllerRequest(controller_id=102)
    assert world.refuse(ControllerNotRegistered, unknown, controller_id=100).code == 136
    old = World("4.4-IV1")
    old.apply(controller(101, 33))
    assert old.refuse(ControllerUnregistrationNotSupported, request).code == 35
    answer = world.ask(request, controller_id=100)
    assert answer.records == (VersionedRecord(UnregisterControllerRecord(controller_id=101), 0),)
    assert set(world.image.controllers) == {100}


def test_metadata_version_goes_down_only_where_nothing_is_lost() -> None:
    """R-FEAT-3: 4.3-IV0, 4.4-IV1 and 4.4-IV2 brought records or fields, 4.4-IV0 did not."""
    down = FeatureUpdate(feature="metadata.version", max_version_level=30, upgrade_type=2)
    assert len(World("4.4-IV0").look(UpdateFeaturesRequest(feature_updates=(down,))).records) == 1
    World("4.4-IV1").refuse(InvalidUpdateVersion, UpdateFeaturesRequest(feature_updates=(down,)))
    lower = replace(down, max_version_level=29)
    World("4.3-IV0").refuse(InvalidUpdateVersion, UpdateFeaturesRequest(feature_updates=(lower,)))


# RELEASES


@pytest.mark.parametrize(
    ("level", "release"),
    [
        (7, V40),
        (26, V40),
        (27, V41),
        (28, V42),
        (29, V42),
        (30, V43),
        (31, V43),
        (32, V44),
        (33, V44),
        (34, V44),
        (99, V44),
    ],
)
def test_release_follows_from_the_highest_level(level: int, release: Release) -> None:
    """R-RELEASE-1."""
    assert release_of(level) == release
    assert str(release) == f"4.{release.minor}"


def test_release_repairs_its_flaws_and_no_others() -> None:
    """R-RELEASE-2."""
    assert as_released(KAFKA, V40).controller.quirks == KAFKA.controller.quirks
    for quirk in Quirk:
        repaired = REPAIRED_IN.get(quirk, Release(99, 0))
        releases = (V41, V42, V43, V44)
        assert [as_released(KAFKA, release).controller.has(quirk) for release in releases] == [
            repaired > release for release in releases
        ]


@pytest.mark.parametrize(
    ("level", "registered", "leads", "release"),
    [
        (25, {}, -1, V41),
        (25, {100: 25}, -1, V40),
        (27, {100: 25}, -1, V41),
        (27, {}, -1, V41),
        (30, {}, -1, V43),
        (27, {100: 33, 101: 29}, 100, V44),
        (27, {100: 33, 101: 29}, 101, V42),
        (27, {100: 33, 101: 29}, -1, V42),
        (33, {100: 27}, -1, V44),
    ],
)
def test_release_is_that_of_the_leading_controller(
    level: int, registered: dict[int, int], leads: int, release: Release
) -> None:
    """R-RELEASE-3: where the leader is not known, of the oldest controller, and at least what the level needs."""
    controllers = {controller_id: controller(controller_id, highest) for controller_id, highest in registered.items()}
    image = Image(features={"metadata.version": level}, controllers=controllers)
    assert Cluster(image, KAFKA, Context(controller_id=leads)).release == release
    assert Cluster(image, KAFKA, Context(controller_id=leads, release=V41)).release == V41


@pytest.mark.parametrize(("release", "leads"), [(V40, True), (V41, False), (V44, False)])
def test_last_known_leader_is_elected_while_it_is_fenced_before_4_1(release: Release, leads: bool) -> None:
    """R-QUIRK-11, R-ELECT-4: after an unclean shutdown nobody is eligible, and the broker's registration is fenced."""
    world = World(elr=True).brokers(1)
    world.topic("a", (1,))
    world.fence(1)
    assert world.partition("a").last_known_elr == (1,)
    world.ask(world.registration(1, directory(1), process=1), release=release)
    assert world.image.brokers[1].fenced
    partition = world.partition("a")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (
        (1, (1,), 1) if leads else (-1, (), 0)
    )


@pytest.mark.parametrize(("release", "recorded"), [(V40, (-1,)), (V41, (2,))])
def test_last_known_leader_is_recorded_when_the_in_sync_set_empties_before_4_1(
    release: Release, recorded: tuple[int, ...]
) -> None:
    """R-RELEASE-5: the leader goes first, by a fault of its directory; the last member leaves the in-sync set later."""
    world = World(elr=True, min_isr=1).brokers(2)
    world.topic("a", (2,))
    world.set("a", leader=-1, last_known_elr=() if release == V40 else (2,))
    world.ask(world.heartbeat(2, want_fence=True), release=release)
    partition = world.partition("a")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (-1, (), recorded)


@pytest.mark.parametrize(("release", "kept"), [(V40, ()), (V41, (2,))])
def test_last_known_leader_of_a_led_partition_is_cleared_by_any_change_before_4_1(
    release: Release, kept: tuple[int, ...]
) -> None:
    """R-RELEASE-5, R-ELIG-5."""
    world = World(elr=True).brokers(1, 2)
    world.topic("a", (1, 2))
    world.set("a", last_known_elr=(2,))
    world.ask(world.isr_request("a", 1), release=release)
    assert world.partition("a").last_known_elr == kept


@pytest.mark.parametrize(("release", "leader"), [(V40, 1), (V41, 2)])
def test_unclean_election_prefers_a_last_known_leader_that_is_fenced_before_4_1(release: Release, leader: int) -> None:
    """R-QUIRK-11, R-ELECT-5: and so not the replica that is alive."""
    world = World(elr=True).brokers(1, 2)
    world.topic("a", (1, 2))
    world.fence(1)
    world.set("a", isr=(), leader=-1, last_known_elr=(1,))
    topics = (TopicPartitions(topic="a", partitions=(0,)),)
    world.ask(ElectLeadersRequest(election_type=1, topic_partitions=topics), release=release)
    assert world.partition("a").leader == leader


@pytest.mark.parametrize(("release", "eligible"), [(V42, ()), (V43, (1, 2)), (V44, (1, 2))])
def test_assignment_leaves_the_eligible_leaders_from_4_3_on(release: Release, eligible: tuple[int, ...]) -> None:
    """R-QUIRK-1, R-RELEASE-2: at one and the same metadata.version."""
    world = World(elr=True, min_isr=2).brokers(1, 2)
    world.topic("a", (1, 2))
    world.set("a", isr=(), leader=-1, eligible_leader_replicas=(1, 2))
    world.fence(1, 2)
    world.ask(world.assignment(1, (directory(1), world.id("a"), 0)), release=release)
    assert world.partition("a").eligible_leader_replicas == eligible


@pytest.mark.parametrize(
    ("reassignment", "isr", "before", "after"),
    [
        (Reassignment.between((0, 1, 2), (0, 1, 3)), (3, 2), None, ((0, 1, 3), (3,))),
        (Reassignment.between((0, 1), (0, 1, 2)), (2,), None, ((0, 1, 2), (2,))),
        (Reassignment.between((0, 1, 2), (0, 3)), (3,), None, None),
        (Reassignment.between((0, 1, 2), (0, 1)), (0, 2), None, None),
        (Reassignment.between((0, 1, 2), (0, 3)), (0, 3), ((0, 3), (0, 3)), ((0, 3), (0, 3))),
        (Reassignment.between((0, 1), (2, 3)), (2, 1), None, None),
        (Reassignment((1, 3, 4), removing=(4,), adding=(4,)), (1, 3, 4), ((1, 3), (1, 3)), None),
        (Reassignment((1, 3, 4, 2), removing=(2, 4), adding=(4,)), (1, 3, 2), ((1, 3), (1, 3)), None),
    ],
)
def test_reassignment_is_complete_when_the_added_replicas_are_in_sync_from_4_3_on(
    reassignment: Reassignment, isr: tuple[int, ...], before: object, after: object
) -> None:
    """R-RELEASE-4: unless it takes away more than it adds."""
    assert reassignment.completed_with(isr) == before
    assert reassignment.completed_with(isr, added_suffice=True) == after


def test_reassignment_completes_by_the_release_of_the_controller() -> None:
    """R-RELEASE-4, in the answer of a controller."""
    for release, replicas in ((V42, (1, 3, 2)), (V43, (1, 3))):
        world = World().brokers(1, 2, 3)
        world.topic("a", (1, 2))
        directories = tuple(directory(broker_id) for broker_id in (1, 3, 2))
        world.set("a", isr=(3, 2), leader=3, replicas=(1, 3, 2), directories=directories)
        world.set("a", adding_replicas=(3,), removing_replicas=(2,))
        world.ask(world.isr_request("a", 3), release=release)
        assert world.partition("a").replicas == replicas
