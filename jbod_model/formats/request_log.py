"""Reads a controller's request log: the request and the answer in each line. R-SIM-8 writes the same form.

A line is ``[2026-11-21 02:23:39,344] DEBUG Completed request:{...} (kafka.request.logger)``, as Kafka's configurations
of log4j and log4j2 both write it. A ``T`` in the time, a dot before the milliseconds and a zone are accepted, too. The
JSON is Kafka's own (``RequestConvertToJson``). A request that a broker forwards in an Envelope has one line: that of
the inner request, with ``isForwarded``.

Only the requests in `APIS` are read. Nothing is kept of others, which may hold SCRAM credentials or delegation tokens,
nor of the text of a line that cannot be read, which may be such a request.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from jbod_model.formats import requests, responses
from jbod_model.formats.json_values import JsonMismatch, camel_case, read
from jbod_model.formats.responses import BrokerHeartbeatResponse, Response

LONGEST_LINE = 1 << 24
"""The most bytes of a line. The largest requests, with 2,250 assignments or 10,000 partitions, take under a tenth of
it."""

HIGHEST_API_KEY = 94
"""The highest api key of Kafka 4.4. A higher key is reported, not dropped silently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The fields of every completed request. Times are milliseconds since 1970 by the controller's clock."""

    api: str
    """Kafka's name, for example ``BROKER_HEARTBEAT``."""
    version: int
    completed_ms: int
    """When the line was written, after the answer was sent."""
    total_ms: float
    """The time from the request's arrival to its completion."""
    forwarded: bool
    """Whether a broker forwarded it."""
    correlation_id: int
    client_id: str
    connection: str

    @property
    def received_ms(self) -> float:
        """When the request arrived."""
        return self.completed_ms - self.total_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine(Line):
    """One completed request."""

    request: requests.Request
    response: Response
    """The answer; a plain `Response` if the request was refused as a whole or the answer has no fields."""
    error_code: int
    """The error code of the whole request; those of its entries are in ``response``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerLine(Line):
    """A request with a newer version than those in `APIS`: its content is not read."""

    broker_id: int | None
    """The broker that sent the request, or that it is about; None if it names none."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A line that cannot be read. Its text is not kept."""

    reason: str
    """One of about a hundred texts: it names the field, never its value."""
    size: int
    """Bytes of the line."""
    api: str | None = None
    """Which of `APIS` it is, if the line still shows it."""
    completed_ms: int | None = None
    newer: NewerLine | None = None
    """The known facts about a request with a newer version than those that jbod reads."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API that jbod reads: its versions, and the classes of its request and its answer."""

    key: int
    name: str
    versions: range
    request: type[Any]
    response: type[Any]


APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        Api(19, "CREATE_TOPICS", range(2, 8), requests.CreateTopicsRequest, responses.CreateTopicsResponse),
        Api(20, "DELETE_TOPICS", range(6, 7), requests.DeleteTopicsRequest, responses.DeleteTopicsResponse),
        Api(37, "CREATE_PARTITIONS", range(4), requests.CreatePartitionsRequest, responses.CreatePartitionsResponse),
        Api(43, "ELECT_LEADERS", range(3), requests.ElectLeadersRequest, responses.ElectLeadersResponse),
        Api(
            45,
            "ALTER_PARTITION_REASSIGNMENTS",
            range(2),
            requests.AlterPartitionReassignmentsRequest,
            responses.AlterPartitionReassignmentsResponse,
        ),
        Api(56, "ALTER_PARTITION", range(2, 4), requests.AlterPartitionRequest, responses.AlterPartitionResponse),
        Api(57, "UPDATE_FEATURES", range(3), requests.UpdateFeaturesRequest, Response),
        Api(
            62,
            "BROKER_REGISTRATION",
            range(5),
            requests.BrokerRegistrationRequest,
            responses.BrokerRegistrationResponse,
        ),
        Api(63, "BROKER_HEARTBEAT", range(3), requests.BrokerHeartbeatRequest, responses.BrokerHeartbeatResponse),
        Api(64, "UNREGISTER_BROKER", range(1), requests.UnregisterBrokerRequest, Response),
        Api(
            73,
            "ASSIGN_REPLICAS_TO_DIRS",
            range(1),
            requests.AssignReplicasToDirsRequest,
            responses.AssignReplicasToDirsResponse,
        ),
        Api(94, "UNREGISTER_CONTROLLER", range(1), requests.UnregisterControllerRequest, Response),
    )
}
"""Api key -> how it is read. UPDATE_FEATURES is among them because it decides what later requests may contain."""

_TIME = re.compile(
    r"\[?(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[,.](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?![\d,.])", re.ASCII
)
_START = "Completed request:"
_KEY = re.compile(r'\{"isForwarded":(?:true|false),"requestHeader":\{"requestApiKey":(\d{1,5}),', re.ASCII)
_INT16, _INT32, _INT64 = range(-(1 << 15), 1 << 15), range(-(1 << 31), 1 << 31), range(-(1 << 63), 1 << 63)
_RANGES: Mapping[str, range] = {
    **dict.fromkeys(("brokerEpoch", "currentMetadataOffset", "previousBrokerEpoch"), _INT64),
    **dict.fromkeys(("errorCode", "securityProtocol", "minSupportedVersion", "maxSupportedVersion"), _INT16),
    "maxVersionLevel": _INT16,
    "port": range(1 << 16),
}
"""Number fields of a request or an answer that are not int32."""


