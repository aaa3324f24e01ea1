"""A whole broker, events in, requests out (docs/spec/broker.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from jbod_model.broker import lifecycle, process, replicas
from jbod_model.broker.assignments import Assignment, AssignmentQueue, AssignmentReason, GlobalFailure, Replica
from jbod_model.broker.disks import Disks, MoveState
from jbod_model.broker.lifecycle import Lifecycle, LifecycleState, Shutdown
from jbod_model.broker.process import Action, Broker
from jbod_model.broker.replicas import ReplicaChange, Replicas
from jbod_model.formats.requests import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)
from jbod_model.formats.responses import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatResponse,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import DRAFT_BROKER, KAFKA_BROKER, KIP858_BROKER, PROFILES, BrokerRules

A, B, METADATA = Uuid(11, 1), Uuid(11, 2), Uuid(12, 1)
TOPIC = Uuid(1, 1)
P, Q = Replica(TOPIC, 0), Replica(TOPIC, 1)
FINE = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, in_controlled_shutdown=False, should_shut_down=False)


def broker(rules: BrokerRules = KAFKA_BROKER, *directories: Uuid, metadata_dir: Uuid | None = METADATA) -> Broker:
    directories = directories or (A, B)
    life = Lifecycle(node_id=1, cluster_id="x", incarnation_id=Uuid(7, 7), log_dirs=directories, rules=rules)
    disks = Disks(configured=directories, metadata_dir=metadata_dir)
    return Broker(life=life, replicas=Replicas(disks=disks, rules=rules))


def publish(node: Broker, assigned: Mapping[Replica, Uuid], now: int, *, leads: bool = True, **options: Any) -> Broker:
    changes = [ReplicaChange(replica, leads, directory) for replica, directory in assigned.items()]
    arguments = {
        "offset": 10,
        "changes": changes,
        "deletes": (),
        "assigned": assigned,
        "registration": (5, (A, B)),
        "registration_changed": False,
        "directories_supported": True,
        "now": now,
    }
    return process.apply_metadata(node, **{**arguments, **options})


def running(rules: BrokerRules = KAFKA_BROKER, *directories: Uuid) -> Broker:
    node, _ = process.start(broker(rules, *directories), 0)
    node = process.answer_registration(node, 5, 0)
    node = publish(node, {}, 0)
    for now in (0, 10):
        node, _ = process.tick(node, now)
        node, _ = process.answer_heartbeat(node, FINE, now)
    assert node.life.state is LifecycleState.RUNNING
    return node


def accepted(request: AssignReplicasToDirsRequest, error: int = 0) -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(
        directories=tuple(
            AssignedDirectoryResult(
                id=directory.id,
                topics=tuple(
                    AssignedTopicResult(
                        topic_id=topic.topic_id,
                        partitions=tuple(
                            AssignedPartitionResult(partition_index=p.partition_index, error_code=error)
                            for p in topic.partitions
                        ),
                    )
                    for topic in directory.topics
                ),
            )
            for directory in request.directories
        )
    )


def kinds(actions: tuple[Action, ...]) -> list[str]:
    return [type(action).__name__ for action in actions]


def test_broker_registers_then_reports_where_new_replicas_are() -> None:
    """R-PROC-1, R-PROC-3."""
    node, actions = process.start(broker(), 0)
    assert kinds(actions) == ["BrokerRegistrationRequest"]
    node = process.answer_registration(node, 5, 1)
    node = publish(node, {P: KAFKA_IDS.unassigned, Q: KAFKA_IDS.unassigned}, 2)
    assert node.replicas.disks.current == {P: A, Q: B}
    assert (node.queue.pending, node.timers[0]) == (2, 1)
    node, actions = process.tick(node, 102)
    assert kinds(actions) == ["BrokerHeartbeatRequest", "AssignReplicasToDirsRequest"]
    assert actions[1] == AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=5,
        directories=(
            AssignedDirectory(id=A, topics=(AssignedTopic(topic_id=TOPIC, partitions=(AssignedPartition(),)),)),
            AssignedDirectory(
                id=B, topics=(AssignedTopic(topic_id=TOPIC, partitions=(AssignedPartition(partition_index=1),)),)
            ),
        ),
    )
    assert isinstance(actions[1], AssignReplicasToDirsRequest)
    node = process.answer_assignments(node, accepted(actions[1]), 103)
    assert node.queue.pending == 0


def test_heartbeat_names_the_offset_of_the_metadata_that_was_applied() -> None:
    node = publish(running(), {}, 20, offset=77)
    _, (request,) = process.tick(node, 5000)
    assert isinstance(request, BrokerHeartbeatRequest)
    assert request.current_metadata_offset == 77


def test_process_that_is_not_registered_yet_reports_under_the_epoch_of_the_one_before() -> None:
    """R-PROC-4: seen on real brokers that were killed and came back before their session had ended."""
    node, _ = process.start(broker(), 0)
    node = process.answer_registration(node, None, 5)
    node = publish(node, {P: KAFKA_IDS.unassigned}, 10, registration=(13, (A, B)))
    assert not node.life.ready_to_unfence
    node, actions = process.tick(node, 110)
    requests = [action for action in actions if isinstance(action, AssignReplicasToDirsRequest)]
    assert [request.broker_epoch for request in requests] == [13]


def test_first_image_without_own_directories_makes_the_broker_register_again() -> None:
    """The first record after an upgrade of the metadata version (R-IDENT-3)."""
    node = publish(running(), {}, 20, registration=(5, ()), registration_changed=True)
    _, actions = process.tick(node, 20)
    assert kinds(actions) == ["BrokerRegistrationRequest"]
    unchanged = publish(running(), {}, 20, registration=(5, ()), registration_changed=False)
    assert process.tick(unchanged, 20)[1] == ()


def test_directory_failure_is_reported_at_once() -> None:
    node = publish(running(), {P: A}, 20)
    node, actions = process.fail_directory(node, A, 30)
    assert actions == ()
    node, (request,) = process.tick(node, 30)
    assert isinstance(request, BrokerHeartbeatRequest)
    assert request.offline_log_dirs == (A,)
    assert process.fail_directory(node, A, 31) == (node, ())
    assert process.fail_directory(node, Uuid(99, 99), 31) == (node, ())


@pytest.mark.parametrize(
    ("directories", "failing"), [((A,), A), ((A, B), METADATA)], ids=["the last one", "the metadata directory"]
)
def test_directory_failure_that_cannot_be_survived_halts(directories: tuple[Uuid, ...], failing: Uuid) -> None:
    """R-PROC-2."""
    node, actions = process.fail_directory(running(KAFKA_BROKER, *directories), failing, 30)
    assert [isinstance(action, Shutdown) and action.halt for action in actions] == [True]
    assert not node.running
    assert process.tick(node, 10**6) == (node, ())


def test_process_that_ended_waits_for_nothing() -> None:
    """R-PROC-2: an assignment that was queued when the last disk failed makes nothing due."""
    node = publish(running(), {P: KAFKA_IDS.unassigned}, 20)
    assert node.queue.deadline is not None
    node, _ = process.fail_directory(node, METADATA, 30)
    assert node.timers == ()


def test_move_through_the_controller_then_swap() -> None:
    """The KIP's diagram of a move, request by request."""
    node = publish(running(), {P: A}, 20)
    node, error = process.alter_replica_log_dir(node, P, B, 30)
    assert (error, node.queue.pending) == (0, 0)
    node = process.catch_up(node, P, 40)
    node, actions = process.tick(node, 140)
    assert isinstance(actions[0], AssignReplicasToDirsRequest)
    assert actions[0].directories[0].id == B
    node = process.catch_up(node, P, 141)
    assert node.replicas.disks.current == {P: A}
    node = process.answer_assignments(node, accepted(actions[0]), 150)
    assert node.replicas.moves[P].state is MoveState.ACCEPTED
    node = process.catch_up(node, P, 160)
    assert (node.replicas.disks.current, node.queue.pending) == ({P: B}, 0)


