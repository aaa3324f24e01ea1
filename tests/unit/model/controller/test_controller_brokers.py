"""Registrations, heartbeats, failed directories, expired sessions, unregistrations (docs/spec/controller.md)."""

from __future__ import annotations

from typing import Any

import pytest

from jbod_model.controller import context
from jbod_model.controller.context import (
    TRANSITIONS,
    Authorizer,
    BrokerControlState,
    Situation,
    next_state,
)
from jbod_model.formats.records import (
    AccessControlEntryRecord,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from jbod_model.formats.requests import (
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    SessionExpired,
    UnregisterBrokerRequest,
)
from jbod_model.formats.responses import (
    BrokerHeartbeatResponse,
    BrokerNotRegistered,
    ControllerFault,
    DuplicateRegistration,
    FeatureNotSupported,
    InvalidRegistration,
    MigratingBrokerRefused,
    NotAuthorized,
    RequestRefused,
    StaleBrokerEpoch,
    WrongCluster,
)
from jbod_model.ids import Uuid
from tests.unit.model.controller.controller_world import (
    FEATURES,
    LOST,
    UNASSIGNED,
    World,
    changes,
    directory,
    incarnation,
    of,
    plain,
    versions,
)

FENCED, UNFENCED = BrokerControlState.FENCED, BrokerControlState.UNFENCED
LEAVING, STOP = BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.SHUTDOWN_NOW


# AUTHORIZATION


@pytest.mark.parametrize(
    "request_",
    [
        BrokerRegistrationRequest(broker_id=1),
        BrokerHeartbeatRequest(broker_id=1),
        AssignReplicasToDirsRequest(broker_id=1),
        AlterPartitionRequest(broker_id=1),
    ],
    ids=lambda request: type(request).__name__,
)
def test_handle_broker_request_without_cluster_action_is_refused_with_31(request_: Any) -> None:
    """R-AUTH-1, R-CTL-1, R-CTL-2: before anything else is looked at."""
    assert World().refuse(NotAuthorized, request_, authorized=False).code == 31


def entry(principal: str, operation: int, permission: int, **fields: Any) -> AccessControlEntryRecord:
    values: dict[str, Any] = {
        "resource_type": 4,
        "resource_name": "kafka-cluster",
        "pattern_type": 3,
        "host": "*",
    } | fields
    return AccessControlEntryRecord(principal=principal, operation=operation, permission_type=permission, **values)


# What the log says of User:broker, and whether it may act as a broker. Operations: 2 ALL, 7 ALTER, 9 CLUSTER_ACTION;
# permissions: 2 DENY, 3 ALLOW.
RIGHTS = [
    ([], False),
    ([entry("User:broker", 9, 3)], True),
    ([entry("User:broker", 2, 3)], True),
    ([entry("User:*", 9, 3)], True),
    ([entry("User:broker", 7, 3)], False),
    ([entry("User:admin", 9, 3)], False),
    ([entry("User:broker", 9, 3), entry("User:*", 9, 2)], False),
    ([entry("User:broker", 9, 3), entry("User:broker", 2, 2)], False),
    ([entry("User:broker", 9, 3), entry("User:broker", 7, 2)], True),
    ([entry("User:broker", 9, 3, resource_type=2)], False),
    ([entry("User:broker", 9, 3, resource_name="other")], False),
    ([entry("User:broker", 9, 3, resource_name="*")], True),
    ([entry("User:broker", 9, 3, resource_name="kafka-", pattern_type=4)], True),
    ([entry("User:broker", 9, 3, resource_name="kafka-")], False),
]


@pytest.mark.parametrize(("entries", "may"), RIGHTS)
def test_rights_on_the_cluster_decide_who_acts_as_a_broker(entries: list[AccessControlEntryRecord], may: bool) -> None:
    """R-AUTH-2."""
    world = World()
    authorizer = Authorizer(entries=tuple(entries), super_users=frozenset({"User:root"}))
    context = {"principal": "User:broker", "authorizer": authorizer}
    request_ = world.registration(1, directory(1))
    if may:
        assert world.look(request_, **context).records
    else:
        refused = world.refuse(NotAuthorized, request_, **context)
        assert str(refused).endswith("BrokerRegistrationRequest: User:broker needs CLUSTER_ACTION on the cluster")
    assert world.look(request_, **{**context, "principal": "User:root"}).records


def test_everybody_acts_as_a_broker_where_no_entry_is_found_and_that_is_allowed() -> None:
    """R-AUTH-2: allow.everyone.if.no.acl.found counts only while no entry is about the cluster."""
    assert Authorizer(allow_if_no_entry=True).may_act_as_broker("User:broker")
    other = Authorizer(entries=(entry("User:admin", 9, 3),), allow_if_no_entry=True)
    assert not other.may_act_as_broker("User:broker")


def test_kinds_of_resource_names_and_permissions_have_kafkas_numbers() -> None:
    """Source: ``ResourceType``, ``PatternType``, ``AclOperation``, ``AclPermissionType``."""
    assert (context.CLUSTER_RESOURCE, context.LITERAL, context.PREFIXED) == (4, 3, 4)
    assert (context.ALL, context.CLUSTER_ACTION, context.DENY, context.ALLOW) == (2, 9, 2, 3)


# REGISTRATION


def test_register_new_broker_is_fenced_under_the_next_offset() -> None:
    """R-REG-11: directories in the order of the request."""
    world = World()
    dirs = (directory(1, 1), directory(1, 0))
    result = world.ask(world.registration(1, *dirs), next_offset=123)
    (record,) = of(result, RegisterBrokerRecord)
    assert (record.broker_epoch, record.fenced, record.in_controlled_shutdown) == (123, True, False)
    assert record.log_dirs == dirs
    assert record.incarnation_id == incarnation(100)
    assert [feature.name for feature in record.features] == [feature.name for feature in FEATURES]
    assert result.response.broker_epoch == 123  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("level", "version", "kept"),
    [("3.3-IV3", 1, False), ("3.4-IV0", 2, False), ("3.7-IV1", 2, False), ("3.7-IV2", 3, True), ("4.1-IV1", 3, True)],
)
def test_register_record_has_the_version_of_the_metadata_version(level: str, version: int, kept: bool) -> None:
    """R-REG-13, R-FEAT-1: directories from 3.7-IV2 on."""
    world = World(level)
    result = world.look(world.registration(1, directory(1)))
    assert versions(result.records) == [version]
    assert of(result, RegisterBrokerRecord)[0].log_dirs == ((directory(1),) if kept else ())