class _Unreadable(Exception):
    """Why a line cannot be read."""

    newer: NewerLine | None = None


def parse_line(line: bytes, *, zone: tzinfo = UTC) -> RequestLine | Reject | None:
    """The request of one line, None for an API that is not read, a `Reject` for a line that cannot be read.

    Never raises. ``zone`` is the zone of times that name none.
    """
    if len(line) > LONGEST_LINE:
        return Reject(f"the line is longer than {LONGEST_LINE} bytes", len(line))
    api: str | None = None
    time: int | None = None
    try:
        text = line.decode("utf-8").rstrip("\r\n")
        time = _time(text, zone)
        at = text.find(_START)
        if at < 0:
            raise _Unreadable("no completed request")
        body = text[at + len(_START) :].lstrip()
        seen = _KEY.match(body)
        if seen is not None:
            known = APIS.get(int(seen[1]))
            if known is None and int(seen[1]) <= HIGHEST_API_KEY:
                return None
            api = known.name if known else None
        value = _json(body)
        header = _object(value, "requestHeader")
        key = _value(header, "requestApiKey", int)
        form = APIS.get(key)
        if form is None:
            if 0 <= key <= HIGHEST_API_KEY:
                return None
            raise _Unreadable("an API that Kafka 4.4 does not have")
        api = form.name
        if time is None:
            raise _Unreadable("no time")
        return _line(form, value, header, time)
    except UnicodeDecodeError:
        return Reject("not UTF-8", len(line), api, time)
    except RecursionError:
        return Reject("nested too deeply", len(line), api, time)
    except JsonMismatch as problem:
        return Reject(f"{str(problem).partition(':')[0]} has another form", len(line), api, time)
    except _Unreadable as problem:
        return Reject(str(problem), len(line), api, time, problem.newer)


def _time(text: str, zone: tzinfo) -> int | None:
    """The time at the start of the line in milliseconds since 1970; None if there is none."""
    match = _TIME.match(text)
    if match is None:
        return None
    *parts, fraction, named = match.groups()
    stamp = "{}-{}-{}T{}:{}:{}".format(*parts)
    try:
        moment = datetime.fromisoformat(stamp + (named or ""))
        seconds = (moment if named else moment.replace(tzinfo=zone)).timestamp()
        return int(seconds) * 1000 + int(((fraction or "") + "000")[:3])
    except (ValueError, OverflowError):
        return None


