"""The bytes of real controllers, whole, cut and changed: they are read, or refused with one kind of error."""

from __future__ import annotations

import contextlib
import json
import random
import struct

import pytest

from pipelines.quorum.connection import Exchange
from pipelines.quorum.messages import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    FETCH,
    FETCH_SNAPSHOT,
    NAMES,
    BadMessage,
    Message,
    decode,
    encode,
)
from tests.support.paths import FIXTURES
from tests.support.volume import amount

RECORDED = [
    (recording["api"], recording["version"], bytes.fromhex(recording["answer"]), path.stem)
    for path in sorted((FIXTURES / "quorum").glob("*.jsonl"))
    for recording in map(json.loads, path.read_text(encoding="utf-8").splitlines())
]
"""Api, version and answer, from its correlation id on."""


def body(api: int, answer: bytes) -> bytes:
    return answer[4 if api == API_VERSIONS else 5 :]


def read(api: int, version: int, answer: bytes) -> Message:
    return decode(f"{NAMES[api]}Response", version, body(api, answer))


@pytest.mark.parametrize(("api", "version", "answer", "kafka"), RECORDED)
def test_answer_of_a_real_controller_is_read_and_written_again(
    api: int, version: int, answer: bytes, kafka: str
) -> None:
    message = read(api, version, answer)
    if api != API_VERSIONS:  # which has tagged fields that nobody here needs
        kept = {name: value for name, value in message.items() if value is not None or name == "error_message"}
        for topic in message.get("topics", ()):
            topic["partitions"] = [
                {n: v for n, v in partition.items() if v is not None or n in ("aborted", "records", "error_message")}
                for partition in topic["partitions"]
            ]
        for node in message.get("nodes") or ():
            node.setdefault("rack", None)
        assert encode(f"{NAMES[api]}Response", version, kept) == body(api, answer)


def test_recordings_have_every_answer_that_a_mirror_reads() -> None:
    apis = {(api, kafka) for api, _, _, kafka in RECORDED}
    wanted = (API_VERSIONS, FETCH, FETCH_SNAPSHOT, DESCRIBE_QUORUM, DESCRIBE_CLUSTER, DESCRIBE_LOG_DIRS)
    assert apis == {(api, kafka) for api in wanted for kafka in ("kafka-3.9.2", "kafka-4.4.0")}
    answers = [read(api, version, answer) for api, version, answer, _ in RECORDED if api == FETCH]
    partitions = [fetch_answer["topics"][0]["partitions"][0] for fetch_answer in answers]
    assert {partition["error_code"] for partition in partitions} >= {0, 74}
    assert any(partition["records"] for partition in partitions)
    assert any(partition["snapshot_id"] for partition in partitions)
    assert any(partition["diverging"] for partition in partitions)


def test_directories_of_real_brokers_have_their_volumes_and_replicas() -> None:
    messages = {
        kafka: read(api, version, answer) for api, version, answer, kafka in RECORDED if api == DESCRIBE_LOG_DIRS
    }
    for kafka, message in messages.items():
        assert {directory["error_code"] for directory in message["results"]} == {0}
        assert all(directory["total_bytes"] > directory["usable_bytes"] > 0 for directory in message["results"])
        assert any(
            each["size"] > 100_000
            for directory in message["results"]
            for topic in directory["topics"]
            for each in topic["partitions"]
        )
        assert {directory.get("is_cordoned") for directory in message["results"]} == {
            False if kafka == "kafka-4.4.0" else None
        }


@pytest.mark.parametrize(
    ("api", "version", "answer", "kafka"), [recording for recording in RECORDED if len(recording[2]) < 600]
)
def test_answer_that_is_cut_is_refused(api: int, version: int, answer: bytes, kafka: str) -> None:
    for size in range(5, len(answer)):
        with pytest.raises(BadMessage):
            read(api, version, answer[:size])
    with pytest.raises(BadMessage, match="bytes follow its end"):
        read(api, version, answer + b"\0")


def test_answer_that_is_changed_is_read_or_refused_with_one_error() -> None:
    chance = random.Random(34)
    for _ in range(amount(2_000, 50_000)):
        api, version, answer, _ = chance.choice(RECORDED)
        changed = bytearray(answer)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(4, min(len(changed), 400))] = chance.randrange(256)
        with contextlib.suppress(BadMessage):
            read(api, version, bytes(changed))


def versions(*offered: tuple[int, int, int]) -> bytes:
    """The answer of ApiVersions to the first request."""
    keys = [{"api_key": api, "min_version": low, "max_version": high} for api, low, high in offered]
    message = encode("ApiVersionsResponse", 3, {"error_code": 0, "api_keys": keys, "throttle_time_ms": 0})
    return struct.pack(">ii", len(message) + 4, 1) + message


VERSIONS_REQUEST = {"software_name": "jbod", "software_version": "1"}


def test_answer_that_comes_byte_by_byte_is_the_one_that_comes_whole() -> None:
    answer = versions((FETCH, 4, 18))
    whole, slow = Exchange(), Exchange()
    assert whole.request(API_VERSIONS, VERSIONS_REQUEST) == slow.request(API_VERSIONS, VERSIONS_REQUEST)
    parts = [slow.receive(answer[at : at + 1]) for at in range(len(answer))]
    assert parts[:-1] == [None] * (len(answer) - 1)
    assert parts[-1] == whole.receive(answer)
    assert whole.version(FETCH) == slow.version(FETCH) == 18


@pytest.mark.parametrize(
    ("highest", "version"), [((0, 12), None), ((0, 13), 13), ((4, 16), 16), ((4, 99), 18), ((19, 20), None)]
)
def test_version_is_the_newest_that_both_know(highest: tuple[int, int], version: int | None) -> None:
    exchange = Exchange()
    exchange.request(API_VERSIONS, VERSIONS_REQUEST)
    exchange.receive(versions((FETCH, *highest)))
    assert exchange.version(FETCH) == version


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", 2_000_000_000), "an answer of 2,000,000,000 bytes is announced"),
        (struct.pack(">i", -1), "an answer of -1 bytes"),
        (b"\0\0\0\x02", "an answer of 2 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it is an HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "it speaks TLS"),
        (struct.pack(">ii", 4, 7), "an answer to request 7 came, 1 waits"),
        (struct.pack(">iih", 6, 1, 35), "older than Kafka 3.7"),
        (versions() + b"\0", "more bytes came"),
    ],
)
def test_what_is_no_answer_is_refused_before_it_is_believed(data: bytes, reason: str) -> None:
    exchange = Exchange()
    exchange.request(API_VERSIONS, VERSIONS_REQUEST)
    with pytest.raises(BadMessage, match=reason):
        exchange.receive(data)


def test_bytes_that_nobody_asked_for_are_refused() -> None:
    with pytest.raises(BadMessage, match="nobody asked"):
        Exchange().receive(versions())