@pytest.mark.parametrize("failure", [GlobalFailure.TIMEOUT, None])
def test_move_refused_by_the_controller_waits(failure: GlobalFailure | None) -> None:
    node = publish(running(), {P: A}, 20)
    node, _ = process.alter_replica_log_dir(node, P, B, 30)
    node = process.catch_up(node, P, 40)
    node, actions = process.tick(node, 140)
    assert isinstance(actions[0], AssignReplicasToDirsRequest)
    node = process.answer_assignments(node, failure or accepted(actions[0], error=6), 150)
    assert node.replicas.moves[P].state is MoveState.QUEUED
    assert node.queue.pending == 1


def test_move_whose_source_fails_tells_the_controller_the_old_directory() -> None:
    node = publish(running(), {P: A}, 20)
    node, _ = process.alter_replica_log_dir(node, P, B, 30)
    node = process.catch_up(node, P, 40)
    node, _ = process.fail_directory(node, A, 50)
    _, actions = process.tick(node, 150)
    requests = [action for action in actions if isinstance(action, AssignReplicasToDirsRequest)]
    assert [directory.id for directory in requests[0].directories] == [A]


@pytest.mark.parametrize("failing", [A, B, None])
@pytest.mark.parametrize(("rules", "reports"), [(KAFKA_BROKER, [A]), (KIP858_BROKER, []), (DRAFT_BROKER, [])])
def test_move_that_ends_while_its_report_waits_is_cancelled_locally(
    rules: BrokerRules, reports: list[Uuid], failing: Uuid | None
) -> None:
    """R-MOVE-10: its source fails, its target fails, or it is cancelled. Kafka reports the original directory."""
    node = publish(running(rules), {P: A}, 20)
    node, _ = process.alter_replica_log_dir(node, P, B, 30)
    node = process.catch_up(node, P, 40)
    if failing is None:
        node, _ = process.alter_replica_log_dir(node, P, A, 50)
    else:
        node, _ = process.fail_directory(node, failing, 50)
    assert node.queue.pending == len(reports)
    _, actions = process.tick(node, 10_000)
    requests = [action for action in actions if isinstance(action, AssignReplicasToDirsRequest)]
    assert [directory.id for request in requests for directory in request.directories] == reports


