"""Where the controllers of Kafka, the page and the drafts part ways, and each flaw on and off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jbod_model.controller.cluster import Cluster
from jbod_model.controller.context import Context, ControllerMemory, first_partition, grown
from jbod_model.controller.topics import usable_brokers
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from jbod_model.formats.requests import (
    AlterableConfig,
    AlterConfigsResource,
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    ReassignablePartition,
    ReassignableTopic,
    UnregisterBrokerRequest,
)
from jbod_model.formats.responses import (
    BrokerHeartbeatResponse,
    ControllerFault,
    InvalidRegistration,
    InvalidRegistrationRequest,
    LogDirNotFound,
)
from jbod_model.ids import KAFKA_IDS, KIP858_IDS, ZERO, Uuid
from jbod_model.profiles import DRAFT, KAFKA, KIP858, PROFILES, Profile, Quirk
from jbod_model.replay.image import Partition
from tests.unit.model.controller.controller_world import UNASSIGNED, World, changes, directory, of, plain


def repaired(*quirks: Quirk) -> Profile:
    """Kafka without these flaws; with none named, without any."""
    return replace(KAFKA, controller=KAFKA.controller.without(*quirks))


def both(quirk: Quirk) -> list[tuple[bool, Profile]]:
    """(flawed, profile) of Kafka as it is, and with this one flaw repaired."""
    return [(True, KAFKA), (False, repaired(quirk))]


def test_quirks_are_all_on_in_kafka_and_off_elsewhere() -> None:
    assert KAFKA.controller.quirks == frozenset(Quirk)
    assert repaired().controller.quirks == frozenset()
    assert KIP858.controller.quirks == DRAFT.controller.quirks == frozenset()


# FLAWS


@pytest.mark.parametrize(("flawed", "profile"), both(Quirk.ELR_WIPE))
def test_quirk_elr_wipe(flawed: bool, profile: Profile) -> None:
    """R-QUIRK-1: an assignment turns a later clean election into an unclean one."""
    world = World(elr=True, min_isr=2, profile=profile).brokers(0, 1)
    world.topic("a", (0, 1))
    world.assign(0, directory(0), "a")
    world.assign(1, directory(1), "a")
    world.ask(world.heartbeat(0, directory(0)))
    world.ask(world.heartbeat(1, directory(1)))
    assert world.partition("a").eligible_leader_replicas == (0, 1)
    world.assign(1, directory(1, 1), "a")
    assert world.partition("a").eligible_leader_replicas == (() if flawed else (0, 1))
    world.fence(1)
    world.ask(world.heartbeat(1))
    after = world.partition("a")
    assert (after.leader, after.isr, after.leader_recovery_state) == (1, (1,), 1 if flawed else 0)


@pytest.mark.parametrize(("flawed", "profile"), both(Quirk.INDEX_LEAK))
def test_quirk_index_leak(flawed: bool, profile: Profile) -> None:
    """R-QUIRK-2, R-MEM-1: a topic with an empty in-sync set is deleted, then its directory fails."""
    world = World(elr=True, min_isr=2, profile=profile).brokers(0, 1)
    topic = world.topic("a", (0,))
    world.assign(0, directory(0), "a")
    world.fence(0)
    assert world.partition("a").isr == ()
    world.ask(DeleteTopicsRequest(topic_ids=(topic,)))
    world.ask(world.heartbeat(0))
    if flawed:
        refused = world.refuse(ControllerFault, world.heartbeat(0, directory(0)))
        assert (refused.code, str(topic) in str(refused)) == (-1, True)
    else:
        assert len(world.ask(world.heartbeat(0, directory(0))).records) == 1
    assert len(world.look(world.heartbeat(0, directory(0, 1)), memory=None).records) == 1


def test_quirk_index_leak_needs_an_empty_isr() -> None:
    """R-QUIRK-2."""
    world = World().brokers(0)
    topic = world.topic("a", (0,))
    world.assign(0, directory(0), "a")
    world.ask(DeleteTopicsRequest(topic_ids=(topic,)))
    assert len(world.ask(world.heartbeat(0, directory(0))).records) == 1


@pytest.mark.parametrize(("flawed", "profile"), both(Quirk.STALE_ELR))
def test_quirk_stale_elr(flawed: bool, profile: Profile) -> None:
    """R-QUIRK-3: who was moved away stays the last known leader, and the next election fails on it."""
    world = World(elr=True, min_isr=2, profile=profile).brokers(0, 1, 2)
    world.topic("a", (0, 1))
    move = ReassignablePartition(partition_index=0, replicas=(1, 2))
    world.ask(AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name="a", partitions=(move,)),)))
    world.set("a", isr=(1, 2), leader=1, eligible_leader_replicas=(0,), last_known_elr=(0,))
    world.ask(world.isr_request("a", 1, 2))
    after = world.partition("a")
    assert after.replicas == (1, 2)
    assert 0 not in (*after.eligible_leader_replicas, *after.last_known_elr)
    world.set("a", isr=(), leader=-1, last_known_elr=(0,))
    world.fence(2)
    if flawed:
        world.refuse(ControllerFault, world.heartbeat(2))
    else:
        world.ask(world.heartbeat(2))
        assert world.partition("a").leader == -1


@pytest.mark.parametrize(("flawed", "profile"), both(Quirk.TWO_IN_ONE_HEARTBEAT))
def test_quirk_two_in_one_heartbeat(flawed: bool, profile: Profile) -> None:
    """R-QUIRK-4: unfenced and failed at once, the broker leads in the failed directory, and stays so."""
    world = World(profile=profile).brokers(0)
    world.topic("a", (0,))
    world.assign(0, directory(0), "a")
    world.fence(0)
    result = world.ask(world.heartbeat(0, directory(0)))
    assert changes(result) == ([{"leader": 0}] if flawed else [])
    assert world.image.brokers[0].directories == (directory(0, 1),)
    world.ask(world.heartbeat(0, directory(0)))
    assert world.partition("a").leader == (0 if flawed else -1)


@pytest.mark.parametrize(("flawed", "profile"), both(Quirk.ALL_DIRECTORIES_OFFLINE))
def test_quirk_all_directories_offline(flawed: bool, profile: Profile) -> None:
    """R-QUIRK-5: an empty list is no change, so each report writes it again."""
    world = World(profile=profile).brokers(0, 1)
    world.topic("a", (0, 1))
    world.assign(0, directory(0), "a")
    result = world.ask(world.heartbeat(0, directory(0), directory(0, 1)))
    assert (world.partition("a").leader, world.partition("a").isr) == (1, (1,))
    assert isinstance(result.response, BrokerHeartbeatResponse)
    assert result.response.should_shut_down is not flawed
    assert world.image.brokers[0].fenced is not flawed
    again = world.ask(world.heartbeat(0, directory(0), directory(0, 1)))
    if flawed:
        empty = BrokerRegistrationChangeRecord(broker_id=0, broker_epoch=world.epoch(0), log_dirs=())
        assert plain(result)[-1:] == plain(again) == [empty]
        assert len(world.image.brokers[0].directories) == 2
    else:
        assert again.records == ()


@pytest.mark.parametrize(("flawed", "profile"), both(Quirk.STALE_ELR_INDEX))
def test_quirk_stale_elr_index(flawed: bool, profile: Profile) -> None:
    """R-QUIRK-6: a new minimum clears the set but not the index; an unregistration stumbles over a deleted topic."""
    world = World(elr=True, min_isr=2, profile=profile).brokers(0, 1)
    topic = world.topic("a", (0, 1))
    world.ask(world.isr_request("a", 0))
    change = AlterConfigsResource(
        resource_type=2, resource_name="a", configs=(AlterableConfig(name="min.insync.replicas", value="1"),)
    )
    world.ask(IncrementalAlterConfigsRequest(resources=(change,)))
    assert list(world.memory.eligible(1)) == [(topic, 0)]
    world.ask(DeleteTopicsRequest(topic_ids=(topic,)))
    request = UnregisterBrokerRequest(broker_id=1)
    if flawed:
        assert world.refuse(ControllerFault, request).code == -1
    else:
        assert len(world.ask(request).records) == 1


@pytest.mark.parametrize(("flawed", "profile"), both(Quirk.PARTIAL_GROWTH))
def test_quirk_partial_growth(flawed: bool, profile: Profile) -> None:
    """R-QUIRK-7: the placer thinks that two brokers are up, one has begun to shut down since."""
    world = World(profile=profile).brokers(0, 1, 2)
    world.topic("a", (0,))
    world.topic("lead", (1, 2))
    usable = World().brokers(0, 1)
    world.ask(world.heartbeat(1, want_shut_down=True))
    request = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="a", count=3, assignments=None),))

    brokers = tuple(usable_brokers(Cluster(usable.image, profile, Context())))
    results = [world.look(request, usable_brokers=brokers, random_state=state) for state in (0, 1 << 47)]
    assert [result.response.results[0].error_code for result in results] == [38, 38]  # type: ignore[attr-defined]
    created = [[record.replicas for record in of(result, PartitionRecord)] for result in results]
    assert [(0,)] in created if flawed else created == [[], []]


# PROFILES


def test_profile_failure_order() -> None:
    """R-FAIL-1: Kafka writes the registration last, the page first."""
    for name, first in (("kafka", PartitionChangeRecord), ("kip858", BrokerRegistrationChangeRecord)):
        world = unfenced_world(PROFILES[name])
        result = world.look(world.heartbeat(0, directory(0)))
        assert len(result.records) == 2
        assert isinstance(plain(result)[0], first)


def unfenced_world(profile: Profile) -> World:
    """Brokers 0 and 1 with two directories each, everything assigned."""
    world = World(profile=profile).brokers(0, 1)
    world.topic("a", (0, 1))
    world.assign(0, directory(0), "a")
    world.assign(1, directory(1), "a")
    return world


@pytest.mark.parametrize(("name", "records"), [("kafka", 0), ("kip858", None), ("draft", None)])
def test_profile_unknown_offline_directory(name: str, records: int | None) -> None:
    """R-FAIL-2: ignored by Kafka, error 57 on the page; what the process registered is known, failed or not."""
    world = unfenced_world(PROFILES[name])
    request = world.heartbeat(0, Uuid(5, 5))
    if records is not None:
        assert len(world.look(request).records) == records
        return
    registered = frozenset(world.image.brokers[0].directories)
    assert world.refuse(LogDirNotFound, request, registered_log_dirs=registered).code == 57
    world.ask(world.heartbeat(0, directory(0)), registered_log_dirs=registered)
    assert world.ask(world.heartbeat(0, directory(0)), registered_log_dirs=registered).records == ()


def test_report_to_a_controller_that_does_not_know_what_was_registered_is_ignored() -> None:
    """R-FAIL-4."""
    world = unfenced_world(KIP858)
    assert world.look(world.heartbeat(0, Uuid(5, 5))).records == ()


@pytest.mark.parametrize(
    ("name", "error"),
    [("kafka", InvalidRegistration), ("kip858", InvalidRegistrationRequest), ("draft", InvalidRegistrationRequest)],
)
def test_profile_registration_without_directories(name: str, error: type[InvalidRegistration]) -> None:
    """R-REG-4: 119 in Kafka, 42 on the page."""
    world = World(profile=PROFILES[name])
    assert world.refuse(error, world.registration(0)).code == {"kafka": 119}.get(name, 42)


@pytest.mark.parametrize("log_dirs", [(UNASSIGNED,), (directory(0), directory(0))])
def test_profile_directory_checks(log_dirs: tuple[Uuid, ...]) -> None:
    """R-REG-5, R-REG-6: only Kafka has them."""
    World().refuse(InvalidRegistration, World().registration(0, *log_dirs))
    world = World(profile=KIP858)
    assert len(world.look(world.registration(0, *log_dirs)).records) == 1


@pytest.mark.parametrize(("name", "code"), [("kafka", 119), ("kip858", 42), ("draft", 42)])
def test_profile_directory_of_another_broker(name: str, code: int) -> None:
    """R-REG-7: refused by all, since no log may hold it."""
    world = World(profile=PROFILES[name]).brokers(0)
    error = InvalidRegistration if code == 119 else InvalidRegistrationRequest
    assert world.refuse(error, world.registration(1, directory(0))).code == code


@pytest.mark.parametrize(
    ("name", "expected"), [("kafka", directory(0)), ("kip858", directory(0)), ("draft", UNASSIGNED)]
)
def test_profile_directory_of_a_new_replica(name: str, expected: Uuid) -> None:
    """R-NEWDIR-1: the page's newer sentence preselects, the older says unassigned."""
    world = World(profile=PROFILES[name]).brokers(0, dirs=1)
    world.topic("a", (0,))
    assert world.partition("a").directories == (expected,)