def _json(body: str) -> dict[str, Any]:
    """The JSON object at the start of ``body``. The text after it belongs to the logger's layout."""
    try:
        value, _ = json.JSONDecoder(parse_constant=_no_constant).raw_decode(body)
    except ValueError:
        raise _Unreadable("not JSON, or cut off") from None
    if not isinstance(value, dict):
        raise _Unreadable("no JSON object")
    if "\\ud" in body or "\\uD" in body:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise _Unreadable("half a surrogate pair in a text") from None
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _object(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    member = value.get(name)
    if not isinstance(member, dict):
        raise _Unreadable(f"{name} is not an object")
    return member


def _value(value: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    member = value.get(name)
    if type(member) is not kind or (kind is int and member not in _INT32):
        raise _Unreadable(f"{name} is not of type {kind.__name__}")
    return member


def _line(form: Api, value: dict[str, Any], header: dict[str, Any], time: int) -> RequestLine:
    version = _value(header, "requestApiVersion", int)
    if version not in form.versions:
        newest, oldest = form.versions[-1], form.versions[0]
        which = f"newer than {newest}" if version > newest else f"older than {oldest}"
        problem = _Unreadable(f"{form.name}: a version {which}")
        if version > newest:
            problem.newer = NewerLine(
                broker_id=_broker_id(value.get("request")), **_common(form, version, value, header, time)
            )
        raise problem
    request, response = _object(value, "request"), _object(value, "response")
    _check_numbers(request)
    _check_numbers(response)
    error_code = _value(response, "errorCode", int) if "errorCode" in response else 0
    return RequestLine(
        request=_request(form, request, response),
        response=read_answer(form.response, response, error_code),
        error_code=error_code,
        **_common(form, version, value, header, time),
    )


def _common(form: Api, version: int, value: dict[str, Any], header: dict[str, Any], time: int) -> dict[str, Any]:
    """The fields of `Line`."""
    client_id = header.get("clientId")
    return {
        "api": form.name,
        "version": version,
        "completed_ms": time,
        "total_ms": _duration(value),
        "forwarded": _value(value, "isForwarded", bool),
        "correlation_id": _value(header, "correlationId", int),
        "client_id": client_id if isinstance(client_id, str) else "",
        "connection": _value(value, "connection", str),
    }


def _broker_id(request: Any) -> int | None:
    broker_id = request.get("brokerId") if isinstance(request, dict) else None
    return broker_id if type(broker_id) is int and broker_id in _INT32 else None


def _duration(value: Mapping[str, Any]) -> float:
    total = value.get("totalTimeMs")
    if isinstance(total, bool) or not isinstance(total, (int, float)) or not 0 <= total < 1 << 53:
        raise _Unreadable("totalTimeMs is not a duration")
    return float(total)


def _check_numbers(value: Any, name: str = "") -> None:
    """Check that every integer fits its field, so that callers need not check."""
    if isinstance(value, dict):
        for inner, item in value.items():
            _check_numbers(item, inner)
    elif isinstance(value, list):
        for item in value:
            _check_numbers(item, name)
    elif type(value) is int and value not in _RANGES.get(name, _INT32):
        raise _Unreadable("a number is out of range")


_IGNORED = {"DELETE_TOPICS": ("timeoutMs",), "UPDATE_FEATURES": ("timeoutMs",)}
"""Fields of a request that affect nothing and that its class leaves out."""


def _request(form: Api, value: dict[str, Any], response: dict[str, Any]) -> requests.Request:
    kept = {name: item for name, item in value.items() if name not in _IGNORED.get(form.name, ())}
    adapt = _ADAPT.get(form.name)
    parsed: requests.Request = read(form.request, kept if adapt is None else adapt(kept, response))
    return parsed


def _delete_topics(request: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """Replace topic names by ids. The answer has the id of a named topic, unless there is no such topic."""
    named = {
        result.get("name"): result.get("topicId")
        for result in _objects(response.get("responses"), "responses")
        if result.get("name") is not None and isinstance(result.get("name"), str)
    }
    ids = []
    for topic in _objects(request.get("topics"), "topics"):
        name = topic.get("name")
        topic_id = topic.get("topicId") if name is None else named.get(name) if isinstance(name, str) else None
        if not isinstance(topic_id, str):
            raise _Unreadable("DELETE_TOPICS: a topic without id")
        if name is None or topic_id != _NO_ID:
            ids.append(topic_id)
    return {"topicIds": ids}


_NO_ID = "A" * 22


def _alter_partition(request: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    """Version 2 has a list of brokers where version 3 has their epochs too."""
    topics = [
        {
            **topic,
            "partitions": [
                _with_epochs(partition) for partition in _objects(topic.get("partitions"), "topics.partitions")
            ],
        }
        for topic in _objects(request.get("topics"), "topics")
    ]
    return {**request, "topics": topics}


def _with_epochs(partition: dict[str, Any]) -> dict[str, Any]:
    if "newIsr" not in partition:
        return partition
    members = partition["newIsr"]
    if not isinstance(members, list):
        raise _Unreadable("newIsr is not a list")
    kept = {name: item for name, item in partition.items() if name != "newIsr"}
    return {**kept, "newIsrWithEpochs": [{"brokerId": member} for member in members]}


def _update_features(request: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    """Version 0 only allows a downgrade; later versions name its kind."""
    updates = []
    for update in _objects(request.get("featureUpdates"), "featureUpdates"):
        kept = {name: item for name, item in update.items() if name != "allowDowngrade"}
        if update.get("allowDowngrade") is True:
            kept["upgradeType"] = requests.SAFE_DOWNGRADE
        updates.append(kept)
    return {**request, "featureUpdates": updates}


_ADAPT: Mapping[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]] = {
    "DELETE_TOPICS": _delete_topics,
    "ALTER_PARTITION": _alter_partition,
    "UPDATE_FEATURES": _update_features,
}


def _objects(value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _Unreadable(f"{name} is not a list of objects")
    return value


def read_answer(cls: type[Any], value: dict[str, Any], error_code: int) -> Response:
    """The answer of class ``cls`` that ``value`` describes; empty if the request was refused as a whole."""
    if cls is Response or error_code != 0:
        return Response()
    if cls is BrokerHeartbeatResponse:
        value = {**value, "inControlledShutdown": False}  # the controller's own state, which is not sent
    parsed: Response = read(cls, _known(cls, value))
    return parsed


def _known(cls: Any, value: Any) -> Any:
    """``value`` without the fields that ``cls`` does not have, at any depth."""
    if not isinstance(value, dict):
        return value
    fields = _fields(cls)
    return {name: _known_items(fields[name], item) for name, item in value.items() if name in fields}


def _known_items(cls: Any, value: Any) -> Any:
    if cls is None or not isinstance(value, list):
        return value
    return [_known(cls, item) for item in value]


@functools.cache
def _fields(cls: Any) -> Mapping[str, Any]:
    """camelCase name -> the class of its items, if they have one."""
    return {camel_case(field.name): _element(field.type) for field in dataclasses.fields(cls)}


def _element(hint: Any) -> type[Any] | None:
    """The dataclass X in ``tuple[X, ...]``, the type of lists in responses."""
    match = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", str(hint))
    cls = getattr(responses, match[1], None) if match else None
    return cls if isinstance(cls, type) and dataclasses.is_dataclass(cls) else None