def test_move_whose_report_may_have_been_heard_is_reverted_by_a_request() -> None:
    """R-MOVE-10: the request was sent and its answer lost, then the copy's report waits again."""
    node = publish(running(KIP858_BROKER), {P: A}, 20)
    node, _ = process.alter_replica_log_dir(node, P, B, 30)
    node = process.catch_up(node, P, 40)
    node, _ = process.tick(node, 140)
    node = process.answer_assignments(node, GlobalFailure.TIMEOUT, 150)
    node, _ = process.fail_directory(node, B, 160)
    _, actions = process.tick(node, 10_000)
    requests = [action for action in actions if isinstance(action, AssignReplicasToDirsRequest)]
    assert [directory.id for directory in requests[0].directories] == [A]


def in_zookeeper_mode(rules: BrokerRules) -> Broker:
    node = broker(rules)
    node, (request, *_) = process.start(replace(node, life=replace(node.life, zookeeper=True)), 0)
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.is_migrating_zk_broker
    return process.answer_registration(node, 5, 0)


@pytest.mark.parametrize("rules", [KIP858_BROKER, DRAFT_BROKER])
def test_broker_in_zookeeper_mode_ends_with_the_first_directory(rules: BrokerRules) -> None:
    """R-ZK-2: under KRaft it would go on."""
    _, actions = process.fail_directory(in_zookeeper_mode(rules), A, 50)
    assert actions == (Shutdown(f"directory {A} has failed in ZooKeeper mode"),)
    survivor, actions = process.fail_directory(running(rules), A, 50)
    assert (survivor.running, actions) == (True, ())


@pytest.mark.parametrize(("rules", "pending"), [(KAFKA_BROKER, 0), (KIP858_BROKER, 1), (DRAFT_BROKER, 1)])
def test_broker_in_zookeeper_mode_reports_assignments_by_the_kip(rules: BrokerRules, pending: int) -> None:
    """R-ZK-3."""
    node = in_zookeeper_mode(rules)
    node = replace(node, replicas=replace(node.replicas, disks=replace(node.replicas.disks, current={P: A})))
    node = publish(node, {P: KAFKA_IDS.migrating}, 20)
    assert node.queue.pending == pending


@pytest.mark.parametrize(("rules", "named"), [(KAFKA_BROKER, B), (KIP858_BROKER, B), (DRAFT_BROKER, KAFKA_IDS.lost)])
def test_report_into_a_directory_that_failed_meanwhile_names_it_or_lost(rules: BrokerRules, named: Uuid) -> None:
    """R-DRAFT-3."""
    node = running(rules)
    node = replace(node, replicas=replace(node.replicas, disks=replace(node.replicas.disks, current={P: B})))
    node = publish(node, {P: A}, 20)
    node, _ = process.fail_directory(node, B, 30)
    _, actions = process.tick(node, 10_000)
    (request,) = [action for action in actions if isinstance(action, AssignReplicasToDirsRequest)]
    assert [directory.id for directory in request.directories] == [named]