@pytest.mark.parametrize(("name", "fenced"), [("kafka", False), ("kip858", True), ("draft", True)])
def test_profile_fenced_until_assigned(name: str, fenced: bool) -> None:
    """R-HB-5: only brokers with several directories, only while a replica of theirs is unassigned."""
    world = World(profile=PROFILES[name]).brokers(0, 1)
    world.topic("a", (0, 1))
    world.fence(0)
    world.ask(world.heartbeat(0))
    assert world.image.brokers[0].fenced is fenced
    world.assign(0, directory(0), "a")
    world.ask(world.heartbeat(0))
    assert not world.image.brokers[0].fenced


@pytest.mark.parametrize(("name", "fenced"), [("kafka", False), ("kip858", True), ("draft", True)])
def test_profile_fences_while_a_replica_is_migrating(name: str, fenced: bool) -> None:
    """R-HB-5: what was copied from ZooKeeper is learnt first."""
    world = World(profile=PROFILES[name]).brokers(0, 1)
    world.topic("a", (0, 1))
    world.set("a", directories=(world.image.ids.migrating, directory(1)))
    world.fence(0)
    world.ask(world.heartbeat(0))
    assert world.image.brokers[0].fenced is fenced
    world.assign(0, directory(0), "a")
    world.ask(world.heartbeat(0))
    assert not world.image.brokers[0].fenced


