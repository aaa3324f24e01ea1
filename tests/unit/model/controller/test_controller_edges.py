"""The last value that is allowed, brokers and leaders that are not there, and ids that mean something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jbod_model.controller import Controller
from jbod_model.controller.cluster import Cluster
from jbod_model.controller.context import Context
from jbod_model.controller.partition_change import (
    NO_LEADER,
    RECOVERED,
    Candidates,
    Elected,
    Election,
    Reassignment,
    Surroundings,
    Wish,
    elect,
    partition_change,
)
from jbod_model.controller.placement import UsableBroker
from jbod_model.controller.topics import usable_brokers
from jbod_model.formats.metadata_version import LEVELS
from jbod_model.formats.records import (
    ConfigRecord,
    ControllerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from jbod_model.formats.requests import (
    AlterableConfig,
    AlterConfigsResource,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    ElectLeadersRequest,
    FeatureUpdate,
    IncrementalAlterConfigsRequest,
    ReplicaAssignment,
    TopicPartitions,
    UpdateFeaturesRequest,
)
from jbod_model.formats.responses import (
    BrokerHeartbeatResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    ElectLeadersResponse,
    IncrementalAlterConfigsResponse,
    InvalidTopicName,
    KafkaError,
    LogDirNotFound,
    NotAuthorized,
    PolicyViolation,
)
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA, KIP858, PROFILES, Profile, Quirk, release_of
from jbod_model.replay.image import Partition
from tests.unit.model.controller.controller_world import (
    FEATURES,
    UNASSIGNED,
    World,
    directory,
    of,
    plain,
    topic_id,
)

MV, ELR, MIN_ISR = "metadata.version", "eligible.leader.replicas.version", "min.insync.replicas"
UNKNOWN = Uuid(99, 99)


def cluster(world: World, profile: Profile = KAFKA, **context: Any) -> Cluster:
    return Cluster(world.image, profile, Context(**context))


def codes(world: World, *topics: CreatableTopic, **context: Any) -> list[int]:
    ids = tuple(topic_id(number) for number in range(1, 1 + len(topics)))
    response = world.look(CreateTopicsRequest(topics=topics), new_topic_ids=ids, **context).response
    assert isinstance(response, CreateTopicsResponse)
    return [int(each.error_code) for each in response.topics]


# BROKERS


def test_broker_that_is_not_registered_has_no_directory_and_may_get_replicas() -> None:
    """R-OFF-4, R-NEWDIR-1, R-CORDON-4."""
    view = cluster(World().brokers(1))
    assert not view.has_online_dir(9, directory(1))
    assert not view.active(9)
    assert view.default_dir(9) == UNASSIGNED
    assert view.takes_replicas(9)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_new_replica_on_a_broker_without_directories(profile: Profile) -> None:
    """R-NEWDIR-1: it is MIGRATING only where the rules say so."""
    world = World("3.7-IV1", profile=profile).brokers(1)
    world.apply(FeatureLevelRecord(name=MV, feature_level=LEVELS["3.7-IV2"]))
    ids = world.image.ids
    expected = ids.migrating if profile.controller.migrating_without_directories else ids.unassigned
    assert cluster(world, profile).default_dir(1) == expected


def test_report_of_directories_that_cannot_be_recorded_is_not_looked_at() -> None:
    """R-FAIL-2: below metadata.version 3.7-IV2 nothing is known to compare with."""
    world = World("3.7-IV1", profile=KIP858).brokers(1)
    assert world.look(world.heartbeat(1, UNKNOWN), registered_log_dirs=frozenset()).records == ()


@pytest.mark.parametrize(("profile", "refused"), [(KAFKA, False), (KIP858, True)])
def test_report_of_a_directory_that_was_never_registered(profile: Profile, refused: bool) -> None:
    """R-FAIL-2, R-FAIL-4: those of the registration are known, whatever the context says."""
    world = World(profile=profile).brokers(1)
    request = world.heartbeat(1, UNKNOWN)
    if refused:
        world.refuse(LogDirNotFound, request, registered_log_dirs=frozenset())
    else:
        assert world.look(request, registered_log_dirs=frozenset()).records == ()
    assert world.look(world.heartbeat(1, directory(1)), registered_log_dirs=frozenset()).records


def test_reserved_id_in_a_report_keeps_no_replica_from_leading() -> None:
    """R-LEADER-3: it is no directory that failed."""
    profile = replace(KAFKA, controller=KAFKA.controller.without(Quirk.TWO_IN_ONE_HEARTBEAT))
    world = World(profile=profile).brokers(1)
    world.topic("a", (1,))
    assert world.partition("a").directories == (UNASSIGNED,)
    world.fence(1)
    assert world.partition("a").leader == NO_LEADER
    world.ask(world.heartbeat(1, UNASSIGNED))
    assert world.partition("a").leader == 1


def test_registration_of_a_new_broker_does_not_ask_for_a_session() -> None:
    """R-REG-2."""
    world = World()
    assert world.look(world.registration(1, directory(1)), has_valid_session=True).records


def test_request_without_a_context_is_handled_and_a_nameless_sender_is_told_so() -> None:
    world = World().brokers(1)
    result = Controller().handle(world.image, world.heartbeat(1))
    assert isinstance(result.response, BrokerHeartbeatResponse)
    refused = world.refuse(NotAuthorized, world.heartbeat(1), authorized=False)
    assert "its sender needs CLUSTER_ACTION" in str(refused)


def test_release_follows_from_the_metadata_version_that_controllers_support_alone() -> None:
    """R-RELEASE-3: not from the levels of other features."""
    world = World("3.9-IV0")
    features = tuple(
        ControllerFeature(name=name, min_supported_version=0, max_supported_version=level)
        for name, level in (("kraft.version", 1), (MV, LEVELS["4.4-IV0"]))
    )
    world.apply(RegisterControllerRecord(controller_id=100, features=features))
    assert cluster(world).release == release_of(LEVELS["4.4-IV0"]) != release_of(LEVELS["3.9-IV0"])


def test_level_0_of_a_feature_is_supported_by_brokers_that_do_not_list_it() -> None:
    """R-FEAT-2."""
    world = World()
    world.ask(world.registration(1, directory(1), features=FEATURES[:1]))
    assert updated(world, elr=0) == [FeatureLevelRecord(name=ELR, feature_level=0)]


@pytest.mark.parametrize("level", ["3.7-IV1", "3.7-IV2"])
def test_new_partition_lists_directories_where_they_can_be_recorded(level: str) -> None:
    """R-CREATE-6."""
    world = World(level).brokers(1)
    request = CreateTopicsRequest(topics=(created(1),))
    (record,) = of(world.look(request, new_topic_ids=(topic_id(1),)), PartitionRecord)
    assert record.directories == ((UNASSIGNED,) if level == "3.7-IV2" else ())


def test_request_of_a_client_needs_no_rights_of_a_broker() -> None:
    """R-AUTH-1: others check those of clients."""
    assert codes(World().brokers(1), created(1), authorized=False) == [0]


@pytest.mark.parametrize(("length", "code"), [(32_767, 0), (32_768, KafkaError.INVALID_CONFIG)])
def test_value_of_a_configuration_has_32767_characters_at_most(length: int, code: int) -> None:
    """R-CFG-2."""
    assert _altered(AlterableConfig(name="x", value="y" * length))[0] == code


def test_configuration_that_is_deleted_has_no_value_whatever_the_request_says() -> None:
    """R-CFG-5."""
    code, records = _altered(AlterableConfig(name="x", config_operation=1, value="y"))
    assert (code, [record.value for record in records]) == (0, [None])


def _altered(config: AlterableConfig) -> tuple[int, list[ConfigRecord]]:
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=(config,))
    result = World().look(IncrementalAlterConfigsRequest(resources=(resource,)))
    assert isinstance(result.response, IncrementalAlterConfigsResponse)
    (answer,) = result.response.responses
    return int(answer.error_code), of(result, ConfigRecord)


# ELECTIONS


def test_unclean_election_is_not_needed_where_another_replica_than_the_preferred_leads() -> None:
    """R-ELECT-10."""
    world = World().brokers(1, 2)
    world.topic("a", (1, 2))
    world.set("a", leader=2)
    request = ElectLeadersRequest(election_type=1, topic_partitions=(TopicPartitions(topic="a", partitions=(0,)),))
    response = world.look(request).response
    assert isinstance(response, ElectLeadersResponse)
    ((answer,),) = (topic.partition_result for topic in response.replica_election_results)
    assert answer.error_code == KafkaError.ELECTION_NOT_NEEDED


def test_nobody_leads_where_no_last_leader_is_known() -> None:
    """R-ELECT-4."""
    broker_ids: list[int] = []

    def acceptable(broker_id: int) -> bool:
        broker_ids.append(broker_id)
        return True

    assert elect(Election.ONLINE, Candidates(leader=-1, replicas=(), isr=()), acceptable) == Elected(NO_LEADER)
    assert broker_ids == []


def test_last_known_leader_waits_for_replicas_in_sync() -> None:
    """R-ELECT-4: only if no replica is in sync or eligible."""
    candidates = Candidates(leader=-1, replicas=(1, 2), isr=(1,), last_known_leader=2)
    assert elect(Election.ONLINE, candidates, lambda broker_id: broker_id == 2) == Elected(NO_LEADER)


def test_broker_that_is_no_replica_cannot_lead_without_the_flaw() -> None:
    """R-ELECT-1, R-QUIRK-3."""
    world = World().brokers(1, 2)
    world.topic("a", (1,))
    profile = replace(KAFKA, controller=KAFKA.controller.without(Quirk.STALE_ELR))
    acceptable = cluster(world, profile).acceptable(world.partition("a"))
    assert (acceptable(1), acceptable(2)) == (True, False)


PARTITION = Partition(replicas=(1, 2), directories=(directory(1), directory(2)), isr=(1, 2), leader=1)


def around(level: str, *, elr: bool = False, anybody: bool = True) -> Surroundings:
    return Surroundings(
        acceptable=lambda _: anybody,
        metadata_version=LEVELS[level],
        elr_enabled=elr,
        min_isr=2,
        default_dir=lambda _: UNASSIGNED,
    )


def change(before: Partition, wish: Wish, surroundings: Surroundings) -> Any:
    versioned = partition_change(topic_id(1), 0, before, wish, surroundings)
    return None if versioned is None else versioned.record


def test_nobody_is_eligible_while_the_feature_is_off() -> None:
    """R-ELIG-1, R-ELIG-2: who was in sync cannot lead any more."""
    changed = change(PARTITION, Wish(isr=()), around("4.0-IV1"))
    assert (changed.leader, changed.isr) == (NO_LEADER, None)


def test_last_known_leader_does_not_come_back_while_the_feature_is_off() -> None:
    """R-ELIG-1, R-ELECT-4."""
    before = replace(PARTITION, isr=(), leader=-1, last_known_elr=(2,))
    assert change(before, Wish(isr=()), around("4.0-IV1")) is None


def test_unclean_leader_of_a_partition_that_recovers_goes_on_recovering() -> None:
    """R-ELECT-7: the state is written when it begins."""
    before = replace(PARTITION, isr=(9,), leader=-1, leader_recovery_state=1)
    changed = change(before, Wish(election=Election.UNCLEAN), around("4.0-IV1"))
    assert (changed.leader, changed.leader_recovery_state) == (1, -1)


def test_leader_0_that_comes_back_clears_the_last_known_one() -> None:
    """R-ELIG-5: 0 is a broker like any other."""
    before = Partition(
        replicas=(0, 1), directories=(directory(0), directory(1)), isr=(), leader=-1, last_known_elr=(0,)
    )
    changed = change(before, Wish(isr=()), around("4.0-IV1", elr=True))
    assert (changed.leader, changed.last_known_elr) == (0, ())


def test_removed_replicas_are_in_the_order_of_their_ids() -> None:
    """R-REASSIGN-1."""
    assert Reassignment.between((16, 8, 1), (1,)) == Reassignment((1, 8, 16), removing=(8, 16))


def test_placement_on_brokers_that_are_all_shutting_down_is_refused() -> None:
    """R-CREATE-6: brokers that the placer took must be able to lead."""
    world = World().brokers(1, unfenced=False)
    alive = (UsableBroker(1, None, False),)
    assert codes(world, created(1), usable_brokers=alive) == [KafkaError.INVALID_REPLICATION_FACTOR]


def test_reassignment_is_complete_only_with_every_replica_that_stays_unless_the_release_is_older() -> None:
    """R-RELEASE-4: of 1 and 2, which stay, only 1 is in sync."""
    before = Partition(replicas=(1, 2, 3), directories=(UNASSIGNED,) * 3, isr=(1,), leader=1, adding_replicas=(3,))
    newest = around("4.0-IV1")
    assert change(before, Wish(isr=(1, 3)), newest).adding_replicas is None
    assert change(before, Wish(isr=(1, 3)), replace(newest, added_suffice=True)).adding_replicas == ()


def test_change_of_nothing_writes_nothing_at_an_old_level() -> None:
    """R-CHANGE-1, R-CHANGE-3."""
    assert change(PARTITION, Wish(), around("3.4-IV0")) is None
    recovering = replace(PARTITION, leader_recovery_state=1)
    assert change(recovering, Wish(leader_recovery_state=RECOVERED), around("3.4-IV0")).leader == -2


# TOPICS


def created(count: int) -> CreatableTopic:
    return CreatableTopic(name=f"t{count}", num_partitions=count, replication_factor=1)


def test_ten_thousand_partitions_in_a_request_are_the_most() -> None:
    """R-CREATE-5: over all topics."""
    world = World().brokers(1)
    assert codes(world, created(10_000)) == [0]
    assert codes(world, created(9_999), created(1)) == [0, 0]
    world.refuse(PolicyViolation, CreateTopicsRequest(topics=(created(10_000), created(1))))
    world.refuse(PolicyViolation, CreateTopicsRequest(topics=(created(5_003), created(5_000), created(-5))))
    assert codes(world, created(10_000), CreatableTopic(name="none", num_partitions=0, replication_factor=1)) == [
        0,
        KafkaError.INVALID_PARTITIONS,
    ]


def test_ten_thousand_more_partitions_in_a_request_are_the_most() -> None:
    """R-CREATE-5: those that a topic has do not count."""
    profile = replace(KAFKA, controller=KAFKA.controller.without(Quirk.UNBOUNDED_GROWTH))
    world = World(profile=profile).brokers(1)
    world.topic("a", (1,))

    def grown(*counts: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(topics=tuple(CreatePartitionsTopic(name="a", count=count) for count in counts))

    assert len(world.look(grown(10_001)).records) == 10_000
    world.refuse(PolicyViolation, grown(10_002))
    world.refuse(PolicyViolation, grown(10_001, 2))
    assert len(world.look(grown(10_001, 1)).records) == 10_000


@pytest.mark.parametrize(("count", "code"), [(10_001, 0), (10_002, -1), (20_000, -1)])
def test_growth_by_more_than_ten_thousand_partitions_fails_in_kafka_after_the_last_that_fits(
    count: int, code: int
) -> None:
    """R-QUIRK-9: the list of records is full after 10,000, and they are written."""
    world = World().brokers(1)
    world.topic("a", (1,))
    result = world.look(CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="a", count=count),)))
    assert isinstance(result.response, CreatePartitionsResponse)
    assert [each.error_code for each in result.response.results] == [code]
    assert len(result.records) == 10_000


def test_topic_name_has_249_letters_at_most() -> None:
    """R-CREATE-2."""
    world = World().brokers(1)
    names = ("a" * 249, "a" * 250)
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    assert codes(world, *topics) == [0, KafkaError.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize(("present", "name"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_topic_names_that_differ_in_dots_and_underscores_collide(present: str, name: str) -> None:
    """R-CREATE-2: their metrics would have the same name."""
    world = World().brokers(1)
    world.topic(present, (1,))
    assert codes(world, CreatableTopic(name=name, num_partitions=1, replication_factor=1)) == [InvalidTopicName.code]
    assert codes(world, CreatableTopic(name="ab", num_partitions=1, replication_factor=1)) == [0]


def manual(*assignments: tuple[int, tuple[int, ...]]) -> CreatableTopic:
    return CreatableTopic(
        name="m",
        assignments=tuple(ReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignments),
    )


def test_assignments_may_come_in_any_order() -> None:
    """R-CREATE-4."""
    world = World().brokers(1, 2)
    request = CreateTopicsRequest(topics=(manual((1, (2,)), (0, (1,))),))
    result = world.look(request, new_topic_ids=(topic_id(1),))
    assert [record.replicas for record in of(result, PartitionRecord)] == [(1,), (2,)]


def test_assignment_with_two_mistakes_tells_that_of_the_lower_broker() -> None:
    """R-CREATE-4: Kafka looks at the brokers in order."""
    world = World().brokers(1)
    response = world.look(CreateTopicsRequest(topics=(manual((0, (9, 1, 1))),)), new_topic_ids=(topic_id(1),)).response
    assert isinstance(response, CreateTopicsResponse)
    assert "broker 1 is assigned twice" in str(response.topics[0].error_message)


def test_broker_whose_directories_are_all_cordoned_is_not_usable_though_it_is_alive() -> None:
    """R-PLACE-3, R-CORDON-4."""
    world = World("4.3-IV0").brokers(1, 2)
    world.ask(world.heartbeat(2, cordoned_log_dirs=(directory(2), directory(2, 1))))
    alive = tuple(UsableBroker(broker_id, None, False) for broker_id in (1, 2))
    assert usable_brokers(cluster(world, usable_brokers=alive)) == [alive[0]]


def test_memory_knows_the_table_of_a_topic_that_was_written_to_before_it_grew() -> None:
    """R-CREATE-9, R-MEM-2: the metadata alone would take another partition for the first."""
    world = World().brokers(1, 2)
    topic = world.topic("a", (1,))
    world.assign(1, directory(1), "a")
    for number in range(1, 5):
        on = (1, 2) if number == 2 else (1,)
        world.apply(PartitionRecord(topic_id=topic, partition_id=number, replicas=on, isr=on, leader=1))
    assert world.memory.table(topic) == 4
    request = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="a", count=6),))
    assert [len(record.replicas) for record in of(world.look(request), PartitionRecord)] == [2]
    grown = world.look(CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="a", count=7),)))
    assert [record.partition_id for record in of(grown, PartitionRecord)] == [5, 6]
    assert [len(record.replicas) for record in of(world.look(request, memory=None), PartitionRecord)] == [1]
    world.assign(1, directory(1, 1), "a")
    assert world.memory.table(topic) == 8


def test_memory_forgets_the_table_of_a_deleted_topic_and_knows_none_of_an_unknown_one() -> None:
    """R-MEM-1, R-MEM-2."""
    world = World().brokers(1)
    topic = world.topic("a", (1,))
    world.memory.before(RemoveTopicRecord(topic_id=UNKNOWN), world.image)
    assert world.memory.table(topic) == 2
    world.apply(RemoveTopicRecord(topic_id=topic))
    assert world.memory.table(topic) is None
    world.memory.before(TopicRecord(name="b", topic_id=UNKNOWN), world.image)
    assert world.memory.table(UNKNOWN) is None


# FEATURES


def updated(world: World, **levels: int) -> list[Any]:
    names = {"mv": MV, "elr": ELR}
    updates = tuple(FeatureUpdate(feature=names[name], max_version_level=level) for name, level in levels.items())
    return plain(world.look(UpdateFeaturesRequest(feature_updates=updates)))


def test_only_switching_eligible_leaders_on_pins_the_minimum() -> None:
    """R-FEAT-4: also beside another update, but not off, and not with another feature."""
    world = World()
    world.config("", MIN_ISR, None)
    level = LEVELS["4.1-IV1"]

    def pinned(**levels: int) -> int:
        return sum(isinstance(record, ConfigRecord) for record in updated(world, **levels))

    assert [pinned(mv=level), pinned(elr=0), pinned(elr=1), pinned(mv=level, elr=1)] == [0, 0, 1, 1]


def test_minimum_of_single_brokers_is_removed_in_the_order_of_their_ids() -> None:
    """R-FEAT-4: of brokers only, 9 before 10."""
    world = World()
    for broker in ("10", "9"):
        world.config(broker, MIN_ISR, "2")
    world.config("7", MIN_ISR, "2", resource_type=2)
    removed = [record.resource_name for record in updated(world, elr=1) if isinstance(record, ConfigRecord)]
    assert removed == ["9", "10"]


def test_controllers_are_not_asked_before_they_register() -> None:
    """R-FEAT-2: a registration of one that is older than 3.7-IV0 does not count."""
    world = World("3.6-IV2")
    world.apply(RegisterControllerRecord(controller_id=100))
    assert updated(world, mv=LEVELS["3.7-IV0"]) == [FeatureLevelRecord(name=MV, feature_level=LEVELS["3.7-IV0"])]


def test_election_after_an_assignment_sees_the_directories_of_the_other_replicas() -> None:
    """R-ASSIGN-6, by the page: broker 2 can lead in its own directory."""
    world = World(profile=KIP858).brokers(0, 1, 2)
    world.topic("a", (0, 1, 2))
    for broker_id in (0, 1, 2):
        world.assign(broker_id, directory(broker_id), "a")
    world.set("a", leader=NO_LEADER, isr=(2,))
    world.assign(1, directory(1, 1), "a")
    assert world.partition("a").leader == 2