# Rules, directories of the broker, what the metadata has, whether the actual directory is reported (R-DRAFT-4)
CORRECTIONS = [
    (KIP858_BROKER, (A,), KAFKA_IDS.unassigned, True),
    (KIP858_BROKER, (A,), B, True),
    (DRAFT_BROKER, (A,), KAFKA_IDS.unassigned, False),
    (DRAFT_BROKER, (A,), B, True),
    (DRAFT_BROKER, (A,), KAFKA_IDS.lost, True),
    (DRAFT_BROKER, (A,), KAFKA_IDS.migrating, True),
    (DRAFT_BROKER, (A, B), KAFKA_IDS.unassigned, True),
]


@pytest.mark.parametrize(("rules", "directories", "assigned", "corrected"), CORRECTIONS)
def test_broker_with_one_directory_corrects(
    rules: BrokerRules, directories: tuple[Uuid, ...], assigned: Uuid, corrected: bool
) -> None:
    """R-DRAFT-4."""
    node = running(rules, *directories)
    node = replace(node, replicas=replace(node.replicas, disks=replace(node.replicas.disks, current={P: A})))
    node = publish(node, {P: assigned}, 20)
    assert bool(node.queue.pending) is corrected


@pytest.mark.parametrize(
    ("directories", "supported", "warns"), [((A, B), False, True), ((A,), False, False), ((A, B), True, False)]
)
@pytest.mark.parametrize("rules", [KAFKA_BROKER, KIP858_BROKER, DRAFT_BROKER])
def test_several_directories_before_the_upgrade_are_warned_of(
    rules: BrokerRules, directories: tuple[Uuid, ...], supported: bool, warns: bool
) -> None:
    """R-LIFE-13."""
    warning = lifecycle.upgrade_warning(broker(rules, *directories).life, supported)
    assert (warning is not None) is warns
    if warning is not None:
        assert warning.startswith("broker 1 has 2 log directories, and the metadata.version records none: raise it to")


@pytest.mark.parametrize(
    ("rules", "leads", "ends"),
    [(KAFKA_BROKER, True, False), (KIP858_BROKER, True, True), (KIP858_BROKER, False, False)],
)
def test_assignment_into_a_failed_directory_that_is_never_delivered(
    rules: BrokerRules, leads: bool, ends: bool
) -> None:
    """R-LIFE-8, second half: by the KIP it counts like a failure that was not reported."""
    node = publish(running(rules), {P: A}, 20, leads=leads)
    node, _ = process.alter_replica_log_dir(node, P, B, 30)
    node = process.catch_up(node, P, 40)
    node, _ = process.tick(node, 140)
    node, _ = process.fail_directory(node, A, 150)
    node = replace(node, life=replace(node.life, failure_checks=()))
    node, actions = process.tick(node, 30_149)
    assert node.running
    assert (30_150 in node.timers) is ends
    node, actions = process.tick(node, 30_150)
    assert node.running is not ends
    assert any(isinstance(action, Shutdown) and not action.halt for action in actions) is ends
    assert (node.life.timers == ()) is ends


def test_oldest_assignment_into_a_failed_directory_sets_the_limit() -> None:
    """R-LIFE-8: of those that wait and those in flight."""
    node = publish(running(KIP858_BROKER), {P: A, Q: A}, 20)
    node, _ = process.fail_directory(node, A, 6_000)
    newer, older = (Assignment(replica, A, at, AssignmentReason.METADATA) for replica, at in ((P, 9_000), (Q, 7_000)))
    queue = AssignmentQueue(ready={P: newer}, in_flight={Q: older}, deadline=100_000)
    node = replace(node, life=replace(node.life, failure_checks=()), queue=queue)
    assert process.tick(node, 36_999)[0].running
    assert not process.tick(node, 37_000)[0].running


def test_shutdown_of_a_running_broker_is_asked_of_the_controller() -> None:
    node, actions = process.begin_shutdown(running(), 20)
    assert actions == ()
    _, (request,) = process.tick(node, 20)
    assert isinstance(request, BrokerHeartbeatRequest)
    assert request.want_shut_down