@pytest.mark.parametrize("name", ["kip858", "draft"])
@pytest.mark.parametrize("kind", ["unassigned", "migrating"])
def test_profile_does_not_fence_a_broker_with_one_directory(name: str, kind: str) -> None:
    """R-HB-5: one directory needs no assignment."""
    world = World(profile=PROFILES[name]).brokers(0, dirs=1)
    world.topic("a", (0,))
    world.set("a", directories=(getattr(world.image.ids, kind),))
    world.fence(0)
    world.ask(world.heartbeat(0))
    assert not world.image.brokers[0].fenced


@pytest.mark.parametrize("name", ["kip858", "draft"])
def test_profile_admits_a_broker_in_zookeeper_mode(name: str) -> None:
    """R-ZK-1: with its directories, and unfenced whatever is assigned."""
    world = World(profile=PROFILES[name]).brokers(0, 1)
    world.topic("a", (0, 1))
    world.set("a", directories=(world.image.ids.migrating, directory(1)))
    mine = (directory(0), directory(0, 1))
    world.ask(world.registration(0, *mine, process=1, is_migrating_zk_broker=True))
    registration = world.image.brokers[0]
    assert (registration.is_migrating_zk_broker, registration.directories) == (True, mine)
    world.ask(world.heartbeat(0))
    assert not world.image.brokers[0].fenced


