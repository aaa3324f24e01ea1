"""Handles registrations, heartbeats, expired sessions and unregistrations of nodes (docs/spec/controller.md).

Source: Kafka's ``ClusterControlManager#registerBroker``; ``ReplicationControlManager``: ``processBrokerHeartbeat``,
``unregisterBroker``.
"""

from __future__ import annotations

from jbod_model.controller.cluster import Cluster
from jbod_model.controller.context import BrokerControlState, Result, next_state, situation
from jbod_model.controller.leader_updates import (
    broker_fenced,
    broker_restarted,
    broker_shutting_down,
    broker_unfenced,
    broker_unregistered,
    directories_cordoned,
    directories_failed,
)
from jbod_model.formats.metadata_version import (
    KRAFT_VERSION,
    METADATA_VERSION,
    controllers_unregister,
    register_broker_record_version,
)
from jbod_model.formats.records import (
    RegisterBrokerRecord,
    UnregisterControllerRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    SessionExpired,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)
from jbod_model.formats.responses import (
    BrokerHeartbeatResponse,
    BrokerNotRegistered,
    BrokerRegistrationResponse,
    ControllerFault,
    ControllerNotRegistered,
    ControllerUnregistrationNotSupported,
    DuplicateRegistration,
    FeatureNotSupported,
    InvalidRegistration,
    InvalidRegistrationRequest,
    InvalidRequest,
    LogDirNotFound,
    MigratingBrokerRefused,
    WrongCluster,
)
from jbod_model.ids import Uuid, reserved
from jbod_model.profiles import Quirk
from jbod_model.replay.image import BrokerRegistration

NO_EPOCH = -2
"""Stands for the epoch of a broker that never registered. No request can have it."""


def register(cluster: Cluster, request: BrokerRegistrationRequest) -> Result:
    """Clean up after the previous process, then write the registration (R-REG-10).

    Partitions whose directory is no longer listed do not change: they are offline until reported in another directory.
    """
    # VALIDATE
    existing = cluster.image.brokers.get(request.broker_id)
    same_process = existing is not None and existing.incarnation_id == request.incarnation_id
    # R-REG-1, R-REG-2, R-REG-3
    if cluster.context.cluster_id not in (None, request.cluster_id):
        raise WrongCluster(f"this is cluster {cluster.context.cluster_id}, the broker belongs to {request.cluster_id}")
    if existing is not None and cluster.context.has_valid_session and not same_process:
        raise DuplicateRegistration(f"broker {request.broker_id} is alive; wait until its session expires")
    if request.is_migrating_zk_broker and not cluster.rules.admits_zookeeper_brokers:  # R-ZK-1
        raise MigratingBrokerRefused("brokers in ZooKeeper mode are not supported")
    if cluster.directories_supported:  # R-REG-13
        _check_directories(cluster, request.broker_id, request.log_dirs)
    _check_features(cluster, request)

    # RECORDS
    cleanup: list[VersionedRecord] = []
    if not same_process:
        stored_epoch = NO_EPOCH if existing is None else existing.epoch
        clean = cluster.context.clean_shutdown_detection and request.previous_broker_epoch == stored_epoch
        cleanup = broker_restarted(cluster, request.broker_id, clean=clean)
    record = _record(cluster, request, existing if same_process else None)
    return Result(
        records=(*cleanup, VersionedRecord(record, register_broker_record_version(cluster.metadata_version))),
        response=BrokerRegistrationResponse(broker_epoch=record.broker_epoch),
    )


def _check_directories(cluster: Cluster, broker_id: int, log_dirs: tuple[Uuid, ...]) -> None:
    """Check the directories: R-REG-4, R-REG-5, R-REG-6, R-REG-7, in this order."""
    error = InvalidRegistration if cluster.rules.registration_error == "119" else InvalidRegistrationRequest
    if not log_dirs:
        raise error("the registration lists no directories")
    if cluster.rules.checks_directory_ids:
        for directory in log_dirs:
            if reserved(directory):  # R-REG-5
                raise error(f"directory id {directory} is reserved")
        if len(set(log_dirs)) != len(log_dirs):  # R-REG-6
            raise error("a directory is listed twice")
    for other in cluster.image.brokers.values():  # R-REG-7
        for directory in log_dirs:
            if other.broker_id != broker_id and directory in other.directories:
                raise error(f"directory {directory} is registered by broker {other.broker_id}")


def _check_features(cluster: Cluster, request: BrokerRegistrationRequest) -> None:
    """Check that every finalized level is in the broker's range; an unlisted feature has range 0 (R-REG-8, R-REG-9)."""
    finalized = {KRAFT_VERSION: cluster.context.kraft_version, **cluster.image.features}
    ranges = {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features
    }
    for name, (lowest, highest) in ranges.items():
        level = finalized.get(name, 0)
        if not lowest <= level <= highest:
            raise FeatureNotSupported(f"{name} is at level {level}, the broker supports {lowest} to {highest}")
    if METADATA_VERSION not in ranges:
        raise InvalidRegistration(f"the registration does not list {METADATA_VERSION}")
    for name, level in finalized.items():
        if level != 0 and name not in ranges:
            raise FeatureNotSupported(f"{name} is at level {level}, the broker does not support it")


def _record(
    cluster: Cluster, request: BrokerRegistrationRequest, amended: BrokerRegistration | None
) -> RegisterBrokerRecord:
    """A new process starts fenced under a new epoch; the same one keeps its epoch and state (R-REG-11, R-REG-12)."""
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=cluster.context.next_offset if amended is None else amended.epoch,
        end_points=request.listeners,
        features=request.features,
        rack=request.rack,
        is_migrating_zk_broker=request.is_migrating_zk_broker,
        fenced=True if amended is None else amended.fenced,
        in_controlled_shutdown=False if amended is None else amended.in_controlled_shutdown,
        log_dirs=request.log_dirs if cluster.directories_supported else (),
    )


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
