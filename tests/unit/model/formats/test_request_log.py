"""The reader of request logs against real ones, and against what is none."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jbod_model.errors import UsageError
from jbod_model.formats.request_log import APIS, LONGEST_LINE, Reject, RequestLine, parse_line
from jbod_model.formats.request_log_file import RequestLog, counted_once
from jbod_model.formats.requests import (
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerState,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from jbod_model.formats.responses import AssignReplicasToDirsResponse, CreateTopicsResponse, Response
from lab.simulation.output import START
from lab.simulation.request_log import request_log_lines
from lab.simulation.stories import play
from tests.support.paths import CLUSTERS, KAFKAS

NAMED = re.compile(r'"requestApiKeyName":"([A-Z_]+)"')
LAYOUTS = (
    "[2026-11-21 02:23:39,344] DEBUG Completed request:{} (kafka.request.logger)",
    "2026-11-21T02:23:39.344Z DEBUG [data-plane-kafka-request-handler-0] kafka.request.logger - Completed request:{}",
    "2026-11-21 03:23:39.344+0100 TRACE Completed request:{} (kafka.request.logger:1)",
)


def _log(cluster: str) -> Path:
    return CLUSTERS / cluster / "requests-100.log.gz"


def _texts(cluster: str) -> Iterator[str]:
    with gzip.open(_log(cluster), "rt", encoding="utf-8") as lines:
        yield from lines


def _body(api: str, cluster: str = "kafka-4.1.2") -> dict[str, Any]:
    """The first real request of an API as JSON."""
    text = next(text for text in _texts(cluster) if f'"{api}"' in text)
    body: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return body


def _parse(body: Any, layout: str = LAYOUTS[0]) -> RequestLine | Reject | None:
    return parse_line(layout.format(json.dumps(body)).encode())


def _request(body: Any) -> RequestLine:
    line = _parse(body)
    assert isinstance(line, RequestLine), line
    return line


def _reason(body: Any) -> str:
    line = _parse(body)
    assert isinstance(line, Reject), line
    return line.reason


@pytest.mark.parametrize("cluster", KAFKAS)
def test_a_real_log_every_line_of_a_read_api_is_a_request_and_no_other(cluster: str) -> None:
    wanted = {api.name for api in APIS.values()}
    named = Counter(match[1] for text in _texts(cluster) if (match := NAMED.search(text)))
    log = RequestLog(_log(cluster))
    read = Counter(line.api for line in log.requests())
    assert read == {name: count for name, count in named.items() if name in wanted}
    assert log.read == sum(read.values())
    assert log.dropped == sum(named.values()) - log.read
    assert not log.rejected


def test_a_directory_assignment_has_what_was_asked_and_what_was_answered() -> None:
    body = _body("ASSIGN_REPLICAS_TO_DIRS")
    line = _request(body)
    assert isinstance(line.request, AssignReplicasToDirsRequest)
    assert isinstance(line.response, AssignReplicasToDirsResponse)
    assert line.request.broker_epoch == body["request"]["brokerEpoch"]
    indexes = [
        partition.partition_index for topic in line.request.directories[0].topics for partition in topic.partitions
    ]
    answered = [
        (partition.partition_index, partition.error_code)
        for topic in line.response.directories[0].topics
        for partition in topic.partitions
    ]
    assert answered == [(index, 0) for index in indexes]
    assert (line.client_id, line.correlation_id, line.forwarded, line.error_code) == ("1", 0, False, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_gives_the_time_at_which_the_request_was_completed(layout: str) -> None:
    line = _parse(_body("BROKER_HEARTBEAT"), layout)
    assert isinstance(line, RequestLine)
    assert datetime.fromtimestamp(line.completed_ms / 1000, UTC) == datetime(
        2026, 11, 21, 2, 23, 39, 344_000, tzinfo=UTC
    )
    assert line.received_ms == line.completed_ms - line.total_ms


def test_a_failed_directory_is_in_the_heartbeat() -> None:
    beats = [line.request for line in RequestLog(_log("kafka-4.1.2")).requests() if line.api == "BROKER_HEARTBEAT"]
    assert any(beat.offline_log_dirs for beat in beats if isinstance(beat, BrokerHeartbeatRequest))


def test_a_deleted_topic_that_was_named_has_the_id_of_the_answer() -> None:
    body = _body("DELETE_TOPICS")
    request = _request(body).request
    assert isinstance(request, DeleteTopicsRequest)
    assert [str(topic_id) for topic_id in request.topic_ids] == [body["response"]["responses"][0]["topicId"]]
    body["response"]["responses"][0] |= {"topicId": "A" * 22, "errorCode": 3}
    assert _request(body).request == DeleteTopicsRequest()


def test_a_created_topic_has_the_id_of_the_answer_and_not_its_configuration() -> None:
    line = _request(_body("CREATE_TOPICS"))
    assert isinstance(line.request, CreateTopicsRequest)
    assert isinstance(line.response, CreateTopicsResponse)
    assert [topic.name for topic in line.response.topics] == [topic.name for topic in line.request.topics]
    assert line.forwarded


def test_an_in_sync_set_of_version_2_has_members_without_epochs() -> None:
    body = _body("ALTER_PARTITION")
    body["requestHeader"]["requestApiVersion"] = 2
    partition = body["request"]["topics"][0]["partitions"][0]
    partition["newIsr"] = [broker["brokerId"] for broker in partition.pop("newIsrWithEpochs")]
    request = _request(body).request
    assert isinstance(request, AlterPartitionRequest)
    members = request.topics[0].partitions[0].new_isr_with_epochs
    assert members == tuple(BrokerState(broker_id=member) for member in partition["newIsr"])


def test_a_request_that_was_refused_as_a_whole_has_its_error_and_no_answer() -> None:
    body = _body("BROKER_REGISTRATION")
    body["response"] = {"throttleTimeMs": 0, "errorCode": 101, "brokerEpoch": -1}
    line = _request(body)
    assert (line.error_code, line.response) == (101, Response())


def test_a_credential_leaves_no_trace_also_where_the_line_is_cut() -> None:
    body = _body("ALTER_USER_SCRAM_CREDENTIALS")
    body["request"] = {"upsertions": [{"name": "bob", "saltedPassword": "c2VjcmV0"}]}
    text = LAYOUTS[0].format(json.dumps(body, separators=(",", ":")))
    for end in range(text.index("requestApiVersion"), len(text), 7):
        assert parse_line(text[:end].encode()) is None
    for end in range(0, text.index("requestApiVersion"), 3):
        assert "c2VjcmV0" not in repr(parse_line(text[:end].encode()))


def test_an_unreadable_line_has_a_reason_and_keeps_nothing_of_its_text() -> None:
    def changed(*path: str, value: Any, api: str = "BROKER_HEARTBEAT") -> dict[str, Any]:
        body = _body(api)
        inner = body
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        return body

    assert _reason(changed("requestHeader", "requestApiVersion", value=3)) == "BROKER_HEARTBEAT: a version newer than 2"
    assert _reason(changed("requestHeader", "requestApiKey", value=5000)) == "an API that Kafka 4.4 does not have"
    assert _reason(changed("request", "brokerId", value="seven")) == "BrokerHeartbeatRequest.brokerId has another form"
    assert _reason(changed("request", "brokerId", value=1 << 31)) == "a number is out of range"
    listener = {"name": "A", "host": "b", "port": 65_536, "securityProtocol": 0}
    beyond = changed("request", "listeners", value=[listener], api="BROKER_REGISTRATION")
    assert _reason(beyond) == "a number is out of range"
    assert _reason(changed("requestHeader", "correlationId", value=1 << 31)) == "correlationId is not of type int"
    assert _reason(changed("response", "errorCode", value=1 << 15)) == "a number is out of range"
    assert _reason(changed("request", "brokerId", value=True)) == "BrokerHeartbeatRequest.brokerId has another form"
    assert _reason(changed("request", "mystery", value=1)) == "BrokerHeartbeatRequest has another form"
    assert _reason(changed("request", value=[])) == "request is not an object"
    assert _reason(changed("totalTimeMs", value=-1)) == "totalTimeMs is not a duration"
    assert _reason(changed("isForwarded", value="yes")) == "isForwarded is not of type bool"
    assert _reason([]) == "no JSON object"
    topics = [{"name": "\ud800", "numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}]
    half = changed("request", "topics", value=topics, api="CREATE_TOPICS")
    assert _reason(half) == "half a surrogate pair in a text"

    good = LAYOUTS[0].format(json.dumps(_body("BROKER_HEARTBEAT")))
    lines = {
        "not UTF-8": b"[2026-11-21 02:23:39,344] \xff",
        "no completed request": b"[2026-11-21 02:23:39,344] INFO java.lang.Exception",
        "not JSON, or cut off": good[:-60].encode(),
        "no time": good[good.index("]") + 1 :].encode(),
        "nested too deeply": b'[2026-11-21 02:23:39,344] Completed request:{"a":' + b"[" * 200_000,
        f"the line is longer than {LONGEST_LINE} bytes": b"x" * (LONGEST_LINE + 1),
    }
    for reason, line in lines.items():
        parsed = parse_line(line)
        assert isinstance(parsed, Reject)
        assert (parsed.reason, parsed.size) == (reason, len(line))
        timeless = reason in ("not UTF-8", "no time") or len(line) > LONGEST_LINE
        assert (parsed.completed_ms is None) == timeless


def test_a_line_with_random_damage_is_a_request_a_reject_or_dropped_never_an_exception() -> None:
    rng = random.Random(4)
    lines = [text.encode() for text in _texts("kafka-4.1.2") if '"FETCH"' not in text][::7]
    for line in lines:
        for _ in range(4):
            damaged = bytearray(line[: rng.randrange(1, len(line) + 1)] if rng.random() < 0.3 else line)
            for _ in range(rng.randrange(1, 6)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            parsed = parse_line(bytes(damaged))
            assert parsed is None or isinstance(parsed, (Reject, RequestLine))


def test_a_file_plain_gzipped_cut_or_with_a_huge_line_is_read_to_where_it_can_be(tmp_path: Path) -> None:
    good = LAYOUTS[0].format(json.dumps(_body("BROKER_HEARTBEAT"))).encode() + b"\n"
    huge = b"x" * (3 * LONGEST_LINE) + b"\n"
    plain, packed, cut = tmp_path / "requests.log", tmp_path / "requests.log.gz", tmp_path / "cut.log.gz"
    plain.write_bytes(good + b"\n" + huge + good + good[:-80])
    packed.write_bytes(gzip.compress(good) + gzip.compress(good))
    cut.write_bytes(gzip.compress(good + random.Random(1).randbytes(50_000))[:-100])

    log = RequestLog(plain)
    rejects = [line for line in log if isinstance(line, Reject)]
    assert (log.read, log.dropped) == (2, 0)
    assert [reject.size for reject in rejects] == [len(huge), len(good) - 80]
    assert len(list(RequestLog(packed).requests())) == 2
    log = RequestLog(cut)
    assert len(list(log.requests())) == 1
    assert any("cannot be read to the end" in reason for reason in log.rejected)
    with pytest.raises(UsageError, match="no such file"):
        list(RequestLog(tmp_path / "absent.log"))


def test_a_forwarded_request_that_a_broker_logged_too_counts_once() -> None:
    body = _body("CREATE_TOPICS")
    at_controller = _request(body)
    at_broker = _request({**body, "isForwarded": False, "connection": "127.0.0.1:9092-127.0.0.1:1-0"})
    again = _request({**body, "requestHeader": {**body["requestHeader"], "correlationId": 77}})
    assert list(counted_once([at_controller, at_broker, again])) == [at_controller, again]
    assert list(counted_once([at_broker, at_controller, again])) == [at_broker, again]
    assert list(counted_once([at_controller, at_controller])) == [at_controller, at_controller]


def test_a_simulated_request_log_is_read_back_as_it_was_asked() -> None:
    world = play("everything", 3, "kafka")
    lines = [parse_line(text.encode()) for text in request_log_lines(world.exchanges, START)]
    assert len(lines) == len(world.exchanges)
    for line, exchange in zip(lines, world.exchanges, strict=True):
        assert isinstance(line, RequestLine)
        assert line.request == exchange.request