@pytest.mark.parametrize(("name", "written"), [("kafka", ZERO), ("kip858", ZERO), ("draft", KAFKA_IDS.lost)])
def test_profile_assignment_to_the_id_of_zeros(name: str, written: Uuid) -> None:
    """R-DRAFT-5: in the drafts it conveys an offline directory, and the leader moves."""
    world = unfenced_world(PROFILES[name])
    world.assign(0, ZERO, "a")
    assert world.partition("a").directories[0] == written
    assert world.partition("a").leader == (0 if name == "kafka" else 1)


@pytest.mark.parametrize(("name", "leader"), [("kafka", -1), ("kip858", 0), ("draft", 0)])
def test_profile_election_after_an_assignment(name: str, leader: int) -> None:
    """R-ASSIGN-6: Kafka leaves a partition leaderless that was assigned to an online directory."""
    world = World(profile=PROFILES[name]).brokers(0)
    world.topic("a", (0,))
    world.assign(0, directory(0), "a")
    world.ask(world.heartbeat(0, directory(0)))
    assert world.partition("a").leader == -1
    world.assign(0, directory(0, 1), "a")
    assert world.partition("a").leader == leader


@pytest.mark.parametrize("name", ["kafka", "kip858", "draft"])
def test_profile_assignment_to_an_offline_directory_moves_the_leader_in_all(name: str) -> None:
    """R-ASSIGN-5: by the page in one record."""
    world = unfenced_world(PROFILES[name])
    result = world.assign(0, KAFKA_IDS.lost, "a")
    assert len(result.records) == (2 if name == "kafka" else 1)
    assert (world.partition("a").leader, world.partition("a").isr) == (1, (1,))


def test_profile_page_never_leads_in_a_failed_directory_after_two_in_one() -> None:
    """R-QUIRK-4: with the page's order the hole is not there."""
    world = World(profile=KIP858).brokers(0)
    world.topic("a", (0,))
    world.assign(0, directory(0), "a")
    world.fence(0)
    world.ask(world.heartbeat(0, directory(0)))
    assert world.partition("a").leader == -1


# WHAT A CONTROLLER REMEMBERS


def test_memory_without_one_reads_the_metadata() -> None:
    """R-MEM-1: nothing is known of deleted topics."""
    world = World(elr=True, min_isr=2).brokers(0, 1)
    topic = world.topic("a", (0,))
    world.assign(0, directory(0), "a")
    world.fence(0)
    world.ask(DeleteTopicsRequest(topic_ids=(topic,)))
    world.ask(world.heartbeat(0))
    assert len(world.look(world.heartbeat(0, directory(0)), memory=None).records) == 1


