"""Handles heartbeats, expired sessions, and unregistrations of brokers and controllers (docs/spec/controller.md).

Source: Kafka's ``ReplicationControlManager``: ``processBrokerHeartbeat``, ``unregisterBroker``.
"""

from __future__ import annotations

from jbod_model.controller.cluster import Cluster
from jbod_model.controller.context import Result
from jbod_model.controller.heartbeat import BrokerControlState, next_state, situation
from jbod_model.controller.leader_updates import (
    broker_fenced,
    broker_shutting_down,
    broker_unfenced,
    broker_unregistered,
    directories_cordoned,
    directories_failed,
)
from jbod_model.formats.kafka_errors import (
    BrokerNotRegistered,
    ControllerFault,
    ControllerNotRegistered,
    ControllerUnregistrationNotSupported,
    InvalidRequest,
    LogDirNotFound,
)
from jbod_model.formats.metadata_version import controllers_unregister
from jbod_model.formats.records import UnregisterControllerRecord, VersionedRecord
from jbod_model.formats.requests import (
    BrokerHeartbeatRequest,
    SessionExpired,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)
from jbod_model.formats.responses import BrokerHeartbeatResponse
from jbod_model.ids import Uuid
from jbod_model.profiles.controller_rules import Quirk
from jbod_model.replay.image import BrokerRegistration


def heartbeat(cluster: Cluster, request: BrokerHeartbeatRequest) -> Result:
    """Move the broker to its next state, then record failed directories, then cordons (R-HB-3, R-HB-4, R-CORDON-1)."""
    # VALIDATE
    registration = cluster.broker(request.broker_id, request.broker_epoch)
    reported = request.offline_log_dirs if cluster.directories_supported else ()
    _refuse_unknown_directories(cluster, registration, reported)

    # DECIDE
    context = cluster.context
    current = context.state or state_of(registration)
    upcoming = next_state(
        current,
        situation(
            request,
            context.register_broker_record_offset,
            lambda: cluster.leads(request.broker_id),
            context.controlled_shutdown_offset,
            context.lowest_active_offset,
        ),
    )
    if upcoming is BrokerControlState.UNFENCED is not current and _assignments_missing(cluster, registration):
        upcoming = current
    stops = _must_stop(cluster, registration, reported)
    if stops:
        upcoming = BrokerControlState.SHUTDOWN_NOW

    # RECORDS
    records: list[VersionedRecord] = []
    if upcoming is not current and not (stops and registration.fenced):
        records += _transition(cluster, registration, upcoming, reported)
    if not stops:
        records += directories_failed(cluster, registration, reported)
    if cluster.cordons_supported and request.cordoned_log_dirs is not None:
        records += directories_cordoned(registration, request.cordoned_log_dirs)
    return Result(
        records=tuple(records),
        response=BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= context.register_broker_record_offset,
            is_fenced=upcoming.fenced,
            in_controlled_shutdown=upcoming.in_controlled_shutdown,
            should_shut_down=upcoming.should_shut_down,
        ),
    )


def state_of(registration: BrokerRegistration) -> BrokerControlState:
    """The state of a broker according to its registration. A fenced broker has left its controlled shutdown."""
    if registration.fenced:
        return BrokerControlState.FENCED
    if registration.in_controlled_shutdown:
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.UNFENCED


def _transition(
    cluster: Cluster, registration: BrokerRegistration, upcoming: BrokerControlState, reported: tuple[Uuid, ...]
) -> list[VersionedRecord]:
    if upcoming is BrokerControlState.UNFENCED:
        return broker_unfenced(cluster, registration, frozenset(reported) & frozenset(registration.directories))
    if upcoming is BrokerControlState.CONTROLLED_SHUTDOWN:
        return broker_shutting_down(cluster, registration)
    return broker_fenced(cluster, registration)


def _refuse_unknown_directories(cluster: Cluster, registration: BrokerRegistration, reported: tuple[Uuid, ...]) -> None:
    """The KIP's controller refuses the report of a directory that the process did not register (R-FAIL-2).

    A failed directory leaves the registration but stays in the broker's reports. So the context, not the registration,
    says what the process registered. If the context does not know, nothing is refused (R-FAIL-4).
    """
    registered = cluster.context.registered_log_dirs
    if cluster.rules.unknown_offline_directory == "ignore" or registered is None:
        return
    for directory in reported:
        if directory not in registered | set(registration.directories):
            raise LogDirNotFound(f"broker {registration.broker_id} reports directory {directory}, which it has not")


def _assignments_missing(cluster: Cluster, registration: BrokerRegistration) -> bool:
    """Whether a broker with several directories has an unassigned replica (R-HB-5)."""
    if not cluster.rules.fences_until_assigned or len(registration.directories) < 2:
        return False
    if registration.is_migrating_zk_broker:
        return False
    unlearnt = (cluster.image.ids.unassigned, cluster.image.ids.migrating)
    return any(
        at.partition.directory(registration.broker_id) in unlearnt
        for at in cluster.partitions()
        if registration.broker_id in at.partition.replicas
    )


def _must_stop(cluster: Cluster, registration: BrokerRegistration, reported: tuple[Uuid, ...]) -> bool:
    """Without the flaw, a broker whose directories all failed is asked to shut down (R-QUIRK-5)."""
    if cluster.rules.has(Quirk.ALL_DIRECTORIES_OFFLINE) or not registration.directories:
        return False
    return set(registration.directories) <= set(reported)


def session_expired(cluster: Cluster, request: SessionExpired) -> Result:
    """Fence a broker whose session expired (R-HB-6)."""
    registration = cluster.image.brokers.get(request.broker_id)
    if registration is None:
        raise ControllerFault(f"the session of broker {request.broker_id} expired, which is not registered")
    return Result(records=tuple(broker_fenced(cluster, registration)))


def unregister(cluster: Cluster, request: UnregisterBrokerRequest) -> Result:
    """Remove a broker's registration; replica lists and directories keep it (R-UNREG-1, R-UNREG-2)."""
    registration = cluster.image.brokers.get(request.broker_id)
    if registration is None:
        raise BrokerNotRegistered(f"broker {request.broker_id} is not registered")
    return Result(records=tuple(broker_unregistered(cluster, registration)))


def unregister_controller(cluster: Cluster, request: UnregisterControllerRequest) -> Result:
    """Remove a controller's registration, voter or not; the active controller's cannot be removed (R-UNREG-3,
    R-UNREG-4)."""
    controller_id = request.controller_id
    if controller_id == cluster.context.controller_id:
        raise InvalidRequest(f"controller {controller_id} leads: it cannot unregister itself")
    if not controllers_unregister(cluster.metadata_version):
        raise ControllerUnregistrationNotSupported("controllers are unregistered from metadata.version 4.4-IV2 on")
    if controller_id not in cluster.image.controllers:
        raise ControllerNotRegistered(f"controller {controller_id} is not registered")
    return Result(records=(VersionedRecord(UnregisterControllerRecord(controller_id=controller_id), 0),))
