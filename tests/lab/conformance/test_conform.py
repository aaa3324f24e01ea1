"""The controller against traces of Kafka's own, and traces that were tampered with (docs/spec/controller.md)."""

from __future__ import annotations

import copy
import functools
import gzip
import json
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.profiles import KIP858
from lab.conformance import Report, conform
from lab.conformance.phases import phases
from tests.support.paths import FIXTURES, TRACES
from tests.support.traces import NAMES, trace_file
from tests.support.volume import amount, sampled
from tests.unit.model.controller.controller_world import World, directory

Line = dict[str, Any]

REQUESTS = FIXTURES / "requests"

THROWN = {
    "seed1": amount(4, 118),
    "seed2": 0,
    "seed3": 0,
    "seed4": 0,
    "seed6": 0,
    "seed22": amount(78, 176),
    "seed41": amount(1, 142),
    "seed42": 0,
    "seed43": amount(7, 154),
    "seed51": amount(57, 191),
}
"""Operations of each bundled trace on which Kafka itself threw: in the sample, and in all of it."""


def read_lines(name: str, count: int) -> list[Line]:
    with gzip.open(TRACES / f"{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]


@pytest.fixture(scope="module")
def beginning() -> list[Line]:
    """The first lines of a trace with eligible leader replicas, up to its second image."""
    lines = read_lines("seed1", 200)
    images = [number for number, line in enumerate(lines) if line["op"] == "image"]
    return lines[: images[1] + 1]


def write_trace(path: Path, lines: list[Line]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@functools.cache
def replayed(name: str) -> Report:
    return conform(trace_file(name))


@pytest.mark.parametrize("name", sampled(NAMES, 1))
def test_conform_bundled_trace_matches_whole(name: str) -> None:
    """Every operation, every record and every image (R-TRACE-1, R-TRACE-3, R-TRACE-4, R-TRACE-5, R-TRACE-7)."""
    report = replayed(name)
    assert report.mismatches == []
    assert report.images_matched == report.images > 0
    assert report.matched + len(report.thrown) == report.operations > amount(900, 2000)


@pytest.mark.parametrize("name", sampled(["eligible", "racks", "upgrade"], 2))
def test_conform_trace_of_every_kind_of_request_matches_whole(name: str) -> None:
    """R-PLACE-2, R-CFG-4, R-FEAT-2, R-CREATE-9 and all errors, against Kafka."""
    report = conform(REQUESTS / f"{name}.jsonl.gz")
    assert report.mismatches == []
    assert report.images_matched == report.images > 0
    assert report.matched + len(report.thrown) == report.operations > 600
    assert all(thrown.fault for thrown in report.thrown)


@pytest.mark.parametrize("name", sampled(sorted(THROWN), 2))
def test_conform_operations_on_which_kafka_threw_are_explained_by_its_flaws(name: str) -> None:
    """R-QUIRK-2, R-QUIRK-3: our Kafka fails on the same ones, the repaired one answers each."""
    report = replayed(name)
    assert len(report.thrown) == THROWN[name]
    assert [thrown for thrown in report.thrown if thrown.fault is None] == []
    assert [thrown for thrown in report.thrown if "UNKNOWN_SERVER_ERROR" in thrown.answer] == []


def test_conform_untampered_beginning_matches(tmp_path: Path, beginning: list[Line]) -> None:
    assert conform(write_trace(tmp_path / "trace.jsonl", beginning)).ok


def test_conform_other_profile_finds_where_it_differs() -> None:
    """R-TRACE-4: the page's controller is not Kafka's."""
    fields = {mismatch.field for mismatch in conform(trace_file("seed2"), KIP858).mismatches}
    assert "errorCode" in fields


# TAMPERING


def first(lines: list[Line], wanted: Callable[[Line], bool]) -> Line:
    return next(line for line in lines if wanted(line))


def writes(record_type: str) -> Callable[[Line], bool]:
    return lambda line: (
        line["op"] != "bootstrap" and any(record["type"] == record_type for record in line.get("records", []))
    )


def change_leader(lines: list[Line]) -> None:
    line = first(lines, lambda line: any(r["data"].get("leader", -1) >= 0 for r in line.get("records", [])))
    record = first(line["records"], lambda record: record["data"].get("leader", -1) >= 0)
    record["data"]["leader"] += 1


def change_directory(lines: list[Line]) -> None:
    line = first(lines, writes("PARTITION_RECORD"))
    line["records"][-1]["data"]["directories"][0] = "AAAAAAAAAAAAAAAAAAAAAg"


def change_version(lines: list[Line]) -> None:
    first(lines, writes("REGISTER_BROKER_RECORD"))["records"][-1]["version"] = 2


def drop_record(lines: list[Line]) -> None:
    first(lines, writes("BROKER_REGISTRATION_CHANGE_RECORD"))["records"].pop()


def repeat_record(lines: list[Line]) -> None:
    records = first(lines, writes("PARTITION_RECORD"))["records"]
    records.append(copy.deepcopy(records[-1]))


def swap_records(lines: list[Line]) -> None:
    records = first(lines, lambda line: writes("PARTITION_RECORD")(line) and len(line["records"]) > 2)["records"]
    records[-1], records[-2] = records[-2], records[-1]


def registration_before_partitions(lines: list[Line]) -> None:
    line = first(lines, lambda line: line["op"] == "sessionExpired" and len(line["records"]) > 1)
    line["records"].reverse()


def change_top_error(lines: list[Line]) -> None:
    first(lines, lambda line: line.get("errorCode") == 77)["errorCode"] = 102


def change_error_name(lines: list[Line]) -> None:
    first(lines, lambda line: line.get("errorCode") == 77)["error"] = "NONE"


def hide_error(lines: list[Line]) -> None:
    line = first(lines, lambda line: line.get("errorCode") == 119)
    del line["error"], line["errorCode"]


def change_partition_error(lines: list[Line]) -> None:
    line = first(lines, lambda line: line["op"] == "assignReplicasToDirs" and "response" in line)
    line["response"]["directories"][0]["topics"][0]["partitions"][0]["errorCode"] = 3


def drop_response_entry(lines: list[Line]) -> None:
    line = first(lines, lambda line: line["op"] == "assignReplicasToDirs" and "response" in line)
    line["response"]["directories"].pop()


def drop_response_field(lines: list[Line]) -> None:
    del first(lines, lambda line: "isFenced" in line.get("response", {}))["response"]["isFenced"]


def drop_response(lines: list[Line]) -> None:
    del first(lines, lambda line: line["op"] == "alterPartition")["response"]


def change_epoch_answer(lines: list[Line]) -> None:
    first(lines, lambda line: "brokerEpoch" in line.get("response", {}))["response"]["brokerEpoch"] += 1


def change_request(lines: list[Line]) -> None:
    first(lines, writes("REGISTER_BROKER_RECORD"))["request"]["logDirs"].pop()


def change_cluster(lines: list[Line]) -> None:
    registrations = [line for line in lines if line["op"] == "registerBroker" and "response" in line]
    registrations[2]["request"]["clusterId"] = "another"


def change_context(lines: list[Line]) -> None:
    line = first(lines, lambda line: line.get("context", {}).get("state") == "UNFENCED" and not line["records"])
    line["context"]["state"] = "FENCED"


def drop_operation(lines: list[Line]) -> None:
    lines.remove(first(lines, lambda line: line["op"] == "createTopics" and bool(line["records"])))


def move_offset(lines: list[Line]) -> None:
    first(lines, lambda line: line["op"] == "electLeaders")["baseOffset"] += 1


def turn_back_time(lines: list[Line]) -> None:
    lines[-2]["timeMs"] = 0


def claim_exception(lines: list[Line]) -> None:
    line = first(lines, lambda line: line["op"] == "brokerHeartbeat" and bool(line["records"]))
    line["exception"] = "RuntimeException: made up"


def change_image_isr(lines: list[Line]) -> None:
    first(lines, lambda line: line["op"] == "image")["partitions"][0]["isr"] = [0]


def change_image_offline(lines: list[Line]) -> None:
    first(lines, lambda line: line["op"] == "image")["partitions"][0]["offlineReplicas"].append(9)


def drop_image_partition(lines: list[Line]) -> None:
    first(lines, lambda line: line["op"] == "image")["partitions"].pop()


def fence_image_broker(lines: list[Line]) -> None:
    broker = first(lines, lambda line: line["op"] == "image")["brokers"][0]
    broker["fenced"] = not broker["fenced"]


def change_metadata_version(lines: list[Line]) -> None:
    lines[0]["metadataVersion"] = "3.6-IV2"


def _cordon(lines: list[Line]) -> Line:
    """The first operation that cordons a directory."""
    return first(lines, lambda line: any(r["data"].get("cordonedLogDirs") for r in line.get("records", [])))


def change_cordon(lines: list[Line]) -> None:
    _cordon(lines)["records"][-1]["data"]["cordonedLogDirs"] = ["AAAAAAAAAAAAAAAAAAAAbw"]


def drop_cordon(lines: list[Line]) -> None:
    _cordon(lines)["records"].pop()


def cordon_in_an_old_version(lines: list[Line]) -> None:
    record = _cordon(lines)["records"][-1]
    record["version"] = 2
    del record["data"]["cordonedLogDirs"]


def change_cordon_request(lines: list[Line]) -> None:
    _cordon(lines)["request"]["cordonedLogDirs"] = []


def lift_image_cordon(lines: list[Line]) -> None:
    image = first(lines, lambda line: line["op"] == "image")
    first(image["brokers"], lambda broker: bool(broker["cordonedLogDirs"]))["cordonedLogDirs"] = []


OF_CORDONS = [change_cordon, drop_cordon, cordon_in_an_old_version, change_cordon_request, lift_image_cordon]


@pytest.mark.parametrize("tamper", [None, *OF_CORDONS], ids=lambda tamper: tamper and tamper.__name__)
def test_conform_tampered_cordon_is_caught(tmp_path: Path, tamper: Callable[[list[Line]], None] | None) -> None:
    """R-CORDON-1, R-CORDON-2: in the record, its version, the request, the image; the trace itself is fine."""
    lines = read_lines("seed41", 60)
    lines = lines[: 1 + max(number for number, line in enumerate(lines) if line["op"] == "image")]
    report = tampered(tmp_path, lines, tamper or (lambda _lines: None))
    assert report.ok == (tamper is None)


TAMPERINGS = [
    *(change_leader, change_directory, change_version, drop_record, repeat_record, swap_records),
    *(registration_before_partitions, change_top_error, change_error_name, hide_error, change_partition_error),
    *(drop_response_entry, drop_response_field, drop_response, change_epoch_answer, change_request, change_cluster),
    *(change_context, drop_operation, move_offset, turn_back_time, claim_exception, change_image_isr),
    *(change_image_offline, drop_image_partition, fence_image_broker, change_metadata_version),
]


def tampered(tmp_path: Path, lines: list[Line], tamper: Callable[[list[Line]], None]) -> Report:
    changed = copy.deepcopy(lines)
    tamper(changed)
    return conform(write_trace(tmp_path / "tampered.jsonl", changed))


@pytest.mark.parametrize("tamper", sampled(TAMPERINGS, 14), ids=lambda tamper: tamper.__name__)
def test_conform_tampered_trace_is_caught(
    tmp_path: Path, beginning: list[Line], tamper: Callable[[list[Line]], None]
) -> None:
    """R-TRACE-4, R-TRACE-5, R-TRACE-7: each says the line, the operation, the offset and the field."""
    report = tampered(tmp_path, beginning, tamper)
    assert not report.ok
    assert all(mismatch.field and mismatch.operation > 0 for mismatch in report.mismatches)


def test_conform_changed_leader_is_named_where_it_is(tmp_path: Path, beginning: list[Line]) -> None:
    number, line = next(
        (number, line)
        for number, line in enumerate(beginning, 1)
        if any(record["data"].get("leader", -1) >= 0 for record in line.get("records", []))
    )
    mismatch = tampered(tmp_path, beginning, change_leader).mismatches[0]
    assert (mismatch.operation, mismatch.op, mismatch.offset) == (number, line["op"], line["baseOffset"])
    assert mismatch.field.endswith(".leader")
    assert mismatch.recorded == mismatch.ours + 1


def test_phases_of_directories_that_failed_together_come_one_after_the_other() -> None:
    """R-TRACE-8: four partitions in two directories, in the order of the directories."""
    world = World().brokers(0, dirs=3).brokers(1)
    world.topic("a", *[(0, 1)] * 4)
    for partition in range(4):
        world.assign(0, directory(0, partition % 2), "a", partition)
    request = world.heartbeat(0, directory(0, 1), directory(0, 0))
    records = world.look(request).records
    assert phases(request, world.image, world.memory, records) == [0, 0, 1, 1]
    mixed = (records[2], *records[:2], *records[3:])
    assert phases(request, world.image, world.memory, mixed) == [1, 0, 0, 1]


def test_phases_of_an_unclean_registration_are_in_sync_then_eligible() -> None:
    """R-TRACE-8."""
    world = World(elr=True, min_isr=2).brokers(0, 1)
    world.topic("a", (1, 0), (0, 1))
    world.ask(world.isr_request("a", 1))
    request = world.registration(0, directory(0), process=1)
    records = world.look(request).records
    assert phases(request, world.image, world.memory, records) == [0, 1]
    assert phases(request, world.image, world.memory, records[::-1]) == [1, 0]


def test_phases_of_a_heartbeat_that_also_changes_the_state_are_not_distinguished() -> None:
    """R-TRACE-8: one partition can be in two groups there."""
    world = World().brokers(0)
    world.topic("a", (0,))
    world.fence(0)
    request = world.heartbeat(0, directory(0))
    assert phases(request, world.image, world.memory, world.look(request).records) is None


def test_conform_illegal_record_ends_the_replay(tmp_path: Path, beginning: list[Line]) -> None:
    """R-TRACE-6: what comes after a record that cannot follow cannot be judged."""
    lines = copy.deepcopy(beginning)
    number, line = next(
        (n, operation) for n, operation in enumerate(lines, 1) if writes("PARTITION_CHANGE_RECORD")(operation)
    )
    line["records"][0]["data"]["partitionId"] = 999
    report = conform(write_trace(tmp_path / "trace.jsonl", lines))
    assert report.mismatches[-1].operation == number
    assert report.mismatches[-1].ours == "the replay ends here"


# NO TRACE


def test_conform_missing_file_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        conform(tmp_path / "absent.jsonl")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("{", "not JSON"),
        ("[1]\n", "not an operation"),
        ('{"op": "brokerHeartbeat"}\n', "does not begin with bootstrap"),
        ('{"op": "bootstrap", "records": [{"type": "NO_SUCH", "version": 0, "data": {}}]}\n', "no record type"),
        ('{"op": "bootstrap", "records": [{"type": "TOPIC_RECORD", "version": 9, "data": {}}]}\n', "no version 9"),
        ('{"op": "bootstrap", "records": {}}\n', "a list is needed"),
        ('{"op": "bootstrap", "records": []}\n{"op": "dance", "request": {}}\n', "not known"),
        ('{"op": "bootstrap", "records": []}\n{"op": "brokerHeartbeat", "request": {"brokerId": "1"}}\n', "brokerId"),
        (
            '{"op": "bootstrap", "records": []}\n{"op": "brokerHeartbeat", "request": {"brokerId": 1}, "context": 3}\n',
            "context",
        ),
        (
            '{"op": "bootstrap", "records": []}\n'
            '{"op": "brokerHeartbeat", "request": {"brokerId": 1}, "context": {"state": "ASLEEP"}}\n',
            "no state",
        ),
        ('{"op": "bootstrap", "records": []}\n{"op": "deleteTopics", "request": {"topicId": "?"}}\n', "topicId"),
        ('{"op": "bootstrap", "records": []}\n{"op": "config", "request": {"resourceType": "X"}}\n', "resourceType"),
    ],
)
def test_conform_file_that_is_no_trace_is_malformed(tmp_path: Path, text: str, problem: str) -> None:
    """R-TRACE-2."""
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(MalformedLog, match=problem):
        conform(path)