@pytest.mark.parametrize("log_dirs", [(), (UNASSIGNED,), (directory(1), directory(1)), (directory(0),)])
def test_register_below_37_looks_at_no_directories(log_dirs: tuple[Uuid, ...]) -> None:
    """R-REG-13."""
    world = World("3.7-IV1").brokers(0)
    assert len(world.look(world.registration(1, *log_dirs)).records) == 1


REFUSED_DIRECTORIES = {
    "none (R-REG-4)": ((), "no directories"),
    "unassigned (R-REG-5)": ((directory(1), UNASSIGNED), "reserved"),
    "lost (R-REG-5)": ((LOST,), "reserved"),
    "number 99 (R-REG-5)": ((Uuid(0, 99),), "reserved"),
    "a negative number (R-REG-5)": ((Uuid(0, -1),), "reserved"),
    "twice (R-REG-6)": ((directory(1), directory(1)), "twice"),
    "another broker's (R-REG-7)": ((directory(1), directory(0, 1)), "broker 0"),
}


@pytest.mark.parametrize("case", REFUSED_DIRECTORIES)
def test_register_directories_that_cannot_be_are_refused_with_119(case: str) -> None:
    log_dirs, problem = REFUSED_DIRECTORIES[case]
    world = World().brokers(0)
    refused = world.refuse(InvalidRegistration, world.registration(1, *log_dirs))
    assert refused.code == 119
    assert problem in str(refused)


