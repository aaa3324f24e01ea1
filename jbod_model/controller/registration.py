"""Handles the registration of a broker process with its directories (docs/spec/controller.md).

Source: Kafka's ``ClusterControlManager#registerBroker``.
"""

from __future__ import annotations

from jbod_model.controller.cluster import Cluster
from jbod_model.controller.context import Result
from jbod_model.controller.leader_updates import broker_restarted
from jbod_model.formats.kafka_errors import (
    DuplicateRegistration,
    FeatureNotSupported,
    InvalidRegistration,
    InvalidRegistrationRequest,
    MigratingBrokerRefused,
    WrongCluster,
)
from jbod_model.formats.metadata_version import KRAFT_VERSION, METADATA_VERSION, register_broker_record_version
from jbod_model.formats.records import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord, VersionedRecord
from jbod_model.formats.requests import BrokerRegistrationRequest
from jbod_model.formats.responses import BrokerRegistrationResponse
from jbod_model.ids import Uuid, reserved
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
        end_points=tuple(
            BrokerEndpoint(
                name=listener.name, host=listener.host, port=listener.port, security_protocol=listener.security_protocol
            )
            for listener in request.listeners
        ),
        features=tuple(
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ),
        rack=request.rack,
        is_migrating_zk_broker=request.is_migrating_zk_broker,
        fenced=True if amended is None else amended.fenced,
        in_controlled_shutdown=False if amended is None else amended.in_controlled_shutdown,
        log_dirs=request.log_dirs if cluster.directories_supported else (),
    )
