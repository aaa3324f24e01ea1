"""The controller: a pure function of a request and the state before it, which returns records and an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jbod_model.controller.broker_requests import (
    heartbeat,
    register,
    session_expired,
    unregister,
    unregister_controller,
)
from jbod_model.controller.cluster import Cluster
from jbod_model.controller.configs import alter_configs
from jbod_model.controller.context import Context, Result
from jbod_model.controller.features import update_features
from jbod_model.controller.partition_requests import (
    alter_partition,
    alter_reassignments,
    assign,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from jbod_model.controller.topics import create_partitions, create_topics, delete_topics
from jbod_model.formats import requests
from jbod_model.formats.kafka_errors import InvalidRequest, NotAuthorized
from jbod_model.formats.requests import Request
from jbod_model.profiles import KAFKA, Profile
from jbod_model.profiles.releases import as_released
from jbod_model.replay.image import Image

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
