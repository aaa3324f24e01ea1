"""A broker with cordoned directories (R-DISK-7, R-HOST-9, R-LIFE-11): LogManagerTest, ReplicaManagerTest as facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jbod_model.broker import disks as storage
from jbod_model.broker import lifecycle, process, replicas
from jbod_model.broker.assignments import Replica
from jbod_model.broker.disks import Disks
from jbod_model.broker.lifecycle import BrokerSurroundings, Lifecycle, LifecycleState
from jbod_model.broker.process import Broker
from jbod_model.broker.replicas import INVALID_REPLICA_ASSIGNMENT, KAFKA_STORAGE_ERROR, LOG_DIR_NOT_FOUND, Replicas
from jbod_model.formats.requests import BrokerHeartbeatRequest
from jbod_model.formats.responses import BrokerHeartbeatResponse
from jbod_model.ids import Uuid

A, B, C = Uuid(11, 1), Uuid(11, 2), Uuid(11, 3)
P, Q = Replica(Uuid(1, 1), 0), Replica(Uuid(1, 1), 1)
SURROUNDINGS = BrokerSurroundings(cordons_supported=True)
CAUGHT_UP = BrokerHeartbeatResponse(
    is_caught_up=True, is_fenced=True, in_controlled_shutdown=False, should_shut_down=False
)


@pytest.mark.parametrize(
    ("cordoned", "target", "chosen"),
    [
        ((), None, (C, B, A)),
        ((C,), None, (B, A)),
        ((B, C), None, (A,)),
        ((A, B, C), None, (A,)),
        ((C,), C, (C,)),
    ],
)
def test_new_log_avoids_cordoned_directories_but_not_an_assignment(
    cordoned: tuple[Uuid, ...], target: Uuid | None, chosen: tuple[Uuid, ...]
) -> None:
    """R-DISK-7: the emptiest that is free; the first of all where none is."""
    logs = {Replica(Uuid(2, 2), number): where for number, where in enumerate((A, A, B))}
    disks = Disks(configured=(A, B, C), cordoned=frozenset(cordoned), current=logs)
    assert storage.candidates(disks, P, target) == chosen
    assert storage.candidates(replace(disks, preferred={P: C}), P, target) == (C,)


def test_new_log_goes_to_a_cordoned_directory_rather_than_to_a_failed_one() -> None:
    """R-DISK-7: what is left online decides."""
    disks = Disks(configured=(A, B), cordoned=frozenset({B}), failed=frozenset({A}))
    assert storage.candidates(disks, P, None) == (B,)


@pytest.mark.parametrize(
    ("directory", "error"),
    [(Uuid(9, 9), LOG_DIR_NOT_FOUND), (A, INVALID_REPLICA_ASSIGNMENT), (C, KAFKA_STORAGE_ERROR)],
)
def test_move_into_a_cordoned_directory_is_refused_and_changes_nothing(directory: Uuid, error: int) -> None:
    """R-HOST-9: A, where the replica lies, is cordoned: its move to B cannot be cancelled by naming A."""
    disks = Disks(configured=(A, B, C), current={P: A})
    state = replace(Replicas(disks=disks), hosted={P: replicas.Hosted.ONLINE})
    state, _, error_before = replicas.alter_replica_log_dir(state, P, B)
    assert (error_before, state.disks.future) == (0, {P: B})
    state = replace(state, disks=replace(state.disks, cordoned=frozenset({A, C}), failed=frozenset({C})))
    assert replicas.alter_replica_log_dir(state, P, directory) == (state, (), error)


def test_move_of_a_replica_that_is_not_here_into_a_cordoned_directory_leaves_no_wish() -> None:
    """R-HOST-9: the directory is looked at before the replica."""
    state = Replicas(disks=Disks(configured=(A, B), cordoned=frozenset({B})))
    after, _, error = replicas.alter_replica_log_dir(state, Q, B)
    assert (after, error) == (state, INVALID_REPLICA_ASSIGNMENT)


def heartbeat(broker: Broker, now: int) -> tuple[Broker, BrokerHeartbeatRequest]:
    broker, (request,) = process.tick(broker, now)
    assert isinstance(request, BrokerHeartbeatRequest)
    broker, _ = process.answer_heartbeat(broker, CAUGHT_UP, now)
    return broker, request


def caught_up(broker: Broker, *, cordons_supported: bool) -> Broker:
    """Registered, with an image, in recovery; its next heartbeat is due at 100."""
    broker, _ = process.start(broker, 0)
    broker = process.answer_registration(broker, 7, 1)
    broker, request = heartbeat(broker, 1)
    assert request.cordoned_log_dirs is None
    assert broker.life.state is LifecycleState.RECOVERY
    return process.apply_metadata(
        broker,
        offset=5,
        changes=(),
        deletes=(),
        assigned={},
        registration=None,
        registration_changed=False,
        directories_supported=True,
        cordons_supported=cordons_supported,
        now=1,
    )


def new_broker() -> Broker:
    life = Lifecycle(node_id=1, cluster_id="x", incarnation_id=Uuid(7, 7), log_dirs=(A, B), heartbeat_interval=100)
    return Broker(life=life, replicas=Replicas(disks=Disks(configured=(A, B))))


def test_heartbeats_list_cordons_from_recovery_on_and_a_change_is_sent_at_once() -> None:
    """R-LIFE-11: an id that is no directory of the broker is not told."""
    broker = process.cordon(new_broker(), (A, C), 0)
    broker, request = heartbeat(caught_up(broker, cordons_supported=True), 11)
    assert request.cordoned_log_dirs == (A,)
    broker = process.cordon(broker, (A, B), 12)
    assert broker.replicas.disks.cordoned == {A, B}
    broker, request = heartbeat(broker, 12)
    assert request.cordoned_log_dirs == (A, B)
    _, request = heartbeat(process.cordon(broker, (), 13), 13)
    assert request.cordoned_log_dirs == ()


def test_cordon_before_metadata_version_4_3_is_kept_by_the_broker_and_not_reported() -> None:
    """R-LIFE-11."""
    broker = process.cordon(caught_up(new_broker(), cordons_supported=False), (A,), 2)
    broker, request = heartbeat(broker, 11)
    assert request.cordoned_log_dirs is None
    assert broker.replicas.disks.cordoned == {A}
    _, request = heartbeat(replace(broker, cordons_supported=True), 111)
    assert request.cordoned_log_dirs == ()


def test_lifecycle_that_is_not_registered_does_not_hurry_for_a_cordon() -> None:
    """R-LIFE-11."""
    life = lifecycle.cordon(Lifecycle(node_id=1, cluster_id="x", incarnation_id=Uuid(7, 7), log_dirs=(A,)), (A,), 3)
    assert (life.cordoned, life.timers) == ((A,), ())
    assert lifecycle.heartbeat_request(life, SURROUNDINGS).cordoned_log_dirs is None
