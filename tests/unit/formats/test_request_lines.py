"""Lines of request logs: cut anywhere, read as the plain reader reads them, in bounded memory."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc

import pytest

from jbod_model.formats.json_values import write
from jbod_model.formats.request_log import LONGEST_LINE, Reject, RequestLine, parse_line
from pipelines.formats.requests import CHUNK, Parser, TooLong, assignments_table, lines, requests_batch
from tests.support.paths import CLUSTERS, KAFKAS
from tests.support.volume import rare, sampled


def real(kafka: str) -> bytes:
    return gzip.decompress((CLUSTERS / kafka / "requests-100.log.gz").read_bytes())


def read(text: bytes, start: int = 0, end: int | None = None) -> list[tuple[int, bytes | TooLong]]:
    return list(lines(io.BytesIO(text), start, len(text) if end is None else end))


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 2))
def test_every_line_of_a_real_log_also_damaged_is_read_as_the_plain_reader_reads_it(kafka: str) -> None:
    parser, rng = Parser(), random.Random(kafka)
    for line in real(kafka).splitlines():
        damaged = bytearray(line)
        damaged[rng.randrange(len(line))] = rng.randrange(256)
        cut = line[: rng.randrange(len(line))]
        for text in (line, bytes(damaged), cut, cut + line, line.replace(b"Completed", b"completed", 1)):
            assert parser(text) == parse_line(text)


@pytest.mark.parametrize("kafka", ["kafka-4.1.2", rare("kafka-4.4.0")])
def test_a_heartbeat_that_is_passed_over_is_one_that_can_be_read(kafka: str) -> None:
    parser, rng = Parser(assignments=True), random.Random(7)
    beats = [line for line in real(kafka).splitlines() if b'"BROKER_HEARTBEAT"' in line]
    assert sum(parser(line) is None for line in beats) > 0.8 * len(beats)
    passed = 0
    for line in beats * 10:
        damaged = bytearray(line)
        for _ in range(rng.randrange(1, 3)):
            damaged[rng.randrange(len(line))] = rng.choice(b'0123456789-",:{}[]ae. ')
        if parser(bytes(damaged)) is None:
            read = parse_line(bytes(damaged))
            assert read is None or (isinstance(read, RequestLine) and read.api == "BROKER_HEARTBEAT")
            passed += read is not None
    assert passed > 100
    others = [line for line in real(kafka).splitlines() if b'"BROKER_HEARTBEAT"' not in line]
    assert all(parser(line) == parse_line(line) for line in others)


def test_ranges_that_meet_read_every_line_once_wherever_they_are_cut() -> None:
    text = b"one\n\ntwo\r\n   \nthree\n" + b"x" * 3000 + b"\nlast without its newline"
    whole = read(text)
    assert [line for _, line in whole] == [b"one", b"two\r", b"three", b"x" * 3000]
    assert all(text[at : at + len(line)] == line for at, line in whole if isinstance(line, bytes))
    for first_cut in range(len(text) + 1):
        for two in {first_cut, min(first_cut + 1, len(text)), (first_cut + len(text)) // 2, len(text)}:
            assert [*read(text, 0, first_cut), *read(text, first_cut, two), *read(text, two)] == whole


def test_a_line_over_the_limit_is_told_by_its_size_and_the_lines_around_it_are_read() -> None:
    huge = b"x" * (LONGEST_LINE + CHUNK + 5) + b"\n"
    text = b"before\n" + huge + b"after\n"
    expected = [(0, b"before"), (7, TooLong(len(huge))), (7 + len(huge), b"after")]
    assert read(text) == expected
    for cut in (7, 8, LONGEST_LINE, len(text) - 6, len(text) - 7):
        assert [*read(text, 0, cut), *read(text, cut)] == expected
    assert read(b"before\n" + huge[:-1]) == [(0, b"before")]


class Endless:
    """A source that never has a newline."""

    def __init__(self, size: int) -> None:
        self.left = size

    def read(self, size: int, /) -> bytes:
        take = min(size, self.left)
        self.left -= take
        return b"x" * take

    def seek(self, position: int, /) -> None:
        self.left -= position


def test_a_line_without_end_takes_no_more_memory_than_the_longest() -> None:
    tracemalloc.start()
    assert list(lines(Endless(100 << 20), 0, 100 << 20)) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * LONGEST_LINE


def test_a_time_without_a_zone_is_of_the_zone_that_is_given() -> None:
    line = next(line for line in real("kafka-4.1.2").splitlines() if b"BROKER_HEARTBEAT" in line)
    here, there = Parser()(line), Parser("Europe/Berlin")(line)
    assert isinstance(here, RequestLine)
    assert isinstance(there, RequestLine)
    assert here.completed_ms - there.completed_ms == 3_600_000
    zoned = line.replace(b"]", b"Z]", 1)
    assert Parser("Europe/Berlin")(zoned) == here


@pytest.mark.parametrize("kafka", KAFKAS)
def test_a_requested_assignment_is_a_row_with_its_own_answer(kafka: str) -> None:
    lines = [line for line in map(parse_line, real(kafka).splitlines()) if isinstance(line, RequestLine)]
    rows = assignments_table(lines).to_pylist()
    expected = []
    for line in lines:
        if line.api == "ASSIGN_REPLICAS_TO_DIRS":
            request, response = write(line.request), write(line.response)
            entry = 0
            for directory, answers in zip(request["directories"], response["directories"], strict=True):
                for topic, results in zip(directory["topics"], answers["topics"], strict=True):
                    for partition, result in zip(topic["partitions"], results["partitions"], strict=True):
                        who = (
                            request["brokerId"],
                            request["brokerEpoch"],
                            topic["topicId"],
                            partition["partitionIndex"],
                        )
                        expected.append((*who, directory["id"], result["errorCode"], line.correlation_id, entry))
                        entry += 1
    names = ("broker_id", "broker_epoch", "topic_id", "partition", "directory_id", "error", "correlation_id", "entry")
    assert [tuple(row[name] for name in names) for row in rows] == expected
    assert all(row["requested_time"] <= row["answered_time"] for row in rows)


def test_an_entry_without_an_answer_has_failed_and_one_of_a_refused_request_has_its_error() -> None:
    line = next(line for line in real("kafka-4.1.2").splitlines() if b"ASSIGN_REPLICAS_TO_DIRS" in line)
    answer = line.index(b'"response":')
    end = line.index(b',"connection"')
    unanswered = line[:answer] + b'"response":{"errorCode":0,"directories":[]}' + line[end:]
    refused = line[:answer] + b'"response":{"errorCode":77}' + line[end:]
    for text, error in ((unanswered, -1), (refused, 77)):
        parsed = parse_line(text)
        assert isinstance(parsed, RequestLine)
        assert set(assignments_table([parsed])["error"].to_pylist()) == {error}


def test_a_duration_of_ages_keeps_times_within_what_engines_count_with() -> None:
    line = next(line for line in real("kafka-4.1.2").splitlines() if b"ASSIGN_REPLICAS_TO_DIRS" in line)
    at = line.index(b'"totalTimeMs":')
    parsed = parse_line(line[:at] + b'"totalTimeMs":9007199254740991,' + line[line.index(b",", at) + 1 :])
    assert isinstance(parsed, RequestLine)
    assert {time.year for time in assignments_table([parsed])["requested_time"].to_pylist()} == {2016}


def test_rows_of_requests_have_typed_columns_and_the_whole_request_as_json() -> None:
    lines = [parse_line(line) for line in real("kafka-4.1.2").splitlines()]
    rows = requests_batch("a.log", [(7, line) for line in lines if isinstance(line, RequestLine)]).to_pylist()
    assert not any(isinstance(line, Reject) for line in lines)
    (unregistered,) = [row for row in rows if row["api"] == "UNREGISTER_BROKER"]
    assert (unregistered["broker_id"], unregistered["forwarded"], unregistered["request"]) == (
        3,
        True,
        '{"brokerId":3}',
    )
    (first, *_) = [row for row in rows if row["api"] == "BROKER_REGISTRATION"]
    assert (first["cluster_id"], first["error"], len(first["log_dirs"])) == ("JBODtestCluster0123456", 0, 1)
    assert first["broker_epoch"] == 12
    assert any(row["offline_log_dirs"] for row in rows if row["api"] == "BROKER_HEARTBEAT")
    assert {row["controller"] for row in rows} == {"127.0.0.1:19140"}
    created = [row for row in rows if row["api"] == "CREATE_TOPICS"]
    assert all('"configs"' not in row["response"] for row in created)