def test_register_directory_number_100_is_free() -> None:
    """R-REG-5."""
    world = World()
    world.ask(world.registration(1, Uuid(0, 100)))
    assert world.image.brokers[1].directories == (Uuid(0, 100),)


def test_register_directory_moves_once_its_owner_does_not_list_it() -> None:
    """R-REG-7: and the old owner cannot take it back."""
    world = World().brokers(0, 1)
    moving = directory(0, 1)
    world.refuse(InvalidRegistration, world.registration(1, directory(1), moving, process=1))
    world.ask(world.registration(0, directory(0), process=1))
    world.ask(world.registration(1, directory(1), moving, process=1))
    assert moving in world.image.brokers[1].directories
    world.refuse(InvalidRegistration, world.registration(0, directory(0), moving, process=2))


def test_register_directory_that_failed_elsewhere_is_free() -> None:
    """R-REG-7: what counts is what is listed now."""
    world = World().brokers(0, 1)
    world.ask(world.heartbeat(0, directory(0, 1)))
    world.ask(world.registration(1, directory(1), directory(0, 1), process=1))
    assert directory(0, 1) in world.image.brokers[1].directories


def range_of(name: str, lowest: int, highest: int) -> BrokerFeature:
    return BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)


REFUSALS: dict[str, tuple[type[RequestRefused], dict[str, Any], dict[str, Any], int]] = {
    "another cluster (R-REG-1)": (WrongCluster, {"cluster_id": "other"}, {}, 104),
    "a living session (R-REG-2)": (DuplicateRegistration, {}, {"has_valid_session": True}, 101),
    "ZooKeeper mode (R-REG-3)": (MigratingBrokerRefused, {"is_migrating_zk_broker": True}, {}, 102),
    "metadata.version unlisted (R-REG-8)": (InvalidRegistration, {"features": ()}, {}, 119),
    "metadata.version too low (R-REG-9)": (
        FeatureNotSupported,
        {"features": (range_of("metadata.version", 7, 20), *FEATURES[1:])},
        {},
        35,
    ),
    "metadata.version too high (R-REG-9)": (
        FeatureNotSupported,
        {"features": (range_of("metadata.version", 28, 29), *FEATURES[1:])},
        {},
        35,
    ),
    "an unlisted feature (R-REG-9)": (FeatureNotSupported, {"features": FEATURES[:1]}, {}, 35),
    "a feature that is off, yet needed on (R-REG-9)": (
        FeatureNotSupported,
        {"features": (*FEATURES, range_of("group.version", 1, 1))},
        {},
        35,
    ),
    "kraft.version (R-REG-9)": (
        FeatureNotSupported,
        {"features": (*FEATURES, range_of("kraft.version", 0, 0))},
        {"kraft_version": 1},
        35,
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_register_is_refused(case: str) -> None:
    error, fields, context, code = REFUSALS[case]
    world = World(elr=True).brokers(1)
    assert world.refuse(error, world.registration(1, directory(1), process=1, **fields), **context).code == code


def test_register_same_process_amends_its_registration() -> None:
    """R-REG-12: epoch and state stay, directories are replaced, no partition changes; a session does not matter."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    epoch = world.epoch(0)
    result = world.ask(world.registration(0, directory(0), directory(0, 5)), has_valid_session=True)
    assert [type(record) for record in plain(result)] == [RegisterBrokerRecord]
    broker = world.image.brokers[0]
    assert (broker.epoch, broker.fenced) == (epoch, False)
    assert broker.directories == (directory(0), directory(0, 5))


def test_register_same_process_keeps_its_controlled_shutdown() -> None:
    """R-REG-12."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.ask(world.heartbeat(0, want_shut_down=True))
    world.ask(world.registration(0, directory(0)))
    assert world.image.brokers[0].in_controlled_shutdown


def test_register_new_process_has_a_new_epoch_and_no_shutdown() -> None:
    """R-REG-11, R-REG-2: once the session is over."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.ask(world.heartbeat(0, want_shut_down=True))
    world.ask(world.registration(0, directory(0), process=1), next_offset=111)
    broker = world.image.brokers[0]
    assert (broker.epoch, broker.fenced, broker.in_controlled_shutdown) == (111, True, False)


def test_register_new_process_leaves_leadership_and_in_sync_sets_first() -> None:
    """R-REG-10, R-LEADER-6."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    result = world.ask(world.registration(0, directory(0), process=1))
    assert [type(record) for record in plain(result)] == [PartitionChangeRecord, RegisterBrokerRecord]
    assert changes(result) == [{"isr": (1,), "leader": 1}]


@pytest.mark.parametrize(
    ("detects", "previous", "eligible"), [(True, "same", (0,)), (True, "other", ()), (False, "same", ())]
)
def test_register_after_a_clean_shutdown_stays_eligible(
    detects: bool, previous: str, eligible: tuple[int, ...]
) -> None:
    """R-LEADER-6: clean is who knows the epoch before, if the request can say so."""
    world = World(elr=True, min_isr=2).brokers(0, 1)
    world.topic("a", (0, 1))
    epoch = world.epoch(0) if previous == "same" else 1
    request = world.registration(0, directory(0), process=1, previous_broker_epoch=epoch)
    world.ask(request, clean_shutdown_detection=detects)
    assert world.partition("a").isr == (1,)
    assert world.partition("a").eligible_leader_replicas == eligible


def test_register_with_a_directory_gone_leaves_its_partitions_offline() -> None:
    """R-REG-12, R-ELECT-1: assignments stay, and the broker cannot lead there after it is unfenced."""
    world = World().brokers(0, 1)
    world.topic("a", (0,))
    world.assign(0, directory(0, 1), "a")
    world.ask(world.registration(0, directory(0), process=1))
    world.ask(world.heartbeat(0))
    assert not world.image.brokers[0].fenced
    assert world.partition("a").leader == -1
    assert world.partition("a").directories == (directory(0, 1),)


# THE TABLE OF STATES

STATES = [
    (FENCED, {"wants_shut_down": True}, STOP),
    (FENCED, {"caught_up": True}, UNFENCED),
    (FENCED, {"caught_up": False}, FENCED),
    (FENCED, {"wants_fence": True, "caught_up": True}, FENCED),
    (UNFENCED, {"wants_shut_down": True, "leads": True}, LEAVING),
    (UNFENCED, {"wants_shut_down": True}, STOP),
    (UNFENCED, {}, UNFENCED),
    (UNFENCED, {"wants_fence": True}, FENCED),
    (UNFENCED, {"wants_fence": True, "wants_shut_down": True}, STOP),
    (LEAVING, {"wants_shut_down": True, "leads": True, "passed": True}, LEAVING),
    (LEAVING, {"wants_shut_down": True, "passed": False}, LEAVING),
    (LEAVING, {"wants_shut_down": True, "passed": True}, STOP),
    (STOP, {"wants_shut_down": True}, STOP),
]


@pytest.mark.parametrize(("current", "facts", "expected"), STATES)
def test_next_state_is_as_kafkas_heartbeat_manager_test_has_it(
    current: BrokerControlState, facts: dict[str, bool], expected: BrokerControlState
) -> None:
    """R-HB-2."""
    situation = Situation(
        wants_fence=facts.get("wants_fence", False),
        wants_shut_down=facts.get("wants_shut_down", False),
        caught_up=facts.get("caught_up", False),
        leads=lambda: facts.get("leads", False),
        shutdown_offset_passed=lambda: facts.get("passed", False),
    )
    assert next_state(current, situation) is expected


def test_transitions_lead_somewhere_else() -> None:
    """R-HB-2: a row that changes nothing would hide the rows below it."""
    assert all(state is not following for state, _, following in TRANSITIONS)


# HEARTBEATS


@pytest.mark.parametrize("broker_id", [1, 5])
def test_heartbeat_of_a_stale_epoch_or_unknown_broker_is_refused_with_77(broker_id: int) -> None:
    """R-HB-1."""
    world = World().brokers(1)
    request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=world.epoch(1) - 1)
    assert world.refuse(StaleBrokerEpoch, request).code == 77


def test_heartbeat_unfences_a_broker_that_has_caught_up() -> None:
    """R-HB-3, R-LEADER-3: the registration first."""
    world = World().brokers(0, unfenced=False)
    behind = world.look(world.heartbeat(0, current_metadata_offset=3), register_broker_record_offset=4)
    assert behind.records == ()
    assert behind.response == BrokerHeartbeatResponse(
        is_caught_up=False, is_fenced=True, in_controlled_shutdown=False, should_shut_down=False
    )
    caught_up = world.look(world.heartbeat(0, current_metadata_offset=4), register_broker_record_offset=4)
    assert plain(caught_up) == [BrokerRegistrationChangeRecord(broker_id=0, broker_epoch=world.epoch(0), fenced=-1)]
    assert versions(caught_up.records) == [0]
    assert caught_up.response == BrokerHeartbeatResponse(
        is_caught_up=True, is_fenced=False, in_controlled_shutdown=False, should_shut_down=False
    )


def test_heartbeat_unfencing_elects_for_every_leaderless_partition() -> None:
    """R-LEADER-3, R-LEADER-1: the broker counts as alive though the state shows it fenced."""
    world = World().brokers(0, 1)
    world.topic("a", (0,), (1,))
    world.fence(0)
    assert (world.partition("a").leader, world.partition("a", 1).leader) == (-1, 1)
    result = world.ask(world.heartbeat(0))
    assert [type(record) for record in plain(result)] == [BrokerRegistrationChangeRecord, PartitionChangeRecord]
    assert changes(result) == [{"leader": 0}]


def test_heartbeat_fencing_moves_leaders_first() -> None:
    """R-LEADER-2."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    result = world.ask(world.heartbeat(0, want_fence=True))
    assert [type(record) for record in plain(result)] == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    assert changes(result) == [{"isr": (1,), "leader": 1}]


def test_heartbeat_controlled_shutdown_moves_leaders_and_repeats_only_that() -> None:
    """R-LEADER-4: version 1 of the change record, as in Kafka's testProcessBrokerHeartbeatInControlledShutdown."""
    world = World("3.3-IV3").brokers(0, 1, 2)
    world.topic("foo", (0, 1, 2))
    result = world.ask(world.heartbeat(0, want_shut_down=True))
    assert versions(result.records) == [1, 0]
    assert plain(result)[0] == BrokerRegistrationChangeRecord(
        broker_id=0, broker_epoch=world.epoch(0), in_controlled_shutdown=1
    )
    assert changes(result) == [{"isr": (1, 2), "leader": 1}]
    assert world.look(world.heartbeat(0), lowest_active_offset=5, controlled_shutdown_offset=6).records == ()


def test_heartbeat_controlled_shutdown_ends_when_active_brokers_read_the_moves() -> None:
    """R-HB-2, R-HB-3."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.ask(world.heartbeat(0, want_shut_down=True))
    result = world.look(world.heartbeat(0), lowest_active_offset=6, controlled_shutdown_offset=6)
    assert result.response == BrokerHeartbeatResponse(
        is_caught_up=True, is_fenced=True, in_controlled_shutdown=False, should_shut_down=True
    )
    assert plain(result) == [BrokerRegistrationChangeRecord(broker_id=0, broker_epoch=world.epoch(0), fenced=1)]


def test_heartbeat_goes_by_the_state_that_heartbeats_left() -> None:
    """R-CTL-5: the circumstances say unfenced though the registration is fenced, so nothing is written."""
    world = World().brokers(0, unfenced=False)
    assert world.look(world.heartbeat(0), state=UNFENCED).records == ()


# FAILED DIRECTORIES


def test_heartbeat_failed_directory_is_as_kafkas_test_has_it() -> None:
    """R-FAIL-1, R-FAIL-2: testHandleDirectoriesOffline, one own directory and one of another broker."""
    world = World().brokers(101, 102)
    world.topic("a", (101, 102), (101, 102))
    world.topic("b", (101, 102), (101, 102))
    for broker_id in (101, 102):
        for topic in ("a", "b"):
            for partition in (0, 1):
                world.assign(broker_id, directory(broker_id, partition), topic, partition)
    result = world.ask(world.heartbeat(101, directory(101, 0), directory(102, 0)))
    assert changes(result) == [{"isr": (102,), "leader": 102}] * 2
    assert {record.partition_id for record in of(result, PartitionChangeRecord)} == {0}
    assert plain(result)[-1] == BrokerRegistrationChangeRecord(
        broker_id=101, broker_epoch=world.epoch(101), log_dirs=(directory(101, 1),)
    )
    assert versions(result.records) == [2, 2, 2]
    assert world.image.brokers[101].directories == (directory(101, 1),)


def test_heartbeat_failed_directory_reported_again_writes_nothing() -> None:
    """R-FAIL-3."""
    world = World().brokers(0, dirs=3)
    assert len(world.ask(world.heartbeat(0, directory(0, 1))).records) == 1
    assert world.ask(world.heartbeat(0, directory(0, 1))).records == ()
    assert len(world.ask(world.heartbeat(0, directory(0, 1), directory(0, 2))).records) == 1


def test_heartbeat_unknown_directory_is_ignored() -> None:
    """R-FAIL-2."""
    world = World().brokers(0)
    assert world.look(world.heartbeat(0, Uuid(5, 5), UNASSIGNED)).records == ()


def test_heartbeat_failed_directory_below_37_is_ignored() -> None:
    """R-HB-4."""
    world = World("3.7-IV1").brokers(0)
    assert world.look(world.heartbeat(0, directory(0))).records == ()


def test_heartbeat_failed_directory_of_a_follower_only_shrinks_the_isr() -> None:
    """R-FAIL-1."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.assign(1, directory(1), "a")
    assert changes(world.ask(world.heartbeat(1, directory(1)))) == [{"isr": (0,)}]


def test_heartbeat_failed_directory_of_a_replica_out_of_sync_writes_no_partition() -> None:
    """R-FAIL-1, R-CHANGE-1."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.assign(1, directory(1), "a")
    world.ask(world.isr_request("a", 0))
    assert of(world.ask(world.heartbeat(1, directory(1))), PartitionChangeRecord) == []


def test_heartbeat_failed_directory_of_the_last_in_sync_replica_keeps_the_isr() -> None:
    """R-FAIL-1, R-ELIG-4: nobody leads, and the broker stays the only one in sync."""
    world = World().brokers(0, 1)
    world.topic("a", (0,))
    world.assign(0, directory(0), "a")
    world.ask(world.heartbeat(0, directory(0)))
    assert (world.partition("a").leader, world.partition("a").isr) == (-1, (0,))


def test_heartbeat_failed_directory_with_eligible_leaders_empties_the_isr() -> None:
    """R-FAIL-1, R-ELIG-2, R-ELIG-5: two disks in a row, as in the experiment on Kafka's classes."""
    world = World(elr=True, min_isr=2).brokers(0, 1)
    world.topic("a", (0, 1))
    world.assign(0, directory(0), "a")
    world.assign(1, directory(1), "a")
    first = world.ask(world.heartbeat(0, directory(0)))
    assert changes(first) == [{"isr": (1,), "leader": 1, "eligible_leader_replicas": (0,)}]
    second = world.ask(world.heartbeat(1, directory(1)))
    assert changes(second) == [{"isr": (), "leader": -1, "eligible_leader_replicas": (0, 1), "last_known_elr": (1,)}]


def test_heartbeat_failed_directory_elects_uncleanly_where_the_topic_allows_it() -> None:
    """R-ELECT-8."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.assign(0, directory(0), "a")
    world.allow_unclean("a")
    world.ask(world.isr_request("a", 0))
    result = world.ask(world.heartbeat(0, directory(0)))
    assert changes(result) == [{"isr": (1,), "leader": 1, "leader_recovery_state": 1}]


def test_heartbeat_failed_directory_never_elects_onto_another_offline_directory() -> None:
    """R-ELECT-1: broker 1's replica is in a directory that failed before."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.assign(0, directory(0), "a")
    world.assign(1, directory(1), "a")
    world.ask(world.heartbeat(1, directory(1)))
    world.allow_unclean("a")
    world.ask(world.heartbeat(0, directory(0)))
    assert world.partition("a").leader == -1


def test_heartbeat_two_directories_fail_at_once() -> None:
    """R-FAIL-1, R-CTL-7: partitions of both, one change of the registration."""
    world = World().brokers(0, dirs=3).brokers(1)
    world.topic("a", (0, 1), (0, 1), (0, 1))
    for partition in range(3):
        world.assign(0, directory(0, partition), "a", partition)
    result = world.ask(world.heartbeat(0, directory(0, 2), directory(0, 0)))
    assert [record.partition_id for record in of(result, PartitionChangeRecord)] == [0, 2]
    assert world.image.brokers[0].directories == (directory(0, 1),)


# SESSIONS AND UNREGISTRATION


def test_session_expired_fences_the_broker() -> None:
    """R-HB-6, R-LEADER-2."""
    world = World().brokers(0, 1)
    world.topic("a", (0, 1))
    world.ask(SessionExpired(broker_id=0))
    assert world.image.brokers[0].fenced
    assert (world.partition("a").leader, world.partition("a").isr) == (1, (1,))


def test_session_expired_of_two_brokers_is_handled_one_by_one() -> None:
    """R-HB-6, R-CTL-7 (testFenceMultipleBrokers): the second expiry sees what the first one wrote."""
    world = World().brokers(0, 1, 2, 3, 4)
    world.topic("a", (0, 1, 2), (1, 2, 0))
    world.ask(SessionExpired(broker_id=0))
    assert (world.partition("a").isr, world.partition("a").leader) == ((1, 2), 1)
    world.ask(SessionExpired(broker_id=1))
    assert [world.partition("a", index).isr for index in (0, 1)] == [(2,), (2,)]
    assert [world.partition("a", index).leader for index in (0, 1)] == [2, 2]


def test_session_expired_of_an_unknown_broker_is_a_fault() -> None:
    """R-CTL-1: it has no number of its own."""
    assert World().refuse(ControllerFault, SessionExpired(broker_id=3)).code == -1


def test_unregister_unknown_broker_is_refused_with_102() -> None:
    """R-UNREG-1."""
    assert World().refuse(BrokerNotRegistered, UnregisterBrokerRequest(broker_id=3)).code == 102


def test_unregister_leaves_replicas_and_directories() -> None:
    """R-UNREG-2, R-LEADER-5: in sync, then eligible, then the registration."""
    world = World(elr=True, min_isr=2).brokers(0, 1, 2)
    world.topic("a", (0, 1))
    world.topic("b", (2, 0))
    world.ask(world.isr_request("b", 2))
    assert world.partition("b").eligible_leader_replicas == (0,)
    result = world.ask(UnregisterBrokerRequest(broker_id=0))
    assert [type(record) for record in plain(result)][-1] is UnregisterBrokerRecord
    assert of(result, PartitionChangeRecord)[0].topic_id == world.id("a")
    assert 0 not in world.image.brokers
    assert world.partition("a").replicas == (0, 1)
    assert world.partition("a").directories == (UNASSIGNED, UNASSIGNED)