def test_registration_repeats_the_directories_of_the_start_even_those_that_failed() -> None:
    node, _ = process.fail_directory(running(), A, 30)
    node = publish(node, {}, 31, registration=(5, ()), registration_changed=True)
    _, actions = process.tick(node, 31)
    assert isinstance(actions[0], BrokerRegistrationRequest)
    assert actions[0].log_dirs == (A, B)


def test_replicas_and_lifecycle_follow_the_same_rules() -> None:
    """R-RULES-1; and the gauge of R-QUEUE-8 has another name in each."""
    node = broker(KIP858_BROKER)
    assert node.life.rules is node.replicas.rules
    assert isinstance(node.replicas, replicas.Replicas)
    names = [rules.queue_metric.rpartition("=")[2] for rules in (profile.broker for profile in PROFILES.values())]
    assert names == ["QueuedReplicaToDirAssignments"] * 2 + ["NumMismatchingReplicaToLogDirAssignments"]
    assert len({profile.broker.queue_metric for profile in PROFILES.values()}) == 3


def test_first_image_promotes_a_future_log_that_the_metadata_names_and_later_ones_do_not() -> None:
    """R-MOVE-9: Kafka does so at start only."""
    started, _ = process.start(broker(), 0)
    disks = replace(started.replicas.disks, current={P: A}, future={P: B})
    node = replace(started, replicas=replace(started.replicas, disks=disks))
    assert publish(node, {P: B}, 1).replicas.disks.current == {P: B}
    later = publish(publish(started, {}, 1), {}, 2)
    later = replace(later, replicas=replace(later.replicas, disks=disks))
    assert publish(later, {P: B}, 3).replicas.disks.current == {P: A}


def test_future_log_of_a_start_is_a_confirmed_move_by_the_page() -> None:
    """R-MOVE-9: with a current log there is something to catch up with."""
    node, _ = process.start(broker(KIP858_BROKER), 0)
    disks = replace(node.replicas.disks, current={P: A}, future={P: B})
    node = replace(node, replicas=replace(node.replicas, disks=disks))
    state = publish(node, {P: B}, 1).replicas
    assert (state.disks.current, state.moves[P].state) == ({P: A}, MoveState.ACCEPTED)


def test_new_process_has_read_nothing() -> None:
    node = broker()
    assert (node.metadata_offset, node.registration_epoch, node.published, node.cordons_supported) == (
        -1,
        -1,
        False,
        False,
    )
    assert (node.running, node.timers, node.queue.pending) == (False, (), 0)


def test_image_without_the_broker_has_no_epoch_of_it() -> None:
    """R-PROC-3."""
    assert publish(running(), {}, 20, registration=None).registration_epoch == -1


def test_process_that_was_not_started_sends_nothing_and_keeps_its_queue() -> None:
    node = publish(broker(), {P: KAFKA_IDS.unassigned}, 0)
    assert node.queue.pending == 1
    assert process.tick(node, 10**6) == (node, ())


def test_broker_without_an_image_is_not_ready_to_be_unfenced() -> None:
    """R-LIFE-3: the controller says that it caught up, and it has applied nothing."""
    node, _ = process.start(broker(), 0)
    node = process.answer_registration(node, 5, 0)
    node, _ = process.tick(node, 0)
    node, _ = process.answer_heartbeat(node, FINE, 1)
    assert (node.life.state, node.life.ready_to_unfence) == (LifecycleState.RECOVERY, False)
    assert publish(node, {}, 2).life.ready_to_unfence


def test_broker_that_halts_has_no_timers_left() -> None:
    """A failure that waits for its report does not end the process a second time."""
    node, _ = process.fail_directory(running(), A, 20)
    node, (halted,) = process.fail_directory(node, B, 21)
    assert isinstance(halted, Shutdown)
    assert (node.life.timers, node.queue.deadline) == ((), None)


def test_correction_replaces_the_queued_report_of_a_move_and_withdraws_nothing() -> None:
    """R-QUEUE-1, R-MOVE-10: only the end of a move withdraws its report."""
    node = publish(running(KIP858_BROKER), {P: A}, 20)
    node, _ = process.alter_replica_log_dir(node, P, B, 30)
    node = process.catch_up(node, P, 40)
    assert node.queue.ready[P].reason is AssignmentReason.PROMOTION
    node = publish(node, {P: Uuid(99, 9)}, 41)
    assert (node.queue.ready[P].reason, node.queue.ready[P].directory) == (AssignmentReason.METADATA, A)