def test_conform_truncated_gzip_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes((TRACES / "seed2.jsonl.gz").read_bytes()[:5000])
    with pytest.raises(MalformedLog, match="cannot be read to the end"):
        conform(path)


WRONG_VALUES: list[Any] = [
    *(None, 0, 1, -1, 2**31, 2**63, 10**30, True, 1.5, "", "x", "AAAAAAAAAAAAAAAAAAAAAg"),
    *([], [0], [99, 99], ["x"], [[]], {}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from places(inner, (*path, key))


@functools.cache
def eligible() -> list[str]:
    """The first lines of a trace of every kind of request."""
    with gzip.open(REQUESTS / "eligible.jsonl.gz", "rt") as trace:
        return [line for line, _ in zip(trace, range(60), strict=False)]


@pytest.mark.parametrize("seed", sampled(range(120), 15))
def test_conform_any_damage_is_reported_or_refused(tmp_path: Path, seed: int) -> None:
    """R-TRACE-1, R-TRACE-2: a value replaced or dropped anywhere never makes it fail in another way."""
    random = Random(seed)
    lines = [json.loads(line) for line in eligible()]
    for _ in range(random.choice([1, 1, 2])):
        line = random.choice(lines)
        *path, last = random.choice(list(places(line)))
        holder: Any = functools.reduce(operator.getitem, path, line)
        if random.random() < 0.2:
            del holder[last]
        else:
            holder[last] = copy.deepcopy(random.choice(WRONG_VALUES))
    path_of_trace = write_trace(tmp_path / "damaged.jsonl", lines)
    try:
        report = conform(path_of_trace)
    except MalformedLog as problem:
        assert problem.file == str(path_of_trace)
    else:
        assert report.ok or list(report.lines())[1:]
        json.dumps(report.as_json())
