"""Turns a line of a trace into a request, its context and the answer that Kafka gave (R-TRACE-3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jbod_model.audit.compare import REQUESTS
from jbod_model.controller import Context, ControllerMemory, Result
from jbod_model.controller.context import BrokerControlState
from jbod_model.controller.placement import UsableBroker
from jbod_model.formats.json_values import JsonMismatch, read, write
from jbod_model.formats.requests import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    AlterableConfig,
    AlterConfigsResource,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    Request,
)
from jbod_model.formats.responses import KafkaError
from jbod_model.ids import Uuid
from jbod_model.profiles import Release

_RESOURCE_TYPES = {"TOPIC": TOPIC_RESOURCE, "BROKER": BROKER_RESOURCE}

_CONTEXT_FIELDS = {
    "newBrokerEpoch": ("next_offset", int),
    "hasValidSession": ("has_valid_session", bool),
    "registerBrokerRecordOffset": ("register_broker_record_offset", int),
    "lowestActiveOffset": ("lowest_active_offset", int),
    "controlledShutdownOffset": ("controlled_shutdown_offset", int),
    "randomState": ("random_state", int),
    "defaultReplicationFactor": ("default_replication_factor", int),
}

UNKNOWN_CLUSTER = ""
"""Stands for the cluster's id until Kafka accepts a registration, which names the id."""

TRACING_CONTROLLER = 0
"""The node id of the controller that traces are made with."""

UNANSWERED = frozenset(
    {
        "sessionExpired",
        "unregisterBroker",
        "unregisterController",
        "electLeaders",
        "config",
        "balanceLeaders",
        "electUncleanLeaders",
    }
)
"""Operations for which a trace may leave out the response."""

SHORT_RESPONSES = {"createTopics": "topics", "createPartitions": "results", "deleteTopics": "responses"}
"""Operations for which a trace with one topic may keep only that topic's fields as the response."""

SHORT_FIELDS = {
    "createTopics": ("errorCode", "topicId"),
    "createPartitions": ("errorCode",),
    "deleteTopics": ("errorCode",),
}
"""The fields that such a trace keeps."""


@dataclass(frozen=True, slots=True)
class _UsableBrokers:
    brokers: tuple[UsableBroker, ...]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What holds for a whole trace."""

    clean_shutdown_detection: bool
    memory: ControllerMemory
    cluster_id: str | None = None
    release: Release | None = None
    """The cluster id of the controller and its brokers; None until a broker registers."""


def read_request(line: dict[str, Any]) -> Request:
    """The request of an operation; JsonMismatch if it is none."""
    op, request = line["op"], line.get("request")
    if op in REQUESTS:
        parsed: Request = read(REQUESTS[op], request)
        return parsed
    if not isinstance(request, dict):
        raise JsonMismatch(f"{op}: the request is missing, or the operation is not known")
    if op == "deleteTopics":
        ids = request.get("topicIds", [request.get("topicId")])
        if not isinstance(ids, list):
            raise JsonMismatch(f"deleteTopics.topicIds: a list is needed, not {ids!r:.60}")
        return DeleteTopicsRequest(topic_ids=tuple(_uuid(text) for text in ids))
    if op == "config":
        resource_type = _RESOURCE_TYPES.get(str(request.get("resourceType")))
        name, key, value = request.get("resourceName"), request.get("name"), request.get("value")
        if resource_type is None or not isinstance(name, str) or not isinstance(key, str):
            raise JsonMismatch("config: resourceType (TOPIC or BROKER), resourceName and name are needed")
        if value is not None and not isinstance(value, str):
            raise JsonMismatch(f"config.value: a text is needed, not {value!r:.60}")
        change = AlterableConfig(name=key, value=value)
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=(change,))
        return IncrementalAlterConfigsRequest(resources=(resource,))
    raise JsonMismatch(f"{op}: the operation is not known")


def read_context(line: dict[str, Any], trace: Circumstances) -> Context:
    """The context of an operation; JsonMismatch for a value of the wrong type."""
    given = line.get("context", {})
    if not isinstance(given, dict):
        raise JsonMismatch("context: an object is needed")
    known: dict[str, Any] = {}
    for name, (attribute, kind) in _CONTEXT_FIELDS.items():
        if name in given:
            if type(given[name]) is not kind:
                raise JsonMismatch(f"context.{name}: {kind.__name__} is needed, not {given[name]!r:.60}")
            known[attribute] = given[name]
    if "state" in given:
        try:
            known["state"] = BrokerControlState(given["state"])
        except ValueError:
            raise JsonMismatch(f"context.state: there is no state {given['state']!r:.60}") from None
    wrong_cluster = trace.cluster_id is None and line.get("errorCode") == KafkaError.INCONSISTENT_CLUSTER_ID
    if "usableBrokers" in given:
        known["usable_brokers"] = read(_UsableBrokers, {"brokers": given["usableBrokers"]}).brokers
    if line["op"] == "createTopics":
        known["new_topic_ids"] = _created(line.get("response"))
    return Context(
        cluster_id=UNKNOWN_CLUSTER if wrong_cluster else trace.cluster_id,
        controller_id=TRACING_CONTROLLER,
        clean_shutdown_detection=trace.clean_shutdown_detection,
        memory=trace.memory,
        release=trace.release,
        **known,
    )


def response_form(line: dict[str, Any], result: Result) -> Any:
    """Our response in the form in which the trace keeps Kafka's."""
    op, recorded = line["op"], line.get("response")
    if recorded is None and op in UNANSWERED:
        return None
    ours = write(result.response)
    if op in SHORT_RESPONSES and isinstance(recorded, dict):
        entries = ours[SHORT_RESPONSES[op]]
        if SHORT_RESPONSES[op] not in recorded and len(entries) == 1:
            return {name: entries[0][name] for name in SHORT_FIELDS[op]}
        if "randomState" in recorded:
            ours["randomState"] = result.random_state
    return ours


def _created(response: Any) -> tuple[Uuid, ...]:
    """The ids that Kafka drew for the topics it created."""
    if not isinstance(response, dict):
        return ()
    topics = response.get("topics", [response])
    if not isinstance(topics, list) or not all(isinstance(topic, dict) for topic in topics):
        raise JsonMismatch("response.topics: a list of objects is needed")
    return tuple(_uuid(topic["topicId"]) for topic in topics if topic.get("errorCode") == 0 and "topicId" in topic)


def _uuid(text: Any) -> Uuid:
    if not isinstance(text, str):
        raise JsonMismatch(f"topicId: a text is needed, not {text!r:.60}")
    try:
        return Uuid.parse(text)
    except ValueError as problem:
        raise JsonMismatch(f"topicId: {problem}") from None
