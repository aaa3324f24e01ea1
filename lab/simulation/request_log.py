"""The controller's request log, line for line as Kafka's request logger writes it (R-SIM-8)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from jbod_model.formats import json_values
from jbod_model.formats.requests import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreateTopicsRequest,
    Request,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from jbod_model.formats.responses import BrokerHeartbeatResponse, RequestRefused, Response
from lab.simulation.world import Exchange

API: dict[type[Any], tuple[int, int, str]] = {
    BrokerRegistrationRequest: (62, 4, "BROKER_REGISTRATION"),
    BrokerHeartbeatRequest: (63, 1, "BROKER_HEARTBEAT"),
    AssignReplicasToDirsRequest: (73, 0, "ASSIGN_REPLICAS_TO_DIRS"),
    AlterPartitionRequest: (56, 3, "ALTER_PARTITION"),
    CreateTopicsRequest: (19, 7, "CREATE_TOPICS"),
    AlterPartitionReassignmentsRequest: (45, 1, "ALTER_PARTITION_REASSIGNMENTS"),
    UnregisterBrokerRequest: (64, 0, "UNREGISTER_BROKER"),
    UpdateFeaturesRequest: (57, 2, "UPDATE_FEATURES"),
}
"""Key, version and name of the requests in a simulated cluster."""

FORWARDED = frozenset(
    {CreateTopicsRequest, AlterPartitionReassignmentsRequest, UnregisterBrokerRequest, UpdateFeaturesRequest}
)
"""Requests that administrators send to a broker, which forwards them."""


def request_log_lines(exchanges: Iterable[Exchange], start: datetime) -> Iterator[str]:
    """One line for each request; the simulation began at ``start``."""
    for exchange in exchanges:
        key, version, name = API[type(exchange.request)]
        time = (start + timedelta(milliseconds=exchange.time_ms)).astimezone(UTC)
        body = {
            "isForwarded": type(exchange.request) in FORWARDED,
            "requestHeader": {
                "requestApiKey": key,
                "requestApiVersion": version,
                "correlationId": exchange.correlation_id,
                "clientId": exchange.client_id,
                "requestApiKeyName": name,
            },
            "request": _request(exchange.request),
            "response": _response(exchange.response),
            "connection": f"127.0.0.1:9093-127.0.0.1:{40_000 + _port(exchange.client_id)}-0-0",
            "totalTimeMs": float(exchange.waited_ms),
            "requestQueueTimeMs": 0.0,
            "localTimeMs": 0.0,
            "remoteTimeMs": float(exchange.waited_ms),
            "throttleTimeMs": 0,
            "responseQueueTimeMs": 0.0,
            "sendTimeMs": 0.0,
            "securityProtocol": "PLAINTEXT",
            "principal": "User:ANONYMOUS",
            "listener": "CONTROLLER",
            "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "4.1.2"},
        }
        text = json.dumps(body, separators=(",", ":"))
        stamp = f"{time:%Y-%m-%d %H:%M:%S},{time.microsecond // 1000:03d}"
        yield f"[{stamp}] DEBUG Completed request:{text} (kafka.request.logger)"


def _request(request: Request) -> Any:
    """The request without tagged fields that have their default, which Kafka leaves out."""
    form = json_values.write(request)
    if isinstance(request, BrokerHeartbeatRequest) and not request.offline_log_dirs:
        del form["offlineLogDirs"]
    return form


def _response(response: Response | RequestRefused) -> Any:
    if isinstance(response, RequestRefused):
        return {"throttleTimeMs": 0, "errorCode": response.code.value, "errorMessage": response.problem}
    form = {"throttleTimeMs": 0, "errorCode": 0, **json_values.write(response)}
    if isinstance(response, BrokerHeartbeatResponse):
        del form["inControlledShutdown"]
    return form


def _port(client_id: str) -> int:
    return int(client_id) if client_id.isdigit() else 0
