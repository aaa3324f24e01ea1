"""Request logs that grow, are rotated, packed, copied, damaged or endless: every whole line once, no secret in any."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from shutil import copy
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from jbod_model.errors import UsageError
from jbod_model.formats.request_log import LONGEST_LINE, RequestLine, parse_line
from pipelines.source.log_options import RequestOptions
from pipelines.source.request_files import HEAD, RequestFiles
from pipelines.source.request_readers import RequestBatchReader, RequestStreamReader
from tests.support.request_lakes import request_lines

LINES = request_lines("kafka-4.1.2")
KEPT = [line for line in LINES if isinstance(parse_line(line), RequestLine)]
SECRET = b"6WK4UQBbN971yZa6fT"
Row = dict[str, Any]


class Reader:
    """A stream over some paths that reads when told to, as Spark would; ``restart`` keeps only the offset."""

    def __init__(self, *paths: Path, layout: str = "requests", most: int | None = None) -> None:
        self.options = RequestOptions(tuple(map(str, paths)), layout=layout)
        self.most = most
        self.stream = RequestStreamReader(self.options)
        self.offset = self.stream.initialOffset()

    def restart(self) -> None:
        self.offset = json.loads(json.dumps(self.offset))
        self.stream = RequestStreamReader(self.options)

    def read(self, during: Any = None) -> list[Row]:
        """The rows of a batch; ``during`` happens between its planning and its reading."""
        limit = ReadAllAvailable() if self.most is None else ReadMaxBytes(self.most)
        end = self.stream.latestOffset(self.offset, limit)
        parts = [] if end == self.offset else self.stream.partitions(self.offset, end)
        if during is not None:
            during()
        self.offset = end
        return rows(part for each in parts for part in self.stream.read(each))

    def read_all(self) -> list[Row]:
        request_rows: list[Row] = []
        while some := self.read():
            request_rows += some
        return request_rows


def rows(batches: Any) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]


def batch(*paths: Path, layout: str = "requests") -> list[Row]:
    reader = RequestBatchReader(RequestOptions(tuple(map(str, paths)), layout=layout))
    return rows(part for each in reader.partitions() for part in reader.read(each))


def contents(request_rows: list[Row]) -> list[tuple[Any, ...]]:
    """What rows say, without where they were read."""
    return [
        tuple(str(value) for name, value in row.items() if name not in ("file", "position")) for row in request_rows
    ]


EXPECTED: list[tuple[Any, ...]] = []


@pytest.fixture
def expected(tmp_path: Path) -> list[tuple[Any, ...]]:
    if not EXPECTED:
        (tmp_path / "whole").write_bytes(b"".join(LINES))
        EXPECTED.extend(contents(batch(tmp_path / "whole")))
    return EXPECTED


def test_a_log_read_whole_or_in_small_batches_gives_the_same(tmp_path: Path, expected: list[tuple[Any, ...]]) -> None:
    log = tmp_path / "requests.log"
    log.write_bytes(b"".join(LINES))
    for most in (None, 1 << 20, 300_001):
        reader = Reader(log, most=most)
        request_rows: list[Row] = []
        while (some := reader.read()) or reader.offset["files"][0][1] < log.stat().st_size:
            request_rows += some
            reader.restart()
        assert contents(request_rows) == expected
    assert [row["position"] for row in request_rows] == sorted(row["position"] for row in request_rows)


def test_a_growing_log_is_read_line_by_line_and_never_a_line_without_its_newline(tmp_path: Path) -> None:
    log = tmp_path / "requests.log"
    log.write_bytes(b"")
    reader = Reader(log)
    assert reader.read() == []
    written, seen = b"", 0
    for line in KEPT[:12]:
        for piece in (line[:40], line[40:-1]):
            written += piece
            log.write_bytes(written)
            assert reader.read() == []
        written += b"\n"
        log.write_bytes(written)
        seen += len(reader.read())
    assert seen == 12


@pytest.mark.parametrize("rotated", ["renamed", "packed", "copied"])
def test_a_rotation_at_any_moment_neither_loses_nor_repeats_a_line(
    tmp_path: Path, rotated: str, expected: list[tuple[Any, ...]]
) -> None:
    """Also between the planning of a batch and its reading, and while the reader was down."""
    log, rng = tmp_path / "requests.log", random.Random(rotated)
    log.write_bytes(LINES[0])
    reader = Reader(log)
    request_rows = reader.read()
    left, count = LINES[1:], 0

    def rotate() -> None:
        nonlocal count
        count += 1
        if rotated == "packed":
            (tmp_path / f"requests.log.{count}.gz").write_bytes(gzip.compress(log.read_bytes(), 1))
            log.unlink()
        elif rotated == "renamed":
            log.rename(tmp_path / f"requests.log.{count}")
        else:
            copy(log, tmp_path / f"requests.log.{count}")
            log.write_bytes(b"")

    while left:
        take = rng.randrange(50, 400)
        with log.open("ab") as file:
            file.writelines(left[:take])
        left = left[take:]
        chance = rng.random()
        if chance < 0.3:
            request_rows += reader.read(rotate)
        elif chance < 0.6:
            rotate()
            request_rows += reader.read()
        else:
            request_rows += reader.read()
        reader.restart() if log.exists() else None
    request_rows += reader.read()
    assert count > 2
    assert sorted(contents(request_rows)) == sorted(expected)


def test_a_copy_of_a_log_beside_it_is_the_same_log(tmp_path: Path, expected: list[tuple[Any, ...]]) -> None:
    log = tmp_path / "requests.log"
    log.write_bytes(b"".join(LINES))
    (tmp_path / "requests.log.gz").write_bytes(gzip.compress(b"".join(LINES[:1000]), 1))
    assert contents(batch(tmp_path / "*.log*")) == expected
    log.unlink()
    assert len(batch(tmp_path / "*.log*")) < len(expected)


def test_logs_of_several_controllers_are_read_oldest_first(tmp_path: Path) -> None:
    (tmp_path / "b.log").write_bytes(b"".join(LINES[:900]))
    (tmp_path / "a.log").write_bytes(b"".join(LINES[900:]))
    reader = Reader(tmp_path / "a.log", tmp_path / "b.log", most=200_000)
    times = [row["answered_time"] for row in reader.read_all()]
    assert times == sorted(times)


def test_no_secret_of_a_damaged_log_is_in_any_row(tmp_path: Path) -> None:
    """Whole, cut anywhere, run together with the line before or after, changed at any place, with another name."""
    credential = next(line for line in LINES if b"ALTER_USER_SCRAM" in line)
    assert SECRET in credential
    token = credential.replace(b'"requestApiKey":51', b'"requestApiKey":38').replace(
        b"ALTER_USER_SCRAM_CREDENTIALS", b"X"
    )
    beat, assignment = (
        next(line for line in LINES if name in line) for name in (b"BROKER_HEARTBEAT", b"ASSIGN_REPLICAS")
    )
    rng = random.Random(1)
    damaged = [credential, token]
    for secret in (credential, token):
        for other in (beat, assignment):
            for _ in range(40):
                cut, at = rng.randrange(len(other)), rng.randrange(len(secret))
                damaged += [other[:cut] + secret, other[:cut].rstrip(b"\n") + secret[at:], secret[:at] + other[cut:]]
                damaged.append(secret[:at] + bytes([rng.randrange(256)]) + secret[at + 1 :])
    body = json.loads(assignment[assignment.index(b"{") : assignment.rindex(b"}") + 1])
    secret_body = json.loads(credential[credential.index(b"{") : credential.rindex(b"}") + 1])
    for mixed in (
        body | {"request": secret_body["request"]},
        body | {"request": body["request"] | secret_body["request"]},
    ):
        damaged.append(b"[2026-11-21 02:23:39,344] DEBUG Completed request:" + json.dumps(mixed).encode())
    log = tmp_path / "requests.log"
    log.write_bytes(b"".join(line if line.endswith(b"\n") else line + b"\n" for line in damaged))
    for layout in ("requests", "rejects", "parts"):
        layout_rows = batch(log, layout=layout)
        text = repr(layout_rows).encode()
        if layout == "parts":
            tables = [pa.ipc.open_stream(row["payload"]).read_all() for row in layout_rows]
            text = b"".join(repr(table.to_pylist()).encode() for table in tables)
        assert layout_rows
        for secret in (SECRET, b"NGVwYThwcTlkdmFk", b"alice"):
            assert secret not in text


def test_what_cannot_be_read_is_counted_with_its_place_and_the_rest_is_read(tmp_path: Path) -> None:
    beat = next(line for line in LINES if b"BROKER_HEARTBEAT" in line)
    newer = beat.replace(b'"requestApiVersion":1', b'"requestApiVersion":9')
    unknown = beat.replace(b'"requestApiKey":63', b'"requestApiKey":999')
    parts = [b"\xff\xfe\n", beat, b"java.lang.Exception\n", b"\tat x\n", beat[:200] + b"\n", newer, unknown, beat]
    parts += [b"x" * (LONGEST_LINE + 1) + b"\n", beat, b"no newline"]
    log = tmp_path / "requests.log"
    log.write_bytes(b"".join(parts))
    assert len(batch(log)) == 3
    rejects = {(row["reason"], row["api"]): row for row in batch(log, layout="rejects")}
    assert {kind: (row["lines"], row["position"]) for kind, row in rejects.items()} == {
        ("not UTF-8", None): (1, 0),
        ("no completed request", None): (2, len(b"".join(parts[:2]))),
        ("not JSON, or cut off", "BROKER_HEARTBEAT"): (1, len(b"".join(parts[:4]))),
        ("BROKER_HEARTBEAT: a version newer than 2", "BROKER_HEARTBEAT"): (1, len(b"".join(parts[:5]))),
        ("an API that Kafka 4.4 does not have", None): (1, len(b"".join(parts[:6]))),
        (f"the line is longer than {LONGEST_LINE} bytes", None): (1, len(b"".join(parts[:8]))),
    }


@pytest.mark.parametrize(
    ("damage", "reason"), [("cut", "the packed file is cut off"), ("broken", "the packed file is damaged")]
)
def test_a_damaged_packed_log_is_read_as_far_as_it_goes_and_said(tmp_path: Path, damage: str, reason: str) -> None:
    noise = random.Random(2)
    text = b"".join(line[:-1] + b"%d\n" % noise.getrandbits(4000) for line in KEPT)
    packed = bytearray(gzip.compress(text, 1))
    half = len(packed) // 2
    packed = packed[:half] if damage == "cut" else packed[:half] + b"\xff" * 64 + packed[half + 64 :]
    log = tmp_path / "requests.log.gz"
    log.write_bytes(packed)
    request_rows = batch(log)
    assert len(KEPT) // 4 < len(request_rows) < len(KEPT)
    assert reason in [row["reason"] for row in batch(log, layout="rejects")]
    reader = Reader(log, most=50_000)
    assert contents(reader.read_all()) == contents(request_rows)


def test_a_packed_bomb_takes_little_memory_and_is_one_long_line(tmp_path: Path) -> None:
    log = tmp_path / "requests.log.gz"
    log.write_bytes(gzip.compress(LINES[0] + bytes(64 << 20) + b"\n" + KEPT[-1], 9))
    assert log.stat().st_size < 100_000
    assert len(batch(log)) == 1
    assert [row["lines"] for row in batch(log, layout="rejects")] == [1]


def test_a_line_without_end_is_waited_for_and_looked_at_once(tmp_path: Path) -> None:
    log = tmp_path / "requests.log"
    log.write_bytes(KEPT[0] + b"x" * (8 << 20))
    reader = Reader(log)
    assert len(reader.read()) == 1
    for _ in range(3):
        with log.open("ab") as file:
            file.write(b"x" * 1000)
        assert reader.read() == []
    end, searched = reader.stream._files._whole[reader.offset["files"][0][0]]
    assert (end, searched) == (len(KEPT[0]), log.stat().st_size)
    with log.open("ab") as file:
        file.write(b"\n" + KEPT[1])
    assert len(reader.read()) == 1


def test_a_log_that_went_away_before_it_was_read_is_said(tmp_path: Path) -> None:
    log = tmp_path / "requests.log"
    log.write_bytes(b"".join(LINES[:50]))
    reader = Reader(log, layout="rejects")
    (row,) = reader.read(log.unlink)
    assert (row["reason"], row["bytes"]) == ("the file went away before it was read", len(b"".join(LINES[:50])))


def test_a_log_is_known_by_its_first_request_also_after_other_lines(tmp_path: Path) -> None:
    for name, line in (("a", KEPT[0]), ("b", KEPT[1])):
        (tmp_path / name).write_bytes(b"# a banner\n" + line)
    assert len({log.file_id for log in RequestFiles([str(tmp_path / "*")]).scan({})}) == 2
    (tmp_path / "junk").write_bytes(b"y" * (HEAD + 1))
    (tmp_path / "begun").write_bytes(KEPT[2][:100])
    assert len(RequestFiles([str(tmp_path / "*")]).scan({})) == 3


@pytest.mark.parametrize(
    ("path", "problem"), [("absent.log", "no such file"), ("*.txt", "matches no file"), (".", "is a directory")]
)
def test_a_path_that_means_no_log_is_refused_by_name(tmp_path: Path, path: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        RequestFiles([str(tmp_path / path)]).check()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "no path"),
        ({"paths": "no json"}, "no JSON list"),
        ({"path": "a", "layout": "x"}, "option layout is 'x'"),
        ({"path": "a", "maxBytes": "x"}, "option maxBytes is 'x'"),
        ({"path": "a", "timeZone": "Mars/Phobos"}, "no such time zone"),
        ({"path": "a", "timeZone": "../../etc/passwd"}, "no such time zone"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        RequestOptions.read(options)
