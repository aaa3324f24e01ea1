"""The controller: a pure function of a request and the state before it, which returns records and an answer.

Changes of feature levels (docs/spec/controller.md) are here, too: Kafka's ``FeatureControlManager`` and
``ConfigurationControlManager#updateFeatures``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jbod_model.controller.broker_requests import (
    heartbeat,
    register,
    session_expired,
    unregister,
    unregister_controller,
)
from jbod_model.controller.cluster import MIN_ISR, TOPIC_CONFIG_DEFAULTS, Cluster
from jbod_model.controller.context import Context, Result
from jbod_model.controller.partition_requests import (
    alter_partition,
    alter_reassignments,
    assign,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from jbod_model.controller.topics import alter_configs, create_partitions, create_topics, delete_topics
from jbod_model.formats import requests
from jbod_model.formats.metadata_version import (
    CHANGES_METADATA,
    ELR_FEATURE,
    KRAFT_VERSION,
    LEVELS,
    METADATA_VERSION,
    controllers_register,
)
from jbod_model.formats.records import (
    BrokerFeature,
    ConfigRecord,
    ControllerFeature,
    FeatureLevelRecord,
    NoOpRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import (
    BROKER_RESOURCE,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    Request,
    UpdateFeaturesRequest,
)
from jbod_model.formats.responses import InvalidRequest, InvalidUpdateVersion, NotAuthorized
from jbod_model.profiles import KAFKA, Profile, as_released
from jbod_model.replay.image import Image

UNSUPPORTED = (0, 0)

DEPENDENCIES: Mapping[tuple[str, int], Mapping[str, int]] = {
    (ELR_FEATURE, 1): {METADATA_VERSION: LEVELS["4.0-IV1"]},
}
"""(feature, level) -> the levels of other features that it needs."""


def update_features(cluster: Cluster, request: UpdateFeaturesRequest) -> Result:
    """Set every level, or none if one cannot be set (R-FEAT-2).

    Raising a level rewrites no earlier records. Before eligible leader replicas are switched on, the minimum in-sync
    size is set for the whole cluster and removed from single brokers (R-FEAT-4).
    """
    proposed = {**cluster.image.features, **{u.feature: u.max_version_level for u in request.feature_updates}}
    records: list[VersionedRecord] = []
    for update in request.feature_updates:
        records += _update(cluster, update, proposed)
    if request.validate_only:
        return Result()
    if any(update.feature == ELR_FEATURE and update.max_version_level > 0 for update in request.feature_updates):
        records = [*_elr_safety(cluster), *records]
    return Result(records=tuple(records))


def _update(cluster: Cluster, update: FeatureUpdate, proposed: Mapping[str, int]) -> list[VersionedRecord]:
    name, level = update.feature, update.max_version_level
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise InvalidUpdateVersion(f"{name}: there is no upgrade type {update.upgrade_type}")
    current = cluster.context.kraft_version if name == KRAFT_VERSION else cluster.image.features.get(name, 0)
    if level < 0:
        raise InvalidUpdateVersion(f"{name}: a level cannot be negative")
    _check_supported(cluster, name, level)
    if level < current and update.upgrade_type == UPGRADE:
        raise InvalidUpdateVersion(f"{name}: going down from {current} to {level} needs a downgrade type")
    if level > current and update.upgrade_type != UPGRADE:
        raise InvalidUpdateVersion(f"{name}: going up from {current} to {level} is no downgrade")
    if name == METADATA_VERSION:
        _check_metadata_version(current, level, migrates=cluster.context.migrates)
    elif name == KRAFT_VERSION:
        if level < current:
            raise InvalidUpdateVersion(f"{name}: it cannot go down")
        return [VersionedRecord(NoOpRecord(), 0)] if update.upgrade_type == UPGRADE else []
    else:
        for other, needed in DEPENDENCIES.get((name, level), {}).items():
            if proposed.get(other, 0) < needed:
                raise InvalidUpdateVersion(f"{name}: level {level} needs {other} at {needed}")
    return [VersionedRecord(FeatureLevelRecord(name=name, feature_level=level), 0)]


def _check_supported(cluster: Cluster, name: str, level: int) -> None:
    """Check that the feature is known and that every broker and every registered controller supports it (R-FEAT-2)."""
    supported = cluster.supported_features
    if name not in supported:
        raise InvalidUpdateVersion(f"{name}: there is no such feature")
    ranges = [("this controller", supported[name])]
    ranges += [
        (f"broker {broker.broker_id}", _range(broker.features, name)) for broker in cluster.image.brokers.values()
    ]
    if controllers_register(cluster.metadata_version):
        ranges += [
            (f"controller {controller.controller_id}", _range(controller.features, name))
            for controller in cluster.image.controllers.values()
            if controller.controller_id != cluster.context.controller_id
        ]
    for who, (lowest, highest) in ranges:
        if not lowest <= level <= highest:
            raise InvalidUpdateVersion(f"{name}: {who} supports {lowest} to {highest}, not {level}")


def _range(features: Sequence[BrokerFeature | ControllerFeature], name: str) -> tuple[int, int]:
    """The levels of a feature that a node registered; an unlisted feature has level 0."""
    for feature in features:
        if feature.name == name:
            return feature.min_supported_version, feature.max_supported_version
    return UNSUPPORTED


def _check_metadata_version(current: int, level: int, *, migrates: bool) -> None:
    """Check that no migration is in progress, and that a downgrade of metadata.version loses no metadata (R-FEAT-3)."""
    if level not in LEVELS.values():
        raise InvalidUpdateVersion(f"{METADATA_VERSION}: there is no level {level}")
    if migrates:
        raise InvalidUpdateVersion(f"{METADATA_VERSION}: a migration from ZooKeeper is in progress")
    if any(level < changed <= current for changed in CHANGES_METADATA):
        raise InvalidUpdateVersion(f"{METADATA_VERSION}: going down from {current} to {level} would lose metadata")


def _elr_safety(cluster: Cluster) -> list[VersionedRecord]:
    configs = cluster.image.configs
    records: list[VersionedRecord] = []
    if MIN_ISR not in configs.get((BROKER_RESOURCE, ""), {}):
        value = cluster.context.static_configs.get(MIN_ISR, TOPIC_CONFIG_DEFAULTS[MIN_ISR])
        records.append(_min_isr("", value))
    brokers = sorted(
        int(name) for kind, name in configs if kind == BROKER_RESOURCE and name and MIN_ISR in configs[kind, name]
    )
    return records + [_min_isr(str(broker_id), None) for broker_id in brokers]


def _min_isr(broker: str, value: str | None) -> VersionedRecord:
    record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=MIN_ISR, value=value)
    return VersionedRecord(record, 0)


HANDLERS: Mapping[type[Any], Callable[[Cluster, Any], Result]] = {
    requests.BrokerRegistrationRequest: register,
    requests.BrokerHeartbeatRequest: heartbeat,
    requests.SessionExpired: session_expired,
    requests.UnregisterBrokerRequest: unregister,
    requests.UnregisterControllerRequest: unregister_controller,
    requests.CreateTopicsRequest: create_topics,
    requests.CreatePartitionsRequest: create_partitions,
    requests.DeleteTopicsRequest: delete_topics,
    requests.AlterPartitionRequest: alter_partition,
    requests.AlterPartitionReassignmentsRequest: alter_reassignments,
    requests.ElectLeadersRequest: elect_leaders,
    requests.AssignReplicasToDirsRequest: assign,
    requests.IncrementalAlterConfigsRequest: alter_configs,
    requests.UpdateFeaturesRequest: update_features,
    requests.BalanceLeaders: balance_leaders,
    requests.ElectUncleanLeaders: elect_unclean_leaders,
}
"""Who handles what."""

BROKERS_ONLY = (
    requests.BrokerRegistrationRequest,
    requests.BrokerHeartbeatRequest,
    requests.AssignReplicasToDirsRequest,
    requests.AlterPartitionRequest,
)
"""Requests that need CLUSTER_ACTION on the cluster (R-AUTH-1)."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller that follows a profile. It keeps nothing between requests."""

    profile: Profile = KAFKA

    def handle(self, image: Image, request: Request, context: Context | None = None) -> Result:
        """Compute the records and the answer of ``request`` on ``image``, which stays as it is (R-CTL-7).

        The caller applies the records in order. A request that is refused as a whole raises the `RequestRefused` of the
        broken rule. Entries that are refused have their error in the response.
        """
        circumstances = context or Context()
        handler = HANDLERS.get(type(request))
        if handler is None:
            raise InvalidRequest(f"a controller does not handle {type(request).__name__}")
        if isinstance(request, BROKERS_ONLY) and not _may_act_as_broker(circumstances):
            sender = circumstances.principal or "its sender"
            raise NotAuthorized(f"{type(request).__name__}: {sender} needs CLUSTER_ACTION on the cluster")
        cluster = Cluster(image, self.profile, circumstances)
        return handler(replace(cluster, profile=as_released(self.profile, cluster.release)), request)


def _may_act_as_broker(context: Context) -> bool:
    """R-AUTH-1, R-AUTH-2."""
    if context.authorizer is None:
        return context.authorized
    return context.authorizer.may_act_as_broker(context.principal)