def test_memory_forgets_who_was_eligible_with_the_topic() -> None:
    """R-MEM-1 (testEligibleLeaderReplicas_DeleteTopic)."""
    world = World(elr=True, min_isr=2).brokers(0, 1)
    topic = world.topic("a", (0, 1))
    world.ask(world.isr_request("a", 0))
    assert list(world.memory.eligible(1)) == [(topic, 0)]
    world.ask(DeleteTopicsRequest(topic_ids=(topic,)))
    assert list(world.memory.eligible(1)) == []


def test_memory_listed_twice_leaves_a_zero_behind() -> None:
    """R-QUIRK-6: cleared, eligible again, then in sync: Kafka's array keeps an entry for partition 0."""
    world = World(elr=True, min_isr=2).brokers(0, 1)
    topic = world.topic("a", (0, 1), (0, 1))
    for _ in range(2):
        world.ask(world.isr_request("a", 0, partition=1))
        world.ask(
            IncrementalAlterConfigsRequest(
                resources=(
                    AlterConfigsResource(
                        resource_type=4,
                        resource_name="",
                        configs=(AlterableConfig(name="min.insync.replicas", value="2"),),
                    ),
                )
            )
        )
        world.ask(world.isr_request("a", 0, 1, partition=1))
    world.ask(world.isr_request("a", 0, partition=1))
    assert list(world.memory.eligible(1)) == [(topic, 1)] * 3
    world.ask(world.isr_request("a", 0, 1, partition=1))
    assert list(world.memory.eligible(1)) == [(topic, 0), (topic, 0)]


@pytest.mark.parametrize(("entries", "table"), [(1, 2), (2, 2), (3, 4), (5, 4), (6, 8), (10, 8), (11, 16)])
def test_memory_table_doubles_when_four_thirds_full(entries: int, table: int) -> None:
    """R-MEM-2."""
    assert grown(2, entries) == table


@pytest.mark.parametrize(
    ("count", "first"), [(1, 0), (2, 0), (3, 2), (4, 2), (5, 2), (6, 5), (10, 5), (11, 0), (14, 13)]
)
def test_memory_first_partition_is_that_of_kafkas_table(count: int, first: int) -> None:
    """R-MEM-2: by Fibonacci hash; among equals the last one in."""
    partitions = {
        number: Partition(replicas=(number,), directories=(UNASSIGNED,), isr=(number,), partition_epoch=0)
        for number in range(count)
    }
    assert first_partition(partitions, None).replicas == (first,)


def test_memory_first_partition_of_a_table_written_to_since_it_filled() -> None:
    """R-MEM-2: any write may double the table; which it was, only the memory knows."""
    partitions = {
        number: Partition(replicas=(number,), directories=(UNASSIGNED,), isr=(number,), partition_epoch=number)
        for number in range(5)
    }
    assert first_partition(partitions, None).replicas == (0,)
    assert first_partition(partitions, 4).replicas == (2,)
    once = {number: replace(each, partition_epoch=min(number, 1)) for number, each in partitions.items()}
    assert first_partition(once, None).replicas == (0,)


def test_memory_of_an_unknown_topic_is_empty() -> None:
    """R-MEM-1."""
    memory = ControllerMemory()
    assert memory.table(Uuid(1, 1)) is None
    assert list(memory.eligible(1)) == []


def test_profile_page_ids_are_those_of_the_image() -> None:
    """R-NEWDIR-1, R-ASSIGN-5: what an id means belongs to the log, not to the rules."""
    world = World(profile=KIP858)
    world.image = replace(world.image, ids=KIP858_IDS)
    world.brokers(0, dirs=2).brokers(1, dirs=1)
    world.topic("a", (0, 1))
    assert world.partition("a").directories == (KIP858_IDS.unassigned, directory(1))
    world.assign(0, KIP858_IDS.lost, "a")
    assert world.partition("a").leader == 1


def test_broker_without_directories_is_not_asked_to_shut_down() -> None:
    """R-QUIRK-5: it registered before directories were recorded, so none of them can be the last."""
    world = World(profile=KIP858)
    world.apply(RegisterBrokerRecord(broker_id=0, broker_epoch=3, fenced=False))
    response = world.ask(world.heartbeat(0)).response
    assert isinstance(response, BrokerHeartbeatResponse)
    assert not response.should_shut_down
